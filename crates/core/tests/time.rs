//! Work that is left out of long jobs counts all the same; time estimates against published measurements.

use serde_json::{Value, json};
use tonnage_core::gpu;
use tonnage_core::job;
use tonnage_core::plan::time::{Range, Speed, cost_factor};
use tonnage_core::step::{Simulation, simulate};
use tonnage_core::trace::PhaseKind;
use tonnage_core::work::{Amount, Work};

fn simulated(case: &Value) -> Simulation {
    simulate(&job::from_case(case).unwrap()).unwrap_or_else(|error| panic!("{case}: {error}"))
}

fn with(mut case: Value, changes: &Value) -> Value {
    case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    case
}

fn tiny(changes: &Value) -> Work {
    let model = json!({"family": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 50});
    let case = json!({"model": model, "micro_batch": 2, "seq_len": 8, "precision": "amp_bf16"});
    simulated(&with(case, changes)).work
}

#[test]
fn passes_that_are_left_out_count() {
    let long = |passes: u64| tiny(&json!({"grad_accum": passes}));
    let passes = 100_000;
    let simulation_of_long = long(passes);
    assert!(simulation_of_long.phases.iter().any(|phase| phase.times > 1));
    let (first, second, third) = (long(5).step(2), long(6).step(2), simulation_of_long.step(2));
    let pass = |of: fn(&Amount) -> u64| of(&second) - of(&first);
    let figures: [fn(&Amount) -> u64; 4] =
        [|a| a.flops.total(), |a| a.product_bytes, |a| a.other_bytes, |a| a.launches];
    for figure in figures {
        assert!(pass(figure) > 0);
        assert_eq!(figure(&third), figure(&first) + (passes - 5) * pass(figure));
    }
}

#[test]
fn steps_that_are_left_out_count() {
    let two = tiny(&json!({"steps": 2}));
    let many = tiny(&json!({"steps": 6}));
    assert_eq!(many.mean_of_steps(6), two.mean_of_steps(6), "from the second step on all steps are alike");
}

#[test]
fn updates_of_ppo_that_are_left_out_count() {
    let model = json!({"family": "llama", "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
        "num_attention_heads": 1, "vocab_size": 50});
    // So many epochs that three updates are enough to go by.
    let case = json!({"kind": "trl_ppo", "model": model, "prompt_len": 4, "response_length": 2, "num_ppo_epochs": 512});
    let updates = |steps: u64| simulated(&with(case.clone(), &json!({"steps": steps}))).work;
    let (three, many) = (updates(3), updates(40));
    assert!(many.steps_run() < 40);
    assert_eq!(many.mean_of_steps(40), three.mean_of_steps(40));
}

