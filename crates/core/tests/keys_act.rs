//! Every key of a job changes what is simulated: a key that is read and then ignored fails here.

use tonnage_core::estimate::{Deployment, SimulatedJob, estimate};
use tonnage_core::job::{JobSource, JobSpec, KEYS, Override};
use tonnage_core::model_type::language_model_types;
use tonnage_core::step::simulate;
use tonnage_core::trace::Trace;

const MIXTRAL: &str = r#"model = { model_type = "mixtral", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 128, num_attention_heads = 4, num_key_value_heads = 4, num_local_experts = 4, vocab_size = 500 }
framework = "loop"
use_cache = false
micro_batch_size = 2
seq_len = 64
gpu = "h100"
"#;

const GPT2: &str = r#"model = { model_type = "gpt2", n_layer = 2, n_embd = 64, n_head = 4, vocab_size = 500, n_positions = 256 }
framework = "loop"
use_cache = false
micro_batch_size = 2
seq_len = 64
gpu = "h100"
"#;
const LLAMA: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
framework = "loop"
use_cache = false
micro_batch_size = 2
seq_len = 64
gpu = "h100"
"#;

/// Types with layers of two halves, whose configs have no field for the layers of one.
const ENCODER_DECODERS: [&str; 8] = ["bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "whisper"];

const T5: &str = r#"framework = "loop"
use_cache = false
seq_len = 32
gpu = "h100"
model = { model_type = "t5", num_layers = 2, d_model = 64, d_ff = 160, d_kv = 16, num_heads = 4, vocab_size = 500 }
"#;

const WHISPER: &str = r#"framework = "loop"
use_cache = false
target_len = 32
gpu = "h100"
model = { model_type = "whisper", encoder_layers = 2, decoder_layers = 2, d_model = 64, encoder_ffn_dim = 160, decoder_ffn_dim = 160, encoder_attention_heads = 4, decoder_attention_heads = 4, max_source_positions = 40, vocab_size = 500 }
"#;

const QWEN_VL: &str = r#"framework = "loop"
use_cache = false
seq_len = 64
gpu = "h100"
[model]
model_type = "qwen2_vl"
text_config = { num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500, rope_parameters = { rope_type = "default", mrope_section = [2, 3, 3] } }
vision_config = { depth = 2, embed_dim = 64, num_heads = 4, hidden_size = 64 }
"#;

fn job(file: &str, assignments: &[&str]) -> JobSpec {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    JobSource::from_file("job.toml", file)
        .resolve(&overrides)
        .unwrap_or_else(|error| panic!("{assignments:?}: {error}"))
        .job
}

fn trace(file: &str, assignments: &[&str]) -> Trace {
    simulate(&job(file, assignments)).unwrap_or_else(|error| panic!("{assignments:?}: {error}")).trace
}

const SMALL_GPT: &str =
    "model_embd = 32\nmodel_layer = 1\nmodel_head = 2\nmodel_positions = 64\nvocab_size = 100\ngpu = \"h100\"\n";
const BARE: &str = r#"model = { model_type = "llama", num_hidden_layers = 1, hidden_size = 32, intermediate_size = 64, num_attention_heads = 2, num_key_value_heads = 2, vocab_size = 100 }
gpu = "h100"
"#;
const GRPO: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
task = "grpo"
micro_batch_size = 4
num_generations = 2
prompt_len = 16
completion_len = 8
gpu = "h100"
"#;
const DPO: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
task = "dpo"
micro_batch_size = 4
prompt_len = 16
completion_len = 8
gpu = "h100"
"#;
const KTO: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
task = "kto"
micro_batch_size = 4
prompt_len = 256
completion_len = 128
gpu = "h100"
"#;
const GKD: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 50257 }
task = "gkd"
micro_batch_size = 4
prompt_len = 16
completion_len = 8
gkd.teacher_model = "distilgpt2"
gkd.max_new_tokens = 16
gpu = "h100"
"#;
const PPO: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
task = "ppo"
micro_batch_size = 8
gradient_accumulation_steps = 2
prompt_len = 16
completion_len = 8
ppo.reward_model = "qwen2.5-0.5b"
gpu = "h100"
"#;
const EMBEDDING: &str = r#"model = { model_type = "bert", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, vocab_size = 500 }
task = "embedding"
micro_batch_size = 8
seq_len = 64
gpu = "h100"
"#;
const CPO: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
task = "cpo"
micro_batch_size = 4
prompt_len = 16
completion_len = 8
gpu = "h100"
"#;
const REWARD: &str = r#"model = { model_type = "gpt2", n_layer = 2, n_embd = 64, n_head = 4, vocab_size = 500, n_positions = 64 }
task = "reward"
micro_batch_size = 4
seq_len = 32
gradient_checkpointing = false
gpu = "h100"
"#;
const SWARM: &str = r#"model = { model_type = "gpt2", n_layer = 2, n_embd = 64, n_head = 4, vocab_size = 500, n_positions = 256 }
task = "swarm"
num_generations = 2
prompt_len = 16
completion_len = 8
gpu = "h100"
swarm = { local_questions = 2 }
"#;
const HRM: &str = r#"model = { model_type = "hrm", vocab_size = 11 }
gpu = "h100"
"#;
const DENOISER: &str = r#"model = { model_type = "FluxTransformer2DModel", num_layers = 1, num_single_layers = 1, attention_head_dim = 16, num_attention_heads = 2, in_channels = 16, joint_attention_dim = 32, pooled_projection_dim = 16, axes_dims_rope = [4, 6, 6] }
micro_batch_size = 2
prompt_len = 16
gpu = "h100"
"#;
/// A UNet that takes what CLIP's encoder of ViT-L makes.
const UNET: &str = r#"model = { model_type = "UNet2DConditionModel", block_out_channels = [16, 32], down_block_types = ["CrossAttnDownBlock2D", "DownBlock2D"], up_block_types = ["UpBlock2D", "CrossAttnUpBlock2D"], cross_attention_dim = 768, attention_head_dim = 2, norm_num_groups = 8 }
micro_batch_size = 2
resolution = 128
gpu = "h100"
"#;
const RANKS: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 500 }
framework = "loop"
use_cache = false
micro_batch_size = 2
seq_len = 64
gpu = "h100"
world_size = 2
"#;
const JUDGE: &[&str] = &["judge.model=distilgpt2"];
const QLORA: &[&str] = &["lora.r=8", "quantization=nf4", "precision=bf16"];
const QLORA_OF_EXPERTS: &[&str] =
    &["lora.r=8", "lora.targets=q_proj", "quantization=nf4", "precision=bf16", "prepare_for_kbit_training=false"];
