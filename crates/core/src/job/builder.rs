//! A job written in Rust: [`JobSource`] with a method for each key that most jobs set, and [`JobSpec::default`].

use serde::Serialize;

use super::key_names as keys;
use super::{
    Attention, CheckpointPolicy, ClipSpec, Ema, Fields, Framework, JobError, JobSource, JobSpec, Kernels, LogitsPath,
    LossKernel, LowRankSpec, ModelSpec, OptimizerKind, Parallel, Precision, PreconditionerSpec, RunSpec, Task,
    TransformersVersion,
};
use crate::alloc::AllocatorConfig;
use crate::gpu::Gpu;

/// Each sets the key of its name; [`set`](JobSource::set) takes every other. What cannot be is refused when the job is
/// resolved.
///
/// ```
/// use tonnage_core::job::{JobSource, OptimizerKind, Precision};
///
/// let job = JobSource::model("gpt2")
///     .micro_batch_size(4)
///     .seq_len(512)
///     .precision(Precision::AmpBf16)
///     .optimizer(OptimizerKind::AdamwFused)
///     .on_gpu("l4")
///     .job()?;
/// assert_eq!((job.micro_batch_size, job.gpu.id.as_str()), (4, "l4"));
/// # Ok::<(), tonnage_core::job::JobError>(())
/// ```
impl JobSource {
    /// Rows of a pass on one GPU.
    #[must_use]
    pub fn micro_batch_size(self, rows: u64) -> Self {
        self.set(keys::MICRO_BATCH_SIZE, rows)
    }

    /// Tokens of a row.
    #[must_use]
    pub fn seq_len(self, tokens: u64) -> Self {
        self.set(keys::SEQ_LEN, tokens)
    }

    /// Passes of an optimizer step.
    #[must_use]
    pub fn gradient_accumulation_steps(self, passes: u64) -> Self {
        self.set(keys::GRADIENT_ACCUMULATION_STEPS, passes)
    }

    /// Whether every layer is recomputed in backward.
    #[must_use]
    pub fn gradient_checkpointing(self, is_on: bool) -> Self {
        self.set(keys::GRADIENT_CHECKPOINTING, is_on)
    }

    /// Dtypes of weights and autocast.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        self.set_word(keys::PRECISION, precision)
    }

    /// The kernel of attention.
    #[must_use]
    pub fn attention(self, attention: Attention) -> Self {
        self.set_word(keys::ATTENTION, attention)
    }

    /// The optimizer and its implementation.
    #[must_use]
    pub fn optimizer(self, optimizer: OptimizerKind) -> Self {
        self.set_word(keys::OPTIMIZER, optimizer)
    }

    /// Whose loop and whose defaults.
    #[must_use]
    pub fn framework(self, framework: Framework) -> Self {
        self.set_word(keys::FRAMEWORK, framework)
    }

    /// The GPU: a name of the catalog, or a size as `24GiB,sm_86`.
    #[must_use]
    pub fn on_gpu(self, name: &str) -> Self {
        self.set(keys::GPU, name)
    }

    /// The job, every value decided.
    ///
    /// # Errors
    /// As [`resolve`](JobSource::resolve).
    pub fn job(&self) -> Result<JobSpec, JobError> {
        Ok(self.resolve(&[])?.job)
    }

    /// A value by its word in job files.
    fn set_word(self, key: &str, value: impl Serialize) -> Self {
        let word = serde_json::to_value(value).unwrap_or_default();
        self.set(key, word.as_str().unwrap_or_default())
    }
}

/// GPT-2 of 124 million parameters in fp32, trained by a plain PyTorch loop on [`Gpu::default`]: what `JobSource` makes of
/// `model = "gpt2"` and `framework = "loop"`. A start for `JobSpec { micro_batch_size: 4, ..JobSpec::default() }`; what such a
/// job says is not checked until it is simulated, where `JobSource` checks every key.
impl Default for JobSpec {
    fn default() -> Self {
        Self {
            model: ModelSpec::default(),
            task: Task::CausalLm,
            framework: Framework::Loop,
            micro_batch_size: 8,
            seq_len: 1024,
            max_new_tokens: 0,
            gradient_accumulation_steps: 1,
            materialized: false,
            places_first: false,
            device_map: false,
            quantization: None,
            precision: Precision::Fp32,
            attention: Attention::Sdpa,
            gradient_checkpointing: CheckpointPolicy::Off,
            use_reentrant: false,
            activation_offload: None,
            optimizer: OptimizerKind::Adamw,
            decays: false,
            low_rank: LowRankSpec::default(),
            preconditioner: PreconditionerSpec::default(),
            optimizer_in_backward: false,
            ema: Ema::Off,
            clip_grad_norm: None::<ClipSpec>,
            zero_grad_set_to_none: true,
            train_mode: true,
            own_labels: false,
            padded: None,
            padding_free: false,
            row_growth: None,
            lora: None,
            logits: LogitsPath::default(),
            use_cache: true,
            steps: 2,
            transformers: TransformersVersion::default(),
            liger_kernels: false,
            kernels: Kernels::default(),
            parallel: Parallel::default(),
            allocator: AllocatorConfig::default(),
            gpu: Gpu::default(),
            run: RunSpec::default(),
            left_open: Vec::new(),
        }
    }
}

/// GPT-2 of 124 million parameters: every field is its config class's default.
impl Default for ModelSpec {
    fn default() -> Self {
        let name = "gpt2".to_owned();
        Self { model_type: name.clone(), name, config: Fields::default(), beside: super::Beside::default() }
    }
}

/// All logits, held until backward begins, and transformers' own loss.
impl Default for LogitsPath {
    fn default() -> Self {
        Self { keep_outputs: false, logits_to_keep: None, loss: LossKernel::Full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::estimate;

    #[test]
    fn the_default_is_what_a_source_makes_of_gpt2_in_a_plain_loop() {
        let resolved = JobSource::model("gpt2").framework(Framework::Loop).job().unwrap();
        let (said, default) = (estimate(&resolved).unwrap(), estimate(&JobSpec::default()).unwrap());
        let bytes =
            |of: &crate::estimate::Estimate| (of.parameter_count, of.peak_allocated_bytes, of.peak_reserved_bytes);
        assert_eq!(bytes(&default), bytes(&said));
        assert_eq!(JobSpec { model: ModelSpec::default(), ..resolved }, JobSpec::default());
    }

    #[test]
    fn a_typed_setter_says_what_the_key_says() {
        let typed = JobSource::model("gpt2")
            .micro_batch_size(3)
            .seq_len(64)
            .gradient_accumulation_steps(2)
            .gradient_checkpointing(true)
            .precision(Precision::Bf16Amp)
            .attention(Attention::MemEfficient)
            .optimizer(OptimizerKind::Adamw8bit)
            .framework(Framework::DeepSpeed)
            .on_gpu("t4");
        let written = [
            (keys::MICRO_BATCH_SIZE, "3"),
            (keys::SEQ_LEN, "64"),
            (keys::GRADIENT_ACCUMULATION_STEPS, "2"),
            (keys::GRADIENT_CHECKPOINTING, "true"),
            (keys::PRECISION, "bf16-amp"),
            (keys::ATTENTION, "mem_efficient"),
            (keys::OPTIMIZER, "adamw8bit"),
            (keys::FRAMEWORK, "deepspeed"),
            (keys::GPU, "t4"),
        ];
        assert_eq!(typed, written.iter().fold(JobSource::model("gpt2"), |source, (key, value)| source.set(key, value)));
    }
}
