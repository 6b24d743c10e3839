//! Axolotl's YAML (utils/schemas of 0.14): Hugging Face's Trainer with settings of its own.

use tonnage_core::job::{Allowance, keys};

pub use super::axolotl_values::finish_axolotl;
use super::axolotl_values::{
    adam_beta, adapter_dtype, adapter_kind, all_linear, bf16, fp16, full_precision, half_precision, label_count,
    lora_targets, model_config, model_quantization, modules_to_save, new_tokens, of_adapter, of_energy, optimizer_word,
    parallel_degree, precomputed_reference, process_reward_model, reward_model, sharded_model, sharded_version,
    switch_precision, task_kind, tf32, weight_of_likelihood,
};
use super::images;
use super::peft::{self, ONLY_QUANTIZED};
use super::quantized;
use super::trainer::{self, clip_norm};
use super::words::{
    CODE, COMPILE, DATA, EVAL, HUB, LAUNCH, LOGS, LOSS, NAME, OFFLOAD, PACKING, SAMPLING, SAVES, SCALAR, SEED, TOKENS,
};
use super::{deepspeed, fsdp, trl};
use crate::rule::Rule::{Inside, InsideOr, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, Free, Row, Rule, Table};

const FUSED_LOSS: &str = "a loss that never holds all logits takes less than is estimated";
const KERNELS: &str = "Axolotl's own LoRA kernels keep fewer activations: it takes no more than is estimated";
const LIGER: &str = "some of Liger's kernels alone keep fewer activations: it takes no more than is estimated";
const EXPERTS: &str = "other kernels for experts were not measured: they may take more";
pub(super) const MESH: &str = "a mesh of parallel dimensions is not simulated: a rank may hold more or less";
const FROZEN: &str = "with part of the weights frozen it takes less than is estimated";
const QAT: &str = "quantization-aware training keeps more, which is not simulated";
const ONE_TASK: &str = "only its own trainer reads it";

/// Every key of Axolotl's schema that is known.
pub const ROWS: Table = Table { rows: ROWS_ROWS, free: ROWS_FREE };

/// Of these the reason is one of a few.
const ROWS_FREE: &[Free] = &[
    (
        SCALAR,
        "lora_alpha_pattern loraplus_lr_ratio loraplus_lr_embedding peft_use_rslora relora_prune_ratio \
        relora_prune_method scaling_softmax_factor scaling_softmax_bias learning_rate embedding_lr embedding_lr_scale \
        lr_scheduler lr_scheduler_kwargs lr_quadratic_warmup lr_div_factor lr_groups cosine_min_lr_ratio \
        cosine_constant_lr_ratio eta_min jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps \
        adam_beta1 adam_beta2 adam_beta3 adam_epsilon adam_epsilon2 adam_eps warmup_steps warmup_ratio",
    ),
    (
        NAME,
        "peft_layers_pattern cls_model_config base_model_config model_type type_of_model is_falcon_derived_model \
        is_llama_derived_model is_mistral_derived_model is_qwen_derived_model strict gradio_title gradio_share",
    ),
    (
        EVAL,
        "eval_sample_packing eval_steps evals_per_epoch eval_strategy evaluation_strategy eval_max_new_tokens \
        eval_causal_lm_metrics metric_for_best_model greater_is_better early_stopping_patience",
    ),
    (
        LOSS,
        "liger_use_token_scaling eaft_alpha eaft_k dpo_beta dpo_label_smoothing dpo_loss_type dpo_loss_weights \
        dpo_norm_loss",
    ),
    (
        SAVES,
        "fsdp_final_state_dict_type output_dir save_steps saves_per_epoch save_strategy save_total_limit save_first_step \
        save_only_model save_safetensors dynamic_checkpoint load_best_model_at_end",
    ),
    (
        LAUNCH,
        "ddp_timeout ddp_broadcast_buffers world_size local_rank device use_ray ray_run_name resources_per_worker",
    ),
    (CODE, "torchdistx_path trust_remote_code"),
    (
        HUB,
        "base_model_ignore_patterns revision_of_model push_dataset_to_hub hf_use_auth_token hub_model_id hub_strategy \
        hub_revision",
    ),
    (
        TOKENS,
        "tokenizer_config tokenizer_type tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common \
        tokenizer_save_jinja_files processor_type processor_kwargs special_tokens added_tokens_overrides eot_tokens \
        chat_template chat_template_jinja chat_template_kwargs default_system_message",
    ),
    (
        DATA,
        "image_resize_algorithm role_boundaries datasets test_datasets pretraining_dataset \
        pretraining_sample_concatenation pretrain_multipack_buffer_size streaming streaming_multipack_buffer_size \
        dataset_prepared_path dataset_shard_num dataset_shard_idx dataset_processes dataset_num_proc \
        dataset_exact_deduplication dataset_keep_in_memory num_dataset_shards_to_save shuffle_merged_datasets \
        shuffle_before_merging_datasets skip_prepare_dataset dataloader_pin_memory dataloader_num_workers \
        dataloader_prefetch_factor dataloader_drop_last remove_unused_columns val_set_size group_by_length \
        excess_length_strategy min_sample_len sample_packing_group_size sample_packing_bin_size \
        sample_packing_sequentially sample_packing_mp_start_method sample_packing_eff_est \
        sample_packing_seq_len_multiplier total_num_tokens total_supervised_tokens curriculum_sampling use_pose \
        pose_split_on_token_ids pose_max_context_len pose_num_chunks bench_dataset bench_split",
    ),
    (SEED, "seed"),
    (
        LOGS,
        "loss_watchdog_threshold loss_watchdog_patience profiler_steps profiler_steps_start include_tokens_per_second \
        include_tkps logging_steps debug use_wandb wandb_name wandb_run_id wandb_mode wandb_project wandb_entity \
        wandb_watch wandb_log_model use_mlflow mlflow_tracking_uri mlflow_experiment_name mlflow_run_name \
        hf_mlflow_log_artifacts use_comet comet_workspace comet_project_name comet_mode use_tensorboard use_swanlab \
        swanlab_project swanlab_experiment_name swanlab_description swanlab_mode swanlab_workspace swanlab_log_model \
        swanlab_log_completions swanlab_completion_log_interval swanlab_completion_max_buffer use_trackio \
        trackio_project_name trackio_run_name trackio_space_id use_otel_metrics otel_metrics_host otel_metrics_port",
    ),
];

