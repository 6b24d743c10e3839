//! Models with short convolutions and state spaces: what is said of them, and what of them is refused by name.

use serde_json::{Value, json};
use tonnage_core::estimate::{Estimate, estimate};
use tonnage_core::job::from_case;

/// Small jobs of every type, with what its config needs.
fn models() -> Vec<Value> {
    let with = |family: &str, more: Value| {
        let mut model = json!({"family": family, "vocab_size": 500, "hidden_size": 64, "intermediate_size": 96,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2});
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        model
    };
    let hybrid = json!({"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_ssm": 128, "mamba_d_state": 8, "mamba_chunk_size": 16,
        "num_local_experts": 0, "shared_intermediate_size": 96});
    vec![
        with("lfm2", json!({"layer_types": ["conv", "full_attention"]})),
        with(
            "lfm2_moe",
            json!({"layer_types": ["conv", "full_attention"], "num_experts": 4, "moe_intermediate_size": 32,
            "num_dense_layers": 1}),
        ),
        with("mamba2", json!({"num_heads": 4, "head_dim": 32, "n_groups": 2, "state_size": 8, "chunk_size": 16})),
        with("falcon_h1", hybrid.clone()),
        with("bamba", hybrid.clone()),
        with("granitemoehybrid", hybrid),
        with(
            "nemotron_h",
            json!({"hybrid_override_pattern": "M*", "mamba_num_heads": 8, "mamba_head_dim": 16,
            "ssm_state_size": 8, "chunk_size": 16}),
        ),
        with("mamba", json!({"state_size": 8})),
        with("falcon_mamba", json!({"state_size": 8})),
        with(
            "zamba2",
            json!({"layers_block_type": ["mamba", "hybrid"], "n_mamba_heads": 4, "mamba_d_state": 8,
            "chunk_size": 16, "num_key_value_heads": 4, "head_dim": 32, "use_shared_attention_adapter": true}),
        ),
        with("jamba", json!({"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "num_experts": 4})),
    ]
}

fn estimated(model: &Value, more: &Value) -> Result<Estimate, String> {
    let mut case = json!({"id": "a", "micro_batch": 2, "seq_len": 40, "precision": "bf16", "model": model});
    if ["falcon_mamba", "mamba", "mamba2"].iter().any(|family| model["family"] == *family) {
        case["attn"] = json!("eager");
    }
    case.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let job = from_case(&case).map_err(|error| error.to_string())?;
    estimate(&job).map_err(|error| error.to_string())
}

fn adapted(target: &str) -> Value {
    json!({"lora": {"r": 8, "alpha": 16, "dropout": 0.0, "targets": [target]}})
}

#[test]
fn an_estimate_says_which_kernels_it_is_of() {
    for model in models() {
        let caveats = estimated(&model, &json!({})).unwrap().caveats;
        let said = caveats.iter().find(|caveat| caveat.code == "linear_attention_kernels").unwrap();
        let convolves = model["family"].as_str().unwrap().starts_with("lfm2");
        assert!(
            said.text.contains(if convolves { "short convolutions" } else { "mamba-ssm" }),
            "{model}: {}",
            said.text
        );
    }
}

#[test]
fn what_is_not_simulated_is_refused_by_name() {
    for model in models() {
        let error = estimated(&model, &json!({"precision": "amp_fp16"})).unwrap_err();
        assert!(error.contains("cuDNN"), "{model}: {error}");
        estimated(&model, &adapted("in_proj")).unwrap();
    }
    let refused = |index: usize, more: Value, says: &str| {
        let error = estimated(&models()[index], &more).unwrap_err();
        assert!(error.contains(says), "{error}");
    };
    for index in [2, 3, 6, 7, 8] {
        refused(index, adapted("out_proj"), "peft refuses to adapt");
    }
    for index in [0, 1, 4, 5, 9, 10] {
        estimated(&models()[index], &adapted("out_proj")).unwrap();
    }
}

#[test]
fn configs_that_transformers_does_not_take_are_refused() {
    let refused = |index: usize, key: &str, value: Value, says: &str| {
        let mut model = models()[index].clone();
        model[key] = value;
        let error = estimated(&model, &json!({})).unwrap_err();
        assert!(error.contains(says), "{error}");
    };
    refused(0, "layer_types", json!(["conv", "linear_attention"]), "is not full_attention or conv");
    refused(1, "layer_types", Value::Null, "must say which layers");
    refused(2, "num_heads", json!(5), "heads of 32 are not 128 wide");
    refused(5, "output_router_logits", json!(true), "keeps no logits");
    refused(7, "use_mambapy", json!(true), "mambapy");
    refused(10, "use_mambapy", json!(true), "mambapy");
    refused(10, "attn_layer_offset", json!(2), "must be smaller than attn_layer_period = 2");
    refused(10, "expert_layer_offset", json!(3), "must be smaller than expert_layer_period = 2");
    refused(10, "num_experts_per_tok", json!(5), "of 4 experts");
    refused(9, "layers_block_type", json!(["moe", "mamba"]), "is not linear_attention or hybrid");
    refused(9, "num_key_value_heads", json!(2), "its adapters are 128 wide");
    refused(6, "hybrid_override_pattern", json!("ME"), "have no gates");
}

#[test]
fn weights_in_common_are_counted_once_and_their_adapters_apiece() {
    let blocks = |blocks: &[&str]| {
        let mut model = models()[9].clone();
        model["layers_block_type"] = json!(blocks);
        let trained = |more: Value| estimated(&model, &more).unwrap().parameter_count;
        [trained(json!({})), trained(adapted("down_proj"))]
    };
    let [one, two] = [blocks(&["hybrid", "mamba"]), blocks(&["hybrid", "hybrid"])];
    // A second use of the block has a linear layer and projections of its own: three of attention and one of its MLP.
    let own = 64 * 64 + 128 * (3 * (128 + 128) + 64 + 2 * 96);
    assert_eq!(two[0] - one[0], own);
    assert_eq!(two[1] - one[1], own + 8 * (96 + 64));
}

#[test]
fn what_was_measured_whole_is_not_divided() {
    let reentrant = json!({"gradient_checkpointing": true, "reentrant": true});
    for (index, layers) in [(9, "layers that have their weights in common"), (10, "Jamba's layers")] {
        let error = estimated(&models()[index], &reentrant).unwrap_err();
        assert!(error.contains(&format!("`use_reentrant`: not simulated with {layers}")), "{error}");
    }
}

#[test]
fn one_expert_is_an_mlp() {
    let with_experts = |more: Value| {
        let mut model = models()[10].clone();
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        estimated(&model, &json!({})).unwrap().parameter_count
    };
    let mlp = 3 * 64 * 96;
    let one = with_experts(json!({"num_experts": 1}));
    assert_eq!(with_experts(json!({})) - one, 3 * mlp + 4 * 64);
    assert_eq!(with_experts(json!({"expert_layer_period": 9, "expert_layer_offset": 8})), one);
}

#[test]
fn a_loop_over_too_many_tokens_is_refused() {
    let error = estimated(&models()[7], &json!({"seq_len": 70_000})).unwrap_err();
    assert!(error.contains("a loop over 70000 tokens in each layer; 32768 of this model"), "{error}");
}
