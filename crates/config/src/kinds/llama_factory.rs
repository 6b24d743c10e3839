//! LLaMA-Factory's arguments (hparams of 0.9.4), beside `TrainingArguments`: YAML or a command line.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::images;
use super::llama_factory_v1 as v1;
use super::peft::{self, ONLY_QUANTIZED};
use super::quantized;
use super::trainer::set_attention;
use super::words::{
    CODE, DATA, EVAL, HUB, LAUNCH, LOGS, LOSS, NAME, OFFLOAD, PACKING, QUANTIZED, SAMPLING, SAVES, SCALAR, TOKENS,
};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Inside, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, Free, OFF, Row, Rule, Said, Table};
use crate::tree::{Entry, find_entry, is_null, is_on, plain_text};

const LOW_RANK: &str = "an optimizer of low-rank gradients is simulated as AdamW: its states are smaller, its projections were not \
                        measured and may take more in the step";
const BADAM: &str =
    "BAdam is simulated as AdamW of all layers: it trains a few at a time, in fp32, which was not measured";
const ADAM_MINI: &str = "Adam-mini is simulated as AdamW: its states are about half, its step was not measured";
const MUON: &str =
    "LLaMA-Factory's Muon is simulated as Muon for matrices beside AdamW; the range allows a fifth of the peak";
const KTRANSFORMERS: &str =
    "KTransformers keeps the experts on the host: estimated is the whole model on the GPU, which takes no less";
const MEGATRON: &str = "Megatron is not simulated";
const MESH: &str = "a mesh of ranks is not simulated: a rank may hold more or less";
const OTHER_LOSS: &str = "another loss was not measured: it may keep more";

/// Its own keys; those of `TrainingArguments` follow.
pub const ROWS: Table = Table { rows: ROWS_ROWS, free: ROWS_FREE };

/// Of these the reason is one of a few.
const ROWS_FREE: &[Free] = &[
    (
        SCALAR,
        "use_rslora loraplus_lr_ratio loraplus_lr_embedding galore_rank galore_update_interval galore_scale apollo_rank \
        apollo_update_interval apollo_scale apollo_scale_front",
    ),
    (SAVES, "save_epochs save_ckpt_as_hf pissa_convert export_hf_on_finish ray_storage_path export_dir"),
    (NAME, "galore_target galore_proj_type apollo_target apollo_proj apollo_proj_type apollo_scale_type model_class"),
    (
        LOGS,
        "badam_verbose plot_loss include_effective_tokens_per_second print_param_status use_swanlab swanlab_project \
        swanlab_workspace swanlab_run_name swanlab_mode swanlab_logdir enable_torch_profiler",
    ),
    (
        LOSS,
        "asft_alpha eaft_alpha pref_beta pref_bco_weight dpo_label_smoothing kto_chosen_weight kto_rejected_weight \
        simpo_gamma moe_aux_loss_coef",
    ),
    (
        images::UNTOLD,
        "image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels \
        video_fps video_maxlen use_audio_in_video audio_sampling_rate",
    ),
    (
        EVAL,
        "infer_dtype infer_backend offload_folder use_kv_cache eval_num_beams eval_on_each_dataset early_stopping_steps \
        max_new_tokens max_length sample_backend",
    ),
    (
        TOKENS,
        "template custom_chat_template tool_format default_system enable_thinking preserve_thinking skip_special_tokens use_fast_tokenizer \
        split_special_tokens",
    ),
    (
        DATA,
        "dataset eval_dataset dataset_dir media_dir streaming buffer_size mix_strategy interleave_probs overwrite_cache \
        preprocessing_batch_size preprocessing_num_workers max_samples ignore_pad_token_for_loss val_size tokenized_path \
        data_shared_file_system disable_shuffling train_dataset batching_workers",
    ),
    (SAMPLING, "do_sample temperature top_p top_k num_beams repetition_penalty length_penalty"),
    (
        LAUNCH,
        "dist_timeout ray_init_kwargs ray_run_name resources_per_worker placement_strategy master_addr master_port",
    ),
    (HUB, "cache_dir model_revision hf_hub_token ms_hub_token om_hub_token"),
    (CODE, "trust_remote_code"),
];

