//! Hints that name a key and a value lead out: what they say is set, and the job is then answered or refused for another reason.

use std::collections::BTreeSet;

use tonnage_core::job::{JobError, JobSource, Override};

const MODELS: &[&str] = &[
    "gpt2",
    "qwen2.5-0.5b",
    "bert-base-uncased",
    "t5-small",
    "mixtral-8x7b",
    "google/vit-base-patch16-224",
    "openai/clip-vit-base-patch32",
    "openai/whisper-small",
    "qwen2-vl-2b",
];
const TASKS: &[&str] = &[
    "causal_lm",
    "masked_lm",
    "seq2seq_lm",
    "sequence_classification",
    "inference_forward",
    "generate",
    "grpo",
    "dpo",
    "rloo",
    "kto",
    "orpo",
    "cpo",
    "reward",
    "contrastive",
    "embedding",
];
/// Each is set beside a model and a task.
const SETTINGS: &[&[&str]] = &[
    &["parallel=ddp", "world_size=4"],
    &["parallel=zero1", "world_size=4"],
    &["parallel=fsdp1", "world_size=4"],
    &["parallel=fsdp2", "world_size=4"],
    &["parallel=deepspeed", "world_size=4", "deepspeed.stage=2"],
    &["parallel=deepspeed", "world_size=4", "deepspeed.stage=3"],
    &["parallel=data_parallel", "world_size=4"],
    &["parallel=all_reduce", "world_size=4"],
    &["parallel=fsdp1", "world_size=4", "lora.r=8"],
    &["parallel=fsdp2", "world_size=4", "lora.r=8"],
    &["parallel=deepspeed", "world_size=4", "deepspeed.stage=3", "lora.r=8"],
    &["parallel=fsdp1", "world_size=4", "lora.r=8", "quantization=nf4"],
    &["parallel=fsdp2", "world_size=4", "lora.r=8", "quantization=nf4"],
    &["parallel=ddp", "world_size=4", "precision=fp16_amp"],
    &["parallel=fsdp1", "world_size=4", "precision=fp16_amp"],
    &["parallel=deepspeed", "world_size=4", "deepspeed.stage=1", "optimizer=adamw_8bit"],
    &["parallel=fsdp1", "world_size=4", "optimizer=adamw_8bit"],
    &["parallel=fsdp2", "world_size=4", "optimizer=adamw_8bit"],
    &["quantization=nf4", "lora.r=8"],
    &["quantization=int8", "lora.r=8"],
    &["quantization=gptq", "lora.r=8"],
    &["quantization=gptqmodel", "lora.r=8", "gptq_bits=3"],
    &["quantization=gptqmodel", "lora.r=8", "transformers=4.51"],
    &["quantization=awq", "lora.r=8"],
    &["quantization=awq", "lora.r=8", "precision=bf16_amp"],
    &["quantization=nf4"],
    &["lora.r=8", "lora.use_dora=true", "quantization=nf4"],
    &["lora.r=8", "lora.use_dora=true", "parallel=fsdp2", "world_size=4"],
    &["lora.r=8", "lora.use_dora=true", "kernels=fast_loss"],
    &["lora.r=8", "lora.modules_to_save=embed_tokens,lm_head", "parallel=deepspeed", "world_size=4"],
    &["lora.r=8", "lora.modules_to_save=embed_tokens,lm_head", "loss=liger"],
    &["kernels=fast_loss", "lora.r=8"],
    &["use_reentrant=true"],
    &["loss=liger"],
    &["use_liger_kernel=true"],
    &["attention=flash_attention_2"],
    &["attention=flex"],
    &["activation_offloading=true"],
    &["padding_free=true"],
    &["packing=true"],
    &["gradient_checkpointing=true"],
    &["logits_to_keep=1"],
    &["optimizer=paged_adamw_8bit"],
    &["precision=fp16"],
    &["framework=loop", "seq_len=64"],
    &["framework=trl"],
];

fn resolved(model: &str, assignments: &[String]) -> Result<(), JobError> {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    JobSource::model(model).resolve(&overrides).map(drop)
}

/// What a hint says to set, as assignments.
fn said(hint: &str) -> Vec<String> {
    let Some(rest) = hint.strip_prefix("set ") else { return Vec::new() };
    let rest = rest.split([',', ';', ':']).next().unwrap_or_default();
    let assignment = |part: &str| {
        let (key, value) = part.trim_matches('`').split_once(" = ")?;
        let value = value.split([' ', '`']).next()?.trim_matches('"');
        (!key.contains(' ')).then(|| format!("{key}={value}"))
    };
    rest.split(" with ").map_while(assignment).collect()
}

fn key_of(assignment: &str) -> &str {
    assignment.split('=').next().unwrap_or_default()
}

/// How many hints were followed from a job until it is answered or none is left, and where one led back.
fn follow_hints(model: &str, mut job: Vec<String>) -> (usize, Option<String>) {
    let mut refusals = Vec::new();
    loop {
        let Err(error) = resolved(model, &job) else { return (refusals.len(), None) };
        if refusals.contains(&error.to_string()) {
            return (refusals.len(), Some(format!("{model} {job:?}: {error}")));
        }
        let assignments = error.hint.as_deref().map(said).unwrap_or_default();
        if assignments.is_empty() {
            return (refusals.len(), None);
        }
        refusals.push(error.to_string());
        job.retain(|set| assignments.iter().all(|new| key_of(new) != key_of(set)));
        job.extend(assignments);
    }
}

#[test]
fn what_a_hint_says_to_set_leads_out() {
    let mut followed = 0;
    let mut led_back = BTreeSet::new();
    for model in MODELS {
        for task in TASKS {
            for settings in SETTINGS {
                let mut job = vec![format!("task={task}")];
                job.extend(settings.iter().map(ToString::to_string));
                let (hints, back) = follow_hints(model, job);
                followed += hints;
                led_back.extend(back);
            }
        }
    }
    assert!(led_back.is_empty(), "{led_back:#?}");
    assert!(followed > 100, "{followed} hints say what to set");
}
