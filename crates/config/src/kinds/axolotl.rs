//! Axolotl's YAML (utils/schemas of 0.14): Hugging Face's Trainer with settings of its own.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::peft::{self, ONLY_QUANTIZED};
use super::trainer::{self, clip, set_attention};
use super::words::{CODE, COMPILE, DATA, EVAL, HUB, LAUNCH, LOGS, LOSS, NAME, OFFLOAD, PACKING, QUANTIZED, SAMPLING, SAVES, SCALAR, SEED, TOKENS};
use super::{deepspeed, fsdp, optimizer, trl};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Free, Inside, InsideOr, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{Entry, find, is_null, is_on, plain};

const FUSED_LOSS: &str = "a loss that never holds all logits takes less than is estimated";
const KERNELS: &str = "Axolotl's own LoRA kernels keep fewer activations: it takes no more than is estimated";
const LIGER: &str = "some of Liger's kernels alone keep fewer activations: it takes no more than is estimated";
const EXPERTS: &str = "other kernels for experts were not measured: they may take more";
const MESH: &str = "a mesh of parallel dimensions is not simulated: a rank may hold more or less";
const FROZEN: &str = "with part of the weights frozen it takes less than is estimated";
const QAT: &str = "quantization-aware training keeps more, which is not simulated";
const DIFFUSION: &str = "training by diffusion is not simulated";
const ONE_TASK: &str = "only its own trainer reads it";

