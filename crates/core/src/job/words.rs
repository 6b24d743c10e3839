//! The words that people bring from Hugging Face's, TRL's, DeepSpeed's, accelerate's, PEFT's, Axolotl's, LLaMA-Factory's and
//! Lightning's options: one line a word. What means exactly the same is an alias; of the rest a sentence says what to write.

mod sentences;
mod values;

use serde_json::{Value, json};

use super::key_names as keys;

/// What a word of another program is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// The key of this name, with the same values.
    Key(&'static str),
    /// A switch of theirs: these keys with these values.
    Says(&'static [(&'static str, &'static str)]),
    /// Nothing that means exactly the same; what to write, or what answers.
    Sentence(&'static str),
}

use Meaning::{Key, Says, Sentence};
use sentences::{
    ACCELERATE, ADAPTER, BF16, COMPILE, CONFIG, CONTEXT_PARALLEL, DEEPSPEED, DTYPE, EMA, EMPTY_CACHE, EXPERTS, FLASH,
    FOUR_BIT, FP8, FP16, FSDP, INTERLEAVED, LARGEST, LOW_RANK, MEMORY, OFFLOAD, PACKING, REENTRANT, UNSLOTH,
};
use values::VALUES;

/// Names of keys, as in job files; flags have `-` for `_`.
const NAMES: &[(&str, Meaning)] = &[
    // The rows of a pass.
    ("batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("per_device_train_batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("per_device_batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("per_gpu_train_batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("per_gpu_batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("train_micro_batch_size_per_gpu", Key(keys::MICRO_BATCH_SIZE)),
    ("device_batch_size", Key(keys::MICRO_BATCH_SIZE)),
    ("micro_batch", Key(keys::MICRO_BATCH_SIZE)),
    ("mbs", Key(keys::MICRO_BATCH_SIZE)),
    ("batch", Key(keys::MICRO_BATCH_SIZE)),
    ("bs", Key(keys::MICRO_BATCH_SIZE)),
    ("train_batch_size", Sentence("over all GPUs it is --global-batch-size, of one GPU's pass --micro-batch-size")),
    ("auto_find_batch_size", Sentence(LARGEST)),
    ("auto_batch_size", Sentence(LARGEST)),
    ("torch_empty_cache_steps", Sentence(EMPTY_CACHE)),
    ("gradient_accumulation", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("ga", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("gas", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("grad_accum", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("grad_accumulation_steps", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("accumulation_steps", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("accumulate_grad_batches", Key(keys::GRADIENT_ACCUMULATION_STEPS)),
    // The tokens of a row.
    ("max_seq_length", Key(keys::SEQ_LEN)),
    ("max_seq_len", Key(keys::SEQ_LEN)),
    ("max_length", Key(keys::SEQ_LEN)),
    ("model_max_length", Key(keys::SEQ_LEN)),
    ("cutoff_len", Key(keys::SEQ_LEN)),
    ("sequence_len", Key(keys::SEQ_LEN)),
    ("sequence_length", Key(keys::SEQ_LEN)),
    ("seq_length", Key(keys::SEQ_LEN)),
    ("seqlen", Key(keys::SEQ_LEN)),
    ("context_length", Key(keys::SEQ_LEN)),
    ("context_len", Key(keys::SEQ_LEN)),
    ("context_size", Key(keys::SEQ_LEN)),
    ("context", Key(keys::SEQ_LEN)),
    ("ctx", Key(keys::SEQ_LEN)),
    ("ctx_len", Key(keys::SEQ_LEN)),
    ("block_size", Key(keys::SEQ_LEN)),
    ("max_prompt_length", Key(keys::PROMPT_LEN)),
    ("max_completion_length", Key(keys::COMPLETION_LEN)),
    ("packing", Sentence(PACKING)),
    ("sample_packing", Sentence(PACKING)),
    // Precision.
    ("bf16", Sentence(BF16)),
    ("bfloat16", Sentence(BF16)),
    ("fp16", Sentence(FP16)),
    ("half", Sentence(FP16)),
    ("amp", Sentence("write --precision amp-bf16 or amp-fp16")),
    (
        "mixed_precision",
        Sentence("autocast over the weights as they are loaded: write --precision amp-bf16, amp-fp16 or bf16-amp"),
    ),
    ("amp_bf16", Says(&[(keys::PRECISION, "amp-bf16")])),
    ("amp_fp16", Says(&[(keys::PRECISION, "amp-fp16")])),
    ("bf16_amp", Says(&[(keys::PRECISION, "bf16-amp")])),
    ("fp32", Says(&[(keys::PRECISION, "fp32")])),
    ("dtype", Sentence(DTYPE)),
    ("torch_dtype", Sentence(DTYPE)),
    ("model_dtype", Sentence(DTYPE)),
    ("tf32", Key(keys::ALLOW_TF32)),
    ("fp8", Sentence(FP8)),
    ("load_in_4bit", Says(&[(keys::QUANTIZATION, "nf4")])),
    ("load_in_8bit", Says(&[(keys::QUANTIZATION, "int8")])),
    ("qlora", Says(&[(keys::QUANTIZATION, "nf4"), (keys::LORA_R, "8")])),
    ("use_qlora", Says(&[(keys::QUANTIZATION, "nf4"), (keys::LORA_R, "8")])),
    ("quantization_bit", Sentence(FOUR_BIT)),
    ("quantize", Sentence(FOUR_BIT)),
    ("quant", Sentence(FOUR_BIT)),
    ("bits", Sentence(FOUR_BIT)),
    ("bnb_4bit_quant_type", Key(keys::QUANTIZATION)),
    ("use_bnb_nested_quant", Key(keys::BNB_4BIT_USE_DOUBLE_QUANT)),
    ("double_quant", Key(keys::BNB_4BIT_USE_DOUBLE_QUANT)),
    ("double_quantization", Key(keys::BNB_4BIT_USE_DOUBLE_QUANT)),
    // Attention, checkpointing, compilation.
    ("attn_implementation", Key(keys::ATTENTION)),
    ("attn_impl", Key(keys::ATTENTION)),
    ("attn", Key(keys::ATTENTION)),
    ("flash_attn", Sentence(FLASH)),
    ("use_flash_attn", Sentence(FLASH)),
    ("use_flash_attention", Sentence(FLASH)),
    ("flash_attention", Sentence(FLASH)),
    ("use_flash_attention_2", Sentence(FLASH)),
    ("flash_attention_2", Sentence(FLASH)),
    ("use_gradient_checkpointing", Key(keys::GRADIENT_CHECKPOINTING)),
    ("activation_checkpointing", Key(keys::GRADIENT_CHECKPOINTING)),
    ("gradient_checkpointing_kwargs", Sentence(REENTRANT)),
    ("torch_compile", Sentence(COMPILE)),
    ("compile", Sentence(COMPILE)),
    ("unsloth", Sentence(UNSLOTH)),
    ("use_unsloth", Sentence(UNSLOTH)),
    ("use_liger", Key(keys::USE_LIGER_KERNEL)),
    ("liger", Key(keys::USE_LIGER_KERNEL)),
    ("liger_kernel", Key(keys::USE_LIGER_KERNEL)),
    // The optimizer.
    ("optim", Key(keys::OPTIMIZER)),
    ("optimizer_type", Key(keys::OPTIMIZER)),
    ("optimizer_in_bwd", Key(keys::OPTIMIZER_IN_BACKWARD)),
    ("use_ema", Says(&[(keys::EMA, "ema_model")])),
    ("foreach_ema", Sentence(EMA)),
    ("offload_ema", Sentence(EMA)),
    ("max_grad_norm", Key(keys::CLIP_GRAD_NORM)),
    ("gradient_clipping", Key(keys::CLIP_GRAD_NORM)),
    ("gradient_clip_val", Key(keys::CLIP_GRAD_NORM)),
    ("grad_clip", Key(keys::CLIP_GRAD_NORM)),
    ("use_galore", Says(&[(keys::OPTIMIZER, "galore_adamw")])),
    ("galore_rank", Sentence(LOW_RANK)),
    ("galore_target", Key(keys::OPTIM_TARGET_MODULES)),
    ("galore_update_interval", Sentence(LOW_RANK)),
    ("update_proj_gap", Sentence(LOW_RANK)),
    ("use_apollo", Says(&[(keys::OPTIMIZER, "apollo_adamw")])),
    ("apollo_rank", Sentence(LOW_RANK)),
    ("apollo_target", Key(keys::OPTIM_TARGET_MODULES)),
    ("lr", Key(keys::LEARNING_RATE)),
    ("beta1", Key(keys::ADAM_BETA1)),
    ("beta2", Key(keys::ADAM_BETA2)),
    ("eps", Key(keys::ADAM_EPSILON)),
    ("scheduler", Key(keys::LR_SCHEDULER_TYPE)),
    ("warmup_ratio", Key(keys::WARMUP_STEPS)),
    // LoRA.
    ("lora", Says(&[(keys::LORA_R, "8")])),
    ("use_lora", Says(&[(keys::LORA_R, "8")])),
    ("use_peft", Says(&[(keys::LORA_R, "8")])),
    ("peft", Sentence(ADAPTER)),
    ("adapter", Sentence(ADAPTER)),
    ("lora_rank", Key(keys::LORA_R)),
    ("lora.rank", Key(keys::LORA_R)),
    ("rank", Key(keys::LORA_R)),
    ("lora_target", Key(keys::LORA_TARGETS)),
    ("lora_target_modules", Key(keys::LORA_TARGETS)),
    ("lora.target_modules", Key(keys::LORA_TARGETS)),
    ("target_modules", Key(keys::LORA_TARGETS)),
    ("modules_to_save", Key(keys::LORA_MODULES_TO_SAVE)),
    ("lora_modules_to_save", Key(keys::LORA_MODULES_TO_SAVE)),
    ("additional_target", Key(keys::LORA_MODULES_TO_SAVE)),
    ("use_dora", Key(keys::LORA_USE_DORA)),
    ("dora", Key(keys::LORA_USE_DORA)),
    ("finetuning_type", Sentence("for lora write --lora-r; full training is what is estimated without it")),
    // Several GPUs.
    ("num_gpus", Key(keys::WORLD_SIZE)),
    ("n_gpu", Key(keys::WORLD_SIZE)),
    ("n_gpus", Key(keys::WORLD_SIZE)),
    ("gpus", Key(keys::WORLD_SIZE)),
    ("nproc_per_node", Key(keys::WORLD_SIZE)),
    ("num_processes", Key(keys::WORLD_SIZE)),
    ("nodes", Sentence("ranks of all nodes together are --world-size")),
    ("nnodes", Sentence("ranks of all nodes together are --world-size")),
    ("num_nodes", Sentence("ranks of all nodes together are --world-size")),
    ("num_machines", Sentence("ranks of all nodes together are --world-size")),
    ("zero_stage", Key(keys::DEEPSPEED_STAGE)),
    ("zero", Key(keys::DEEPSPEED_STAGE)),
    ("zero1", Says(&[(keys::PARALLEL, "deepspeed"), (keys::DEEPSPEED_STAGE, "1")])),
    ("zero2", Says(&[(keys::PARALLEL, "deepspeed"), (keys::DEEPSPEED_STAGE, "2")])),
    ("zero3", Says(&[(keys::PARALLEL, "deepspeed"), (keys::DEEPSPEED_STAGE, "3")])),
    ("deepspeed", Sentence(DEEPSPEED)),
    ("deepspeed_config", Sentence(DEEPSPEED)),
    ("ds_config", Sentence(DEEPSPEED)),
    ("fsdp", Sentence(FSDP)),
    ("fsdp_config", Sentence(FSDP)),
    ("ddp", Says(&[(keys::PARALLEL, "ddp")])),
    ("fsdp2", Says(&[(keys::PARALLEL, "fsdp2")])),
    ("tensor_parallel_size", Sentence("write --parallel tensor --world-size N")),
    ("tp_size", Sentence("write --parallel tensor --world-size N")),
    ("tp", Sentence("write --parallel tensor --world-size N")),
    ("pipeline_parallel_size", Sentence("write --parallel pipeline --world-size N")),
    ("pp_size", Sentence("write --parallel pipeline --world-size N")),
    ("pp", Sentence("write --parallel pipeline --world-size N")),
    ("dp", Sentence("write --parallel ddp --world-size N")),
    ("dp_size", Sentence("write --parallel ddp --world-size N")),
    ("data_parallel_size", Sentence("write --parallel ddp --world-size N")),
    ("virtual_pipeline_model_parallel_size", Sentence(INTERLEAVED)),
    ("context_parallel_size", Sentence(CONTEXT_PARALLEL)),
    ("context_parallel_degree", Sentence(CONTEXT_PARALLEL)),
    ("context_parallel", Sentence(CONTEXT_PARALLEL)),
    ("cp", Sentence(CONTEXT_PARALLEL)),
    ("cp_size", Sentence(CONTEXT_PARALLEL)),
    ("sp_size", Sentence(CONTEXT_PARALLEL)),
    ("sequence_parallel_degree", Sentence(CONTEXT_PARALLEL)),
    ("ulysses_sequence_parallel_size", Sentence(CONTEXT_PARALLEL)),
    ("ep", Sentence(EXPERTS)),
    ("ep_size", Sentence(EXPERTS)),
    ("expert_parallel_size", Sentence(EXPERTS)),
    ("cpu_offload", Sentence(OFFLOAD)),
    ("offload", Sentence(OFFLOAD)),
    ("offload_optimizer", Sentence(OFFLOAD)),
    ("offload_param", Sentence(OFFLOAD)),
    ("offload_params", Sentence(OFFLOAD)),
    ("config_file", Sentence(ACCELERATE)),
    ("accelerate_config", Sentence(ACCELERATE)),
    ("config", Sentence(CONFIG)),
    ("vram", Sentence(MEMORY)),
    ("gpu_memory", Sentence(MEMORY)),
    ("memory", Sentence(MEMORY)),
    ("device", Key(keys::GPU)),
    ("gpu_type", Key(keys::GPU)),
    ("gpu_memory_utilization", Key(keys::VLLM_GPU_MEMORY_UTILIZATION)),
    ("vllm_gpu_memory_utilization", Key(keys::VLLM_GPU_MEMORY_UTILIZATION)),
    ("vllm", Says(&[(keys::GRPO_ROLLOUT, "vllm")])),
    ("use_vllm", Says(&[(keys::GRPO_ROLLOUT, "vllm")])),
    // The model and the trainer.
    ("model_name", Key(keys::MODEL)),
    ("model_name_or_path", Key(keys::MODEL)),
    ("base_model", Key(keys::MODEL)),
    ("model_id", Key(keys::MODEL)),
    ("pretrained_model_name_or_path", Key(keys::MODEL)),
    ("stage", Sentence("what is run is --task: sft, grpo, dpo, causal_lm; the stage of ZeRO is --deepspeed-stage")),
    ("mode", Sentence("what is run is --task")),
    ("trainer", Key(keys::FRAMEWORK)),
    ("library", Key(keys::FRAMEWORK)),
    ("transformers_version", Key(keys::TRANSFORMERS)),
    ("beta", Key(keys::GRPO_BETA)),
    ("group_size", Key(keys::NUM_GENERATIONS)),
    ("grpo.num_generations", Key(keys::NUM_GENERATIONS)),
    ("swarm.num_generations", Key(keys::NUM_GENERATIONS)),
    ("grpo.use_liger_kernel", Key(keys::USE_LIGER_KERNEL)),
    ("judge.dtype", Key(keys::JUDGE_WEIGHTS)),
    ("evaluator_model", Key(keys::JUDGE_MODEL)),
    ("evaluator_type", Key(keys::GRPO_REWARD)),
    ("parser_type", Sentence("what is asked is --grpo-questions; where its answer stands is --grpo-answer-form")),
    ("client_type", Key(keys::JUDGE_PLACE)),
    ("evaluator_8bit", Says(&[(keys::JUDGE_WEIGHTS, "int8")])),
    ("mask_truncated_completions", Key(keys::GRPO_MASK_TRUNCATED_COMPLETIONS)),
    ("scale_rewards", Key(keys::GRPO_SCALE_REWARDS)),
    ("epsilon_high", Key(keys::GRPO_EPSILON_HIGH)),
    ("judge.max_new_tokens", Key(keys::JUDGE_NEW_TOKENS)),
    ("epochs", Key(keys::NUM_TRAIN_EPOCHS)),
    ("num_epochs", Key(keys::NUM_TRAIN_EPOCHS)),
    ("max_train_steps", Key(keys::MAX_STEPS)),
    // Data, and what is generated.
    ("train_file", Key(keys::DATA_TRAIN_FILES)),
    ("train_files", Key(keys::DATA_TRAIN_FILES)),
    ("validation_file", Key(keys::DATA_EVAL_FILES)),
    ("dataset_text_field", Key(keys::DATA_TEXT_FIELD)),
    ("data.text_key", Key(keys::DATA_TEXT_FIELD)),
    ("tokenizer", Key(keys::DATA_TOKENIZER)),
    ("tokenizer_name", Key(keys::DATA_TOKENIZER)),
    ("generation.beams", Key(keys::GENERATION_NUM_BEAMS)),
    ("generation.beam_size", Key(keys::GENERATION_NUM_BEAMS)),
    ("temperature", Key(keys::GENERATION_TEMPERATURE)),
    ("num_beams", Key(keys::GENERATION_NUM_BEAMS)),
    ("top_k", Key(keys::GENERATION_TOP_K)),
    ("top_p", Key(keys::GENERATION_TOP_P)),
];

/// `-` and `_` are the same, and so are capitals.
fn plain_word(word: &str) -> String {
    word.trim().trim_start_matches("--").replace('-', "_").to_lowercase()
}

/// What the name of a key or a flag is.
pub fn meaning_of_name(word: &str) -> Option<Meaning> {
    let word = plain_word(word);
    NAMES.iter().find(|(theirs, _)| *theirs == word).map(|(_, meaning)| *meaning)
}

/// ZeRO's stage as `zero3`, of which DeepSpeed, accelerate and people write more.
fn zero_stage(word: &str) -> Option<String> {
    let stage = word.trim_start_matches("deepspeed").trim_start_matches('_').strip_prefix("zero")?;
    match stage.trim_start_matches('_').trim_start_matches("stage").trim_start_matches('_') {
        // PyTorch's own is `zero1`.
        "1" => Some("zero_1".to_owned()),
        stage => Some(format!("zero{stage}")),
    }
}

/// What the value `value` of `key` is.
pub fn meaning_of_value(key: &str, value: &Value) -> Option<Meaning> {
    let word = match value {
        Value::String(text) => plain_word(text),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    // `zero3`, `zero-3` and `deepspeed-zero3` are one.
    let word = if key == keys::PARALLEL { zero_stage(&word).unwrap_or(word) } else { word };
    let is_word = |theirs: &str| plain_word(theirs) == word;
    VALUES.iter().find(|(of, theirs, _)| *of == key && is_word(theirs)).map(|(_, _, meaning)| *meaning)
}

/// The value that a switch of theirs writes, as JSON.
pub(super) fn json_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::keys::{KEYS, Key as OurKey};

    #[test]
    fn the_guides_evaluators_act() {
        let judged = Some(Says(&[(keys::GRPO_REWARD, "judge_answer")]));
        assert_eq!(meaning_of_name("--evaluator-type"), Some(Key(keys::GRPO_REWARD)));
        assert_eq!(meaning_of_value(keys::GRPO_REWARD, &json!("easy-math")), judged);
    }

    fn possible(key: &str, text: &str) -> bool {
        let found = OurKey::find(key).unwrap_or_else(|| panic!("no key {key}"));
        found.kind.check(&found.kind.parse_text(text)).is_ok()
    }

    #[test]
    fn a_key_of_a_table_may_be_written_as_its_flag() {
        assert_eq!(OurKey::called("lora_r").map(|key| key.name), Some(keys::LORA_R));
    }

    #[test]
    fn stages_of_zero_are_told_however_they_are_written() {
        let three = meaning_of_value(keys::PARALLEL, &json!("zero3"));
        assert!(matches!(three, Some(Says(_))));
        for word in ["zero-3", "deepspeed-zero3", "deepspeed_zero_3", "ZeRO-Stage-3"] {
            assert_eq!(meaning_of_value(keys::PARALLEL, &json!(word)), three, "{word}");
        }
        for word in ["full_shard", "deepspeed-zero1"] {
            assert!(matches!(meaning_of_value(keys::PARALLEL, &json!(word)), Some(Sentence(_))), "{word}");
        }
        for word in ["4bit", "bnb", "qlora"] {
            assert!(meaning_of_value(keys::QUANTIZATION, &json!(word)).is_some(), "{word}");
        }
    }

    #[test]
    fn every_word_leads_to_a_key_that_is() {
        for (word, meaning) in NAMES {
            assert!(KEYS.iter().all(|key| key.name != *word), "{word} is a key of ours");
            assert_eq!(plain_word(word), *word);
            match meaning {
                Key(key) => assert!(OurKey::find(key).is_some(), "{word}: {key}"),
                Says(keys) => assert!(keys.iter().all(|(key, text)| possible(key, text)), "{word}"),
                Sentence(text) => assert!(text.len() > 20 && !text.ends_with('.'), "{word}"),
            }
        }
    }

    #[test]
    fn what_is_not_simulated_can_be_rehearsed() {
        let meanings = NAMES.iter().map(|(_, meaning)| meaning).chain(VALUES.iter().map(|(.., meaning)| meaning));
        for meaning in meanings {
            let Sentence(text) = meaning else { continue };
            assert!(!text.contains("not simulated") || text.contains("tonnage rehearse"), "{text}");
        }
    }

    #[test]
    fn every_value_leads_to_one_that_is_and_is_none_of_ours() {
        for (key, word, meaning) in VALUES {
            assert!(!possible(key, word), "{key} takes {word} itself");
            match meaning {
                Says(keys) => assert!(keys.iter().all(|(key, text)| possible(key, text)), "{key} {word}"),
                Sentence(text) => assert!(text.len() > 20 && !text.ends_with('.'), "{key} {word}"),
                Key(_) => panic!("{key} {word}: a value is no key"),
            }
        }
    }
}
