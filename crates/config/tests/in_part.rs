//! Configs of which a part alone is simulated: the answer names the rest, and has no upper bound.

use tonnage_config::{Became, ConfigText, Kind, Reading, read_files};
use tonnage_core::estimate::{Estimate, Verdict, estimate};
use tonnage_core::job::{Allowance, JobError, JobSource, Resolved};

fn reading(kind: Kind, name: &str, text: &str) -> Reading {
    read_files(&[(Some(kind), ConfigText { name, text })]).unwrap()
}

fn resolved(kind: Kind, name: &str, text: &str) -> Result<Resolved, JobError> {
    reading(kind, name, text).as_source(JobSource::new().set("gpu", "h100"))?.resolve(&[])
}

fn own(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../testdata/configs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn said(resolved: &Resolved, key: &str) -> String {
    resolved.provenance.iter().find(|value| value.key == key).map_or_else(String::new, |value| value.value.clone())
}

fn estimated(resolved: &Resolved) -> Estimate {
    estimate(&resolved.job).unwrap()
}

/// Whether the upper end is open, and the lower one no less than weights and states.
fn is_open(estimate: &Estimate) -> bool {
    let states = estimate.caveats.iter().any(|caveat| caveat.code == "config_simulated_in_part");
    states && estimate.caveats.iter().any(|caveat| caveat.open) && estimate.verdict != Verdict::Fits
}

#[test]
fn verls_actor_is_its_update_by_rows() {
    let resolved = resolved(Kind::Verl, "run.sh", &own("verl/02.sh")).unwrap();
    let keys =
        ["model", "seq_len", "micro_batch_size", "gradient_accumulation_steps", "world_size", "parallel", "precision"];
    let values = keys.map(|key| said(&resolved, key));
    // 32 prompts of 4 rows on 4 ranks are 32 rows; the later of the two micro-batches holds.
    assert_eq!(values[1..], ["1024", "8", "4", "4", "\"fsdp2\"", "\"fp32\""].map(str::to_owned), "{values:?}");
    assert!(values[0].contains("Qwen2.5-0.5B"), "{values:?}");
    let estimate = estimated(&resolved);
    assert!(is_open(&estimate));
    // Shards of 494,032,768 weights and two moments in fp32 on four ranks, and a context.
    let states = 494_032_768 * 12 / 4;
    assert!(estimate.range.0 > states && estimate.range.0 < states + (2 << 30), "{:?}", estimate.range);
    assert!(estimate.range.0 < estimate.total_bytes);
}

#[test]
fn hydra_takes_the_last_of_two_and_the_answer_says_so() {
    let reading = reading(Kind::Verl, "run.sh", &own("verl/02.sh"));
    let given = reading.keys().filter(|read| read.key.ends_with(".ppo_micro_batch_size_per_gpu"));
    let given: Vec<(String, bool)> =
        given.map(|read| (read.value.to_string(), matches!(read.became, Became::Used(_)))).collect();
    assert_eq!(given, [("16".to_owned(), false), ("8".to_owned(), true)]);
}

#[test]
fn verls_batches_by_tokens_are_one_row_of_as_many() {
    let resolved = resolved(Kind::Verl, "run.sh", &own("verl/03.sh")).unwrap();
    let keys = ["model", "seq_len", "micro_batch_size", "gradient_accumulation_steps", "world_size"];
    let values = keys.map(|key| said(&resolved, key));
    assert_eq!(values[1..], ["4096", "1", "4", "8"].map(str::to_owned), "{values:?}");
    assert!(values[0].contains("Qwen2.5-1.5B-Instruct"), "{values:?}");
    let texts: Vec<&str> = resolved.job.left_open.iter().map(|left| left.text.as_str()).collect();
    for named in ["is not on this machine", "sglang, a critic", "part of each row", "a critic is trained"] {
        assert!(texts.iter().any(|text| text.contains(named)), "{named}: {texts:?}");
    }
}

#[test]
fn what_verl_runs_elsewhere_is_refused_by_name() {
    let script = |more: &str| format!("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 {more}\n");
    for (more, named) in [
        ("--config-name=ppo_megatron_trainer.yaml", "Megatron"),
        ("actor_rollout_ref.actor.strategy=megatron", "Megatron"),
        ("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2", "Megatron"),
        ("trainer.device=npu", "npu"),
    ] {
        let error = resolved(Kind::Verl, "run.sh", &script(more)).unwrap_err();
        assert!(error.problem.contains(named), "{more}: {error}");
    }
}

#[test]
fn trainings_that_are_simulated_in_part_never_fit() {
    for (kind, name) in [(Kind::Axolotl, "axolotl/21.yaml"), (Kind::LlamaFactory, "llama-factory/15.yaml")] {
        let estimate = estimated(&resolved(kind, name, &own(name)).unwrap());
        assert!(is_open(&estimate), "{name}: {:?}", estimate.verdict);
    }
}

const AXOLOTL: &str = "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\n";

#[test]
fn weights_of_fp16_below_adapters_are_allowed_for_and_others_are_refused() {
    let lora = format!("{AXOLOTL}fp16: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n");
    let frozen = resolved(Kind::Axolotl, "a.yaml", &lora).unwrap();
    assert_eq!(said(&frozen, "precision"), "\"amp-fp16\"");
    assert!(frozen.job.left_open.iter().any(|left| left.allowance == Allowance::Less));
    assert!(resolved(Kind::Axolotl, "a.yaml", &format!("{AXOLOTL}fp16: true\n")).is_err());
}

#[test]
fn optimizers_that_are_not_known_on_shards_are_stood_in_for() {
    let text = |version: u64, word: &str| {
        let sharded = "fsdp_config:\n  reshard_after_forward: true\nray_num_workers: 2\n";
        format!("{AXOLOTL}bf16: true\nfsdp_version: {version}\n{sharded}optimizer: {word}\n")
    };
    for (version, word, ours, allowance) in [
        (2, "adamw_torch_8bit", "\"adamw\"", Allowance::Less),
        (1, "adamw_bnb_8bit", "\"adamw\"", Allowance::Less),
        (2, "muon", "\"sgd_momentum\"", Allowance::AllButStates),
        (1, "adafactor", "\"sgd\"", Allowance::AllButStates),
    ] {
        let resolved = resolved(Kind::Axolotl, "a.yaml", &text(version, word)).unwrap();
        assert_eq!(said(&resolved, "optimizer"), ours, "{word}");
        assert!(resolved.job.left_open.iter().any(|left| left.allowance == allowance), "{word}");
    }
    // bitsandbytes' kernels take no shards of FSDP2.
    assert!(resolved(Kind::Axolotl, "a.yaml", &text(2, "adamw_bnb_8bit")).is_err());
}

#[test]
fn fsdp_of_the_first_version_has_flat_parameters_with_adapters_too() {
    let flat = "fsdp_version: 1\nfsdp_config:\n  use_orig_params: true\n  backward_prefetch: BACKWARD_POST\n";
    let on_ranks = |text: &str| {
        let ranks = JobSource::new().set("gpu", "h100").set("world_size", 4);
        reading(Kind::Axolotl, "a.yaml", text).as_source(ranks).unwrap().resolve(&[]).unwrap()
    };
    let all = on_ranks(&format!("{AXOLOTL}bf16: true\n{flat}"));
    let keys = ["parallel", "fsdp1.use_orig_params", "fsdp1.backward_prefetch", "fsdp1.param_dtype"];
    assert_eq!(keys.map(|key| said(&all, key)), ["\"fsdp1\"", "true", "\"post\"", "\"bf16\""]);
    let stands_in =
        |resolved: &Resolved| resolved.job.left_open.iter().any(|left| left.text.contains("simulated as FSDP2"));
    assert!(!stands_in(&all), "{:?}", all.job.left_open);
    let lora = "adapter: lora\nlora_r: 8\nlora_target_linear: true\n";
    let adapted = on_ranks(&format!("{AXOLOTL}bf16: true\n{flat}{lora}"));
    assert_eq!(said(&adapted, "parallel"), "\"fsdp1\"");
    assert!(!stands_in(&adapted), "{:?}", adapted.job.left_open);
}

#[test]
fn names_of_quantized_weights_are_taken_for_what_they_say() {
    let text = "model_name_or_path: someone/Meta-Llama-3-8B-Instruct-AWQ\nstage: sft\nfinetuning_type: lora\nbf16: true\ncutoff_len: 64\n";
    let resolved = resolved(Kind::LlamaFactory, "a.yaml", text).unwrap();
    // transformers casts a model of AWQ's to fp16, and what bf16 over it holds was not measured.
    assert_eq!(said(&resolved, "quantization"), "\"nf4\"");
    assert!(resolved.job.left_open.iter().any(|left| left.allowance == Allowance::Unknown));
    for (end, precision, weights) in [("AWQ", "fp16", "\"awq\""), ("GPTQ", "bf16", "\"gptqmodel\"")] {
        let text = text.replace("AWQ", end).replace("bf16", precision);
        let resolved = self::resolved(Kind::LlamaFactory, "a.yaml", &text).unwrap();
        assert_eq!(said(&resolved, "quantization"), weights);
        assert!(
            resolved.job.left_open.iter().all(|left| left.allowance != Allowance::Unknown),
            "{:?}",
            resolved.job.left_open
        );
    }
}

/// Experts that were taken apart into linear layers are packed with all others; in the published stacks they stay as they are.
#[test]
fn linearized_experts_are_packed_and_peft_prepares_none() {
    let text = |end: &str| {
        format!(
            "base_model: someone/Llama-4-Scout-17B-16E{end}\nload_in_4bit: true\nadapter: qlora\nlora_r: 8\n\
             lora_target_modules: [q_proj]\nsequence_len: 64\nmicro_batch_size: 1\nbf16: true\n"
        )
    };
    let keys = ["quantize_moe_experts", "prepare_for_kbit_training"];
    let linearized = resolved(Kind::Axolotl, "a.yaml", &text("-Linearized-bnb-nf4-bf16")).unwrap();
    assert_eq!(keys.map(|key| said(&linearized, key)), ["true", "false"]);
    assert!(linearized.job.left_open.iter().any(|left| left.allowance == Allowance::Unknown));
    let stacks = resolved(Kind::Axolotl, "a.yaml", &text("-bnb-nf4-bf16")).unwrap();
    assert_ne!(said(&stacks, keys[0]), "true");
}

#[test]
fn gpt_oss_is_taken_as_dequantized_only_where_it_is() {
    let text = "base_model: openai/gpt-oss-20b\nsequence_len: 128\nmicro_batch_size: 1\nbf16: true\n";
    let kwargs = "model_quantization_config: Mxfp4Config\nmodel_quantization_config_kwargs:\n  dequantize: true\n";
    assert!(resolved(Kind::Axolotl, "a.yaml", text).is_err());
    let resolved = resolved(Kind::Axolotl, "a.yaml", &format!("{text}{kwargs}")).unwrap();
    assert!(said(&resolved, "model").contains("gpt-oss-20b-BF16"));
    assert_eq!(said(&resolved, "attention"), "\"eager\"");
    let flash = format!("{text}{kwargs}attn_implementation: flash_attention_2\n");
    let flash = self::resolved(Kind::Axolotl, "a.yaml", &flash).unwrap();
    assert_eq!(said(&flash, "attention"), "\"eager\"");
    assert!(flash.job.left_open.iter().any(|left| left.allowance == Allowance::Less));
}
