//! The defaults of each framework, against six-line scripts that say nothing either (`testdata/frameworks/scripts`, rehearsed).

use serde_json::Value;
use tonnage_core::estimate::estimate;
use tonnage_core::family::known_model_types;
use tonnage_core::spec::{Inputs, Override, Resolved, resolve};

const CONFIG: &str = include_str!("../../../testdata/frameworks/config.json");
const TRUTH: &str = include_str!("../../../testdata/frameworks/truth.json");

fn resolved(assignments: &[&str]) -> Resolved {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    resolve(&Inputs {
        job_file: None,
        overrides: &overrides,
        known: &known_model_types(),
        read_config: &|name| (name == "config.json").then(|| Ok(CONFIG.to_owned())),
    })
    .unwrap()
}

#[test]
fn a_script_that_says_nothing_is_estimated_to_the_byte() {
    let truth: Value = serde_json::from_str(TRUTH).unwrap();
    for framework in ["loop", "trainer", "trl"] {
        let said = [
            "model=config.json".to_owned(),
            format!("framework={framework}"),
            format!("seq_len={}", truth["seq_len"]),
            format!("steps={}", truth["steps"]),
            "gpu=h100".to_owned(),
        ];
        let job = resolved(&said.each_ref().map(String::as_str)).job;
        let estimate = estimate(&job).unwrap();
        let expected = ["peak_allocated_bytes", "peak_reserved_bytes"].map(|key| truth[framework][key].as_u64());
        assert_eq!([estimate.peak_allocated_bytes, estimate.peak_reserved_bytes].map(Some), expected, "{framework}");
    }
}

#[test]
fn a_default_says_whose_it_is() {
    let whose = |framework: &str, key: &str| {
        let said = ["model=config.json", "gpu=h100", framework];
        resolved(&said).origin(key).unwrap().to_string()
    };
    let cases = [
        ("framework=trainer", "optimizer", "Hugging Face Trainer's"),
        ("framework=trl", "precision", "TRL 1.16's SFTConfig"),
        ("framework=loop", "use_cache", "a plain loop leaves"),
        ("framework=trainer", "precision", "from_pretrained of transformers 5 loads"),
        ("framework=accelerate", "clip_grad_norm", "a plain loop does not clip"),
    ];
    for (framework, key, why) in cases {
        assert!(whose(framework, key).contains(why), "{framework} {key}: {}", whose(framework, key));
    }
}
