//! One job, one question, so many times: what `testdata/speed/paired.py` runs of two builds in turn.
//!
//! `paired JOB QUESTION RUNS` prints the nanoseconds of the best run, and the most memory that the process held beside its own
//! file, in KiB (Linux).

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use tonnage_core::estimate::{SimulatedJob, estimate};
use tonnage_core::job::{JobSpec, from_case};
use tonnage_core::step::simulate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn case(name: &str) -> Value {
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
        _ => panic!("no such job: {name}"),
    }
}

fn job(name: &str) -> JobSpec {
    from_case(&case(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(question: &str, job: &JobSpec, simulated: &SimulatedJob<'_>) -> usize {
    match question {
        "simulate" => simulate(job).map_or(0, |simulation| simulation.trace.events.len()),
        "replay" => usize::from(simulated.run_within(black_box(1 << 43)).is_ok()),
        "estimate" => usize::from(estimate(job).is_ok()),
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
        black_box(ask(question, black_box(&job), &simulated));
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
