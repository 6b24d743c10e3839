//! How long an estimate takes: simulation, replay and breakdown, for jobs from small to large, and per event.
//!
//! First a table of the best run of each, in microseconds and in nanoseconds per event (the bar is 100 for simulation
//! and replay together; two batch sizes cost the same), then criterion's own figures. With the command line's
//! allocator.
//!
//! `cargo bench -p tonnage-core --bench estimate`

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use tonnage_core::estimate::{SimulatedJob, estimate};
use tonnage_core::job::{JobSpec, from_case};
use tonnage_core::step::simulate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many runs the table takes the best of; of those that take seconds a few.
const RUNS: usize = 200;
const LONG_RUNS: usize = 3;

fn job(case: &serde_json::Value) -> JobSpec {
    match from_case(case) {
        Ok(job) => job,
        Err(error) => panic!("{error}"),
    }
}

/// The jobs of the speed bars: GPT-2 124M, a 7B model with checkpointing, and two that generate 256 tokens: GRPO with a
/// judge of 14B beside a policy of 7B, and a node of a swarm, eight times.
fn jobs() -> Vec<(&'static str, JobSpec)> {
    let gpt2 = json!({"family": "gpt2"});
    let qwen_7b = json!({
        "family": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    });
    let gpt2_at = |batch: u64| json!({"model": gpt2, "micro_batch": batch, "seq_len": 1024, "precision": "bf16"});
    let qwen_at = |batch: u64| {
        json!({
            "model": qwen_7b, "micro_batch": batch, "seq_len": 4096, "precision": "bf16",
            "gradient_checkpointing": true, "optimizer": "adamw_fused",
        })
    };
    let qwen_14b = json!({
        "family": "qwen2", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 152064,
    });
    let grpo = json!({
        "kind": "trl_grpo", "model": qwen_7b, "batch": 8, "completion_len": 256, "precision": "bf16",
        "judge": {"model": qwen_14b, "new_tokens": 256},
    });
    let swarm = json!({"kind": "swarm_node", "model": gpt2, "questions": 8});
    vec![
        ("grpo-7b-judge-14b", job(&grpo)),
        ("swarm-gpt2", job(&swarm)),
        ("gpt2", job(&gpt2_at(8))),
        ("gpt2-batch-64", job(&gpt2_at(64))),
        ("qwen2.5-7b-checkpointed", job(&qwen_at(1))),
        ("qwen2.5-7b-batch-8", job(&qwen_at(8))),
    ]
}

/// GRPO of a 7B model with long completions, in half precision and under autocast, whose casts are requests of their own.
fn long_jobs() -> Vec<(String, JobSpec)> {
    let qwen_7b = json!({
        "family": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    });
    let long = |(precision, tokens): (&str, u64)| {
        let case = json!({
            "kind": "trl_grpo", "model": qwen_7b, "batch": 8, "completion_len": tokens, "precision": precision,
            "gradient_checkpointing": true,
        });
        (format!("grpo-7b-{precision}-{tokens}"), job(&case))
    };
    [("bf16", 3072), ("amp_bf16", 3072), ("bf16", 32768), ("amp_bf16", 32768)].map(long).to_vec()
}

/// The best of many runs: the one that other programs on the machine disturbed least.
fn best<T>(runs: usize, run: impl Fn() -> T) -> Duration {
    let timed = |_| {
        let begin = Instant::now();
        black_box(run());
        begin.elapsed()
    };
    (0..runs).map(timed).min().unwrap_or_default()
}

fn print_table() {
    println!("{:<26}{:>8}  simulate / simulate+replay / whole estimate", "job", "events");
    jobs().iter().for_each(|(name, job)| print_row(name, job, RUNS));
    long_jobs().iter().for_each(|(name, job)| print_row(name, job, LONG_RUNS));
}

fn print_row(name: &str, job: &JobSpec, runs: usize) {
    let events = simulate(job).map_or(0, |simulation| simulation.trace.events.len());
    let times = [
        best(runs, || simulate(black_box(job)).map(|simulation| simulation.trace.events.len())),
        best(runs, || SimulatedJob::new(black_box(job)).and_then(|simulated| simulated.replay_peaks()).map(drop)),
        best(runs, || estimate(black_box(job)).map(drop)),
    ];
    let per_event = times.map(|time| time.as_nanos() / events.max(1) as u128);
    println!("{name:<26}{events:>8}  {:?} us, {per_event:?} ns an event", times.map(|time| time.as_micros()));
}

fn benches(criterion: &mut Criterion) {
    print_table();
    let mut group = criterion.benchmark_group("estimate");
    for (name, job) in jobs() {
        let events = simulate(&job).map_or(0, |simulation| simulation.trace.events.len());
        group.throughput(Throughput::Elements(events as u64));
        group.bench_function(BenchmarkId::new("simulate", name), |bencher| {
            bencher.iter(|| simulate(black_box(&job)).map(|simulation| simulation.trace.events.len()));
        });
        group.bench_function(BenchmarkId::new("simulate+replay", name), |bencher| {
            bencher.iter(|| SimulatedJob::new(black_box(&job)).and_then(|simulated| simulated.replay_peaks()));
        });
        group.bench_function(BenchmarkId::new("whole", name), |bencher| {
            bencher.iter(|| estimate(black_box(&job)));
        });
    }
    group.finish();
}

criterion_group!(estimates, benches);
criterion_main!(estimates);