const RECAST: &[&str] = &["lora.r=8", "quantization=nf4", "precision=bf16-amp"];
const ONE_IMAGE: &[&str] = &["images_per_row=1", "image_size=56"];
const FSDP1: &[&str] = &["parallel=fsdp1"];
const FSDP2: &[&str] = &["parallel=fsdp2"];

/// Rows of: the key, the job, what both sides set, the value that must change the trace.
const TRACES: &[(&str, &str, &[&str], &str)] = &[
    ("own_labels", GPT2, &[], "own_labels=true"),
    ("padded", GPT2, &[], "padded=true"),
    ("padded", LLAMA, &["framework=trainer"], "padded=true"),
    ("padded", LLAMA, &["task=generate", "max_new_tokens=4"], "padded=true"),
    ("images_per_row", QWEN_VL, ONE_IMAGE, "images_per_row=2"),
    ("image_size", QWEN_VL, ONE_IMAGE, "image_size=56x112"),
    ("freeze_vision_tower", QWEN_VL, ONE_IMAGE, "freeze_vision_tower=true"),
    ("target_len", T5, &[], "target_len=33"),
    ("freeze_encoder", WHISPER, &[], "freeze_encoder=true"),
    ("freeze_multi_modal_projector", QWEN_VL, ONE_IMAGE, "freeze_multi_modal_projector=true"),
    ("padding_free", LLAMA, &["framework=trl", "micro_batch_size=2"], "padding_free=true"),
    ("seq_len_start", SMALL_GPT, &["num_train_epochs=3"], "seq_len_start=16"),
    ("use_reentrant", LLAMA, &["gradient_checkpointing=true"], "use_reentrant=true"),
    ("kernels", LLAMA, &[], "kernels=fast_rms_layernorm"),
    ("activation_offloading", LLAMA, &[], "activation_offloading=save_on_cpu"),
    ("activation_offloading", LLAMA, &["framework=trl"], "activation_offloading=streams"),
    (
        "activation_offloading_pin_memory",
        LLAMA,
        &["activation_offloading=save_on_cpu"],
        "activation_offloading_pin_memory=true",
    ),
    ("task", LLAMA, &[], "task=inference_forward"),
    ("task", LLAMA, &["max_new_tokens=4"], "task=generate"),
    ("framework", GPT2, &[], "framework=trainer"),
    ("micro_batch_size", GPT2, &[], "micro_batch_size=3"),
    ("seq_len", GPT2, &[], "seq_len=65"),
    ("max_new_tokens", LLAMA, &["task=generate", "max_new_tokens=4"], "max_new_tokens=5"),
    ("gradient_accumulation_steps", GPT2, &[], "gradient_accumulation_steps=2"),
    ("precision", GPT2, &[], "precision=bf16"),
    ("precision", GPT2, &[], "precision=amp-bf16"),
    ("precision", GPT2, &["precision=amp-bf16"], "precision=amp-fp16"),
    ("precision", GPT2, &[], "precision=fp16"),
    ("attention", GPT2, &[], "attention=eager"),
    ("attention", GPT2, &[], "attention=math"),
    ("attention", GPT2, &["precision=bf16"], "attention=mem_efficient"),
    ("attention", GPT2, &["precision=bf16", "attention=math"], "attention=flash"),
    ("attention", GPT2, &["precision=bf16", "attention=math"], "attention=cudnn"),
    ("gradient_checkpointing", GPT2, &[], "gradient_checkpointing=true"),
    ("gradient_checkpointing", LLAMA, &[], "gradient_checkpointing=true"),
    ("optimizer", GPT2, &[], "optimizer=adamw_fused"),
    ("optimizer", GPT2, &[], "optimizer=adamw_forloop"),
    ("optimizer", GPT2, &[], "optimizer=sgd"),
    ("optimizer", GPT2, &["optimizer=sgd"], "optimizer=sgd_momentum"),
    ("weight_decay", GPT2, &["optimizer=sgd_momentum"], "weight_decay=0.1"),
    ("optimizer", GPT2, &[], "optimizer=adafactor"),
    ("optimizer", GPT2, &[], "optimizer=adamw8bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_adamw_8bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_adamw_32bit"),
    ("optimizer", GPT2, &[], "optimizer=schedule_free_adamw"),
    ("optimizer", GPT2, &[], "optimizer=lion"),
    ("optimizer", GPT2, &[], "optimizer=adam_atan2"),
    ("optimizer", GPT2, &[], "optimizer=muon"),
    ("optimizer", GPT2, &[], "optimizer=adamw_torch_8bit"),
    ("optimizer", GPT2, &[], "optimizer=adamw_torch_4bit"),
    ("optimizer", GPT2, &["optimizer=adamw_torch_4bit"], "optimizer=ao_adamw_4bit"),
    ("optimizer", GPT2, &["framework=loop"], "optimizer=transformers_adafactor"),
    ("optimizer", GPT2, &[], "optimizer=rmsprop"),
    ("optimizer", GPT2, &[], "optimizer=adagrad"),
    ("optimizer", GPT2, &[], "optimizer=lion_8bit"),
    ("optimizer", GPT2, &[], "optimizer=lion_32bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_lion_8bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_lion_32bit"),
    ("optimizer", GPT2, &[], "optimizer=ademamix"),
    ("optimizer", GPT2, &[], "optimizer=ademamix_8bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_ademamix_32bit"),
    ("optimizer", GPT2, &[], "optimizer=paged_ademamix_8bit"),
    ("optimizer", GPT2, &[], "optimizer=schedule_free_sgd"),
    ("optimizer", GPT2, &[], "optimizer=stable_adamw"),
    ("optimizer", GPT2, &[], "optimizer=grokadamw"),
    ("optimizer", GPT2, &[], "optimizer=lomo"),
    ("optimizer", GPT2, &[], "optimizer=adalomo"),
    ("optimizer", LLAMA, &["framework=loop"], "optimizer=soap"),
    ("optimizer", LLAMA, &["framework=loop"], "optimizer=shampoo"),
    ("optim_args", LLAMA, &["framework=loop", "optimizer=soap"], "optim_args=max_precondition_dim=4"),
    ("optimizer", GPT2, &["steps=3"], "optimizer=schedule_free_radam"),
    ("optimizer", GPT2, &[], "optimizer=rmsprop_bnb_8bit"),
    ("optimizer", GPT2, &[], "optimizer=rmsprop_bnb_32bit"),
    ("optimizer", LLAMA, &[], "optimizer=galore_adamw_8bit"),
    ("optimizer", LLAMA, &[], "optimizer=galore_adafactor"),
    ("optimizer_in_backward", GPT2, &[], "optimizer_in_backward=true"),
    ("ema", GPT2, &[], "ema=averaged_model"),
    ("ema", GPT2, &[], "ema=averaged_model_cpu"),
    ("ema", GPT2, &[], "ema=ema_model"),
    ("ema", GPT2, &[], "ema=ema_model_foreach"),
    ("optimizer", LLAMA, &[], "optimizer=galore_adamw"),
    ("optimizer", LLAMA, &[], "optimizer=apollo_adamw"),
    ("optim_args", LLAMA, &["optimizer=galore_adamw"], "optim_args=rank=4"),
    ("optim_target_modules", LLAMA, &["optimizer=apollo_adamw"], "optim_target_modules=mlp"),
    ("clip_grad_norm", GPT2, &[], "clip_grad_norm=1.0"),
    ("zero_grad_set_to_none", GPT2, &[], "zero_grad_set_to_none=false"),
    ("train_mode", GPT2, &[], "train_mode=false"),
    ("dropout", GPT2, &[], "dropout=0"),
    ("dropout", LLAMA, &["attention=eager"], "dropout=0.1"),
    ("tie_word_embeddings", GPT2, &[], "tie_word_embeddings=false"),
    ("tie_word_embeddings", LLAMA, &[], "tie_word_embeddings=true"),
    ("use_cache", LLAMA, &[], "use_cache=true"),
    ("use_cache", LLAMA, &["task=inference_forward"], "use_cache=true"),
    ("keep_outputs", GPT2, &[], "keep_outputs=true"),
    ("logits_to_keep", LLAMA, &["task=inference_forward"], "logits_to_keep=1"),
    ("loss", LLAMA, &[], "loss=liger"),
    ("steps", GPT2, &[], "steps=3"),
    ("transformers", GPT2, &[], "transformers=4.57"),
    ("device_map", GPT2, &[], "device_map=true"),
    ("transformers", LLAMA, &[], "transformers=4.48"),
    ("transformers", LLAMA, &["transformers=4.48"], "transformers=4.44"),
    ("transformers", LLAMA, &["task=generate", "max_new_tokens=4"], "transformers=4.44"),
    ("gpu", GPT2, &[], "gpu=a100-80"),
    ("lora.r", LLAMA, &["lora.r=8"], "lora.r=4"),
    ("lora.dropout", LLAMA, &["lora.r=8"], "lora.dropout=0.1"),
    ("lora.targets", LLAMA, &["lora.r=8"], "lora.targets=q_proj"),
    ("lora.targets", LLAMA, &["lora.r=8"], "lora.targets=all-linear"),
    ("lora.targets", GPT2, &["lora.r=8"], "lora.targets=c_attn,c_fc"),
    ("lora.modules_to_save", LLAMA, &["lora.r=8"], "lora.modules_to_save=lm_head"),
    ("lora.modules_to_save", GPT2, &["lora.r=8"], "lora.modules_to_save=wte"),
    ("lora.use_dora", LLAMA, &["lora.r=8"], "lora.use_dora=true"),
    ("lora.use_dora", GPT2, &["lora.r=8"], "lora.use_dora=true"),
    ("quantization", LLAMA, &["lora.r=8"], "quantization=nf4"),
    ("quantization", LLAMA, &["lora.r=8", "quantization=nf4"], "quantization=int8"),
    ("quantization", GPT2, &["lora.r=8"], "quantization=fp4"),
    ("bnb_4bit_use_double_quant", LLAMA, QLORA, "bnb_4bit_use_double_quant=true"),
    ("bnb_4bit_compute_dtype", LLAMA, QLORA, "bnb_4bit_compute_dtype=bf16"),
    ("bnb_4bit_compute_dtype", LLAMA, QLORA, "bnb_4bit_compute_dtype=fp16"),
    ("prepare_for_kbit_training", LLAMA, QLORA, "prepare_for_kbit_training=false"),
    ("gptq_group_size", LLAMA, &["lora.r=8", "quantization=gptq"], "gptq_group_size=0"),
    ("quantization", LLAMA, &["lora.r=8", "quantization=gptq"], "quantization=gptqmodel"),
    ("gptq_group_size", LLAMA, &["lora.r=8", "quantization=awq", "precision=fp16"], "gptq_group_size=32"),
    ("gptq_bits", LLAMA, &["lora.r=8", "quantization=gptqmodel"], "gptq_bits=8"),
    ("peft_module_casting_to_bf16", LLAMA, RECAST, "peft_module_casting_to_bf16=true"),
    ("quantize_moe_experts", MIXTRAL, QLORA_OF_EXPERTS, "quantize_moe_experts=true"),
    ("model", GPT2, &[], "model=distilgpt2"),
    ("task", BARE, &[], "task=grpo"),
    ("task", BARE, &[], "task=dpo"),
    ("task", BARE, &[], "task=reward"),
    ("task", BARE, &[], "task=sequence_classification"),
    ("task", BARE, &[], "task=swarm"),
    ("prompt_len", GRPO, &[], "prompt_len=17"),
    ("completion_len", GRPO, &[], "completion_len=9"),
    ("num_generations", SWARM, &[], "num_generations=3"),
    ("trl", GRPO, &[], "trl=0.17"),
    ("use_liger_kernel", GRPO, &[], "use_liger_kernel=true"),
    ("use_liger_kernel", LLAMA, &[], "use_liger_kernel=true"),
    ("grpo.steps_per_generation", GRPO, &[], "grpo.steps_per_generation=2"),
    ("grpo.num_iterations", GRPO, &[], "grpo.num_iterations=2"),
    ("grpo.beta", GRPO, &[], "grpo.beta=0.04"),
    ("grpo.log_probs", GRPO, &[], "grpo.log_probs=full_logits"),
    ("grpo.padded", GRPO, &[], "grpo.padded=true"),
    ("grpo.cast_lm_head_to_fp32", GRPO, &["precision=bf16"], "grpo.cast_lm_head_to_fp32=true"),
    ("judge.model", GRPO, JUDGE, "judge.model=gpt2"),
    ("judge.weights", GRPO, JUDGE, "judge.weights=fp32"),
    ("judge.phase", GRPO, JUDGE, "judge.phase=forward"),
    ("judge.extra_prompt_tokens", GRPO, JUDGE, "judge.extra_prompt_tokens=33"),
    ("judge.new_tokens", GRPO, JUDGE, "judge.new_tokens=65"),
    ("judge.rows", GRPO, JUDGE, "judge.rows=2"),
    ("judge.place", GRPO, JUDGE, "judge.place=cpu"),
    ("judge.place", GRPO, JUDGE, "judge.place=offload"),
    ("judge.place", GRPO, JUDGE, "judge.place=other_gpu"),
    ("grpo.rollout", GRPO, &[], "grpo.rollout=vllm"),
    ("dpo.precompute_ref_log_probs", DPO, &[], "dpo.precompute_ref_log_probs=true"),
    ("kto.precompute_ref_log_probs", KTO, &[], "kto.precompute_ref_log_probs=true"),
    ("kto.loss", KTO, &[], "kto.loss=apo_zero_unpaired"),
    ("kto.desirable_rows", KTO, &[], "kto.desirable_rows=1"),
    ("gkd.teacher_model", GKD, &[], "gkd.teacher_model=gpt2"),
    ("gkd.teacher_dtype", GKD, &[], "gkd.teacher_dtype=fp32"),
    ("gkd.lmbda", GKD, &[], "gkd.lmbda=0"),
    ("gkd.max_new_tokens", GKD, &[], "gkd.max_new_tokens=32"),
    ("gkd.beta", GKD, &[], "gkd.beta=1"),
    ("gkd.seq_kd", GKD, &["gkd.lmbda=0"], "gkd.seq_kd=true"),
    ("embedding.anchor_len", EMBEDDING, &[], "embedding.anchor_len=16"),
    ("embedding.negatives", EMBEDDING, &[], "embedding.negatives=1"),
    ("embedding.pooling", EMBEDDING, &[], "embedding.pooling=cls"),
    ("embedding.normalize", EMBEDDING, &[], "embedding.normalize=false"),
    ("embedding.mini_batch_size", EMBEDDING, &[], "embedding.mini_batch_size=4"),
    ("ppo.reward_model", PPO, &[], "ppo.reward_model=llama-3.2-1b"),
    ("ppo.value_model", PPO, &[], "ppo.value_model=llama-3.2-1b"),
    ("ppo.num_ppo_epochs", PPO, &[], "ppo.num_ppo_epochs=2"),
    ("ppo.num_mini_batches", PPO, &[], "ppo.num_mini_batches=2"),
    ("ppo.local_rollout_forward_batch_size", PPO, &[], "ppo.local_rollout_forward_batch_size=4"),
    ("ppo.whiten_rewards", PPO, &[], "ppo.whiten_rewards=true"),
    ("ppo.kl_estimator", PPO, &[], "ppo.kl_estimator=k3"),
    ("ppo.stop_token", PPO, &[], "ppo.stop_token=true"),
    ("cpo.loss", CPO, &[], "cpo.loss=simpo"),
    ("cpo.alpha", CPO, &[], "cpo.alpha=0"),
    ("reward.center_rewards_coefficient", REWARD, &[], "reward.center_rewards_coefficient=0.01"),
    ("reward.disable_dropout", REWARD, &[], "reward.disable_dropout=false"),
    ("resolution", DENOISER, &[], "resolution=256"),
    ("prompt_len", DENOISER, &[], "prompt_len=32"),
    ("cache_latents", DENOISER, &[], "cache_latents=false"),
    ("cache_text_embeddings", UNET, &[], "cache_text_embeddings=false"),
    ("precision", DENOISER, &["lora.r=4"], "precision=amp-fp16"),
    ("gradient_checkpointing", DENOISER, &[], "gradient_checkpointing=true"),
    ("swarm.local_questions", SWARM, &[], "swarm.local_questions=3"),
    ("swarm.external_questions", SWARM, &[], "swarm.external_questions=1"),
    ("swarm.generate_rows", SWARM, &[], "swarm.generate_rows=4"),
    ("swarm.log_probs", SWARM, &[], "swarm.log_probs=chunked"),
    ("swarm.log_probs", SWARM, &["swarm.log_probs=chunked"], "swarm.log_probs=chunked_head"),
    ("swarm.rows_per_chunk", SWARM, &["swarm.log_probs=chunked"], "swarm.rows_per_chunk=1"),
    ("swarm.logits_to_keep", SWARM, &[], "swarm.logits_to_keep=false"),
    ("swarm.empty_cache", SWARM, &[], "swarm.empty_cache=false"),
    ("world_size", RANKS, FSDP2, "world_size=4"),
    ("parallel", RANKS, &[], "parallel=zero1"),
    ("parallel", RANKS, &[], "parallel=fsdp2"),
    ("parallel", RANKS, &[], "parallel=data_parallel"),
    ("global_batch_size", RANKS, &[], "global_batch_size=8"),
    ("ddp.bucket_cap_mb", RANKS, &["model=gpt2"], "ddp.bucket_cap_mb=100"),
    ("ddp.gradient_as_bucket_view", RANKS, &[], "ddp.gradient_as_bucket_view=true"),
    ("ddp.static_graph", RANKS, &[], "ddp.static_graph=true"),
    ("ddp.find_unused_parameters", RANKS, &[], "ddp.find_unused_parameters=true"),
    ("zero1.ddp", RANKS, &["parallel=zero1"], "zero1.ddp=false"),
    ("zero1.parameters_as_bucket_view", RANKS, &["parallel=zero1"], "zero1.parameters_as_bucket_view=true"),
    ("fsdp1.param_dtype", RANKS, FSDP1, "fsdp1.param_dtype=bf16"),
    ("fsdp1.reduce_dtype", RANKS, &["parallel=fsdp1", "precision=bf16"], "fsdp1.reduce_dtype=fp32"),
    ("fsdp1.sharding_strategy", RANKS, FSDP1, "fsdp1.sharding_strategy=shard_grad_op"),
    ("fsdp1.replicate_size", RANKS, &["parallel=fsdp1", "world_size=4"], "fsdp1.replicate_size=2"),
    ("fsdp1.use_orig_params", RANKS, FSDP1, "fsdp1.use_orig_params=true"),
    ("fsdp1.backward_prefetch", RANKS, FSDP1, "fsdp1.backward_prefetch=none"),
    ("fsdp1.shard_root_only", RANKS, FSDP1, "fsdp1.shard_root_only=true"),
    ("fsdp1.sync_module_states", RANKS, FSDP1, "fsdp1.sync_module_states=true"),
    ("fsdp1.init", RANKS, FSDP1, "fsdp1.init=device"),
    ("fsdp1.cpu_offload", RANKS, FSDP1, "fsdp1.cpu_offload=true"),
    ("fsdp2.param_dtype", RANKS, FSDP2, "fsdp2.param_dtype=bf16"),
    ("fsdp2.reduce_dtype", RANKS, &["parallel=fsdp2", "precision=bf16"], "fsdp2.reduce_dtype=fp32"),
    ("fsdp2.reshard_after_forward", RANKS, FSDP2, "fsdp2.reshard_after_forward=false"),
    ("fsdp2.replicate_size", RANKS, &["parallel=fsdp2", "world_size=4"], "fsdp2.replicate_size=2"),
    ("fsdp2.shard_root_only", RANKS, FSDP2, "fsdp2.shard_root_only=true"),
    ("fsdp2.init", RANKS, FSDP2, "fsdp2.init=full"),
    ("deepspeed.stage", RANKS, &["parallel=deepspeed"], "deepspeed.stage=3"),
    ("deepspeed.reduce_bucket_size", RANKS, &["parallel=deepspeed"], "deepspeed.reduce_bucket_size=1000000"),
    ("deepspeed.overlap_comm", RANKS, &["parallel=deepspeed"], "deepspeed.overlap_comm=true"),
    ("deepspeed.prefetch_bucket_size", RANKS, STAGE_3, "deepspeed.prefetch_bucket_size=0"),
    ("deepspeed.param_persistence_threshold", RANKS, STAGE_3, "deepspeed.param_persistence_threshold=100000"),
    ("deepspeed.max_live_parameters", RANKS, STAGE_3, "deepspeed.max_live_parameters=0"),
    ("deepspeed.max_reuse_distance", RANKS, WITHOUT_PREFETCH, "deepspeed.max_reuse_distance=1000000000"),
    ("deepspeed.sub_group_size", RANKS, STAGE_3, "deepspeed.sub_group_size=1000"),
    ("fsdp2.cpu_offload", RANKS, FSDP2, "fsdp2.cpu_offload=true"),
    ("deepspeed.offload_optimizer", RANKS, &["parallel=deepspeed"], "deepspeed.offload_optimizer=true"),
    ("deepspeed.offload_param", RANKS, STAGE_3, "deepspeed.offload_param=true"),
    ("fsdp2.context_parallel_size", RANKS, &["parallel=fsdp2", "precision=bf16"], "fsdp2.context_parallel_size=2"),
    ("parallel", RANKS, &[], "parallel=tensor"),
    ("tensor.plan", RANKS, &["parallel=tensor", "optimizer=adamw_forloop"], "tensor.plan=transformers"),
    ("pipeline.schedule", RANKS, &["parallel=pipeline", "gradient_accumulation_steps=4"], "pipeline.schedule=gpipe"),
    ("pipeline.stages_per_rank", RANKS, INTERLEAVED, "pipeline.stages_per_rank=3"),
    ("pipeline.data_parallel_size", RANKS, REPLICATED, "pipeline.data_parallel_size=1"),
    ("pipeline.data_parallel", RANKS, REPLICATED, "pipeline.data_parallel=fsdp2"),
];

