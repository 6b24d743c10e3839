//! Quantized bases, of a checkpoint, on shards and beside experts: what they are by default, what they are refused with, and which layers
//! adapters reach.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tonnage_core::estimate::estimate;
use tonnage_core::job::{
    JobError, JobSource, JobSpec, Override, Precision, QuantizedWeights, ShardInit, Strategy, from_case,
};
use tonnage_core::step::simulate;
use tonnage_core::trace::Trace;

const LLAMA: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }"#;
const MIXTRAL: &str = r#"model = { model_type = "mixtral", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 128, num_attention_heads = 4, num_key_value_heads = 4, num_local_experts = 4, vocab_size = 500 }"#;
const GLM: &str = r#"model = { model_type = "glm4_moe", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 128, moe_intermediate_size = 64, num_attention_heads = 4, num_key_value_heads = 4, head_dim = 16, n_routed_experts = 4, num_experts_per_tok = 2, n_group = 1, topk_group = 1, vocab_size = 500 }"#;
const QLORA: &[&str] = &["lora.r=8", "lora.targets=q_proj", "quantization=nf4", "precision=bf16"];
const SHARDED: &[&str] = &["parallel=fsdp2", "world_size=2"];

fn resolve(model: &str, keys: &[&[&str]]) -> Result<JobSpec, JobError> {
    let file = format!("{model}\nmicro_batch_size = 1\nseq_len = 16\nsteps = 1\ngpu = \"h100\"\n");
    let overrides: Vec<Override> = keys.concat().iter().map(|text| Override::assignment(text).unwrap()).collect();
    Ok(JobSource::from_file("job.toml", &file).resolve(&overrides)?.job)
}

fn trace(model: &str, keys: &[&[&str]]) -> Result<Trace, String> {
    let job = resolve(model, keys).map_err(|error| error.problem)?;
    Ok(simulate(&job).map_err(|error| error.to_string())?.trace)
}

fn problem(model: &str, keys: &[&[&str]]) -> String {
    trace(model, keys).expect_err("it is refused")
}

#[test]
fn packed_shards_are_loaded_in_full_and_not_prepared() {
    let job = resolve(LLAMA, &[QLORA, SHARDED]).unwrap();
    let Strategy::Fsdp2(policy) = job.parallel.strategy else { panic!("{:?}", job.parallel) };
    assert_eq!(policy.init, ShardInit::Full);
    assert!(!job.quantization.unwrap().prepared);
    assert!(resolve(LLAMA, &[QLORA]).unwrap().quantization.unwrap().prepared);
}

#[test]
fn what_shards_cannot_hold_is_refused() {
    for (keys, word) in [
        (&["quantization=int8"][..], "int8"),
        (&["fsdp2.init=meta"], "before FSDP shards"),
        (&["prepare_for_kbit_training=true"], "preparation"),
        (&["precision=fp32"], "a cast would break"),
        (&["fsdp2.param_dtype=fp16"], "a cast would break"),
    ] {
        let said = problem(LLAMA, &[QLORA, SHARDED, keys]);
        assert!(said.contains(word), "{keys:?}: {said}");
    }
    let experts = &["quantize_moe_experts=true"][..];
    assert!(problem(MIXTRAL, &[QLORA, SHARDED, experts]).contains("experts"));
    assert!(problem(MIXTRAL, &[QLORA, experts, &["prepare_for_kbit_training=true"]]).contains("unpack"));
}

#[test]
fn names_of_linear_layers_reach_experts_only_where_a_layer_is_called_the_same() {
    let listed = &["lora.r=8", "lora.targets=all-linear-names"][..];
    let named = &["lora.r=8", "lora.targets=q_proj,k_proj,v_proj,o_proj"][..];
    assert!(trace(MIXTRAL, &[listed]).unwrap() == trace(MIXTRAL, &[named]).unwrap());
    assert!(problem(MIXTRAL, &[&["lora.r=8", "lora.targets=all-linear"]]).contains("adapters on the parameters"));
    // Its first layer, and the experts that all tokens pass, have layers of the names that peft knows experts by.
    assert!(problem(GLM, &[listed]).contains("adapters on the parameters"));
    assert!(trace(LLAMA, &[listed]).unwrap() == trace(LLAMA, &[&["lora.r=8", "lora.targets=all-linear"]]).unwrap());
}

#[test]
fn experts_on_shards_are_answered_with_a_range() {
    let named = &["lora.targets=q_proj,k_proj,v_proj,o_proj"][..];
    let range = |model: &str| {
        let estimate = estimate(&resolve(model, &[QLORA, SHARDED, named]).unwrap()).unwrap();
        estimate.caveats.iter().any(|caveat| caveat.code == "experts_on_ranks")
    };
    assert!(range(MIXTRAL) && !range(LLAMA));
}

