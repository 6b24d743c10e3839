//! Properties of sharded training: what a rank keeps goes down as ranks join, and one rank keeps what a bare model does.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use tonnage_core::estimate::estimate;
use tonnage_core::job::{JobSpec, from_case};
use tonnage_core::step::{Simulation, simulate};
use tonnage_core::trace::{Category, Event, PhaseKind};

const FAMILIES: [&str; 8] = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text"];

/// Small models of odd sizes.
fn models() -> impl Strategy<Value = Value> {
    let sizes = (1..4_u64, prop::sample::select(vec![1, 3, 4_u64]), prop::sample::select(vec![8, 20, 64_u64]));
    (prop::sample::select(&FAMILIES[..]), sizes, 90..700_u64, any::<bool>()).prop_map(
        |(family, (layers, heads, head_dim), vocabulary, tied)| {
            let hidden = heads * head_dim;
            match family {
                "gpt2" => json!({"family": family, "n_layer": layers, "n_head": heads, "n_embd": hidden,
                    "vocab_size": vocabulary, "n_positions": 64, "tie_word_embeddings": tied}),
                _ => json!({"family": family, "num_hidden_layers": layers, "num_attention_heads": heads,
                    "num_key_value_heads": heads, "hidden_size": hidden, "head_dim": head_dim,
                    "intermediate_size": 3 * hidden, "vocab_size": vocabulary, "tie_word_embeddings": tied,
                    "sliding_window": 16, "max_position_embeddings": 64, "pad_token_id": 0}),
            }
        },
    )
}

/// Jobs without a strategy.
fn jobs() -> impl Strategy<Value = Value> {
    let precision = prop::sample::select(vec!["fp32", "bf16", "amp_bf16"]);
    let optimizer = prop::sample::select(vec!["adamw", "adamw_fused", "sgd"]);
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (models(), precision, optimizer, 1..4_u64, switches).prop_map(
        |(model, precision, optimizer, passes, (checkpoints, reshards, root_only, full, clips))| {
            json!({
                "id": "job", "kind": "parallel", "model": model, "micro_batch": 1, "seq_len": 40, "steps": 2,
                "precision": precision, "optimizer": optimizer, "grad_accum": passes,
                "gradient_checkpointing": checkpoints, "reshard_after_forward": reshards,
                "shard_root_only": root_only, "init": if full { "full" } else { "meta" },
                "clip_grad_norm": if clips { json!(1.0) } else { Value::Null },
            })
        },
    )
}

fn with(job: &Value, strategy: &str, world: u64, rank: u64) -> JobSpec {
    let mut job = job.clone();
    job["strategy"] = json!(strategy);
    job["world"] = json!(world);
    job["rank"] = json!(rank);
    from_case(&job).unwrap()
}

fn run(job: &Value, strategy: &str, world: u64, rank: u64) -> Simulation {
    simulate(&with(job, strategy, world, rank)).unwrap()
}

/// Bytes by category that are alive when the job ends, after gradients have gone.
fn kept(simulation: &Simulation) -> BTreeMap<Category, u64> {
    let trace = &simulation.trace;
    let mut alive = BTreeMap::new();
    for event in &trace.events {
        match *event {
            Event::Phase(phase) if trace.phases[phase as usize].kind == PhaseKind::End => break,
            Event::Alloc(id) => {
                let allocation = &trace.allocations[id as usize];
                *alive.entry(allocation.category).or_insert(0) += allocation.bytes;
            }
            Event::Free(id) => {
                let allocation = &trace.allocations[id as usize];
                *alive.entry(allocation.category).or_insert(0) -= allocation.bytes;
            }
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
        }
    }
    alive.retain(|_, bytes| *bytes > 0);
    alive
}

fn of(kept: &BTreeMap<Category, u64>, category: Category) -> u64 {
    kept.get(&category).copied().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rank_keeps_less_as_ranks_join(job in jobs(), world in 1..12_u64, more in 1..30_u64) {
        let (few, many) = (kept(&run(&job, "fsdp2", world, 0)), kept(&run(&job, "fsdp2", world + more, 0)));
        for category in [Category::Parameter, Category::OptimizerState] {
            prop_assert!(of(&many, category) <= of(&few, category));
        }
        prop_assert!(of(&many, Category::Parameter) < of(&kept(&run(&job, "fsdp2", 1, 0)), Category::Parameter));
    }

    #[test]
    fn ranks_together_keep_the_whole_model(job in jobs(), world in 2..9_u64) {
        let whole = of(&kept(&run(&job, "single", 1, 0)), Category::Parameter);
        let shards = (0..world).map(|rank| of(&kept(&run(&job, "fsdp2", world, rank)), Category::Parameter));
        // Every shard is padded to the first one's size.
        let together: u64 = shards.sum();
        prop_assert!(together >= whole);
        prop_assert_eq!(together, world * of(&kept(&run(&job, "fsdp2", world, 0)), Category::Parameter));
    }

    #[test]
    fn one_rank_keeps_what_a_bare_model_does(job in jobs()) {
        let (bare, alone) = (kept(&run(&job, "single", 1, 0)), kept(&run(&job, "fsdp2", 1, 0)));
        for category in [Category::Parameter, Category::OptimizerState, Category::Buffer] {
            prop_assert_eq!(of(&alone, category), of(&bare, category), "{}", category.name());
        }
    }

    #[test]
    fn nothing_gathered_outlives_its_pass(job in jobs(), world in 1..9_u64) {
        let kept = kept(&run(&job, "fsdp2", world, world - 1));
        prop_assert_eq!(of(&kept, Category::Communication), 0);
        prop_assert_eq!(of(&kept, Category::Gradient), 0);
    }
}

/// What the real allocator had reserved for each stream.
#[test]
fn side_streams_reserve_what_they_did() {
    let read = |name: &str| -> Value {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/truth/");
        serde_json::from_str(&std::fs::read_to_string(format!("{folder}{name}.json")).unwrap()).unwrap()
    };
    let (cases, truth) = (read("fsdp_mixed_cases"), read("fsdp_mixed_truth"));
    for case in cases.as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let estimate = estimate(&from_case(case).unwrap()).unwrap();
        assert_eq!(json!(estimate.reserved_by_stream), truth["cases"][id]["reserved_by_stream"], "{id}");
        for peak in &estimate.peak_per_phase {
            assert_eq!(json!(peak.allocated), truth["cases"][id]["peak_per_phase"][peak.phase.label()], "{id}");
        }
    }
}