/// Two ranks for each stage.
const REPLICATED: &[&str] = &[
    "world_size=4",
    "parallel=pipeline",
    "pipeline.schedule=gpipe",
    "gradient_accumulation_steps=4",
    "pipeline.data_parallel_size=2",
    "model.num_hidden_layers=4",
];

/// Two stages on each rank.
const INTERLEAVED: &[&str] = &[
    "parallel=pipeline",
    "gradient_accumulation_steps=4",
    "pipeline.schedule=interleaved_1f1b",
    "model.num_hidden_layers=6",
];

/// Nothing stays whole, neither for its size nor for the next use.
const STAGE_3: &[&str] = &[
    "parallel=deepspeed",
    "deepspeed.stage=3",
    "deepspeed.param_persistence_threshold=0",
    "deepspeed.max_reuse_distance=0",
];

const WITHOUT_PREFETCH: &[&str] = &[
    "parallel=deepspeed",
    "deepspeed.stage=3",
    "deepspeed.param_persistence_threshold=0",
    "deepspeed.prefetch_bucket_size=0",
    "deepspeed.max_reuse_distance=0",
];

#[test]
fn text_encoders_make_what_the_denoiser_takes() {
    let problem = |toml, change| {
        simulate(&job(toml, &["cache_text_embeddings=false", change])).err().map(|error| error.to_string())
    };
    assert_eq!(problem(UNET, "prompt_len=77"), None);
    assert!(problem(UNET, "prompt_len=78").is_some_and(|problem| problem.contains("no more than 77 tokens")));
    assert!(problem(DENOISER, "prompt_len=16").is_some_and(|problem| problem.contains("the denoiser takes 32")));
}

