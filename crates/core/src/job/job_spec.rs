//! [`JobSpec`]: one resolved training or inference job, every value decided; `resolve` fills in defaults and remembers where each came from.

use serde::{Deserialize, Serialize};

use super::ema::Ema;
use super::lora_spec::LoraSpec;
use super::low_rank::LowRankSpec;
use super::preconditioner::PreconditionerSpec;
use super::{
    ActivationOffload, Attention, CheckpointPolicy, FieldError, Fields, Framework, Image, Kernels, LeftOpen,
    OptimizerKind, Parallel, QuantizationSpec, RowGrowth, RunSpec, StoredWeights, Task, TransformersVersion, Vision,
};
use crate::alloc::AllocatorConfig;
use crate::dtype::DType;
use crate::gpu::Gpu;
use crate::model_type::{self, ModelKind, ModelType};

/// Weight dtype and autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// fp32 weights, no autocast.
    Fp32,
    /// bf16 weights, gradients and optimizer state.
    Bf16,
    /// fp16 weights, gradients and optimizer state.
    Fp16,
    /// bf16 weights under `torch.autocast(bfloat16)` (TRL with `dtype="bfloat16"`, `bf16=True`).
    Bf16Amp,
    /// fp16 weights under `torch.autocast(float16)` with a `GradScaler`, which fp32 adapters on a frozen base take.
    Fp16Amp,
    /// fp32 weights under `torch.autocast(bfloat16)`.
    AmpBf16,
    /// fp32 weights under `torch.autocast(float16)` with a `GradScaler`.
    AmpFp16,
}

impl Precision {
    /// The dtype the weights are loaded in.
    pub const fn weight_dtype(self) -> DType {
        match self {
            Self::Fp32 | Self::AmpBf16 | Self::AmpFp16 => DType::Float32,
            Self::Bf16 | Self::Bf16Amp => DType::Bfloat16,
            Self::Fp16 | Self::Fp16Amp => DType::Float16,
        }
    }

    /// The autocast dtype, if autocast is on.
    pub const fn autocast_dtype(self) -> Option<DType> {
        match self {
            Self::AmpBf16 | Self::Bf16Amp => Some(DType::Bfloat16),
            Self::AmpFp16 | Self::Fp16Amp => Some(DType::Float16),
            Self::Fp32 | Self::Bf16 | Self::Fp16 => None,
        }
    }

    /// Whether the step scales the loss with a `GradScaler`.
    pub const fn scales_loss(self) -> bool {
        matches!(self, Self::AmpFp16 | Self::Fp16Amp)
    }
}

/// Which logits the model's head computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogitsPath {
    /// Whether the model output stays referenced during backward.
    pub keep_outputs: bool,
    /// `logits_to_keep` of the forward call; `None` computes all positions.
    pub logits_to_keep: Option<u64>,
    /// How the loss is computed from hidden states.
    pub loss: LossKernel,
}

/// How the loss is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKernel {
    /// Full logits, then `cross_entropy` (Hugging Face's default).
    Full,
    /// Liger's `fused_linear_cross_entropy`: chunks of rows, gradients made in the forward pass.
    Liger,
}

/// `torch.nn.utils.clip_grad_norm_` after the last pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClipSpec {
    /// The norm that `clip_grad_norm_` clips to.
    pub max_norm: f64,
}

/// A model as its family reads it: the `model_type` and the fields of its config.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// What to call it in answers (`gpt2`, `Qwen/Qwen2.5-0.5B`, a path).
    pub name: String,
    /// Hugging Face's `model_type` (`gpt2`, `qwen2`, `gemma3_text`, ...).
    pub model_type: String,
    /// The fields of `config.json`; the family fills in its config class's defaults.
    pub config: Fields,
    /// What is known of it beside its config.
    pub beside: Beside,
}

