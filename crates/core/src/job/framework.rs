//! What the user trains with: whose defaults hold where nobody says, and in whose words a plan says its changes.

use crate::job::keys;
use serde::{Deserialize, Serialize};

use super::TaskName;

/// What the user trains with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// TRL's trainers (`SFTTrainer`, `GRPOTrainer`, `DPOTrainer`).
    Trl,
    /// Hugging Face's Trainer.
    Trainer,
    /// A loop of one's own under accelerate.
    Accelerate,
    /// A loop of one's own under DeepSpeed.
    #[serde(rename = "deepspeed")]
    DeepSpeed,
    /// A loop of one's own in plain PyTorch.
    Loop,
    /// Gensyn's rl-swarm over GenRL.
    RlSwarm,
}

/// A key, its default as JSON, and whose it is.
type Row = (&'static str, &'static str, &'static str);

/// `TrainingArguments` of transformers 5.17 with torch 2.8 or newer (training_args.py: `optim`, `max_grad_norm`,
/// `use_cache`).
const TRAINER: [Row; 3] = [
    (keys::OPTIMIZER, "\"adamw_fused\"", "Hugging Face Trainer's optim=\"adamw_torch_fused\""),
    (keys::CLIP_GRAD_NORM, "1.0", "Hugging Face Trainer's max_grad_norm"),
    (keys::USE_CACHE, "false", "Hugging Face Trainer's"),
];
/// `SFTConfig` of TRL 1.16 (sft_config.py, base_config.py), whose trainer loads a model by its name in fp32 (utils.py,
/// `create_model_from_path`).
const SFT: [Row; 5] = [
    (keys::OPTIMIZER, "\"adamw_fused\"", "TRL 1.16's SFTConfig: optim=\"adamw_torch_fused\""),
    (keys::CLIP_GRAD_NORM, "1.0", "TRL 1.16's SFTConfig: max_grad_norm"),
    (keys::USE_CACHE, "false", "TRL 1.16's SFTTrainer"),
    (keys::PRECISION, "\"amp-bf16\"", "TRL 1.16's SFTConfig: bf16=True over weights that it loads in fp32"),
    (keys::GRADIENT_CHECKPOINTING, "true", "TRL 1.16's SFTConfig"),
];
/// A loop as in PyTorch's and transformers' guides: the model is called with what its config says.
const LOOP: [Row; 3] = [
    (keys::OPTIMIZER, "\"adamw\"", "torch.optim.AdamW as called without options"),
    (keys::CLIP_GRAD_NORM, "0.0", "a plain loop does not clip"),
    (keys::USE_CACHE, "true", "the model's config, which a plain loop leaves as it is"),
];

impl Framework {
    /// What most train such a task with.
    pub const fn usual(task: TaskName) -> Self {
        match task {
            TaskName::Grpo
            | TaskName::Rloo
            | TaskName::Dpo
            | TaskName::Kto
            | TaskName::Orpo
            | TaskName::Cpo
            | TaskName::Gkd
            | TaskName::Ppo
            | TaskName::Reward => Self::Trl,
            TaskName::Swarm => Self::RlSwarm,
            TaskName::Diffusion => Self::Accelerate,
            TaskName::Hrm | TaskName::InferenceForward | TaskName::Generate => Self::Loop,
            TaskName::CausalLm
            | TaskName::MaskedLm
            | TaskName::Seq2SeqLm
            | TaskName::SequenceClassification
            | TaskName::TokenClassification
            | TaskName::ImageClassification
            | TaskName::Contrastive
            | TaskName::Embedding => Self::Trainer,
        }
    }

    /// Its defaults for a task without a trainer of its own.
    pub(super) const fn defaults(self, task: TaskName) -> &'static [Row] {
        match (task, self) {
            (TaskName::Embedding, Self::Trainer) => &TRAINER,
            (task, Self::Trainer) if task.has_labels() => &TRAINER,
            (task, Self::Trl) if task.has_labels() => &SFT,
            (task, _) if task.has_labels() => &LOOP,
            _ => &[],
        }
    }

    /// What people call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Trl => "TRL",
            Self::Trainer => "Hugging Face's Trainer",
            Self::Accelerate => "a loop under accelerate",
            Self::DeepSpeed => "a loop under DeepSpeed",
            Self::Loop => "a plain PyTorch loop",
            Self::RlSwarm => "rl-swarm",
        }
    }
}