#[test]
fn images_of_rows_bring_their_tower() {
    let seen = |changes: &[&str]| simulate(&job(QWEN_VL, changes)).unwrap().parameter_count;
    assert!(seen(&[]) < seen(ONE_IMAGE));
    assert_eq!(seen(ONE_IMAGE), seen(&["images_per_row=2", "image_size=56"]));
    assert!(
        trace(QWEN_VL, ONE_IMAGE) != trace(QWEN_VL, &["images_per_row=2", "image_size=56"]),
        "images_per_row is ignored"
    );
    let refused = |changes: &[&str]| {
        let overrides: Vec<_> = changes.iter().map(|text| Override::assignment(text).unwrap()).collect();
        let resolved = JobSource::from_file("job.toml", QWEN_VL).resolve(&overrides);
        resolved.map_or_else(
            |error| error.problem.clone(),
            |resolved| simulate(&resolved.job).err().map_or(String::new(), |error| error.to_string()),
        )
    };
    for (changes, problem) in [
        (&["images_per_row=1"][..], "`image_size`: is missing"),
        (&["image_size=56"], "rows have no images"),
        (&["images_per_row=40", "image_size=56"], "an image of 56 by 56 pixels is 4 tokens, and rows have 64"),
        (
            &["images_per_row=1", "image_size=56", "world_size=2", "parallel=fsdp2"],
            "but with DDP is not simulated with images",
        ),
        (&["images_per_row=1", "image_size=56", "use_liger_kernel=true"], "not known with Liger's kernels"),
        (&["images_per_row=1", "image_size=56", "task=generate"], "not simulated with images"),
    ] {
        let said = refused(changes);
        assert!(said.contains(problem), "{changes:?}: {said}");
    }
}