#[test]
fn generate_calls_that_are_replayed_count() {
    let model = json!({"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500});
    let node = |questions: u64, rows: u64| {
        let case = json!({"kind": "swarm_node", "model": model, "prompt_len": 16, "completion_len": 8, "group": 2,
            "questions": questions, "generate_rows": rows});
        let work = simulated(&case).work;
        let generated = work.phases_of_step(1).into_iter().find(|(kind, _)| *kind == PhaseKind::Generate);
        generated.unwrap().1
    };
    let one = node(2, 4);
    assert!(one.flops.total() > 0);
    assert_eq!(node(10, 4).flops, one.flops.times(5));
    // Two calls run before the rest repeats: workspaces are the first one's.
    assert_eq!(node(10, 4).product_bytes, one.product_bytes * 5);
    assert_eq!(node(9, 4).flops, one.flops.times(4).plus(node(1, 2).flops));
}

fn hrm(high: u64, low: u64) -> Work {
    simulated(&json!({"kind": "hrm", "batch": 32, "H_cycles": high, "L_cycles": low})).work
}

/// The factors count forward passes of layers: twice the inner loop, and its last pass back at twice the cost. Operations
/// come within two hundredths: what they count beside the layers (embedding, the head and its gradients) is the same for
/// every number of cycles.
#[test]
fn cycles_cost_what_their_layers_do() {
    let base = hrm(2, 2);
    let cases = [(1, 1, 0.5), (1, 2, 0.625), (2, 1, 0.75), (4, 4, 2.75), (2, 8, 2.5)];
    for (high, low, layers) in cases {
        let factor = cost_factor(&hrm(high, low), &base, 2).unwrap();
        println!("{high}x{low}: {factor:.4} of the operations, {layers} of the layers");
        assert!((factor / layers - 1.0).abs() < 0.02, "{high}x{low}: {factor} for {layers}");
    }
}

/// Forward and backward of one layer: that of two layers less that of one.
fn layer(family: &Value, layers_key: &str, shape: &Value) -> Work {
    let case = |layers: u64| {
        let model = with(family.clone(), &json!({layers_key: layers}));
        simulated(&with(with(json!({"model": model, "attn": "eager"}), shape), &json!({"precision": "bf16"}))).work
    };
    let (mut two, one) = (case(2), case(1));
    two.phases.retain(|phase| matches!(phase.phase.kind, PhaseKind::Forward | PhaseKind::Backward));
    for phase in &mut two.phases {
        let same = one.phases.iter().find(|other| other.phase == phase.phase).unwrap();
        phase.amount = less(&phase.amount, &same.amount);
    }
    two
}

fn less(a: &Amount, b: &Amount) -> Amount {
    Amount {
        flops: tonnage_core::work::Flops {
            // Measured in fp16, simulated in bf16; V100's tensor cores know only the former.
            float16: a.flops.bfloat16 - b.flops.bfloat16,
            ..Default::default()
        },
        product_bytes: a.product_bytes - b.product_bytes,
        other_bytes: a.other_bytes - b.other_bytes,
        launches: a.launches - b.launches,
        ..*a
    }
}

/// Slower than its likely rate by 40 %, and than A6000 and V100 by the ratio of their bandwidths: what the low end is for.
const A100_GPT2: (&str, f64) = ("a100-80", 53.0);

/// Forward and backward of one layer in TFLOP/s by its published formula: mli/transformers-benchmarks, 2022, PyTorch 1.13.
#[test]
fn published_layer_rates_lie_in_the_estimated_range() {
    let gpt2 = json!({"family": "gpt2", "n_embd": 1024, "n_head": 16, "n_positions": 1024, "vocab_size": 1000});
    let bert = json!({"family": "bert", "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096,
        "vocab_size": 1000});
    let gpt2 = layer(&gpt2, "n_layer", &json!({"micro_batch": 64, "seq_len": 512}));
    let bert = layer(&bert, "num_hidden_layers", &json!({"micro_batch": 128, "seq_len": 128, "task": "masked_lm"}));
    let formula = |b: f64, s: f64| 3.0 * (24.0 * b * s * 1024.0 * 1024.0 + 4.0 * b * 1024.0 * s * s) / 1e12;
    let cases = [
        ("a100-80", &gpt2, formula(64.0, 512.0), 53.0),
        ("rtx-a6000", &gpt2, formula(64.0, 512.0), 38.0),
        ("v100-16", &gpt2, formula(64.0, 512.0), 37.0),
        ("a100-80", &bert, formula(128.0, 128.0), 136.0),
        ("rtx-a6000", &bert, formula(128.0, 128.0), 70.0),
        ("v100-16", &bert, formula(128.0, 128.0), 67.0),
    ];
    for (name, work, teraflops, measured) in cases {
        let speed = Speed::new(&gpu::find_gpu(name).unwrap().gpu(), false).unwrap();
        let Range { low, typical, high } = speed.steps(work, 1).seconds;
        let rates = [high, typical, low].map(|seconds| teraflops / seconds);
        println!("{name}: estimated {rates:.1?}, measured {measured} TFLOP/s");
        assert!(rates[0] <= measured && measured <= rates[2], "{name}: {rates:?}, measured {measured}");
        if (name, measured) != A100_GPT2 {
            assert!((rates[1] / measured - 1.0).abs() < 0.15, "{name}: {rates:?}, measured {measured}");
        }
    }
}
