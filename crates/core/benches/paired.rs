//! One job, one question, so many times: what `testdata/speed/paired.py` runs of two builds in turn.
//!
//! `paired JOB QUESTION RUNS` prints the nanoseconds of the best run, and the most memory that the process held beside its own
//! file, in KiB (Linux).

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use tonnage_core::estimate::{SimulatedJob, estimate};
use tonnage_core::gpu::{CatalogGpu, Gpu, catalog};
use tonnage_core::job::{JobSource, JobSpec, from_case};
use tonnage_core::plan::fit::verdicts_on;
use tonnage_core::plan::proposal::consider_remedies;
use tonnage_core::step::simulate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A number behind a job's name is of its passes, or of its layers: `gpt2-passes-1000`.
fn number_in(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

fn case(name: &str) -> Value {
    let tiny = |layers: u64| json!({"family": "gpt2", "n_layer": layers, "n_embd": 64, "n_head": 2, "vocab_size": 512});
    let qwen_7b = json!({
        "family": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    });
    match name {
        "gpt2" => json!({"model": {"family": "gpt2"}, "micro_batch": 8, "seq_len": 1024, "precision": "bf16"}),
        "7b" => json!({
            "model": qwen_7b, "micro_batch": 1, "seq_len": 4096, "precision": "bf16", "gradient_checkpointing": true,
            "optimizer": "adamw_fused",
        }),
        "grpo" => json!({"kind": "trl_grpo", "model": qwen_7b, "batch": 8, "completion_len": 256, "precision": "bf16"}),
        "long" => json!({
            "kind": "trl_grpo", "model": qwen_7b, "batch": 8, "completion_len": 32768, "precision": "bf16",
            "gradient_checkpointing": true,
        }),
        "7b-generates" => json!({
            "task": "generate", "model": qwen_7b, "micro_batch": 1, "max_new_tokens": 1024, "precision": "bf16",
        }),
        "grpo-judge" => json!({
            "kind": "trl_grpo", "model": qwen_7b, "batch": 8, "completion_len": 256, "precision": "bf16",
            "judge": {"model": qwen_7b, "new_tokens": 256},
        }),
        "swarm" => json!({"kind": "swarm_node", "model": {"family": "gpt2"}}),
        name if name.starts_with("gpt2-passes-") => {
            json!({"model": tiny(2), "micro_batch": 1, "seq_len": 64, "grad_accum": number_in(name), "steps": 3})
        }
        name if name.starts_with("7b-passes-") => json!({
            "model": qwen_7b, "micro_batch": 1, "seq_len": 2048, "precision": "bf16", "grad_accum": number_in(name), "steps": 3,
        }),
        name if name.starts_with("layers-") => {
            json!({"model": tiny(number_in(name)), "micro_batch": 1, "seq_len": 64, "grad_accum": 8, "steps": 4})
        }
        name if name.starts_with("layers_generate-") => {
            json!({"task": "generate", "model": tiny(number_in(name)), "seq_len": 16, "max_new_tokens": 256})
        }
        _ => panic!("no such job: {name}"),
    }
}

fn job(name: &str) -> JobSpec {
    from_case(&case(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What `tonnage plan` asks: the job again, with each remedy.
fn plan(name: &str) -> usize {
    let source = match name {
        "gpt2" => JobSource::model("gpt2"),
        _ => JobSource::model("qwen2.5-7b").set("gradient_accumulation_steps", "16").set("micro_batch_size", "1"),
    };
    let source = source.set("gpu", "h100");
    let resolved = source.resolve(&[]).unwrap_or_else(|error| panic!("{error}"));
    consider_remedies(&resolved.job, &source).map_or(0, |proposals| proposals.alone.len())
}

fn ask(name: &str, question: &str, job: &JobSpec, simulated: &SimulatedJob<'_>) -> usize {
    match question {
        "simulate" => simulate(job).map_or(0, |simulation| simulation.trace.events.len()),
        "replay" => usize::from(simulated.run_within(black_box(1 << 43)).is_ok()),
        "estimate" => usize::from(estimate(job).is_ok()),
        "fit" => {
            let gpus: Vec<Gpu> = catalog().iter().map(CatalogGpu::gpu).collect();
            verdicts_on(job, &gpus).len()
        }
        "plan" => plan(name),
        _ => panic!("no such question: {question}"),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [name, question, runs] = &words[..] else {
        println!("paired JOB QUESTION RUNS; testdata/speed/paired.py runs it");
        return;
    };
    let job = job(name);
    let simulated = SimulatedJob::new(&job).unwrap_or_else(|error| panic!("{error}"));
    let timed = |_| {
        let begin = Instant::now();
        black_box(ask(name, question, black_box(&job), &simulated));
        begin.elapsed()
    };
    let runs: u32 = runs.parse().unwrap_or(1);
    let best = (0..runs).map(timed).min().unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
    };
    println!("{} {}", best.as_nanos(), kib("VmHWM:").saturating_sub(kib("RssFile:")));
}