/// Its keys.
pub const ROWS: &[Row] = &[
    ("base_model", Sets(keys::MODEL)),
    ("sequence_len", Sets(keys::SEQ_LEN)),
    ("micro_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("gradient_accumulation_steps", Sets(keys::GRADIENT_ACCUMULATION_STEPS)),
    ("batch_size", Free("rows of a step: what `micro_batch_size` and the passes come to")),
    ("optimizer", Reads(optimizer_word)),
    ("optim_args", Notes("arguments of an optimizer of its own are not simulated", Allowance::Unknown)),
    ("optim_target_modules", Notes("only some modules get that optimizer, which is not simulated", Allowance::Unknown)),
    ("max_grad_norm", Reads(clip)),
    ("bf16", Reads(bf16)),
    ("bfloat16", Reads(half)),
    ("float16", Reads(half)),
    ("fp16", Reads(fp16)),
    ("float32", Reads(full)),
    ("torch_dtype", Reads(trainer::dtype)),
    ("tf32", Reads(tf32)),
    ("fp8", Refuses("fp8 is not simulated")),
    ("fp8_enable_fsdp_float8_all_gather", Free("only fp8 reads it")),
    ("gradient_checkpointing", Reads(trainer::checkpointing)),
    ("gradient_checkpointing_kwargs", Reads(trainer::checkpointing_kwargs)),
    ("selective_checkpointing", Notes("checkpointing of some ops alone keeps more, which is not simulated", Allowance::Unknown)),
    ("activation_offloading", Notes(OFFLOAD, Allowance::Less)),
    ("layer_offloading", Notes(OFFLOAD, Allowance::Less)),
    ("adapter", Reads(adapter)),
    ("lora_r", Reads(|facts, said| of_adapter(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapter(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapter(facts, said, keys::LORA_DROPOUT))),
    ("lora_target_modules", Reads(targets)),
    ("lora_target_linear", Reads(all_linear)),
    ("lora_target_parameters", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("lora_modules_to_save", Reads(modules_to_save)),
    ("lora_model_dir", Free("where adapters are loaded from: as many")),
    ("lora_fan_in_fan_out", Free("how a weight is stored: no size")),
    ("lora_rank_pattern", Notes("ranks that differ by layer are not simulated: they may take more", Allowance::Unknown)),
    ("lora_alpha_pattern", Free(SCALAR)),
    ("lora_on_cpu", Free("how weights reach the GPU")),
    ("lora_mlp_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_qkv_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_o_kernel", Notes(KERNELS, Allowance::Less)),
    ("lora_embedding_kernel", Notes(KERNELS, Allowance::Less)),
    ("loraplus_lr_ratio", Free(SCALAR)),
    ("loraplus_lr_embedding", Free(SCALAR)),
    ("peft_use_dora", Notes(peft::DORA, Allowance::Unknown)),
    ("peft_use_rslora", Free(SCALAR)),
    ("peft_layers_to_transform", Notes("some layers get no adapter: it takes no more", Allowance::Less)),
    ("peft_layers_pattern", Free(NAME)),
    ("peft_layer_replication", Refuses("replicated layers are not simulated")),
    ("peft_init_lora_weights", Free("how the adapters begin: no size")),
    ("peft_trainable_token_indices", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("peft_ensure_weight_tying", Free("only with modules_to_save")),
    ("peft_autocast_adapter_dtype", Reads(adapter_dtype)),
    ("peft", Free("how the adapters begin: no size")),
    ("qlora_sharded_model_loading", Free(ONLY_QUANTIZED)),
    ("load_in_8bit", Refuses(QUANTIZED)),
    ("load_in_4bit", Refuses(QUANTIZED)),
    ("gptq", Refuses(QUANTIZED)),
    ("gptq_groupsize", Free(ONLY_QUANTIZED)),
    ("gptq_model_v1", Free(ONLY_QUANTIZED)),
    ("gptq_disable_exllama", Free(ONLY_QUANTIZED)),
    ("bnb_config_kwargs", Free(ONLY_QUANTIZED)),
    ("model_quantization_config", Reads(model_quantization)),
    ("model_quantization_config_kwargs", Free(ONLY_QUANTIZED)),
    ("quantize_moe_experts", Refuses(QUANTIZED)),
    ("quantization", Free("after the training")),
    ("qat", Inside(QAT_ROWS)),
    ("relora", Notes("ReLoRA's restarts were not measured", Allowance::Fifth)),
    ("relora_prune_ratio", Free(SCALAR)),
    ("relora_prune_method", Free(SCALAR)),
    ("relora_cpu_offload", Free("where merged weights wait")),
    ("sample_packing", Notes(PACKING, Allowance::Fifth)),
    ("batch_flattening", Notes(PACKING, Allowance::Fifth)),
    ("multipack_real_batches", Free("how packed rows are laid out")),
    ("eval_sample_packing", Free(EVAL)),
    ("eval_batch_size", Reads(trainer::eval_rows)),
    ("eval_sequence_len", Notes("longer rows of an evaluation are not simulated", Allowance::Unknown)),
    ("attn_implementation", Reads(trainer::attention)),
    ("flash_attention", Reads(|facts, said| switched(facts, said, "flash_attention_2"))),
    ("sdp_attention", Reads(|facts, said| switched(facts, said, "sdpa"))),
    ("eager_attention", Reads(|facts, said| switched(facts, said, "eager"))),
    ("xformers_attention", Refuses("xFormers' attention is not simulated")),
    ("flex_attention", Refuses("flex attention is compiled and not simulated")),
    ("sage_attention", Refuses("SageAttention is not simulated")),
    ("s2_attention", Refuses("shifted sparse attention is not simulated")),
    ("flex_attn_compile_kwargs", Free("only flex attention reads it")),
    ("flash_attn_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("flash_attn_rms_norm", Notes(LIGER, Allowance::Less)),
    ("flash_attn_fuse_mlp", Notes(LIGER, Allowance::Less)),
    ("flash_attn_fuse_qkv", Notes(LIGER, Allowance::Less)),
    ("flash_optimum", Refuses("BetterTransformer is not simulated")),
    ("gemma4_hybrid_attn_impl", Notes("attention that differs by layer was not measured", Allowance::Fifth)),
    ("large_head_attention", Notes("attention of large heads was not measured", Allowance::Fifth)),
    ("flash_attn_d512", Notes("attention of large heads was not measured", Allowance::Fifth)),
    ("sdpa_varlen", Notes(PACKING, Allowance::Fifth)),
    ("fused_attn_kernel", Notes("a fused attention kernel was not measured", Allowance::Fifth)),
    ("scaling_softmax", Notes("scaled softmax was not measured", Allowance::Fifth)),
    ("scaling_softmax_factor", Free(SCALAR)),
    ("scaling_softmax_bias", Free(SCALAR)),
    ("pretrain_multipack_attn", Free("how packed rows see each other")),
    ("plugins", Free("which switches are known; each is named where it is set")),
    ("cut_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("chunked_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("chunked_cross_entropy_num_chunks", Free("only the chunked loss reads it")),
    ("tiled_mlp", Notes("an MLP in tiles takes less than is estimated", Allowance::Less)),
    ("tiled_mlp_num_shards", Free("only the tiled MLP reads it")),
    ("tiled_mlp_use_original_mlp", Free("only the tiled MLP reads it")),
    ("liger_rope", Notes(LIGER, Allowance::Less)),
    ("liger_rms_norm", Notes(LIGER, Allowance::Less)),
    ("liger_rms_norm_gated", Notes(LIGER, Allowance::Less)),
    ("liger_layer_norm", Notes(LIGER, Allowance::Less)),
    ("liger_glu_activation", Notes(LIGER, Allowance::Less)),
    ("liger_swiglu", Notes(LIGER, Allowance::Less)),
    ("liger_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("liger_fused_linear_cross_entropy", Notes(FUSED_LOSS, Allowance::Less)),
    ("liger_use_token_scaling", Free(LOSS)),
    ("use_eaft", Notes("another loss was not measured: it may keep more", Allowance::Unknown)),
    ("eaft_alpha", Free(LOSS)),
    ("eaft_k", Free(LOSS)),
    ("torch_compile", Notes(COMPILE, Allowance::Unknown)),
    ("torch_compile_backend", Free("only torch.compile reads it")),
    ("torch_compile_mode", Free("only torch.compile reads it")),
    ("torch_compile_options", Free("only torch.compile reads it")),
    ("deepcompile", Notes(COMPILE, Allowance::Unknown)),
    ("use_kernels", Notes("kernels of the hub were not measured: they may take more", Allowance::Fifth)),
    ("use_scattermoe", Notes(EXPERTS, Allowance::Unknown)),
    ("use_sonicmoe", Notes(EXPERTS, Allowance::Unknown)),
    ("experts_implementation", Notes(EXPERTS, Allowance::Unknown)),
    ("llama4_linearized_experts", Notes(EXPERTS, Allowance::Unknown)),
    ("use_onebitllms", Refuses("1-bit layers are not simulated")),
    ("neftune_noise_alpha", Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth)),
    ("noisy_embedding_alpha", Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth)),
    ("deepspeed", Reads(deepspeed::of_trainer)),
    ("fsdp", Reads(sharded)),
    ("fsdp_config", Inside(fsdp::ROWS)),
    ("fsdp_version", Reads(sharded_version)),
    ("fsdp_final_state_dict_type", Free(SAVES)),
    ("fp32_norms", Notes("norms kept in fp32 take more, which is not simulated", Allowance::Fifth)),
    ("fp32_norm_classes", Free("only fp32_norms reads it")),
    ("ddp", Free("more ranks than one: the launcher says how many")),
    ("ddp_timeout", Free(LAUNCH)),
    ("ddp_bucket_cap_mb", Reads(|facts, said| trainer::of_ddp(facts, said, keys::DDP_BUCKET_CAP_MB))),
    ("ddp_broadcast_buffers", Free(LAUNCH)),
    ("ddp_find_unused_parameters", Reads(|facts, said| trainer::of_ddp(facts, said, keys::DDP_FIND_UNUSED_PARAMETERS))),
    ("world_size", Free(LAUNCH)),
    ("local_rank", Free(LAUNCH)),
    ("dp_shard_size", Notes(MESH, Allowance::Unknown)),
    ("dp_replicate_size", Notes(MESH, Allowance::Unknown)),
    ("context_parallel_size", Reads(degree)),
    ("sequence_parallel_degree", Reads(degree)),
    ("tensor_parallel_size", Reads(degree)),
    ("expert_parallel_size", Reads(degree)),
    ("expert_parallel_num_nvl_bytes", Free("only expert parallelism reads it")),
    ("expert_parallel_token_capacity", Free("only expert parallelism reads it")),
    ("heads_k_stride", Free("only context parallelism reads it")),
    ("ring_attn_func", Free("only context parallelism reads it")),
    ("rl", Reads(task)),
    ("rl_beta", Reads(beta)),
    ("dpo_beta", Free(LOSS)),
    ("trl", InsideOr(TRL_ROWS, |_, _| Became::NotUnderstood)),
    ("vllm", InsideOr(VLLM_ROWS, |_, _| Became::NotUnderstood)),
    ("reward_model", Refuses("a reward model's training is not simulated")),
    ("process_reward_model", Refuses("a reward model's training is not simulated")),
    ("center_rewards_coefficient", Free(ONE_TASK)),
    ("num_labels", Refuses("classification is not simulated")),
    ("ebft", Refuses("energy-based fine-tuning is not simulated")),
    ("orpo_alpha", Free(ONE_TASK)),
    ("simpo_gamma", Free(ONE_TASK)),
    ("cpo_alpha", Free(ONE_TASK)),
    ("kto_desirable_weight", Free(ONE_TASK)),
    ("kto_undesirable_weight", Free(ONE_TASK)),
    ("dpo_use_weighting", Notes("WPO's weights are computed from all logits, which is not simulated", Allowance::Unknown)),
    ("dpo_label_smoothing", Free(LOSS)),
    ("dpo_loss_type", Free(LOSS)),
    ("dpo_loss_weights", Free(LOSS)),
    ("dpo_padding_free", Notes(PACKING, Allowance::Fifth)),
    ("dpo_use_liger_kernel", Notes(FUSED_LOSS, Allowance::Less)),
    ("dpo_use_logits_to_keep", Free("logits of the answers alone: it takes no more")),
    ("dpo_generate_during_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("dpo_norm_loss", Free(LOSS)),
    ("rpo_alpha", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("precompute_ref_log_probs", Sets(keys::DPO_PRECOMPUTE_REF_LOG_PROBS)),
    ("max_prompt_len", Free("how prompts are cut; rows are taken at their full length")),
    ("trainer_cls", Refuses("a trainer of one's own is not simulated")),
    ("diffusion", Refuses(DIFFUSION)),
    ("unfrozen_parameters", Notes(FROZEN, Allowance::Less)),
    ("freeze_mm_modules", Notes(FROZEN, Allowance::Less)),
    ("lisa_n_layers", Notes("LISA trains some layers at a time: it takes less", Allowance::Less)),
    ("lisa_step_interval", Free(ONE_TASK)),
    ("lisa_layers_attribute", Free(ONE_TASK)),
    ("llmcompressor", Notes(QAT, Allowance::Unknown)),
    ("reinit_weights", Free("how the weights begin")),
    ("resize_token_embeddings_to_32x", Notes("a vocabulary filled up to a multiple of 32 has a few rows more", Allowance::None)),
    ("mean_resizing_embeddings", Free("how new rows begin")),
    ("shrink_embeddings", Notes("fewer rows of the embedding take less", Allowance::Less)),
    ("embeddings_skip_upcast", Free(ONLY_QUANTIZED)),
    ("torchdistx_path", Free(CODE)),
    ("experimental_skip_move_to_device", Free("how weights reach the GPU")),
    ("low_cpu_mem_usage", Free("how weights reach the host")),
    ("device", Free(LAUNCH)),
    ("device_map", Reads(trl::device_map)),
    ("max_memory", Notes("layers on several GPUs by device_map are not simulated", Allowance::Unknown)),
    ("gpu_memory_limit", Notes("layers on several GPUs by device_map are not simulated", Allowance::Unknown)),
    ("overrides_of_model_config", Reads(model_config)),
    ("model_config", Reads(model_config)),
    ("overrides_of_model_kwargs", Notes("arguments of from_pretrained that nobody here knows", Allowance::Unknown)),
    ("rope_scaling", Free("positions of tokens: no size")),
    ("cls_model_config", Free(NAME)),
    ("base_model_config", Free(NAME)),
    ("base_model_ignore_patterns", Free(HUB)),
    ("revision_of_model", Free(HUB)),
    ("model_type", Free(NAME)),
    ("type_of_model", Free(NAME)),
    ("tokenizer_config", Free(TOKENS)),
    ("tokenizer_type", Free(TOKENS)),
    ("tokenizer_use_fast", Free(TOKENS)),
    ("tokenizer_legacy", Free(TOKENS)),
    ("tokenizer_use_mistral_common", Free(TOKENS)),
    ("tokenizer_save_jinja_files", Free(TOKENS)),
    ("processor_type", Free(TOKENS)),
    ("processor_kwargs", Free(TOKENS)),
    ("image_size", Notes("how many tokens an image becomes is not told by this", Allowance::Unknown)),
    ("image_resize_algorithm", Free(DATA)),
    ("role_boundaries", Free(DATA)),
    ("special_tokens", Free(TOKENS)),
    ("tokens", Reads(new_tokens)),
    ("added_tokens_overrides", Free(TOKENS)),
    ("eot_tokens", Free(TOKENS)),
    ("chat_template", Free(TOKENS)),
    ("chat_template_jinja", Free(TOKENS)),
    ("chat_template_kwargs", Free(TOKENS)),
    ("default_system_message", Free(TOKENS)),
    ("fix_untrained_tokens", Free("how some rows begin")),
    ("is_falcon_derived_model", Free(NAME)),
    ("is_llama_derived_model", Free(NAME)),
    ("is_mistral_derived_model", Free(NAME)),
    ("is_qwen_derived_model", Free(NAME)),
    ("trust_remote_code", Free(CODE)),
    ("strict", Free(NAME)),
    ("learning_rate", Free(SCALAR)),
    ("embedding_lr", Free(SCALAR)),
    ("embedding_lr_scale", Free(SCALAR)),
    ("weight_decay", Free(SCALAR)),
    ("lr_scheduler", Free(SCALAR)),
    ("lr_scheduler_kwargs", Free(SCALAR)),
    ("lr_quadratic_warmup", Free(SCALAR)),
    ("lr_div_factor", Free(SCALAR)),
    ("lr_groups", Free(SCALAR)),
    ("cosine_min_lr_ratio", Free(SCALAR)),
    ("cosine_constant_lr_ratio", Free(SCALAR)),
    ("eta_min", Free(SCALAR)),
    ("jagged_restart_steps", Free(SCALAR)),
    ("jagged_restart_warmup_steps", Free(SCALAR)),
    ("jagged_restart_anneal_steps", Free(SCALAR)),
    ("adam_beta1", Free(SCALAR)),
    ("adam_beta2", Free(SCALAR)),
    ("adam_beta3", Free(SCALAR)),
    ("adam_epsilon", Free(SCALAR)),
    ("adam_epsilon2", Free(SCALAR)),
    ("adam_eps", Free(SCALAR)),
    ("warmup_steps", Free(SCALAR)),
    ("warmup_ratio", Free(SCALAR)),
    ("num_epochs", Free("how long it trains")),
    ("max_steps", Reads(trainer::max_steps)),
    ("auto_find_batch_size", Notes("after an out-of-memory error the batch is halved; estimated is the first", Allowance::None)),
    ("seed", Free(SEED)),
    ("datasets", Free(DATA)),
    ("test_datasets", Free(DATA)),
    ("pretraining_dataset", Free(DATA)),
    ("pretraining_sample_concatenation", Free(DATA)),
    ("pretrain_multipack_buffer_size", Free(DATA)),
    ("streaming", Free(DATA)),
    ("streaming_multipack_buffer_size", Free(DATA)),
    ("dataset_prepared_path", Free(DATA)),
    ("dataset_shard_num", Free(DATA)),
    ("dataset_shard_idx", Free(DATA)),
    ("dataset_processes", Free(DATA)),
    ("dataset_num_proc", Free(DATA)),
    ("dataset_exact_deduplication", Free(DATA)),
    ("dataset_keep_in_memory", Free(DATA)),
    ("num_dataset_shards_to_save", Free(DATA)),
    ("shuffle_merged_datasets", Free(DATA)),
    ("shuffle_before_merging_datasets", Free(DATA)),
    ("skip_prepare_dataset", Free(DATA)),
    ("push_dataset_to_hub", Free(HUB)),
    ("hf_use_auth_token", Free(HUB)),
    ("dataloader_pin_memory", Free(DATA)),
    ("dataloader_num_workers", Free(DATA)),
    ("dataloader_prefetch_factor", Free(DATA)),
    ("dataloader_drop_last", Free(DATA)),
    ("accelerator_config", Free("how batches are dealt to processes")),
    ("remove_unused_columns", Free(DATA)),
    ("val_set_size", Free(DATA)),
    ("train_on_inputs", Free("which tokens have labels; all positions are taken to have one")),
    ("group_by_length", Free(DATA)),
    ("excess_length_strategy", Free(DATA)),
    ("min_sample_len", Free(DATA)),
    ("pad_to_sequence_len", Free("rows are taken at their full length")),
    ("pad_to_multiple_of", Free("rows are taken at their full length")),
    ("max_packed_sequence_len", Free("an old name of packing: sequence_len says the length")),
    ("sample_packing_group_size", Free(DATA)),
    ("sample_packing_bin_size", Free(DATA)),
    ("sample_packing_sequentially", Free(DATA)),
    ("sample_packing_mp_start_method", Free(DATA)),
    ("sample_packing_eff_est", Free(DATA)),
    ("sample_packing_seq_len_multiplier", Free(DATA)),
    ("total_num_tokens", Free(DATA)),
    ("total_supervised_tokens", Free(DATA)),
    ("curriculum_sampling", Free(DATA)),
    ("use_pose", Free(DATA)),
    ("pose_split_on_token_ids", Free(DATA)),
    ("pose_max_context_len", Free(DATA)),
    ("pose_num_chunks", Free(DATA)),
    ("output_dir", Free(SAVES)),
    ("save_steps", Free(SAVES)),
    ("saves_per_epoch", Free(SAVES)),
    ("save_strategy", Free(SAVES)),
    ("save_total_limit", Free(SAVES)),
    ("save_first_step", Free(SAVES)),
    ("save_only_model", Free(SAVES)),
    ("save_safetensors", Free(SAVES)),
    ("dynamic_checkpoint", Free(SAVES)),
    ("load_best_model_at_end", Free(SAVES)),
    ("resume_from_checkpoint", Free("the same states, from the first step on")),
    ("auto_resume_from_checkpoints", Free("the same states, from the first step on")),
    ("hub_model_id", Free(HUB)),
    ("hub_strategy", Free(HUB)),
    ("hub_revision", Free(HUB)),
    ("eval_steps", Free(EVAL)),
    ("evals_per_epoch", Free(EVAL)),
    ("eval_strategy", Free(EVAL)),
    ("evaluation_strategy", Free(EVAL)),
    ("eval_table_size", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("eval_max_new_tokens", Free(EVAL)),
    ("eval_causal_lm_metrics", Free(EVAL)),
    ("do_causal_lm_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("do_bench_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("bench_dataset", Free(DATA)),
    ("bench_split", Free(DATA)),
    ("generate_samples", Notes("a training that generates samples between steps is not simulated", Allowance::Unknown)),
    ("metric_for_best_model", Free(EVAL)),
    ("greater_is_better", Free(EVAL)),
    ("early_stopping_patience", Free(EVAL)),
    ("loss_watchdog_threshold", Free(LOGS)),
    ("loss_watchdog_patience", Free(LOGS)),
    ("gc_steps", Notes("the cache is emptied between steps: it takes no more than is estimated", Allowance::Less)),
    ("gc_collect_steps", Free("Python's garbage collector")),
    ("torch_empty_cache_steps", Notes("the cache is emptied between steps: it takes no more", Allowance::Less)),
    ("profiler_steps", Free(LOGS)),
    ("profiler_steps_start", Free(LOGS)),
    ("include_tokens_per_second", Free(LOGS)),
    ("include_tkps", Free(LOGS)),
    ("logging_steps", Free(LOGS)),
    ("debug", Free(LOGS)),
    ("use_wandb", Free(LOGS)),
    ("wandb_name", Free(LOGS)),
    ("wandb_run_id", Free(LOGS)),
    ("wandb_mode", Free(LOGS)),
    ("wandb_project", Free(LOGS)),
    ("wandb_entity", Free(LOGS)),
    ("wandb_watch", Free(LOGS)),
    ("wandb_log_model", Free(LOGS)),
    ("use_mlflow", Free(LOGS)),
    ("mlflow_tracking_uri", Free(LOGS)),
    ("mlflow_experiment_name", Free(LOGS)),
    ("mlflow_run_name", Free(LOGS)),
    ("hf_mlflow_log_artifacts", Free(LOGS)),
    ("use_comet", Free(LOGS)),
    ("comet_workspace", Free(LOGS)),
    ("comet_project_name", Free(LOGS)),
    ("comet_mode", Free(LOGS)),
    ("use_tensorboard", Free(LOGS)),
    ("use_swanlab", Free(LOGS)),
    ("swanlab_project", Free(LOGS)),
    ("swanlab_experiment_name", Free(LOGS)),
    ("swanlab_description", Free(LOGS)),
    ("swanlab_mode", Free(LOGS)),
    ("swanlab_workspace", Free(LOGS)),
    ("swanlab_log_model", Free(LOGS)),
    ("swanlab_log_completions", Free(LOGS)),
    ("swanlab_completion_log_interval", Free(LOGS)),
    ("swanlab_completion_max_buffer", Free(LOGS)),
    ("use_trackio", Free(LOGS)),
    ("trackio_project_name", Free(LOGS)),
    ("trackio_run_name", Free(LOGS)),
    ("trackio_space_id", Free(LOGS)),
    ("use_otel_metrics", Free(LOGS)),
    ("otel_metrics_host", Free(LOGS)),
    ("otel_metrics_port", Free(LOGS)),
    ("use_ray", Free(LAUNCH)),
    ("ray_run_name", Free(LAUNCH)),
    ("ray_num_workers", Sets(keys::WORLD_SIZE)),
    ("resources_per_worker", Free(LAUNCH)),
    ("gradio_title", Free(NAME)),
    ("gradio_share", Free(NAME)),
];

const QAT_ROWS: &[Row] = &[
    ("activation_dtype", Notes(QAT, Allowance::Unknown)),
    ("weight_dtype", Notes(QAT, Allowance::Unknown)),
    ("quantize_embedding", Free("only quantization-aware training reads it")),
    ("group_size", Free("only quantization-aware training reads it")),
    ("fake_quant_after_n_steps", Free("only quantization-aware training reads it")),
];

/// Its table of TRL's: GRPO.
const TRL_ROWS: &[Row] = &[
    ("beta", Sets(keys::GRPO_BETA)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("num_generations", Sets(keys::NUM_GENERATIONS)),
    ("num_iterations", Sets(keys::GRPO_NUM_ITERATIONS)),
    ("use_vllm", Notes("completions come from a vLLM server's GPUs; estimated is generate in the trainer's process", Allowance::Less)),
    ("vllm_mode", Free("said with use_vllm")),
    ("vllm_server_host", Free(super::words::SERVER)),
    ("vllm_server_port", Free(super::words::SERVER)),
    ("vllm_server_timeout", Free(super::words::SERVER)),
    ("vllm_enable_sleep_mode", Free(super::words::SERVER)),
    ("reward_funcs", Free("functions of texts, which run on the host")),
    ("reward_weights", Free(LOSS)),
    ("scale_rewards", Free(LOSS)),
    ("loss_type", Free(LOSS)),
    ("epsilon", Free(LOSS)),
    ("epsilon_high", Free(LOSS)),
    ("importance_sampling_level", Free(LOSS)),
    ("mask_truncated_completions", Free(LOSS)),
    ("multi_objective_aggregation", Free(LOSS)),
    ("temperature", Free(SAMPLING)),
    ("top_p", Free(SAMPLING)),
    ("top_k", Free(SAMPLING)),
    ("min_p", Free(SAMPLING)),
    ("repetition_penalty", Free(SAMPLING)),
    ("generation_kwargs", Free(SAMPLING)),
    ("chat_template_kwargs", Free(TOKENS)),
    ("log_completions", Free(LOGS)),
    ("num_completions_to_print", Free(LOGS)),
    ("sync_ref_model", Notes("a reference that follows the policy is a model beside it", Allowance::Fifth)),
    ("ref_model_mixup_alpha", Free(SCALAR)),
    ("ref_model_sync_steps", Free(SCALAR)),
    ("use_liger_loss", Notes(FUSED_LOSS, Allowance::Less)),
    ("async_prefetch", Notes("asynchronous generation was not measured", Allowance::Fifth)),
];

const VLLM_ROWS: &[Row] = &[
    ("host", Free(super::words::SERVER)),
    ("port", Free(super::words::SERVER)),
    ("device", Free(super::words::SERVER)),
    ("tensor_parallel_size", Free(super::words::SERVER)),
    ("data_parallel_size", Free(super::words::SERVER)),
    ("gpu_memory_utilization", Free(super::words::SERVER)),
    ("dtype", Free(super::words::SERVER)),
    ("max_model_len", Free(super::words::SERVER)),
    ("enable_prefix_caching", Free(super::words::SERVER)),
    ("enforce_eager", Free(super::words::SERVER)),
    ("serve_module", Free(super::words::SERVER)),
];

fn optimizer_word(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "adamw_torch_8bit" | "adamw_torch_4bit" | "ao_adamw_8bit" | "ao_adamw_4bit" => {
            Became::Refused("torchao's optimizers are not simulated".to_owned())
        }
        _ => optimizer::read(facts, said),
    }
}

/// `bf16`: weights of bf16 under autocast; `auto` is on where the GPU has it, `full` is weights of bf16 alone.
fn bf16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.word() == "full" {
        facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
        return Became::Used(keys::PRECISION);
    }
    if is_on(said.value) {
        facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
    }
    facts.take_autocast(Dtype::Bf16, is_on(said.value), said.place)
}

fn fp16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    if is_on(said.value) {
        // Axolotl loads fp16 weights then; full training casts them up again, or stops.
        facts.weights = Some((Weights::As(Dtype::Fp16), said.place.cloned()));
    }
    facts.take_autocast(Dtype::Fp16, is_on(said.value), said.place)
}

fn half(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
    Became::Used(keys::PRECISION)
}

fn full(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.weights = Some((Weights::As(Dtype::Fp32), said.place.cloned()));
    Became::Used(keys::PRECISION)
}

fn tf32(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory("how products are computed: no size"),
        _ if is_null(said.value) => Became::NoMemory(OFF),
        _ => facts.set(keys::ALLOW_TF32, said.value, said.place),
    }
}

fn has_adapter(said: &Said<'_>) -> bool {
    said.other("adapter").is_some_and(|value| plain(&value).eq_ignore_ascii_case("lora"))
}

fn adapter(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "lora" => Became::Used(keys::LORA_R),
        "" | "null" => Became::NoMemory(OFF),
        "qlora" => Became::Refused(QUANTIZED.to_owned()),
        other => Became::Refused(format!("`{}` adapters are not simulated", crate::text::brief(other))),
    }
}

const NO_ADAPTER: &str = "no adapter is made: `adapter` is not lora";

fn of_adapter(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !has_adapter(said) || is_null(said.value) {
        return Became::NoMemory(NO_ADAPTER);
    }
    facts.set(key, said.value, said.place)
}

fn targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) || said.other_is_on("lora_target_linear") || !is_on(said.value) {
        return Became::NoMemory("every linear layer is a target, or no adapter is made");
    }
    peft::targets(facts, said)
}

fn all_linear(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) || !is_on(said.value) {
        return Became::NoMemory(NO_ADAPTER);
    }
    facts.set_text(keys::LORA_TARGETS, "all-linear", said.place);
    Became::Used(keys::LORA_TARGETS)
}

fn modules_to_save(_: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) || !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    Became::Noted(peft::MODULES_TO_SAVE.to_owned(), Allowance::Unknown)
}

fn adapter_dtype(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.value == &Value::Bool(false) {
        return Became::Noted("adapters of the weights' dtype take less than is estimated".to_owned(), Allowance::Less);
    }
    Became::NoMemory("peft's default")
}

fn model_quantization(_: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    let kwargs = said.other("model_quantization_config_kwargs");
    if kwargs.as_ref().and_then(|kwargs| kwargs.get("dequantize")).is_some_and(is_on) {
        return Became::NoMemory("the weights are dequantized when they are loaded");
    }
    Became::Refused(QUANTIZED.to_owned())
}

fn switched(facts: &mut Facts, said: &Said<'_>, word: &str) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    set_attention(facts, word, said.place)
}

fn sharded(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    sharded_version(facts, said);
    fsdp::of_trainer(facts, said)
}

/// `fsdp_version`, which alone turns FSDP on where a table of it is there.
fn sharded_version(facts: &mut Facts, said: &Said<'_>) -> Became {
    let version = said.other("fsdp_version").and_then(|value| value.as_u64());
    let version = version.or_else(|| fsdp::version(said.other("fsdp_config").as_ref())).unwrap_or(1);
    if said.other_is_on("fsdp_config") || said.other_is_on("fsdp") {
        fsdp::shard(facts, version, said);
        return Became::Used(keys::PARALLEL);
    }
    Became::NoMemory("no table of FSDP is there")
}

fn degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0 | 1) | None => Became::NoMemory(OFF),
        _ => Became::Noted(MESH.to_owned(), Allowance::Unknown),
    }
}

