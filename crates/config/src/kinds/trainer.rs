//! `TrainingArguments` of transformers 5.17, and the names that older versions had.

use serde_json::Value;
use tonnage_core::job::{Allowance, Place, keys};

use super::words::{CODE, COMPILE, DATA, EVAL, HUB, LAUNCH, LOGS, LOSS, NAME, SAVES, SCALAR, SEED, TOKENS};
use super::{fsdp, optimizer};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{InsideOr, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, Free, OFF, Row, Rule, Said, Table};
use crate::tree::{is_null, is_on, plain_text};

const SMOOTHING: &str =
    "label smoothing computes the loss anew from the logits, in copies that are not simulated: it takes more";
const NEFTUNE: &str =
    "NEFTune's noise is as large as the embedded rows and was not measured; the range allows a fifth of the peak";
const EMPTIES: &str = "the cache is emptied between steps: it takes no more than is estimated";
const DETERMINISM: &str = "deterministic kernels have other workspaces; the range allows a fifth of the peak";
const FULL_EVAL: &str =
    "an evaluation in 16 bits casts the weights, which was not measured; the range allows a fifth of the peak";
const EVAL_KEEPS: &str =
    "an evaluation that keeps its predictions keeps logits of all rows on the GPU until it moves them";

/// `TrainingArguments`, and what Seq2SeqTrainingArguments and scripts of run_clm's kind add.
pub const ARGUMENTS: Table = Table { rows: ARGUMENTS_ROWS, free: ARGUMENTS_FREE };

/// Of these the reason is one of a few.
const ARGUMENTS_FREE: &[Free] = &[
    (
        EVAL,
        "batch_eval_metrics eval_strategy evaluation_strategy eval_steps eval_delay eval_on_start eval_do_concat_batches \
        eval_use_gather_object prediction_loss_only metric_for_best_model greater_is_better do_eval do_predict \
        jit_mode_eval generation_max_length generation_num_beams generation_config",
    ),
    (
        SCALAR,
        "learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio adam_beta1 adam_beta2 adam_epsilon",
    ),
    (
        SAVES,
        "output_dir overwrite_output_dir save_only_model save_strategy save_steps save_on_each_node save_total_limit \
        save_safetensors enable_jit_checkpoint restore_callback_states_from_checkpoint load_best_model_at_end",
    ),
    (
        DATA,
        "ignore_data_skip dataloader_drop_last dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers \
        dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order remove_unused_columns \
        label_names group_by_length train_sampling_strategy length_column_name dispatch_batches split_batches \
        sortish_sampler",
    ),
    (
        LOGS,
        "logging_strategy logging_steps logging_dir logging_first_step logging_nan_inf_filter log_level log_level_replica \
        log_on_each_node disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id \
        trackio_static_space_id include_num_input_tokens_seen include_tokens_per_second skip_memory_metrics debug",
    ),
    (NAME, "do_train past_index"),
    (
        HUB,
        "push_to_hub push_to_hub_model_id push_to_hub_organization push_to_hub_token hub_token hub_private_repo \
        hub_model_id hub_strategy hub_always_push hub_revision hub_model_revision",
    ),
    (SEED, "seed data_seed"),
    (LAUNCH, "ddp_broadcast_buffers ddp_backend ddp_timeout local_rank ray_scope tpu_num_cores xpu_backend"),
];