#[test]
fn what_was_measured_beyond_the_figures_lies_below_the_end_of_the_range() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families");
    let read =
        |name: String| -> Value { serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap() };
    for set in ["gptq", "foak", "adapters"] {
        let (cases, truth) = (read(format!("{set}_cases.json")), read(format!("{set}_truth.json")));
        let mut exceeded = 0;
        for case in cases.as_array().unwrap() {
            let id = case["id"].as_str().unwrap();
            let estimate = estimate(&from_case(case).unwrap()).unwrap();
            let reserved = truth["cases"][id]["peak_reserved_bytes"].as_u64().unwrap();
            let allowed = estimate.peak_reserved_bytes + (estimate.range.1 - estimate.total_bytes);
            assert!(reserved <= allowed, "{id}: {reserved} of {allowed}");
            exceeded += usize::from(reserved > estimate.peak_reserved_bytes);
        }
        assert!(exceeded > 0, "{set}: nothing needs the allowance any more");
    }
}

const STORED: &str = r#""model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 640,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 500, "torch_dtype": "bfloat16", "quantization_config": "#;

fn stored(quantization: &str, keys: &[&str]) -> Result<JobSpec, JobError> {
    let overrides: Vec<Override> = keys.iter().map(|text| Override::assignment(text).unwrap()).collect();
    let config = format!("{{{STORED}{quantization}}}");
    let source = JobSource::model("config.json").config("config.json", config);
    Ok(source.resolve(&overrides)?.job)
}

#[test]
fn a_checkpoint_is_what_its_config_says() {
    let awq = r#"{"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}"#;
    let job = stored(awq, &["lora.r=8"]).unwrap();
    let quantization = job.quantization.unwrap();
    assert_eq!((quantization.weights, quantization.group_size), (QuantizedWeights::Awq, 64));
    assert_eq!(job.precision, Precision::Fp16, "transformers casts the model");
    let gptq = r#"{"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": false}"#;
    let quantization = stored(gptq, &["lora.r=8"]).unwrap().quantization.unwrap();
    assert_eq!((quantization.weights, quantization.bits, quantization.group_size), (QuantizedWeights::GptqModel, 8, 0));
    let of_4 = stored(gptq, &["lora.r=8", "transformers=4.51"]).unwrap().quantization.unwrap();
    assert_eq!(of_4.weights, QuantizedWeights::Gptq);
    let nf4 = r#"{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true}"#;
    let quantization = stored(nf4, &["lora.r=8"]).unwrap().quantization.unwrap();
    assert_eq!((quantization.weights, quantization.double), (QuantizedWeights::Nf4, true));
    assert!(
        stored(awq, &[]).unwrap_err().hint.unwrap().contains("lora.r"),
        "packed weights are not trained themselves"
    );
}

#[test]
fn the_end_of_a_name_tells_a_checkpoint_and_the_range_allows_for_wider_layers() {
    for (name, weights) in [
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", QuantizedWeights::Awq),
        ("Qwen/Qwen2.5-0.5B-Instruct-GPTQ-Int4", QuantizedWeights::GptqModel),
    ] {
        let lora = Override::assignment("lora.r=8").unwrap();
        let job = JobSource::model(name).resolve(&[lora]).unwrap().job;
        assert_eq!(job.quantization.unwrap().weights, weights, "{name}");
        let answer = estimate(&job).unwrap();
        assert!(answer.caveats.iter().any(|caveat| caveat.code == "sizes_by_name"), "{name}");
        assert!(answer.range.1 > answer.total_bytes, "{name}");
    }
}

#[test]
fn gptqmodels_layers_are_refused_where_they_were_not_measured() {
    for (keys, word) in [
        (&["quantization=awq", "precision=bf16_amp"][..], "fp16"),
        (&["quantization=awq", "precision=fp16", "parallel=fsdp2", "world_size=2"], "FSDP"),
        (&["quantization=gptqmodel", "transformers=4.51"], "transformers 4"),
        (&["quantization=gptqmodel", "gptq_bits=3"], "across words"),
        (&["quantization=gptq", "framework=trl"], "plain training"),
    ] {
        let said = problem(LLAMA, &[&["lora.r=8"], keys]);
        assert!(said.contains(word), "{keys:?}: {said}");
    }
}

#[test]
fn without_checkpointing_gptqmodel_keeps_unpacked_weights() {
    let base = &["lora.r=8", "lora.targets=q_proj", "precision=fp16-amp"][..];
    let peak = |keys: &[&str]| estimate(&resolve(LLAMA, &[base, keys]).unwrap()).unwrap().peak_allocated_bytes;
    let kept = peak(&["quantization=gptqmodel"]) - peak(&["quantization=gptq"]);
    // Of the second layer all seven weights: four of attention, three of the MLP.
    assert!(kept >= 2 * (4 * 64 * 64 + 3 * 64 * 160), "{kept}");
    assert!(peak(&["quantization=awq"]) < peak(&["quantization=gptqmodel"]));
}
