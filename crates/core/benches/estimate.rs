//! How long an estimate takes: simulation, replay and breakdown, for jobs from small to large, and per event.
//!
//! `cargo bench -p tonnage-core --bench estimate`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use tonnage_core::estimate::{SimulatedJob, estimate};
use tonnage_core::spec::{JobSpec, from_case};
use tonnage_core::step::simulate;

fn job(case: &serde_json::Value) -> JobSpec {
    match from_case(case) {
        Ok(job) => job,
        Err(error) => panic!("{error}"),
    }
}

/// The jobs of the speed bars: GPT-2 124M, and a 7B model with checkpointing.
fn jobs() -> Vec<(&'static str, JobSpec)> {
    let gpt2 = json!({"family": "gpt2"});
    let qwen_7b = json!({
        "family": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    });
    vec![
        ("gpt2", job(&json!({"model": gpt2, "micro_batch": 8, "seq_len": 1024, "precision": "bf16"}))),
        ("gpt2-batch-64", job(&json!({"model": gpt2, "micro_batch": 64, "seq_len": 1024, "precision": "bf16"}))),
        (
            "qwen2.5-7b-checkpointed",
            job(&json!({
                "model": qwen_7b, "micro_batch": 1, "seq_len": 4096, "precision": "bf16",
                "gradient_checkpointing": true, "optimizer": "adamw_fused",
            })),
        ),
    ]
}

fn benches(criterion: &mut Criterion) {
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