#[test]
fn every_key_changes_the_trace() {
    for (key, file, both, value) in TRACES {
        let assigned = value.split('=').next().unwrap();
        assert_eq!(assigned, *key);
        assert!(trace(file, both) != trace(file, &[*both, &[*value]].concat()), "{value} is ignored");
    }
}

/// How the host holds what is offloaded changes what it holds, never the trace.
const HOSTS: [(&str, &[&str], &str); 3] = [
    (
        "fsdp2.cpu_offload_pin_memory",
        &["parallel=fsdp2", "fsdp2.cpu_offload=true"],
        "fsdp2.cpu_offload_pin_memory=false",
    ),
    (
        "deepspeed.offload_pin_memory",
        &["parallel=deepspeed", "deepspeed.offload_optimizer=true"],
        "deepspeed.offload_pin_memory=false",
    ),
    (
        "deepspeed.offload_param_pin_memory",
        &["parallel=deepspeed", "deepspeed.stage=3", "deepspeed.offload_param=true"],
        "deepspeed.offload_param_pin_memory=false",
    ),
];

#[test]
fn every_kind_of_host_memory_is_told_apart() {
    for (key, both, value) in HOSTS {
        let host = |changes: &[&str]| estimate(&job(RANKS, changes)).unwrap().host;
        let (pinned, pageable) = (host(both), host(&[both, &[value]].concat()));
        // Trained parts of `offload_param` end up pinned whatever it says.
        assert!(pinned.pinned_bytes > pageable.pinned_bytes, "{key} is ignored");
        assert!(pinned.bytes() >= pageable.bytes(), "blocks are at least as large as what was asked for");
        assert_eq!(trace(RANKS, both), trace(RANKS, &[both, &[value]].concat()));
    }
}