const ARGUMENTS_ROWS: &[Row] = &[
    ("per_device_train_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("per_gpu_train_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("gradient_accumulation_steps", Reads(accumulation_steps)),
    ("num_train_epochs", Reads(train_epochs)),
    ("max_steps", Reads(max_steps)),
    ("optim", Reads(optimizer::read)),
    ("optim_args", Sets(keys::OPTIM_ARGS)),
    ("optim_target_modules", Sets(keys::OPTIM_TARGET_MODULES)),
    ("weight_decay", Reads(optimizer::decay)),
    ("adafactor", Refuses("transformers' own Adafactor: say optim")),
    ("max_grad_norm", Reads(clip_norm)),
    ("bf16", Reads(bf16)),
    ("fp16", Reads(fp16)),
    ("tf32", Sets(keys::ALLOW_TF32)),
    ("gradient_checkpointing", Reads(checkpointing)),
    ("gradient_checkpointing_kwargs", Reads(checkpointing_kwargs)),
    ("use_liger_kernel", Sets(keys::USE_LIGER_KERNEL)),
    ("use_liger", Sets(keys::USE_LIGER_KERNEL)),
    ("liger_kernel_config", Notes("which of Liger's kernels are applied is not simulated", Allowance::Unknown)),
    ("use_cache", Sets(keys::USE_CACHE)),
    ("ddp_find_unused_parameters", Reads(|facts, said| of_ddp(facts, said, keys::DDP_FIND_UNUSED_PARAMETERS))),
    ("ddp_bucket_cap_mb", Reads(|facts, said| of_ddp(facts, said, keys::DDP_BUCKET_CAP_MB))),
    ("ddp_static_graph", Reads(|facts, said| of_ddp(facts, said, keys::DDP_STATIC_GRAPH))),
    ("fsdp", Reads(fsdp::of_trainer)),
    ("fsdp_config", InsideOr(fsdp::ROWS, fsdp::named_config)),
    ("fsdp_min_num_params", Reads(fsdp::of_trainer)),
    ("fsdp_transformer_layer_cls_to_wrap", Rule::Free("layers are wrapped one by one")),
    ("deepspeed", InsideOr(super::deepspeed::ROWS, super::deepspeed::of_trainer)),
    ("label_smoothing_factor", Notes(SMOOTHING, Allowance::Unknown)),
    ("torch_compile", Notes(COMPILE, Allowance::Unknown)),
    ("torch_compile_backend", Notes(COMPILE, Allowance::Unknown)),
    ("torch_compile_mode", Notes(COMPILE, Allowance::Unknown)),
    ("torchdynamo", Notes(COMPILE, Allowance::Unknown)),
    ("neftune_noise_alpha", Notes(NEFTUNE, Allowance::Fifth)),
    ("torch_empty_cache_steps", Notes(EMPTIES, Allowance::Less)),
    (
        "auto_find_batch_size",
        Notes("after an out-of-memory error the batch is halved; estimated is the first", Allowance::None),
    ),
    ("full_determinism", Notes(DETERMINISM, Allowance::Fifth)),
    ("bf16_full_eval", Notes(FULL_EVAL, Allowance::Fifth)),
    ("fp16_full_eval", Notes(FULL_EVAL, Allowance::Fifth)),
    ("parallelism_config", Notes("accelerate's mesh of parallel dimensions is not simulated", Allowance::Unknown)),
    ("per_device_eval_batch_size", Reads(eval_rows)),
    ("per_gpu_eval_batch_size", Reads(eval_rows)),
    ("predict_with_generate", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("include_for_metrics", Notes(EVAL_KEEPS, Allowance::Unknown)),
    ("include_inputs_for_metrics", Notes(EVAL_KEEPS, Allowance::Unknown)),
    ("eval_accumulation_steps", Rule::Free("when predictions move to the host")),
    ("use_cpu", Refuses("it trains on the CPU: no GPU's memory is asked for")),
    ("no_cuda", Refuses("it trains on the CPU: no GPU's memory is asked for")),
    ("use_mps_device", Refuses("it trains on an Apple GPU, which is not simulated")),
    ("use_ipex", Refuses("it trains on an Intel processor, which is not simulated")),
    ("accelerator_config", Rule::Free("how batches are dealt to processes")),
    ("average_tokens_across_devices", Rule::Free("a number that processes tell each other")),
    ("resume_from_checkpoint", Rule::Free("the same states, from the first step on")),
    ("fp16_backend", Rule::Free("which autocast: PyTorch's is the only one left")),
    ("fp16_opt_level", Rule::Free("only apex reads it")),
    ("half_precision_backend", Rule::Free("which autocast: PyTorch's is the only one left")),
];

/// The arguments of run_clm.py and of scripts like it, beside `TrainingArguments`.
pub const SCRIPT: &[Row] = &[
    ("model_name_or_path", Sets(keys::MODEL)),
    ("model_name", Sets(keys::MODEL)),
    ("model_id", Sets(keys::MODEL)),
    ("config_name", Rule::Free("which config a fresh model has; the one that `model_name_or_path` names is taken")),
    ("config_overrides", Refuses("a config that is changed on the way: give the changed config.json")),
    ("model_type", Rule::Free(NAME)),
    ("tokenizer_name", Rule::Free(TOKENS)),
    ("tokenizer_name_or_path", Rule::Free(TOKENS)),
    ("use_fast_tokenizer", Rule::Free(TOKENS)),
    ("cache_dir", Rule::Free(HUB)),
    ("model_revision", Rule::Free(HUB)),
    ("use_auth_token", Rule::Free(HUB)),
    ("token", Rule::Free(HUB)),
    ("trust_remote_code", Rule::Free(CODE)),
    ("low_cpu_mem_usage", Rule::Free("how weights reach the host")),
    ("torch_dtype", Reads(dtype)),
    ("dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("block_size", Sets(keys::SEQ_LEN)),
    ("max_seq_length", Sets(keys::SEQ_LEN)),
    ("max_length", Sets(keys::SEQ_LEN)),
    ("model_max_length", Sets(keys::SEQ_LEN)),
    ("dataset_name", Rule::Free(DATA)),
    ("dataset_config_name", Rule::Free(DATA)),
    ("dataset_text_field", Rule::Free(DATA)),
    ("train_file", Rule::Free(DATA)),
    ("validation_file", Rule::Free(DATA)),
    ("data_path", Rule::Free(DATA)),
    ("max_train_samples", Rule::Free(DATA)),
    ("max_eval_samples", Rule::Free(DATA)),
    ("streaming", Rule::Free(DATA)),
    ("overwrite_cache", Rule::Free(DATA)),
    ("validation_split_percentage", Rule::Free(DATA)),
    ("preprocessing_num_workers", Rule::Free(DATA)),
    ("keep_linebreaks", Rule::Free(DATA)),
    ("mlm_probability", Rule::Free(LOSS)),
    ("line_by_line", Rule::Free(DATA)),
    ("pad_to_max_length", Rule::Free(DATA)),
];

/// A dtype of the weights.
pub fn dtype(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.take_weights(said.value, said.place)
}

/// `bf16`: autocast.
pub fn bf16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory("not said: the trainer's own default holds");
    }
    facts.take_autocast(Dtype::Bf16, is_on(said.value), said.place)
}

/// `fp16`: autocast with a scaler.
pub fn fp16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory("not said: the trainer's own default holds");
    }
    facts.take_autocast(Dtype::Fp16, is_on(said.value), said.place)
}

