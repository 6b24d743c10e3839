//! The name of each key, once: the rows of the table and all code that sets or reads a key say it by these constants.

macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        $(
            #[doc = concat!("The key `", $text, "`.")]
            pub const $name: &str = $text;
        )*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $text)),*];
    };
}

names! {
    // keys/step.rs
    MODEL = "model",
    TASK = "task",
    FRAMEWORK = "framework",
    MICRO_BATCH_SIZE = "micro_batch_size",
    SEQ_LEN = "seq_len",
    MAX_NEW_TOKENS = "max_new_tokens",
    GRADIENT_ACCUMULATION_STEPS = "gradient_accumulation_steps",
    PRECISION = "precision",
    ATTENTION = "attention",
    GRADIENT_CHECKPOINTING = "gradient_checkpointing",
    OPTIMIZER = "optimizer",
    CLIP_GRAD_NORM = "clip_grad_norm",
    ZERO_GRAD_SET_TO_NONE = "zero_grad_set_to_none",
    TRAIN_MODE = "train_mode",
    DROPOUT = "dropout",
    TIE_WORD_EMBEDDINGS = "tie_word_embeddings",
    USE_CACHE = "use_cache",
    KEEP_OUTPUTS = "keep_outputs",
    LOGITS_TO_KEEP = "logits_to_keep",
    LOSS = "loss",
    STEPS = "steps",
    TRANSFORMERS = "transformers",
    DEVICE_MAP = "device_map",
    GPU = "gpu",
    // keys/lora.rs
    LORA_R = "lora.r",
    LORA_ALPHA = "lora.alpha",
    LORA_DROPOUT = "lora.dropout",
    LORA_TARGETS = "lora.targets",
    // keys/rl.rs
    PROMPT_LEN = "prompt_len",
    COMPLETION_LEN = "completion_len",
    NUM_GENERATIONS = "num_generations",
    TRL = "trl",
    GRPO_STEPS_PER_GENERATION = "grpo.steps_per_generation",
    GRPO_NUM_ITERATIONS = "grpo.num_iterations",
    GRPO_BETA = "grpo.beta",
    GRPO_LOG_PROBS = "grpo.log_probs",
    GRPO_PADDED = "grpo.padded",
    GRPO_CAST_LM_HEAD_TO_FP32 = "grpo.cast_lm_head_to_fp32",
    GRPO_ROLLOUT = "grpo.rollout",
    VLLM_GPU_MEMORY_UTILIZATION = "vllm.gpu_memory_utilization",
    VLLM_SLEEP_MODE = "vllm.sleep_mode",
    DPO_PRECOMPUTE_REF_LOG_PROBS = "dpo.precompute_ref_log_probs",
    USE_LIGER_KERNEL = "use_liger_kernel",
    // keys/judge.rs
    JUDGE_MODEL = "judge.model",
    JUDGE_WEIGHTS = "judge.weights",
    JUDGE_PHASE = "judge.phase",
    JUDGE_EXTRA_PROMPT_TOKENS = "judge.extra_prompt_tokens",
    JUDGE_NEW_TOKENS = "judge.new_tokens",
    JUDGE_ROWS = "judge.rows",
    JUDGE_PLACE = "judge.place",
    // keys/swarm.rs
    SWARM_NODES = "swarm.nodes",
    SWARM_GPUS = "swarm.gpus",
    SWARM_LEASE = "swarm.lease",
    SWARM_LOCAL_QUESTIONS = "swarm.local_questions",
    SWARM_EXTERNAL_QUESTIONS = "swarm.external_questions",
    SWARM_GENERATE_ROWS = "swarm.generate_rows",
    SWARM_LOG_PROBS = "swarm.log_probs",
    SWARM_ROWS_PER_CHUNK = "swarm.rows_per_chunk",
    SWARM_LOGITS_TO_KEEP = "swarm.logits_to_keep",
    SWARM_EMPTY_CACHE = "swarm.empty_cache",
    // keys/ranks.rs
    WORLD_SIZE = "world_size",
    PARALLEL = "parallel",
    GLOBAL_BATCH_SIZE = "global_batch_size",
    DDP_BUCKET_CAP_MB = "ddp.bucket_cap_mb",
    DDP_GRADIENT_AS_BUCKET_VIEW = "ddp.gradient_as_bucket_view",
    DDP_STATIC_GRAPH = "ddp.static_graph",
    DDP_FIND_UNUSED_PARAMETERS = "ddp.find_unused_parameters",
    ZERO1_DDP = "zero1.ddp",
    ZERO1_PARAMETERS_AS_BUCKET_VIEW = "zero1.parameters_as_bucket_view",
    FSDP2_PARAM_DTYPE = "fsdp2.param_dtype",
    FSDP2_REDUCE_DTYPE = "fsdp2.reduce_dtype",
    FSDP2_RESHARD_AFTER_FORWARD = "fsdp2.reshard_after_forward",
    FSDP2_SHARD_ROOT_ONLY = "fsdp2.shard_root_only",
    FSDP2_INIT = "fsdp2.init",
    DEEPSPEED_STAGE = "deepspeed.stage",
    PIPELINE_SCHEDULE = "pipeline.schedule",
    // keys/run.rs
    MAX_STEPS = "max_steps",
    NUM_TRAIN_EPOCHS = "num_train_epochs",
    TRAIN_ROWS = "train_rows",
    TRAIN_TOKENS = "train_tokens",
    STEP_TIME = "step_time",
    PRICE = "price",
    ALLOW_TF32 = "allow_tf32",
    // keys/allocator.rs
    ALLOCATOR = "allocator",
    ALLOCATOR_EXPANDABLE_SEGMENTS = "allocator.expandable_segments",
    ALLOCATOR_LARGE_SEGMENT_SIZE_MB = "allocator.large_segment_size_mb",
    ALLOCATOR_MAX_SPLIT_SIZE_MB = "allocator.max_split_size_mb",
    ALLOCATOR_MAX_NON_SPLIT_ROUNDING_MB = "allocator.max_non_split_rounding_mb",
    ALLOCATOR_ROUNDUP_POWER2_DIVISIONS = "allocator.roundup_power2_divisions",
    ALLOCATOR_GARBAGE_COLLECTION_THRESHOLD = "allocator.garbage_collection_threshold",
    ALLOCATOR_PER_PROCESS_MEMORY_FRACTION = "allocator.per_process_memory_fraction",
}