/// Settings of the allocator change what is reserved, never the trace.
const ALLOCATORS: &[(&str, &str)] = &[
    ("allocator", "allocator=expandable_segments:True"),
    ("allocator.expandable_segments", "allocator.expandable_segments=true"),
    ("allocator.large_segment_size_mb", "allocator.large_segment_size_mb=64"),
    ("allocator.max_split_size_mb", "allocator.max_split_size_mb=21"),
    ("allocator.max_non_split_rounding_mb", "allocator.max_non_split_rounding_mb=21"),
    ("allocator.roundup_power2_divisions", "allocator.roundup_power2_divisions=2"),
    ("allocator.garbage_collection_threshold", "allocator.garbage_collection_threshold=0.5"),
    ("allocator.per_process_memory_fraction", "allocator.per_process_memory_fraction=0.001"),
];

#[test]
fn every_allocator_setting_reaches_the_allocator() {
    let plain = job(GPT2, &[]);
    for (key, value) in ALLOCATORS {
        let changed = job(GPT2, &[value]);
        assert!(changed.allocator != plain.allocator, "{key} is ignored");
        assert_eq!(JobSpec { allocator: plain.allocator.clone(), ..changed }, plain, "{key}");
    }
    let large = &["micro_batch_size=100", "seq_len=250"];
    let figures = |more: &[&str]| estimate(&job(GPT2, &[&large[..], more].concat())).unwrap();
    let reserved = |more: &[&str]| figures(more).peak_reserved_bytes;
    let plain = reserved(&[]);
    for value in [
        "allocator.expandable_segments=true",
        "allocator.large_segment_size_mb=64",
        "allocator.max_split_size_mb=21",
        "allocator.roundup_power2_divisions=2",
    ] {
        assert!(reserved(&[value]) != plain, "{value} is ignored");
    }
    let tight = figures(&["allocator.per_process_memory_fraction=0.001"]);
    assert!(tight.verdict != figures(&[]).verdict);
}

