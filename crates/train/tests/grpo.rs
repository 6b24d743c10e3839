//! The loss of GRPO and its gradient beside TRL's own (testdata/train/grpo_loss.py).

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::Value;
use tonnage_core::job::LossType;
use tonnage_torch::Tensor;
use tonnage_train::grpo::{LossTerms, grpo_loss};

/// Losses and gradients agree to so much, relative to the largest of them.
const CLOSE: f64 = 1e-4;

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number") as f32).collect()
}

fn assert_close(what: &str, found: &[f32], wanted: &[f32]) {
    let largest = wanted.iter().fold(0.0_f32, |largest, one| largest.max(one.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        let far = f64::from((found - wanted).abs());
        assert!(far <= CLOSE * f64::from(largest.max(1e-6)), "{what}: {found} where TRL has {wanted}");
    }
    assert_eq!(found.len(), wanted.len(), "{what}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names one"]
fn losses_and_gradients_are_trls() {
    let torch = support::load_torch(false);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/train/grpo_loss.json");
    let made: Value = serde_json::from_slice(&std::fs::read(path).expect("the file is there")).expect("it is JSON");
    let cases = made["cases"].as_array().expect("cases");
    assert!(cases.len() >= 16, "a case of each loss, with and without old log-probabilities and a reference");
    for case in cases {
        let sizes: Vec<i64> = case["sizes"].as_array().expect("sizes").iter().filter_map(Value::as_i64).collect();
        let tensor = |name: &str| torch.tensor(&numbers(&case[name]), &sizes).expect("sizes agree");
        let optional = |name: &str| (!case[name].is_null()).then(|| tensor(name));
        let number = |name: &str| case[name].as_f64().expect("a number");
        let size = |name: &str| case[name].as_u64().expect("a size");
        let loss_type: LossType = serde_json::from_value(case["loss_type"].clone()).expect("a loss that TRL has too");
        let terms = LossTerms {
            loss_type,
            epsilon: number("epsilon"),
            epsilon_high: number("epsilon_high"),
            beta: number("beta"),
            accumulation: size("accumulation"),
            steps_per_generation: size("steps_per_generation"),
            completion_len: size("completion_len"),
        };
        let logps: Tensor = tensor("logps").requiring_grad().expect("floats");
        let (old, reference) = (optional("old"), optional("reference"));
        let advantages = torch.tensor(&numbers(&case["advantages"]), &sizes[..1]).expect("one a row");
        let mask: Vec<i64> = case["mask"].as_array().expect("a mask").iter().filter_map(Value::as_i64).collect();
        let mask = torch.tensor(&mask, &sizes).expect("sizes agree");
        let num_items = torch.tensor(&[case["num_items"].as_i64().expect("a count")], &[]).expect("one number");
        let found = grpo_loss(&terms, &logps, [old.as_ref(), reference.as_ref()], [&advantages, &mask, &num_items])
            .expect("sizes agree");
        torch.backward(&found).expect("it has a gradient");
        let what = format!("{loss_type:?}, beta {}, old {}", terms.beta, old.is_some());
        assert_close(&what, &found.to_vec::<f32>().expect("a float"), &[number("loss") as f32]);
        let gradient = logps.grad().expect("a leaf").expect("backward left one");
        assert_close(&what, &gradient.to_vec::<f32>().expect("floats"), &numbers(&case["gradient"]));
    }
}
