//! A program that is run once for several devices leaves, on each, the trace that it leaves when it is run there alone.

use serde_json::{Value, json};
use tonnage_core::estimate::SimulatedJob;
use tonnage_core::gpu::{Device, Gpu, catalog};
use tonnage_core::job::{JobSource, JobSpec, from_case};
use tonnage_core::plan::fit::{verdict_on, verdicts_on};

fn small_llama() -> Value {
    json!({"family": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32000})
}

/// Training, generation, ranks, sums over many rows, and every kernel of attention.
fn cases() -> Vec<Value> {
    let gpt2 = json!({"family": "gpt2", "n_layer": 2});
    vec![
        json!({"micro_batch": 4, "seq_len": 512, "model": gpt2.clone(), "precision": "amp_bf16"}),
        json!({"micro_batch": 12, "seq_len": 512, "model": small_llama(), "precision": "bf16", "grad_accum": 3}),
        json!({"micro_batch": 2, "seq_len": 300, "model": small_llama(), "precision": "fp32", "attn": "eager"}),
        json!({"micro_batch": 4, "seq_len": 256, "model": small_llama(), "precision": "amp_fp16",
            "gradient_checkpointing": true}),
        json!({"kind": "trl_grpo", "batch": 8, "num_generations": 4, "prompt_len": 32, "completion_len": 24,
            "model": small_llama(), "precision": "bf16"}),
        json!({"kind": "swarm_node", "questions": 2, "model": gpt2}),
    ]
}

fn devices() -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for gpu in catalog().iter().map(|row| row.gpu()) {
        if gpus.iter().all(|other| other.device() != gpu.device()) {
            gpus.push(gpu);
        }
    }
    gpus
}

fn on(job: &JobSpec, gpu: &Gpu) -> JobSpec {
    JobSpec { gpu: gpu.clone(), ..job.clone() }
}

#[test]
fn a_moved_simulation_is_the_one_that_is_made_there() {
    let gpus = devices();
    assert!(gpus.len() > 10);
    let mut moved = 0;
    for case in cases() {
        let job = from_case(&case).unwrap();
        let jobs: Vec<JobSpec> = gpus.iter().map(|gpu| on(&job, gpu)).collect();
        // Each kind of device in turn is the one that is simulated: programs are of few kinds.
        for first in [0, gpus.len() / 2, gpus.len() - 1] {
            let devices: Vec<Device> = gpus.iter().map(Gpu::device).collect();
            let mut simulated = SimulatedJob::with_other_devices(&jobs[first], &devices, 1).unwrap();
            for (at, job) in jobs.iter().enumerate() {
                let alone = SimulatedJob::new(job).unwrap();
                if !simulated.runs_on(at) {
                    assert_ne!(at, first);
                    continue;
                }
                simulated = simulated.moved(at, job);
                let requests = |simulated: &SimulatedJob<'_>| {
                    let trace = simulated.trace();
                    trace.allocations.iter().map(|one| (one.bytes, trace.origin(one), one.stream)).collect::<Vec<_>>()
                };
                assert_eq!(simulated.trace().events, alone.trace().events, "{case} on {}", job.gpu.id);
                assert_eq!(requests(&simulated), requests(&alone), "{case} on {}", job.gpu.id);
                assert_eq!(simulated.replay_peaks(), alone.replay_peaks(), "{case} on {}", job.gpu.id);
                assert_eq!(simulated.estimate(), alone.estimate(), "{case} on {}", job.gpu.id);
                moved += usize::from(at != first);
            }
        }
    }
    assert!(moved > 100, "{moved} simulations were shared");
}

#[test]
fn all_gpus_of_the_catalog_together_are_judged_as_each_alone() {
    let gpus: Vec<Gpu> = catalog().iter().map(|row| row.gpu()).collect();
    for case in cases() {
        let job = from_case(&case).unwrap();
        for (gpu, together) in gpus.iter().zip(verdicts_on(&job, &gpus)) {
            assert_eq!(together, verdict_on(&job, gpu), "{case} on {}", gpu.id);
        }
    }
}

#[test]
fn padded_rows_are_simulated_once_for_all_that_run_the_same() {
    let source = JobSource::model("gpt2").set("model.n_layer", 2).set("framework", "trainer");
    let job = source.set("micro_batch_size", 4).set("seq_len", 256).resolve(&[]).unwrap().job;
    assert_eq!(job.padded, None);
    let gpus = devices();
    for (gpu, together) in gpus.iter().zip(verdicts_on(&job, &gpus)) {
        let alone = SimulatedJob::new(&on(&job, gpu)).unwrap().estimate().unwrap();
        assert_eq!(together, verdict_on(&job, gpu), "on {}", gpu.id);
        assert_eq!(together.unwrap().safe_bytes, alone.safe_bytes, "on {}", gpu.id);
        assert!(alone.caveats.iter().any(|caveat| caveat.code == "padded_rows"), "on {}", gpu.id);
    }
}
