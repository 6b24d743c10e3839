//! Models with layers of linear attention: what is said of them, and what of them is refused by name.

use std::path::Path;

use serde_json::{Value, json};
use tonnage_core::estimate::{Estimate, estimate};
use tonnage_core::job::{from_case, hf};

/// The estimate of a small job of `model_type` with these fields of a case beside, or what it is refused with.
fn estimated(model_type: &str, more: &Value) -> Result<Estimate, String> {
    let mut case = json!({"id": "a", "micro_batch": 2, "seq_len": 70, "precision": "bf16", "model": {
        "family": model_type, "vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    }});
    case.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let job = from_case(&case).map_err(|error| error.to_string())?;
    estimate(&job).map_err(|error| error.to_string())
}

const TYPES: [&str; 3] = ["qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"];

#[test]
fn an_estimate_says_which_kernels_it_is_of() {
    for model_type in TYPES {
        let caveats = estimated(model_type, &json!({})).unwrap().caveats;
        let said = caveats.iter().find(|caveat| caveat.code == "linear_attention_kernels").unwrap();
        assert!(said.text.contains("flash-linear-attention"), "{model_type}: {}", said.text);
    }
    let caveats = estimated("llama", &json!({})).unwrap().caveats;
    assert!(caveats.iter().all(|caveat| caveat.code != "linear_attention_kernels"));
}

#[test]
fn what_is_not_simulated_is_refused_by_name() {
    let lora = |target: &str| json!({"lora": {"r": 8, "alpha": 16, "dropout": 0.0, "targets": [target]}});
    let generates = json!({"task": "generate", "max_new_tokens": 4, "use_cache": true, "train_mode": false});
    for model_type in TYPES {
        for (more, says) in [
            (json!({"precision": "amp_fp16"}), "cuDNN"),
            (generates.clone(), "linear attention"),
            (lora("conv1d"), "is no linear layer"),
            (lora("v_proj_of_nobody"), "no module is called"),
        ] {
            let error = estimated(model_type, &more).unwrap_err();
            assert!(error.contains(says), "{model_type} {more}: {error}");
        }
        estimated(model_type, &lora("out_proj")).unwrap();
    }
}

#[test]
fn the_text_model_of_the_outer_config_is_read() {
    for (outer, inner) in [("qwen3_5", "qwen3_5_text"), ("qwen3_5_moe", "qwen3_5_moe_text")] {
        let fields = json!({"model_type": outer, "tie_word_embeddings": true, "text_config": {"hidden_size": 64},
            "vision_config": {"depth": 2, "hidden_size": 10, "intermediate_size": 30}});
        let model = hf::read_model("m", fields.as_object().unwrap().clone()).unwrap();
        assert_eq!(model.spec.model_type, inner);
        assert_eq!(model.spec.config.get("tie_word_embeddings"), Some(&json!(true)));
        assert_eq!(model.spec.beside.left_out.unwrap().parameters, Some(2000));
    }
}

#[test]
fn layers_are_of_the_types_that_the_family_has() {
    let model = |layer_types: Value| {
        let fields = json!({"model_type": "qwen3_5_text", "num_hidden_layers": 2, "layer_types": layer_types});
        let model = hf::read_model("m", fields.as_object().unwrap().clone()).unwrap();
        tonnage_core::step::parameter_count(&model.spec).map_err(|error| error.to_string())
    };
    let [linear, full] = ["linear_attention", "full_attention"].map(|name| model(json!([name, name])).unwrap());
    assert_eq!(linear + full, 2 * model(json!(["linear_attention", "full_attention"])).unwrap());
    let error = model(json!(["sliding_attention", "full_attention"])).unwrap_err();
    assert!(error.contains("is not full_attention or linear_attention"), "{error}");
}

#[test]
fn measured_cases_are_equal_to_the_byte() {
    let read = |name: &str| -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families").join(name);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let truth = read("qwen3_5_truth.json");
    let cases = read("qwen3_5_cases.json");
    assert_eq!(cases.as_array().unwrap().len(), 24);
    for case in cases.as_array().unwrap() {
        let measured = &truth["cases"][case["id"].as_str().unwrap()];
        let found = estimate(&from_case(case).unwrap()).unwrap();
        let figures = [found.peak_allocated_bytes, found.peak_reserved_bytes].map(Some);
        let wanted = ["peak_allocated_bytes", "peak_reserved_bytes"].map(|key| measured[key].as_u64());
        assert_eq!(figures, wanted, "{}", case["id"]);
    }
}
