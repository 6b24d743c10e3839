//! A vLLM engine in the trainer's process: its share of the GPU, and what it asks of the trainer.

use serde_json::{Value, json};
use tonnage_core::estimate::{Estimate, SimulatedJob, Verdict, estimate};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{self, JobSpec, Rollout, Task};
use tonnage_core::step::simulate;
use tonnage_core::trace::{Allocation, Category, Event, PhaseKind};

/// A job whose training reserves several GiB more than generating: a vocabulary of 150000 in full logits.
fn job(rollout: Rollout, more: &[(&str, Value)]) -> JobSpec {
    let model = json!({"family": "llama", "vocab_size": 150_000, "hidden_size": 512, "intermediate_size": 1024,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4});
    let mut case = json!({"id": "engine", "kind": "trl_grpo", "model": model, "prompt_len": 64, "completion_len": 512,
        "batch": 8, "num_generations": 8});
    for (key, value) in more {
        case[key] = value.clone();
    }
    let mut job = job::from_case(&case).unwrap();
    let Task::Grpo(grpo) = &mut job.task else { panic!("a GRPO case") };
    grpo.rollout = rollout;
    grpo.log_probs = job::LogProbs::FullLogits;
    job
}

const fn vllm(gpu_memory_utilization: f64, sleep_mode: bool) -> Rollout {
    Rollout::Vllm { gpu_memory_utilization, sleep_mode }
}

fn reserved(estimate: &Estimate, kind: PhaseKind) -> u64 {
    let phases = estimate.peak_per_phase.iter().filter(|peak| peak.phase.kind == kind);
    phases.map(|peak| peak.reserved).max().unwrap()
}

#[test]
fn an_engine_adds_its_share_to_what_is_reserved() {
    let job = job(vllm(0.3, false), &[]);
    let estimate = estimate(&job).unwrap();
    let share = (job.gpu.usable_bytes as f64 * 0.3) as u64;
    assert_eq!(estimate.total_bytes, estimate.peak_reserved_bytes + share + estimate.outside.high);
    assert_eq!((estimate.engine_bytes(), estimate.reserved_at_total()), (Some(share), estimate.peak_reserved_bytes));
    assert!(estimate.caveats.iter().any(|caveat| caveat.code == "vllm_assumed"));
    assert_eq!(estimate.range.1, estimate.total_bytes + (1 << 30));
}

#[test]
fn sleep_lowers_the_total_where_training_binds() {
    let [awake, asleep] = [false, true].map(|sleep_mode| estimate(&job(vllm(0.3, sleep_mode), &[])).unwrap());
    assert!(asleep.total_bytes < awake.total_bytes, "{} {}", asleep.total_bytes, awake.total_bytes);
    let share = asleep.engine.as_ref().unwrap().awake_bytes;
    let together = [PhaseKind::Load, PhaseKind::Generate].map(|kind| reserved(&asleep, kind) + share);
    let held = together.into_iter().max().unwrap().max(asleep.peak_reserved_bytes);
    assert_eq!(asleep.total_bytes, held + asleep.outside.high);
    assert_eq!(asleep.reserved_at_total() + asleep.engine_bytes().unwrap(), held);
}

#[test]
fn the_cache_is_emptied_before_an_engine_wakes() {
    let asleep = estimate(&job(vllm(0.3, true), &[("steps", json!(2))])).unwrap();
    let second = |kind| asleep.peak_per_phase.iter().find(|peak| peak.phase.kind == kind && peak.phase.step == 2);
    let [generate, backward] = [PhaseKind::Generate, PhaseKind::Backward].map(|kind| second(kind).unwrap().reserved);
    assert!(generate < backward / 2, "{generate} {backward}");
}

#[test]
fn an_engine_that_cannot_wake_does_not_fit() {
    let mut job = job(vllm(0.97, true), &[]);
    job.gpu = Gpu::parse("a100-80").unwrap();
    let Verdict::DoesNotFit(Some(moment)) = estimate(&job).unwrap().verdict else { panic!("it fits") };
    assert_eq!((moment.op, moment.requested), ("vllm.wake_up", (job.gpu.usable_bytes as f64 * 0.97) as u64));
}

#[test]
fn a_share_without_room_for_the_weights_is_refused_with_the_arithmetic() {
    for (share, word) in [(0.001, "its copy of the policy"), (1.0, "leaves")] {
        let job = job(vllm(share, false), &[]);
        let problem = SimulatedJob::new(&job).unwrap().estimate().unwrap_err().to_string();
        assert!(problem.contains(word) && problem.contains("GiB"), "{problem}");
    }
}

#[test]
fn merged_adapters_make_each_layer_s_update_twice() {
    let lora = [("lora", json!({"r": 8, "alpha": 16, "targets": ["q_proj"]})), ("steps", json!(2))];
    let trace = simulate(&job(vllm(0.3, false), &lora)).unwrap().trace;
    let is_generating = |phase: u32| trace.phases[phase as usize].kind == PhaseKind::Generate;
    let is_update = |allocation: &&Allocation| {
        let is_workspace = allocation.category == Category::Workspace;
        is_generating(allocation.phase) && trace.origin(allocation).op == "mm.default" && !is_workspace
    };
    let updates = trace.allocations.iter().filter(is_update);
    // Two layers, merged and unmerged, in two steps.
    assert_eq!(updates.map(|allocation| allocation.bytes).collect::<Vec<_>>(), [512 * 512 * 4; 8]);
    let whole = simulate(&job(vllm(0.3, false), &[])).unwrap().trace;
    let is_empty = |event: &Event| *event == Event::EmptyCache;
    assert_eq!(whole.events.iter().filter(|event| is_empty(event)).count(), 1);
}