fn task(facts: &mut Facts, said: &Said<'_>) -> Became {
    let task = match said.word().as_str() {
        "" | "null" => return Became::NoMemory(OFF),
        "dpo" | "ipo" => "dpo",
        "grpo" => "grpo",
        other => {
            return Became::Refused(format!("training by `{}` is not simulated", crate::text::brief(other)));
        }
    };
    facts.set_text(keys::TASK, task, said.place);
    Became::Used(keys::TASK)
}

fn beta(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.other("rl").is_some_and(|rl| rl == "grpo") {
        return facts.set(keys::GRPO_BETA, said.value, said.place);
    }
    Became::NoMemory(LOSS)
}

fn new_tokens(_: &mut Facts, said: &Said<'_>) -> Became {
    let count = said.value.as_array().map_or(0, Vec::len);
    match count {
        0 => Became::NoMemory(TOKENS),
        _ => Became::Noted(format!("{count} tokens more may make the vocabulary as many rows longer"), Allowance::None),
    }
}

/// Fields of the model's config.
fn model_config(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        value if is_null(value) => Became::NoMemory(OFF),
        Value::Object(fields) if fields.keys().all(|key| key == "output_router_logits" || key.starts_with("rope")) => {
            let _ = facts;
            Became::NoMemory("positions of tokens, and the router's own loss: no size")
        }
        _ => Became::Refused("fields of the model's config are not read here: say each with --set model.FIELD=VALUE".to_owned()),
    }
}