const ROWS_ROWS: &[Row] = &[
    ("model_name_or_path", Sets(keys::MODEL)),
    ("stage", Reads(training_stage)),
    ("finetuning_type", Reads(finetuning_type)),
    ("cutoff_len", Sets(keys::SEQ_LEN)),
    ("lora_rank", Reads(|facts, said| of_adapter(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapter(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapter(facts, said, keys::LORA_DROPOUT))),
    ("lora_target", Reads(lora_targets)),
    ("additional_target", Reads(|facts, said| of_adapter(facts, said, keys::LORA_MODULES_TO_SAVE))),
    ("use_dora", Reads(|facts, said| of_adapter(facts, said, keys::LORA_USE_DORA))),
    ("pissa_init", Rule::Free("how the adapters begin: no size")),
    ("pissa_iter", Rule::Free("how the adapters begin: no size")),
    ("create_new_adapter", Rule::Free("as many adapters")),
    ("adapter_name_or_path", Rule::Free("where adapters are loaded from")),
    ("adapter_folder", Rule::Free("where adapters are loaded from")),
    ("quantization_bit", Reads(quantized::bits_of_llama_factory)),
    ("quantization_method", Rule::Free("`quantization_bit` reads it")),
    ("quantization_type", Rule::Free("`quantization_bit` reads it")),
    ("double_quantization", Rule::Free("`quantization_bit` reads it")),
    ("quantization_device_map", Rule::Free(ONLY_QUANTIZED)),
    ("quant_config", Inside(v1::QUANTIZED)),
    ("pure_bf16", Reads(pure_bf16)),
    ("flash_attn", Reads(flash_attention)),
    ("disable_gradient_checkpointing", Reads(no_checkpointing)),
    (
        "gradient_checkpointing",
        Rule::Free("LLaMA-Factory checkpoints unless disable_gradient_checkpointing says not to"),
    ),
    ("use_reentrant_gc", Reads(reentrant_checkpoint)),
    ("use_unsloth_gc", Notes(OFFLOAD, Allowance::Less)),
    ("use_unsloth", Refuses("Unsloth's kernels are not simulated")),
    ("enable_liger_kernel", Sets(keys::USE_LIGER_KERNEL)),
    ("upcast_layernorm", Notes("norms kept in fp32 take more, which is not simulated", Allowance::Fifth)),
    ("upcast_lmhead_output", Notes("the head's output in fp32 takes more, which is not simulated", Allowance::Unknown)),
    ("shift_attn", Refuses("shifted sparse attention is not simulated")),
    ("mixture_of_depths", Notes(super::words::DEPTHS, Allowance::AllButStates)),
    ("use_llama_pro", Notes("with part of the weights frozen it takes less than is estimated", Allowance::Less)),
    ("freeze_trainable_layers", Rule::Free("only finetuning_type freeze reads it")),
    ("freeze_trainable_modules", Rule::Free("only finetuning_type freeze reads it")),
    ("freeze_extra_modules", Rule::Free("only finetuning_type freeze reads it")),
    ("use_galore", Reads(|facts, said| saving_optimizer(facts, said, LOW_RANK))),
    ("galore_layerwise", Rule::Free("only GaLore reads it")),
    ("use_apollo", Reads(|facts, said| saving_optimizer(facts, said, LOW_RANK))),
    ("apollo_layerwise", Rule::Free("only APOLLO reads it")),
    ("use_badam", Reads(|facts, said| saving_optimizer(facts, said, BADAM))),
    ("badam_mode", Rule::Free("only BAdam reads it")),
    ("badam_start_block", Rule::Free("only BAdam reads it")),
    ("badam_switch_mode", Rule::Free("only BAdam reads it")),
    ("badam_switch_interval", Rule::Free("only BAdam reads it")),
    ("badam_update_ratio", Rule::Free("only BAdam reads it")),
    ("badam_mask_mode", Rule::Free("only BAdam reads it")),
    ("use_adam_mini", Reads(|facts, said| saving_optimizer(facts, said, ADAM_MINI))),
    ("use_muon", Reads(use_muon)),
    ("use_mca", Refuses(MEGATRON)),
    ("use_megatron_bridge", Refuses(MEGATRON)),
    ("megatron_bridge_args", Refuses(MEGATRON)),
    ("tensor_model_parallel_size", Refuses(MEGATRON)),
    ("pipeline_model_parallel_size", Refuses(MEGATRON)),
    ("expert_model_parallel_size", Refuses(MEGATRON)),
    ("context_parallel_size", Refuses(MEGATRON)),
    ("virtual_pipeline_model_parallel_size", Refuses(MEGATRON)),
    ("sequence_parallel", Refuses(MEGATRON)),
    ("recompute_granularity", Rule::Free("only Megatron reads it")),
    ("bias_activation_fusion", Rule::Free("only Megatron reads it")),
    ("apply_rope_fusion", Rule::Free("only Megatron reads it")),
    ("moe_grouped_gemm", Rule::Free("only Megatron reads it")),
    ("moe_token_dispatcher_type", Rule::Free("only Megatron reads it")),
    ("use_distributed_optimizer", Refuses(MEGATRON)),
    ("overlap_param_gather", Rule::Free("only Megatron reads it")),
    ("overlap_grad_reduce", Rule::Free("only Megatron reads it")),
    ("use_packed_sequences", Rule::Free("only Megatron reads it")),
    ("mixed_precision", Rule::Free("only Megatron reads it")),
    ("use_hyper_parallel", Refuses("HyperParallel is not simulated")),
    ("hyper_parallel_args", Rule::Free("only HyperParallel reads it")),
    ("hyper_parallel_cp_size", Rule::Free("only HyperParallel reads it")),
    ("cp_size", Notes("context parallelism is not simulated: a rank takes less than is estimated", Allowance::Less)),
    ("cp_mode", Rule::Free("only context parallelism reads it")),
    ("use_kt", Notes(KTRANSFORMERS, Allowance::Less)),
    ("kt_config", Rule::Free("only KTransformers reads it")),
    ("kt_cpu_activation", Rule::Free("only KTransformers reads it")),
    ("kt_weight_path", Rule::Free("only KTransformers reads it")),
    ("kt_non_expert_weight_path", Rule::Free("only KTransformers reads it")),
    ("fp8", Notes(super::words::FP8, Allowance::AllButStates)),
    ("fp8_backend", Rule::Free("only fp8 reads it")),
    ("fp8_enable_fsdp_float8_all_gather", Rule::Free("only fp8 reads it")),
    ("use_dft_loss", Notes(OTHER_LOSS, Allowance::Unknown)),
    ("use_asft_loss", Notes(OTHER_LOSS, Allowance::Unknown)),
    ("use_eaft_loss", Notes(OTHER_LOSS, Allowance::Unknown)),
    ("packing", Notes(PACKING, Allowance::Fifth)),
    ("neat_packing", Notes(PACKING, Allowance::Fifth)),
    ("oft_rank", Rule::Free("only OFT reads it")),
    ("oft_block_size", Rule::Free("only OFT reads it")),
    ("oft_target", Rule::Free("only OFT reads it")),
    ("module_dropout", Rule::Free("only OFT reads it")),
    ("pref_ftx", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("pref_loss", Reads(preference_loss)),
    ("ld_alpha", Notes("length desensitization is not simulated", Allowance::Fifth)),
    ("ref_model", Notes("a reference of another model than the policy is not simulated", Allowance::Unknown)),
    ("ref_model_adapters", Rule::Free("where adapters are loaded from")),
    ("ref_model_quantization_bit", Refuses(QUANTIZED)),
    ("reward_model", Rule::Free("only PPO reads it")),
    ("reward_model_adapters", Rule::Free("only PPO reads it")),
    ("reward_model_quantization_bit", Rule::Free("only PPO reads it")),
    ("reward_model_type", Rule::Free("only PPO reads it")),
    ("freeze_vision_tower", Reads(images::freeze_tower)),
    ("freeze_multi_modal_projector", Reads(images::freeze_projector)),
    ("image_max_pixels", Reads(images::max_pixels)),
    ("freeze_language_model", Refuses("a language model that is not trained is not simulated")),
    ("train_from_scratch", Rule::Free("how the weights begin")),
    ("resize_vocab", Notes("a vocabulary that is filled up has a few rows more", Allowance::None)),
    ("add_tokens", Notes("tokens that are added make the vocabulary longer", Allowance::None)),
    ("add_special_tokens", Notes("tokens that are added make the vocabulary longer", Allowance::None)),
    ("new_special_tokens_config", Notes("tokens that are added make the vocabulary longer", Allowance::None)),
    ("init_special_tokens", Rule::Free("how new rows begin")),
    ("rope_scaling", Rule::Free("positions of tokens: no size")),
    ("device_map", Reads(super::trl::device_map)),
    ("compute_dtype", Reads(super::trainer::dtype)),
    ("use_v1_kernels", Notes("LLaMA-Factory v1's kernels were not measured", Allowance::Fifth)),
    ("low_cpu_mem_usage", Rule::Free("how weights reach the host")),
    ("train_on_prompt", Rule::Free("which tokens have labels; all positions are taken to have one")),
    ("mask_history", Rule::Free("which tokens have labels; all positions are taken to have one")),
    ("compute_accuracy", Notes("an evaluation that keeps its predictions is not simulated", Allowance::Unknown)),
    ("ray_num_workers", Sets(keys::WORLD_SIZE)),
    ("dist_config", Inside(v1::RANKS)),
    ("kernel_config", Inside(v1::KERNEL)),
    ("peft_config", Inside(v1::PEFT)),
    ("init_config", Inside(v1::INIT)),
    ("optim_config", Inside(v1::OPTIMIZER)),
    ("model", Sets(keys::MODEL)),
    ("micro_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("enable_activation_checkpointing", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("global_batch_size", Rule::Free("rows of a step: what `micro_batch_size` and the passes come to")),
    ("batching_strategy", Reads(batching)),
    ("dp_size", Rule::Free("how ranks are dealt: `--world-size` says how many")),
    ("mp_replicate_size", Notes(MESH, Allowance::Unknown)),
    ("mp_shard_size", Notes(MESH, Allowance::Unknown)),
];

fn training_stage(facts: &mut Facts, said: &Said<'_>) -> Became {
    let task = match said.word().as_str() {
        "sft" | "pt" => "causal_lm",
        "dpo" => "dpo",
        "rm" => "reward",
        "kto" => "kto",
        other => {
            return Became::Refused(format!("training by stage `{}` is not simulated", crate::text::brief_text(other)));
        }
    };
    facts.set_text(keys::TASK, task, said.place);
    Became::Used(keys::TASK)
}

/// LoRA where nobody says anything else.
fn is_lora(file: &[Entry]) -> bool {
    find_entry(file, "finetuning_type").is_none_or(|entry| plain_text(&entry.node.value()).eq_ignore_ascii_case("lora"))
}

fn is_tuned_by(file: &[Entry], word: &str) -> bool {
    find_entry(file, "finetuning_type").is_some_and(|entry| plain_text(&entry.node.value()).eq_ignore_ascii_case(word))
}

fn finetuning_type(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "lora" => Became::Used(keys::LORA_R),
        "full" => Became::NoMemory("all weights are trained, as they are where no adapter is"),
        "oft" => Became::Noted(super::words::ROTATIONS.to_owned(), Allowance::AllButStates),
        "freeze" => {
            Became::Noted("with part of the weights frozen it takes less than is estimated".to_owned(), Allowance::Less)
        }
        other => Became::Refused(format!("`{}` is not simulated", crate::text::brief_text(other))),
    }
}

const NO_ADAPTER: &str = "no adapter is made: `finetuning_type` is not lora";

fn of_adapter(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !is_lora(said.file) || is_null(said.value) {
        return Became::NoMemory(NO_ADAPTER);
    }
    facts.set_key(key, said.value, said.place)
}

/// Names with commas between them, or `all`.
fn lora_targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_lora(said.file) {
        return Became::NoMemory(NO_ADAPTER);
    }
    if said.word() == "all" {
        facts.set_text(keys::LORA_TARGETS, "all-linear-names", said.place);
        return Became::Used(keys::LORA_TARGETS);
    }
    peft::targets(facts, said)
}

/// An optimizer that is made to save: what it saves is not known, nor what its step takes.
fn saving_optimizer(facts: &mut Facts, said: &Said<'_>, what: &'static str) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.left_open.push(LeftOpen { text: what.to_owned(), allowance: Allowance::Less });
    Became::Noted(what.to_owned(), Allowance::Unknown)
}

/// Which rows come together (v1/config/arg_utils.py).
fn batching(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "" | "null" | "normal" => Became::NoMemory("rows side by side, each at its full length"),
        _ => Became::Noted(PACKING.to_owned(), Allowance::Fifth),
    }
}