/// `lora.alpha` scales values; it costs no memory.
const COSTS_NOTHING: [&str; 1] = ["lora.alpha"];
/// What says where processes are, and changes none of them: key, job, value.
const DEPLOYMENTS: &[(&str, &str, &str)] = &[
    ("swarm.nodes", SWARM, "swarm.nodes=2"),
    ("swarm.gpus", SWARM, "swarm.gpus=2"),
    ("swarm.lease", SWARM, "swarm.lease=1"),
];

#[test]
fn every_key_of_a_deployment_reaches_it() {
    let deployment = |file: &str, changes: &[&str]| {
        let job = job(file, changes);
        let simulated = SimulatedJob::new(&job).unwrap();
        let estimate = simulated.estimate().unwrap();
        Deployment::new(&simulated, estimate).unwrap()
    };
    for (key, file, value) in DEPLOYMENTS {
        // Large enough for training to reserve more than generating.
        let both = ["swarm.nodes=3", "model.vocab_size=50000", "completion_len=64"];
        assert!(deployment(file, &both) != deployment(file, &[&both[..], &[*value]].concat()), "{key} is ignored");
    }
}

/// What changes the engine beside the trainer, and not what the trainer trains.
const ENGINES: &[(&str, &str)] =
    &[("vllm.gpu_memory_utilization", "vllm.gpu_memory_utilization=0.5"), ("vllm.sleep_mode", "vllm.sleep_mode=true")];

#[test]
fn every_key_of_an_engine_reaches_the_estimate() {
    let estimate = |changes: &[&str]| estimate(&job(GRPO, &[&["grpo.rollout=vllm"], changes].concat())).unwrap();
    for (key, value) in ENGINES {
        assert!(estimate(&[]).engine != estimate(&[value]).engine, "{key} is ignored");
    }
}