const ROWS_ROWS: &[Row] = &[
    ("base_model", Sets(keys::MODEL)),
    ("sequence_len", Sets(keys::SEQ_LEN)),
    ("micro_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("gradient_accumulation_steps", Sets(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("batch_size", Rule::Free("rows of a step: what `micro_batch_size` and the passes come to")),
    ("optimizer", Reads(optimizer_word)),
    ("weight_decay", Reads(super::optimizer::decay)),
    ("optim_args", Sets(keys::OPTIM_ARGS)),
    ("optim_target_modules", Sets(keys::OPTIM_TARGET_MODULES)),
    ("max_grad_norm", Reads(clip_norm)),
    ("bf16", Reads(bf16)),
    ("bfloat16", Reads(half_precision)),
    ("float16", Reads(half_precision)),
    ("fp16", Reads(fp16)),
    ("float32", Reads(full_precision)),
    ("torch_dtype", Reads(trainer::dtype)),
    ("tf32", Reads(tf32)),
    ("fp8", Notes(super::words::FP8, Allowance::AllButStates)),
    ("fp8_enable_fsdp_float8_all_gather", Rule::Free("only fp8 reads it")),
    ("gradient_checkpointing", Reads(trainer::checkpointing)),
    ("gradient_checkpointing_kwargs", Reads(trainer::checkpointing_kwargs)),
    (
        "selective_checkpointing",
        Notes("checkpointing of some ops alone keeps more, which is not simulated", Allowance::Unknown),
    ),
    ("activation_offloading", Reads(trainer::offloaded_activations)),
    ("layer_offloading", Notes(OFFLOAD, Allowance::Less)),
    ("adapter", Reads(adapter_kind)),
    ("lora_r", Reads(|facts, said| of_adapter(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapter(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapter(facts, said, keys::LORA_DROPOUT))),
    ("lora_target_modules", Reads(lora_targets)),
    ("lora_target_linear", Reads(all_linear)),
    ("lora_target_parameters", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("lora_modules_to_save", Reads(modules_to_save)),
    ("lora_model_dir", Rule::Free("where adapters are loaded from: as many")),
    ("lora_fan_in_fan_out", Rule::Free("how a weight is stored: no size")),
    (
        "lora_rank_pattern",
        Notes("ranks that differ by layer are not simulated: they may take more", Allowance::Unknown),
    ),
    ("lora_on_cpu", Rule::Free("how weights reach the GPU")),
    ("lora_mlp_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_qkv_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_o_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_embedding_kernel", Notes(KERNELS, Allowance::Less)),
    ("peft_use_dora", Reads(|facts, said| of_adapter(facts, said, keys::LORA_USE_DORA))),
    ("peft_layers_to_transform", Notes("some layers get no adapter: it takes no more", Allowance::Less)),
    ("peft_layer_replication", Refuses("replicated layers are not simulated")),
    ("peft_init_lora_weights", Rule::Free("how the adapters begin: no size")),
    ("peft_trainable_token_indices", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("peft_ensure_weight_tying", Notes(peft::TIED_COPIES, Allowance::Less)),
    ("peft_autocast_adapter_dtype", Reads(adapter_dtype)),
    ("peft", Rule::Free("how the adapters begin: no size")),
    ("qlora_sharded_model_loading", Rule::Free(ONLY_QUANTIZED)),
    ("load_in_8bit", Reads(quantized::eight_bit_of_axolotl)),
    ("load_in_4bit", Reads(quantized::four_bit_of_axolotl)),
    ("gptq", Notes(super::words::GPTQ, Allowance::Unknown)),
    ("gptq_groupsize", Rule::Free(ONLY_QUANTIZED)),
    ("gptq_model_v1", Rule::Free(ONLY_QUANTIZED)),
    ("gptq_disable_exllama", Rule::Free(ONLY_QUANTIZED)),
    ("bnb_config_kwargs", Rule::Free(ONLY_QUANTIZED)),
    ("model_quantization_config", Reads(model_quantization)),
    ("model_quantization_config_kwargs", Rule::Free(ONLY_QUANTIZED)),
    ("quantize_moe_experts", Reads(quantized::experts_of_axolotl)),
    ("quantization", Rule::Free("after the training")),
    ("qat", Inside(QAT_ROWS)),
    ("relora", Notes("ReLoRA's restarts were not measured", Allowance::Fifth)),
    ("relora_cpu_offload", Rule::Free("where merged weights wait")),
    ("sample_packing", Notes(PACKING, Allowance::Fifth)),
    ("batch_flattening", Notes(PACKING, Allowance::Fifth)),
    ("multipack_real_batches", Rule::Free("how packed rows are laid out")),
    ("eval_batch_size", Reads(trainer::eval_rows)),
    ("eval_sequence_len", Notes("longer rows of an evaluation are not simulated", Allowance::Unknown)),
    ("attn_implementation", Reads(trainer::attention)),
    ("flash_attention", Reads(|facts, said| switch_precision(facts, said, "flash_attention_2"))),
    ("sdp_attention", Reads(|facts, said| switch_precision(facts, said, "sdpa"))),
    ("eager_attention", Reads(|facts, said| switch_precision(facts, said, "eager"))),
    ("xformers_attention", Reads(|facts, said| switch_precision(facts, said, "xformers"))),
    ("flex_attention", Reads(|facts, said| switch_precision(facts, said, "flex_attention"))),
    ("sage_attention", Refuses("SageAttention is not simulated")),
    ("s2_attention", Refuses("shifted sparse attention is not simulated")),
    ("flex_attn_compile_kwargs", Rule::Free("only flex attention reads it")),
    ("flash_attn_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("flash_attn_rms_norm", Notes(LIGER, Allowance::Less)),
    ("flash_attn_fuse_mlp", Notes(LIGER, Allowance::Less)),
    ("flash_attn_fuse_qkv", Notes(LIGER, Allowance::Less)),
    ("flash_optimum", Notes(super::words::BETTER_TRANSFORMER, Allowance::Fifth)),
    ("gemma4_hybrid_attn_impl", Notes("attention that differs by layer was not measured", Allowance::Fifth)),
    ("large_head_attention", Notes("attention of large heads was not measured", Allowance::Fifth)),
    ("flash_attn_d512", Notes("attention of large heads was not measured", Allowance::Fifth)),
    ("sdpa_varlen", Notes(PACKING, Allowance::Fifth)),
    ("fused_attn_kernel", Notes("a fused attention kernel was not measured", Allowance::Fifth)),
    ("scaling_softmax", Notes("scaled softmax was not measured", Allowance::Fifth)),
    ("pretrain_multipack_attn", Rule::Free("how packed rows see each other")),
    ("plugins", Rule::Free("which switches are known; each is named where it is set")),
    ("cut_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("chunked_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("chunked_cross_entropy_num_chunks", Rule::Free("only the chunked loss reads it")),
    ("tiled_mlp", Notes("an MLP in tiles takes less than is estimated", Allowance::Less)),
    ("tiled_mlp_num_shards", Rule::Free("only the tiled MLP reads it")),
    ("tiled_mlp_use_original_mlp", Rule::Free("only the tiled MLP reads it")),
    ("liger_rope", Notes(LIGER, Allowance::Less)),
    ("liger_rms_norm", Notes(LIGER, Allowance::Less)),
    ("liger_rms_norm_gated", Notes(LIGER, Allowance::Less)),
    ("liger_layer_norm", Notes(LIGER, Allowance::Less)),
    ("liger_glu_activation", Notes(LIGER, Allowance::Less)),
    ("liger_swiglu", Notes(LIGER, Allowance::Less)),
    ("liger_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("liger_fused_linear_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("use_eaft", Notes("another loss was not measured: it may keep more", Allowance::Unknown)),
    ("torch_compile", Notes(COMPILE, Allowance::Unknown)),
    ("torch_compile_backend", Rule::Free("only torch.compile reads it")),
    ("torch_compile_mode", Rule::Free("only torch.compile reads it")),
    ("torch_compile_options", Rule::Free("only torch.compile reads it")),
    ("deepcompile", Notes(COMPILE, Allowance::Unknown)),
    ("use_kernels", Notes("kernels of the hub were not measured: they may take more", Allowance::Fifth)),
    ("use_scattermoe", Notes(EXPERTS, Allowance::Unknown)),
    ("use_sonicmoe", Notes(EXPERTS, Allowance::Unknown)),
    ("experts_implementation", Notes(EXPERTS, Allowance::Unknown)),
    ("llama4_linearized_experts", Notes(EXPERTS, Allowance::Unknown)),
    ("use_onebitllms", Refuses("1-bit layers are not simulated")),
    (
        "neftune_noise_alpha",
        Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    (
        "noisy_embedding_alpha",
        Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("deepspeed", Reads(deepspeed::of_trainer)),
    ("fsdp", Reads(sharded_model)),
    ("fsdp_config", Inside(fsdp::ROWS)),
    ("fsdp_version", Reads(sharded_version)),
    ("fp32_norms", Notes("norms kept in fp32 take more, which is not simulated", Allowance::Fifth)),
    ("fp32_norm_classes", Rule::Free("only fp32_norms reads it")),
    ("ddp", Rule::Free("more ranks than one: the launcher says how many")),
    ("ddp_bucket_cap_mb", Reads(|facts, said| trainer::of_ddp(facts, said, keys::DDP_BUCKET_CAP_MB))),
    ("ddp_find_unused_parameters", Reads(|facts, said| trainer::of_ddp(facts, said, keys::DDP_FIND_UNUSED_PARAMETERS))),
    ("dp_shard_size", Notes(MESH, Allowance::Unknown)),
    ("dp_replicate_size", Notes(MESH, Allowance::Unknown)),
    ("context_parallel_size", Reads(parallel_degree)),
    ("sequence_parallel_degree", Reads(parallel_degree)),
    ("tensor_parallel_size", Reads(parallel_degree)),
    ("expert_parallel_size", Reads(parallel_degree)),
    ("expert_parallel_num_nvl_bytes", Rule::Free("only expert parallelism reads it")),
    ("expert_parallel_token_capacity", Rule::Free("only expert parallelism reads it")),
    ("heads_k_stride", Rule::Free("only context parallelism reads it")),
    ("ring_attn_func", Rule::Free("only context parallelism reads it")),
    ("rl", Reads(task_kind)),
    ("rl_beta", Reads(adam_beta)),
    ("trl", InsideOr(TRL_ROWS, |_, _| Became::NotUnderstood)),
    ("vllm", InsideOr(VLLM_ROWS, |_, _| Became::NotUnderstood)),
    ("reward_model", Reads(reward_model)),
    ("process_reward_model", Reads(process_reward_model)),
    ("center_rewards_coefficient", Sets(keys::REWARD_CENTER_REWARDS_COEFFICIENT)),
    ("num_labels", Reads(label_count)),
    ("ebft", Reads(|_, said| of_energy(said))),
    ("orpo_alpha", Rule::Free(ONE_TASK)),
    ("simpo_gamma", Rule::Free(ONE_TASK)),
    ("cpo_alpha", Reads(weight_of_likelihood)),
    ("kto_desirable_weight", Rule::Free(ONE_TASK)),
    ("kto_undesirable_weight", Rule::Free(ONE_TASK)),
    (
        "dpo_use_weighting",
        Notes("WPO's weights are computed from all logits, which is not simulated", Allowance::Unknown),
    ),
    ("dpo_padding_free", Notes(PACKING, Allowance::Fifth)),
    ("dpo_use_liger_kernel", Notes(FUSED_LOSS, Allowance::Less)),
    ("dpo_use_logits_to_keep", Rule::Free("logits of the answers alone: it takes no more")),
    ("dpo_generate_during_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("rpo_alpha", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("precompute_ref_log_probs", Reads(precomputed_reference)),
    ("max_prompt_len", Rule::Free("how prompts are cut; rows are taken at their full length")),
    ("trainer_cls", Refuses("a trainer of one's own is not simulated")),
    ("diffusion", Notes(super::words::DIFFUSION, Allowance::AllButStates)),
    ("unfrozen_parameters", Notes(FROZEN, Allowance::Less)),
    ("freeze_mm_modules", Notes(FROZEN, Allowance::Less)),
    ("lisa_n_layers", Notes("LISA trains some layers at a time: it takes less", Allowance::Less)),
    ("lisa_step_interval", Rule::Free(ONE_TASK)),
    ("lisa_layers_attribute", Rule::Free(ONE_TASK)),
    ("llmcompressor", Notes(QAT, Allowance::Unknown)),
    ("reinit_weights", Rule::Free("how the weights begin")),
    (
        "resize_token_embeddings_to_32x",
        Notes("a vocabulary filled up to a multiple of 32 has a few rows more", Allowance::None),
    ),
    ("mean_resizing_embeddings", Rule::Free("how new rows begin")),
    ("shrink_embeddings", Notes("fewer rows of the embedding take less", Allowance::Less)),
    ("embeddings_skip_upcast", Rule::Free(ONLY_QUANTIZED)),
    ("experimental_skip_move_to_device", Rule::Free("how weights reach the GPU")),
    ("low_cpu_mem_usage", Rule::Free("how weights reach the host")),
    ("device_map", Reads(trl::device_map)),
    ("max_memory", Notes("layers on several GPUs by device_map are not simulated", Allowance::Unknown)),
    ("gpu_memory_limit", Notes("layers on several GPUs by device_map are not simulated", Allowance::Unknown)),
    ("overrides_of_model_config", Reads(model_config)),
    ("model_config", Reads(model_config)),
    ("overrides_of_model_kwargs", Notes("arguments of from_pretrained that nobody here knows", Allowance::Unknown)),
    ("rope_scaling", Rule::Free("positions of tokens: no size")),
    ("image_size", Reads(images::image_size)),
    ("tokens", Reads(new_tokens)),
    ("fix_untrained_tokens", Rule::Free("how some rows begin")),
    ("num_epochs", Rule::Free("how long it trains")),
    ("max_steps", Reads(trainer::max_steps)),
    (
        "auto_find_batch_size",
        Notes("after an out-of-memory error the batch is halved; estimated is the first", Allowance::None),
    ),
    ("accelerator_config", Rule::Free("how batches are dealt to processes")),
    ("train_on_inputs", Rule::Free("which tokens have labels; all positions are taken to have one")),
    ("pad_to_sequence_len", Rule::Free("rows are taken at their full length")),
    ("pad_to_multiple_of", Rule::Free("rows are taken at their full length")),
    ("max_packed_sequence_len", Rule::Free("an old name of packing: sequence_len says the length")),
    ("resume_from_checkpoint", Rule::Free("the same states, from the first step on")),
    ("auto_resume_from_checkpoints", Rule::Free("the same states, from the first step on")),
    ("eval_table_size", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("do_causal_lm_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("do_bench_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("generate_samples", Notes("a training that generates samples between steps is not simulated", Allowance::Unknown)),
    ("gc_steps", Notes("the cache is emptied between steps: it takes no more than is estimated", Allowance::Less)),
    ("gc_collect_steps", Rule::Free("Python's garbage collector")),
    ("torch_empty_cache_steps", Notes("the cache is emptied between steps: it takes no more", Allowance::Less)),
    ("ray_num_workers", Sets(keys::WORLD_SIZE)),
];

const QAT_ROWS: &[Row] = &[
    ("activation_dtype", Notes(QAT, Allowance::Unknown)),
    ("weight_dtype", Notes(QAT, Allowance::Unknown)),
    ("quantize_embedding", Rule::Free("only quantization-aware training reads it")),
    ("group_size", Rule::Free("only quantization-aware training reads it")),
    ("fake_quant_after_n_steps", Rule::Free("only quantization-aware training reads it")),
];

/// Its table of TRL's: GRPO.
const TRL_ROWS: &[Row] = &[
    ("beta", Sets(keys::GRPO_BETA)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("num_generations", Sets(keys::NUM_GENERATIONS)),
    ("num_iterations", Sets(keys::GRPO_NUM_ITERATIONS)),
    (
        "use_vllm",
        Notes(
            "completions come from a vLLM server's GPUs; estimated is generate in the trainer's process",
            Allowance::Less,
        ),
    ),
    ("vllm_mode", Rule::Free("said with use_vllm")),
    ("vllm_server_host", Rule::Free(super::words::SERVER)),
    ("vllm_server_port", Rule::Free(super::words::SERVER)),
    ("vllm_server_timeout", Rule::Free(super::words::SERVER)),
    ("vllm_enable_sleep_mode", Rule::Free(super::words::SERVER)),
    ("reward_funcs", Rule::Free("functions of texts, which run on the host")),
    ("reward_weights", Rule::Free(LOSS)),
    ("scale_rewards", Rule::Free(LOSS)),
    ("loss_type", Rule::Free(LOSS)),
    ("epsilon", Rule::Free(LOSS)),
    ("epsilon_high", Rule::Free(LOSS)),
    ("importance_sampling_level", Rule::Free(LOSS)),
    ("mask_truncated_completions", Rule::Free(LOSS)),
    ("multi_objective_aggregation", Rule::Free(LOSS)),
    ("temperature", Rule::Free(SAMPLING)),
    ("top_p", Rule::Free(SAMPLING)),
    ("top_k", Rule::Free(SAMPLING)),
    ("min_p", Rule::Free(SAMPLING)),
    ("repetition_penalty", Rule::Free(SAMPLING)),
    ("generation_kwargs", Rule::Free(SAMPLING)),
    ("chat_template_kwargs", Rule::Free(TOKENS)),
    ("log_completions", Rule::Free(LOGS)),
    ("num_completions_to_print", Rule::Free(LOGS)),
    ("sync_ref_model", Notes("a reference that follows the policy is a model beside it", Allowance::Fifth)),
    ("ref_model_mixup_alpha", Rule::Free(SCALAR)),
    ("ref_model_sync_steps", Rule::Free(SCALAR)),
    ("use_liger_loss", Notes(FUSED_LOSS, Allowance::Less)),
    ("async_prefetch", Notes("asynchronous generation was not measured", Allowance::Fifth)),
];

const VLLM_ROWS: &[Row] = &[
    ("host", Rule::Free(super::words::SERVER)),
    ("port", Rule::Free(super::words::SERVER)),
    ("device", Rule::Free(super::words::SERVER)),
    ("tensor_parallel_size", Rule::Free(super::words::SERVER)),
    ("data_parallel_size", Rule::Free(super::words::SERVER)),
    ("gpu_memory_utilization", Rule::Free(super::words::SERVER)),
    ("dtype", Rule::Free(super::words::SERVER)),
    ("max_model_len", Rule::Free(super::words::SERVER)),
    ("enable_prefix_caching", Rule::Free(super::words::SERVER)),
    ("enforce_eager", Rule::Free(super::words::SERVER)),
    ("serve_module", Rule::Free(super::words::SERVER)),
];