/// Axolotl's own defaults and what it does beside.
pub fn finish(facts: &mut Facts, file: &[Entry]) {
    let task = facts.value(keys::TASK).unwrap_or("causal_lm").to_owned();
    facts.imply(keys::TASK, &task, "a config of Axolotl without `rl` trains on next tokens");
    facts.imply(keys::FRAMEWORK, if task == "causal_lm" { "trainer" } else { "trl" }, "Axolotl trains with the Trainer's loop, or TRL's");
    facts.imply(keys::OPTIMIZER, "adamw_fused", "Axolotl's optimizer: adamw_torch_fused");
    if find(file, "adapter").is_none_or(|entry| is_null(&entry.node.value())) {
        facts.imply(keys::GRADIENT_CHECKPOINTING, false, "Axolotl's default");
    }
    if task != "causal_lm" {
        // Rows of DPO and GRPO are prompts and answers.
        if let Some(length) = facts.size(keys::SEQ_LEN) {
            facts.sets.retain(|given| given.key != keys::SEQ_LEN);
            if task == "dpo" {
                facts.imply(keys::PROMPT_LEN, (length / 2).max(1), "half of sequence_len");
                facts.imply(keys::COMPLETION_LEN, length.saturating_sub(length / 2).max(1), "half of sequence_len");
            }
        }
    }
    facts.left_open.push(LeftOpen {
        text: "Axolotl trains with the Trainer's loop; what its own patches change was not measured, the range allows a fifth of \
               the peak"
            .to_owned(),
        allowance: Allowance::Fifth,
    });
}