/// What is known of a model beside the config of the part that is simulated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Parameters that somebody else counted, to hold the simulated count against.
    pub counted: Option<Counted>,
    /// The part of a multimodal model that is not simulated.
    pub left_out: Option<LeftOut>,
    /// Its tower, where it is simulated.
    pub vision: Option<Vision>,
    /// What stands on it.
    pub head: Head,
    /// How its checkpoint stores its weights, where it has them packed.
    pub stored: Option<StoredWeights>,
}

/// What a model says at its end: the class of transformers that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// Tokens: `ForCausalLM`, `ForMaskedLM`.
    #[default]
    LanguageModel,
    /// One of several classes of a row: `ForSequenceClassification`.
    SequenceClassification,
    /// One of several classes of each token: `ForTokenClassification`.
    TokenClassification,
    /// One of several classes of an image: `ForImageClassification`.
    ImageClassification,
    /// Nothing: the states of its tokens, as `AutoModel` has it.
    Base,
}

impl Head {
    /// How the names of its classes end.
    pub(crate) const fn class_endings(self) -> &'static [&'static str] {
        match self {
            Self::LanguageModel => &[
                "ForCausalLM",
                "LMHeadModel",
                "ForMaskedLM",
                "ForPreTraining",
                "ForConditionalGeneration",
                "MTModel",
                "BartModel",
            ],
            Self::SequenceClassification => &["ForSequenceClassification"],
            Self::TokenClassification => &["ForTokenClassification"],
            Self::ImageClassification => &["ForImageClassification"],
            Self::Base => &[],
        }
    }

    /// The head of the class called `class`, if it is simulated.
    pub(crate) fn of_class(class: &str) -> Option<Self> {
        let all =
            [Self::LanguageModel, Self::SequenceClassification, Self::TokenClassification, Self::ImageClassification];
        all.into_iter().find(|head| head.class_endings().iter().any(|ending| class.ends_with(ending)))
    }
}

/// A parameter count that the config does not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many, tied ones once.
    pub parameters: u64,
    /// Who counted, as a clause that the number ends ("its publisher counts").
    pub who: &'static str,
}

/// What of a multimodal model is not simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The multimodal model's type.
    pub model_type: String,
    /// At least so many parameters, as far as the config tells.
    pub parameters: Option<u64>,
    /// The whole config.
    pub config: Fields,
}

impl ModelSpec {
    /// Puts the task's head on it, which nobody has counted the parameters of.
    pub(super) fn stand_head(&mut self, task: &Task) {
        self.beside.head = task.head().unwrap_or(self.beside.head);
        if let Some(labels) = task.labels() {
            self.config.0.insert("num_labels".to_owned(), labels.into());
        }
        self.freeze_encoder(task);
        if self.beside.head != Head::LanguageModel {
            self.beside.counted = None;
        }
    }

    /// Whether its model type is simulated with this head.
    pub(crate) fn can_have(&self, head: Head) -> bool {
        let facts = self.facts();
        match head {
            Head::ImageClassification => facts.kind == ModelKind::Image,
            Head::Base => facts.embeds,
            _ if facts.kind == ModelKind::MaskedLm => true,
            Head::LanguageModel => facts.kind != ModelKind::Image,
            Head::SequenceClassification => facts.class_heads.rows,
            Head::TokenClassification => facts.class_heads.tokens.is_some(),
        }
    }

    /// What its rows are, where they are images.
    ///
    /// # Errors
    /// When its config says no image.
    pub fn image(&self) -> Result<Option<Image>, FieldError> {
        self.facts().image.map(|default| Image::read(&self.config, default)).transpose()
    }

    /// What is known of its model type.
    pub(crate) fn facts(&self) -> &'static ModelType {
        model_type::facts(&self.model_type)
    }

    /// Whether the model's config, and so its generation config, names a begin token.
    pub fn has_begin_token(&self) -> bool {
        match self.config.0.get("bos_token_id") {
            Some(id) => !id.is_null(),
            None => self.facts().has_begin_token,
        }
    }

    /// Whether its positions are rows of a table, as GPT-2's: then it matters at which a row's first token stands.
    pub fn has_position_table(&self) -> bool {
        self.facts().has_position_table()
    }

    /// Whether its code is in transformers, rather than its trainer's own.
    pub fn is_in_transformers(&self) -> bool {
        self.facts().in_transformers
    }
}