/// What says how long a training is and what it costs: job, what both sides set, the value that must reach it.
const RUNS: &[(&str, &[&str], &str)] = &[
    ("max_steps", &[], "max_steps=7"),
    ("train_tokens", &[], "train_tokens=7"),
    ("train_rows", &[], "train_rows=7"),
    ("num_train_epochs", &["train_rows=7"], "num_train_epochs=3"),
    ("step_time", &[], "step_time=0.5"),
    ("price", &[], "price=2.5"),
    ("allow_tf32", &[], "allow_tf32=true"),
];

#[test]
fn every_key_of_a_run_reaches_it_and_changes_nothing_else() {
    for (key, both, value) in RUNS {
        let (without, with) = (job(GPT2, both), job(GPT2, &[*both, &[*value]].concat()));
        assert!(with.run != without.run, "{key} is ignored");
        assert_eq!(JobSpec { run: without.run, ..with }, without, "{key}");
    }
}

/// Whether the key says what a training learns by: its example reaches the training and changes nothing of the job.
fn is_of_training(name: &str, example: &str) -> bool {
    let resolved = |file: &str| {
        JobSource::from_file("job.toml", file).resolve(&[]).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let job = match name.split_once('.') {
        Some(("grpo", _)) => GRPO,
        Some(("swarm", _)) => SWARM,
        Some(("hrm", _)) => HRM,
        _ => GPT2,
    };
    // A key with a dot cannot stand beside its inline table.
    let job = &job.replace("swarm = { local_questions = 2 }\n", "");
    let (without, with) = (resolved(job), resolved(&format!("{name} = {example}\n{job}")));
    with.training != without.training && with.job == without.job
}

#[test]
fn no_key_is_left_out_here() {
    for key in &KEYS {
        let tested = TRACES.iter().any(|(name, ..)| *name == key.name)
            || ALLOCATORS.iter().any(|(name, _)| *name == key.name)
            || ENGINES.iter().any(|(name, _)| *name == key.name)
            || RUNS.iter().any(|(name, ..)| *name == key.name)
            || DEPLOYMENTS.iter().any(|(name, ..)| *name == key.name)
            || HOSTS.iter().any(|(name, ..)| *name == key.name)
            || COSTS_NOTHING.contains(&key.name)
            || is_of_training(key.name, key.example);
        assert!(tested, "{} has no row", key.name);
    }
}

/// Their configs have no dropout.
const WITHOUT_DROPOUT: [&str; 5] = ["falcon_mamba", "lfm2", "lfm2_moe", "mamba", "mamba2"];

#[test]
fn dropout_acts_in_every_family() {
    let drops_out = |name: &&str| !ENCODER_DECODERS.contains(name) && !WITHOUT_DROPOUT.contains(name);
    for model_type in language_model_types().into_iter().filter(drops_out) {
        let layers = if ["gpt2", "gpt_bigcode"].contains(&model_type) { "n_layer" } else { "num_hidden_layers" };
        // DeepSeek-V2 has no default here, and its width of an expert, 1407, runs in no grouped product of float32.
        let experts = "num_experts_per_tok = 2, moe_intermediate_size = 64, ";
        // Hybrids drop out in attention alone, of which their first layers have none by default.
        let own = match model_type {
            "deepseek_v2" => experts,
            "bamba" => "attn_layer_indices = [1], ",
            "jamba" => "attn_layer_period = 2, attn_layer_offset = 1, ",
            "zamba2" => "layers_block_type = [\"hybrid\", \"mamba\", \"mamba\", \"hybrid\"], ",
            "nemotron_h" => "hybrid_override_pattern = \"M*-M\", ",
            "granitemoehybrid" => "layer_types = [\"mamba\", \"attention\", \"mamba\", \"mamba\"], ",
            _ => "",
        };
        let file = format!(
            "model = {{ model_type = \"{model_type}\", {layers} = 4, vocab_size = 100, {own}\
             pad_token_id = 0 }}\nseq_len = 8\nmicro_batch_size = 1\nattention = \"eager\"\nsteps = 1\ngpu = \"h100\"\n"
        );
        drops_out_in_training(&file, model_type);
    }
    [T5, WHISPER].iter().for_each(|file| drops_out_in_training(file, file));
}

fn drops_out_in_training(file: &str, model_type: &str) {
    let [without, with] = ["dropout=0", "dropout=0.1"].map(|value| trace(file, &[value]));
    assert!(without != with, "{model_type} ignores dropout");
    let still = trace(file, &["dropout=0.1", "train_mode=false"]);
    assert!(still == trace(file, &["dropout=0", "train_mode=false"]), "{model_type} drops out of training mode");
}

/// Models that DeepSpeed's stage 3 was not measured with, whose range says so, gather what they run with.
#[test]
fn stage_3_runs_every_model() {
    let stage_3 = ["world_size=2", "parallel=deepspeed", "deepspeed.stage=3"];
    for (file, more) in [(RANKS, "max_steps=2"), (RANKS, "lora.r=4"), (GPT2, "max_steps=2"), (MIXTRAL, "max_steps=2")] {
        let trace = trace(file, &[&stage_3[..], &[more]].concat());
        assert!(trace.allocations.iter().any(|allocation| allocation.stream > 0), "{file}: nothing is gathered");
    }
}