/// A norm that gradients are clipped to.
pub fn clip_norm(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        value if is_null(value) => facts.set_key(keys::CLIP_GRAD_NORM, &Value::from(0.0), said.place),
        value => facts.set_key(keys::CLIP_GRAD_NORM, value, said.place),
    }
}

pub(super) fn accumulation_steps(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory("the trainer fills it in from its own arguments"),
        _ => facts.set_key(keys::GRADIENT_ACCUMULATION_STEPS, said.value, said.place),
    }
}

pub(super) fn train_epochs(facts: &mut Facts, said: &Said<'_>) -> Became {
    let _ = (facts, said);
    Became::NoMemory("how long it trains")
}

pub(super) fn max_steps(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(steps) if steps > 0 => facts.set_key(keys::MAX_STEPS, said.value, said.place),
        _ => Became::NoMemory(OFF),
    }
}

/// TRL's `activation_offloading`, which Axolotl has too: of its words only the switch is TRL's.
pub fn offloaded_activations(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    match said.word().as_str() {
        "legacy" | "disk" | "hidden_states" => Became::Noted(super::words::OFFLOAD.to_owned(), Allowance::Less),
        _ => {
            facts.set_text(keys::ACTIVATION_OFFLOADING, "streams", said.place);
            Became::Used(keys::ACTIVATION_OFFLOADING)
        }
    }
}

/// Recomputing: a switch, or a word.
pub fn checkpointing(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "unsloth" | "offload" | "offload_disk" => {
            facts.set_text(keys::GRADIENT_CHECKPOINTING, true, said.place);
            Became::Noted(super::words::OFFLOAD.to_owned(), Allowance::Less)
        }
        _ => {
            facts.set_text(keys::GRADIENT_CHECKPOINTING, is_on(said.value), said.place);
            Became::Used(keys::GRADIENT_CHECKPOINTING)
        }
    }
}

/// `use_reentrant`, and what else `checkpoint` is told.
pub fn checkpointing_kwargs(_: &mut Facts, said: &Said<'_>) -> Became {
    let table = match said.value {
        Value::Object(table) => table.clone(),
        value if is_null(value) => return Became::NoMemory(OFF),
        Value::String(text) => crate::text::json::object(text).unwrap_or_default(),
        _ => return Became::NotUnderstood,
    };
    let is_other = |(key, value): (&String, &Value)| match key.as_str() {
        "use_reentrant" => is_on(value),
        _ => true,
    };
    if table.iter().any(is_other) {
        let text = "checkpointing with use_reentrant=True, or with other options, was not measured; the range allows a fifth of \
                    the peak";
        return Became::Noted(text.to_owned(), Allowance::Fifth);
    }
    Became::Used(keys::GRADIENT_CHECKPOINTING)
}

