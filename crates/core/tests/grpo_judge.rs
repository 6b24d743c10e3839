//! Where a judge stands decides what it takes of the policy's GPU.

use serde_json::{Value, json};
use tonnage_core::estimate::estimate;
use tonnage_core::job::{self, GrpoSpec, JobSpec, JudgePhase, JudgePlace, JudgeWeights, Task};
use tonnage_core::step::{Simulation, simulate, simulate_judge};
use tonnage_core::trace::{Category, PhaseKind};

fn job(change: impl FnOnce(&mut GrpoSpec)) -> JobSpec {
    let model = json!({"family": "llama", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4});
    let case = json!({"id": "judged", "kind": "trl_grpo", "model": model, "prompt_len": 8, "completion_len": 4,
        "judge": {"model": model, "new_tokens": 3}});
    let mut job = job::from_case(&case).unwrap();
    let Task::Grpo(grpo) = &mut job.task else { panic!("a GRPO case") };
    change(grpo);
    job
}

fn placed(place: JudgePlace) -> JobSpec {
    job(|grpo| grpo.judge.as_mut().unwrap().place = place)
}

/// Bytes allocated by the judge in loading, and in the reward phases.
fn judge_bytes(simulation: &Simulation) -> (u64, u64) {
    let trace = &simulation.trace;
    let of = |wanted: PhaseKind| {
        let is_judge = |path: &str| path.split('.').next() == Some("judge");
        let allocations = trace.allocations.iter();
        allocations
            .filter(|allocation| is_judge(trace.module(allocation)))
            .filter(|allocation| trace.phases[allocation.phase as usize].kind == wanted)
            .map(|allocation| allocation.bytes)
            .sum()
    };
    (of(PhaseKind::Load), of(PhaseKind::Reward))
}

#[test]
fn a_judge_elsewhere_takes_nothing_here() {
    for place in [JudgePlace::OtherGpu, JudgePlace::Cpu] {
        assert_eq!(judge_bytes(&simulate(&placed(place)).unwrap()), (0, 0), "{place:?}");
    }
    let (loaded, scoring) = judge_bytes(&simulate(&placed(JudgePlace::SameGpu)).unwrap());
    assert!(loaded > 0 && scoring > 0);
}

#[test]
fn offloaded_weights_come_in_the_reward_phase() {
    let (loaded, _) = judge_bytes(&simulate(&placed(JudgePlace::SameGpu)).unwrap());
    let (at_start, in_reward) = judge_bytes(&simulate(&placed(JudgePlace::Offload)).unwrap());
    assert_eq!(at_start, 0);
    assert!(in_reward > loaded);
}

#[test]
fn a_judge_on_its_own_gpu_is_simulated_alone() {
    let alone = simulate_judge(&placed(JudgePlace::OtherGpu)).unwrap().unwrap();
    let (loaded, scoring) = judge_bytes(&alone);
    assert!(loaded > 0 && scoring > 0 && alone.trainable_count == 0);
    assert!(simulate_judge(&placed(JudgePlace::SameGpu)).unwrap().is_none());
}

#[test]
fn a_judge_that_only_reads_allocates_less_than_one_that_answers() {
    let answers = judge_bytes(&simulate(&placed(JudgePlace::SameGpu)).unwrap()).1;
    let reads = job(|grpo| grpo.judge.as_mut().unwrap().phase = JudgePhase::Forward);
    assert!(judge_bytes(&simulate(&reads).unwrap()).1 < answers);
}

/// Bytes of the weights of a judge with this model that stay, and the same of scoring.
fn weight_bytes(weights: JudgeWeights, model: &Value) -> u64 {
    let mut job = job(|grpo| {
        let judge = grpo.judge.as_mut().unwrap();
        (judge.weights, judge.place, judge.new_tokens) = (weights, JudgePlace::OtherGpu, 1);
    });
    let case = json!({"id": "judge", "kind": "trl_grpo", "model": model, "prompt_len": 8, "completion_len": 4});
    let model = job::from_case(&case).unwrap().model;
    let Task::Grpo(grpo) = &mut job.task else { panic!("a GRPO case") };
    grpo.judge.as_mut().unwrap().model = model;
    let trace = simulate_judge(&job).unwrap().unwrap().trace;
    let weights = trace.allocations.iter().filter(|allocation| allocation.category == Category::Parameter);
    weights.map(|allocation| allocation.bytes).sum()
}

const WEIGHTS: [JudgeWeights; 4] = [JudgeWeights::Fp32, JudgeWeights::Bf16, JudgeWeights::Int8, JudgeWeights::Nf4];

#[test]
fn quantized_layers_take_the_bytes_of_their_format() {
    let (vocabulary, width, inner, layers) = (500, 64, 128, 2);
    let model = json!({"family": "llama", "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4});
    let [fp32, bf16, int8, nf4] = WEIGHTS.map(|weights| weight_bytes(weights, &model));
    let linear = layers * (4 * width * width + 3 * width * inner);
    let rows = layers * (4 * width + 2 * inner + width);
    assert_eq!(fp32, 2 * bf16);
    assert_eq!(int8, bf16 - 2 * linear + linear + 4 * rows);
    assert_eq!(nf4, bf16 - 2 * linear + linear / 2 + 4 * linear / 64 + 7 * layers * 64);
}

#[test]
fn a_judge_of_14b_halves_in_int8_and_thirds_in_nf4() {
    let model = json!({"family": "qwen2", "vocab_size": 152_064, "hidden_size": 5120, "intermediate_size": 13_824,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "tie_word_embeddings": false});
    let gib = WEIGHTS.map(|weights| weight_bytes(weights, &model) as f64 / f64::from(1 << 30));
    let expected = [55.02, 27.51, 15.21, 9.82];
    for (gib, expected) in gib.into_iter().zip(expected) {
        assert!((gib - expected).abs() < 0.005, "{gib} instead of {expected}");
    }
}

#[test]
fn a_quantized_judge_lowers_what_a_job_allocates_after_loading() {
    let model = json!({"family": "gpt2", "vocab_size": 500, "n_embd": 256, "n_layer": 2, "n_head": 4});
    let case = json!({"id": "judged", "kind": "trl_grpo", "model": model, "prompt_len": 8, "completion_len": 4,
        "judge": {"model": model, "new_tokens": 3}});
    let after_load = WEIGHTS.map(|weights| {
        let mut job = job::from_case(&case).unwrap();
        let Task::Grpo(grpo) = &mut job.task else { panic!("a GRPO case") };
        grpo.judge.as_mut().unwrap().weights = weights;
        let estimate = estimate(&job).unwrap();
        let widened = estimate.caveats.iter().any(|caveat| caveat.code == "judge_quantized" && caveat.widens_bytes > 0);
        assert_eq!(widened, matches!(weights, JudgeWeights::Int8 | JudgeWeights::Nf4));
        estimate.after_load_bytes
    });
    assert!(after_load.is_sorted_by(|more, less| more > less), "{after_load:?}");
}