fn use_muon(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::OPTIMIZER, "muon", said.place);
    Became::Noted(MUON.to_owned(), Allowance::Fifth)
}

fn pure_bf16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
    facts.autocast = Some((None, said.place.cloned()));
    Became::Used(keys::PRECISION)
}

fn flash_attention(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = match said.word().as_str() {
        "auto" => return Became::NoMemory("not said: the model's own default"),
        "disabled" => "eager".to_owned(),
        other => other.to_owned(),
    };
    set_attention(facts, &word, said.place)
}

fn no_checkpointing(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.set_text(keys::GRADIENT_CHECKPOINTING, !is_on(said.value), said.place);
    Became::Used(keys::GRADIENT_CHECKPOINTING)
}

fn reentrant_checkpoint(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.value == &Value::Bool(false) {
        return Became::Used(keys::GRADIENT_CHECKPOINTING);
    }
    Became::NoMemory("LLaMA-Factory's default, which the answer names")
}

fn preference_loss(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "orpo" | "simpo" => Became::Refused("LLaMA-Factory's own loop of it is not simulated".to_owned()),
        _ => Became::NoMemory(LOSS),
    }
}

const TWO_HEADS: &str = "LLaMA-Factory's reward model keeps the language-model head beside its value head: a pass makes logits of \
                         all tokens in fp32, which nothing reads and which are not simulated";