/// One job, every value decided.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// What is trained or asked.
    pub model: ModelSpec,
    /// What is run.
    pub task: Task,
    /// What trains it.
    pub framework: Framework,
    /// Rows per forward pass.
    pub micro_batch_size: u64,
    /// Tokens per row (the prompt's, for `generate`).
    pub seq_len: u64,
    /// Tokens that `generate` adds.
    pub max_new_tokens: u64,
    /// Forward-backward passes per optimizer step.
    pub gradient_accumulation_steps: u64,
    /// Whether a model made on the meta device got memory for its parameters, then its buffers, instead of by `model.to`.
    pub materialized: bool,
    /// Whether indexing by masks finds the places first, as the reference measurements do, whose tensors have no values.
    pub places_first: bool,
    /// Whether `from_pretrained(device_map=...)` loaded it, which warms the allocator up with one block.
    pub device_map: bool,
    /// Weight dtype and autocast.
    pub precision: Precision,
    /// transformers' `attn_implementation`, or SDPA held to a kernel.
    pub attention: Attention,
    /// What is recomputed in backward.
    pub gradient_checkpointing: CheckpointPolicy,
    /// Whether it is done with `use_reentrant=True`.
    pub use_reentrant: bool,
    /// Where activations lie, `None` for on the GPU.
    pub activation_offload: Option<ActivationOffload>,
    /// Not used where the task trains nothing.
    pub optimizer: OptimizerKind,
    /// Whether `weight_decay` is above 0, which some add to a copy of the gradients.
    pub decays: bool,
    /// What one in a low rank is told.
    pub low_rank: LowRankSpec,
    /// What one that preconditions gradients is told.
    pub preconditioner: PreconditionerSpec,
    /// Whether each parameter has one of its own, which steps in backward and frees the gradient.
    pub optimizer_in_backward: bool,
    /// What averages the weights.
    pub ema: Ema,
    /// Gradient clipping, `None` for none.
    pub clip_grad_norm: Option<ClipSpec>,
    /// `zero_grad(set_to_none=...)`.
    pub zero_grad_set_to_none: bool,
    /// Whether the model is in training mode (dropout active as in its config).
    pub train_mode: bool,
    /// Whether the labels of a plain loop lie in a tensor beside the tokens; else the tokens are the labels.
    pub own_labels: bool,
    /// Whether some rows are shorter than `seq_len` and padded to it. `None`: rows of one length, and the range allows for others.
    pub padded: Option<bool>,
    /// Whether the rows of a batch lie end to end in one (TRL's `padding_free`).
    pub padding_free: bool,
    /// How rows grow to `seq_len` from epoch to epoch, where they do.
    pub row_growth: Option<RowGrowth>,
    /// LoRA adapters, `None` to train all weights.
    pub lora: Option<LoraSpec>,
    /// How the frozen base is quantized, `None` where it is whole.
    pub quantization: Option<QuantizationSpec>,
    /// Which logits are computed and kept.
    pub logits: LogitsPath,
    /// `use_cache` passed to the forward call.
    pub use_cache: bool,
    /// Optimizer steps simulated; the state appears in step 1, the steady peak in step 2.
    pub steps: u32,
    /// The version of transformers.
    pub transformers: TransformersVersion,
    /// Whether Liger's kernels replace the layers' own (`use_liger_kernel`).
    pub liger_kernels: bool,
    /// Kernels of other programs in place of the model's own operations.
    pub kernels: Kernels,
    /// How the job is spread over ranks.
    pub parallel: Parallel,
    /// As `PYTORCH_CUDA_ALLOC_CONF` sets them.
    pub allocator: AllocatorConfig,
    /// The GPU it runs on.
    pub gpu: Gpu,
    /// How long the training is, and what is known of its time and price.
    pub run: RunSpec,
    /// What a config of the trainer says beside all this.
    pub left_open: Vec<LeftOpen>,
}