/// The attention implementation.
pub fn attention(facts: &mut Facts, said: &Said<'_>) -> Became {
    set_attention(facts, &said.word(), said.place)
}

const XFORMERS: &str = "xFormers' kernel is simulated as the one of PyTorch that came from it (mem_efficient); the range allows a fifth of the peak";
const FLEX: &str =
    "flex attention is compiled and was not measured: estimated is PyTorch's own kernel (sdpa), it may take more";

/// Sets the attention that transformers' word names.
pub fn set_attention(facts: &mut Facts, word: &str, place: Option<&Place>) -> Became {
    const OTHER: &str =
        "another build of flash attention is simulated as the flash-attn package; the range allows a fifth of the peak";
    let (ours, noted) = match word {
        "" | "null" | "none" | "auto" => return Became::NoMemory("not said: the model's own default"),
        "eager" => ("eager", false),
        "sdpa" => ("sdpa", false),
        "flash_attention_2" | "fa2" => ("flash_attention_2", false),
        "flash_attention_3" | "flash_attention_4" | "fa3" => ("flash_attention_2", true),
        "xformers" => {
            facts.set_text(keys::ATTENTION, "mem_efficient", place);
            return Became::Noted(XFORMERS.to_owned(), Allowance::Fifth);
        }
        "flex_attention" => {
            facts.set_text(keys::ATTENTION, "sdpa", place);
            return Became::Noted(FLEX.to_owned(), Allowance::Unknown);
        }
        word if word.contains("flash-attn") || word.contains("flash_attn") => ("flash_attention_2", true),
        other => {
            return Became::Refused(format!("attention `{}` is not simulated", crate::text::brief_text(other)));
        }
    };
    facts.set_text(keys::ATTENTION, ours, place);
    if noted { Became::Noted(OTHER.to_owned(), Allowance::Fifth) } else { Became::Used(keys::ATTENTION) }
}

/// A key of DDP's: one process has none.
pub(super) fn of_ddp(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    if facts.size_of(keys::WORLD_SIZE).unwrap_or(1) < 2
        || facts.value_of(keys::PARALLEL).is_some_and(|word| word != "ddp")
    {
        return Became::NoMemory("only DDP reads it, and the files name no ranks under DDP");
    }
    facts.set_key(key, said.value, said.place)
}

/// Rows of an evaluation: more than a pass of training has are not simulated.
pub(super) fn eval_rows(_: &mut Facts, said: &Said<'_>) -> Became {
    let evaluates = ["eval_strategy", "evaluation_strategy", "do_eval"]
        .iter()
        .any(|key| said.other(key).is_some_and(|value| is_on(&value) && plain_text(&value) != "no"));
    let rows = |value: &Value| value.as_u64().or_else(|| plain_text(value).parse().ok());
    let train = ["per_device_train_batch_size", "micro_batch_size"].iter().find_map(|key| said.other(key));
    let train = train.and_then(|value| rows(&value)).unwrap_or(8);
    match rows(said.value) {
        _ if !evaluates => Became::NoMemory("nothing is evaluated"),
        Some(eval) if eval <= train => Became::NoMemory(EVAL),
        _ => Became::Noted(MORE_EVAL_ROWS.to_owned(), Allowance::Unknown),
    }
}

pub(super) const MORE_EVAL_ROWS: &str =
    "an evaluation of more rows than a pass of training has is not simulated: its logits may need more";

/// What `TrainingArguments` leave out: eight rows of an evaluation, beside fewer of training.
pub fn finish_trainer(facts: &mut Facts, file: &[crate::tree::Entry]) {
    let value = |key: &str| crate::tree::find_entry(file, key).map(|entry| entry.node.value());
    let evaluates = ["eval_strategy", "evaluation_strategy"]
        .iter()
        .any(|key| value(key).is_some_and(|value| is_on(&value) && plain_text(&value) != "no"));
    let rows = facts.size_of(keys::MICRO_BATCH_SIZE).unwrap_or(8);
    let said = ["per_device_eval_batch_size", "per_gpu_eval_batch_size"].iter().any(|key| value(key).is_some());
    if evaluates && !said && rows < 8 {
        facts.left_open.push(tonnage_core::job::LeftOpen {
            text: format!("`per_device_eval_batch_size` is 8 where nobody says it: {MORE_EVAL_ROWS}"),
            allowance: Allowance::Unknown,
        });
    }
}