const WHOLE_LOGITS: &str =
    "LLaMA-Factory's KTO casts the logits of all tokens to fp32 for its log-probabilities, which TRL 1.16 does not";

/// LLaMA-Factory's own defaults (hparams/parser.py, model/adapter.py).
pub fn finish_factory(facts: &mut Facts, file: &[Entry]) {
    if v1::is_second_form(file) {
        return v1::finish_second_form(facts);
    }
    facts.imply_key(keys::TASK, "causal_lm", "LLaMA-Factory's stage: sft");
    let [is_dpo, is_kto, is_reward] = ["dpo", "kto", "reward"].map(|task| facts.value_of(keys::TASK) == Some(task));
    facts.imply_key(
        keys::FRAMEWORK,
        if is_dpo || is_reward { "trl" } else { "trainer" },
        "LLaMA-Factory trains with the Trainer's loop, or TRL's",
    );
    facts.imply_key(keys::SEQ_LEN, 2048, "LLaMA-Factory's cutoff_len");
    facts.imply_key(keys::GRADIENT_CHECKPOINTING, true, "LLaMA-Factory checkpoints unless it is told not to");
    let text = if is_reward { Some(TWO_HEADS) } else { is_kto.then_some(WHOLE_LOGITS) };
    facts.left_open.extend(text.map(|text| LeftOpen { text: text.to_owned(), allowance: Allowance::Unknown }));
    if is_dpo || is_kto {
        let length = facts.size_of(keys::SEQ_LEN).unwrap_or(2048);
        facts.sets.retain(|given| given.key != keys::SEQ_LEN);
        facts.imply_key(keys::PROMPT_LEN, (length / 2).max(1), "half of cutoff_len");
        facts.imply_key(keys::COMPLETION_LEN, length.saturating_sub(length / 2).max(1), "half of cutoff_len");
    }
    if is_tuned_by(file, "oft") {
        facts.imply_key(keys::LORA_R, 1, "LLaMA-Factory's OFT, as the smallest adapter");
        facts.imply_key(keys::LORA_TARGETS, "all-linear", "LLaMA-Factory's oft_target: all");
    }
    if is_lora(file) {
        facts.imply_key(keys::LORA_R, 8, "LLaMA-Factory's lora_rank");
        facts.imply_key(keys::LORA_TARGETS, "all-linear-names", "LLaMA-Factory's lora_target: all");
    }
    images::imply_of_factory(facts);
    weight_dtype(facts, file);
    let reentrant = find_entry(file, "use_reentrant_gc").is_none_or(|entry| is_on(&entry.node.value()));
    let checkpoints = facts.value_of(keys::GRADIENT_CHECKPOINTING) == Some("true");
    let how = if reentrant && checkpoints { ", its checkpointing with use_reentrant=True among them," } else { "" };
    facts.left_open.push(LeftOpen {
        text: format!(
            "LLaMA-Factory trains with the Trainer's loop; what its own patches change{how} was not measured, the range allows a fifth \
             of the peak"
        ),
        allowance: Allowance::Fifth,
    });
}

/// It loads weights in the dtype of bf16 or fp16, and trains them in fp32 unless adapters or pure_bf16 say otherwise.
fn weight_dtype(facts: &mut Facts, file: &[Entry]) {
    if facts.weights.is_some() {
        return;
    }
    let dtype = match facts.autocast {
        Some((Some(dtype), _)) if is_lora(file) || is_tuned_by(file, "oft") => dtype,
        _ => Dtype::Fp32,
    };
    facts.weights = Some((Weights::As(dtype), None));
}
