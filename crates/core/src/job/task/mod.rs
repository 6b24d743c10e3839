//! What is run: the tasks, and what each needs to know beyond the model and the sizes that all share.

mod causal_lm;
mod classification;
mod contrastive;
mod diffusion;
mod dpo;
mod embedding;
mod facts;
mod gkd;
mod grpo;
mod hrm;
mod inference;
mod judge;
mod kto;
mod masked_lm;
mod pairs;
mod ppo;
mod reward;
mod seq2seq;
mod swarm;
mod trl;

use serde::{Deserialize, Serialize};

use super::Head;

pub use diffusion::DiffusionSpec;
pub use dpo::DpoSpec;
pub use embedding::{EmbeddingSpec, Pooling};
pub use facts::{LossOf, Passes, QuantizedBase, Spreading, TaskFacts};
pub(crate) use gkd::AnswersOf;
pub use gkd::{Divergence, GkdSpec, OnPolicy, TeacherDtype};
pub use grpo::{Baseline, GrpoSpec, LogProbs, Rollout};
pub use judge::{JudgePhase, JudgePlace, JudgeSpec, JudgeWeights};
pub use kto::{KtoLoss, KtoSpec};
pub use pairs::{PairLoss, PairsSpec};
pub use ppo::{KlEstimator, PpoSpec};
pub use reward::RewardSpec;
pub use seq2seq::Seq2SeqSpec;
pub use swarm::{SwarmLogProbs, SwarmSpec};
pub use trl::TrlVersion;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Next-token training with labels.
    CausalLm,
    /// Masked-token training with labels (BERT).
    MaskedLm,
    /// Training an encoder-decoder on labels.
    Seq2SeqLm(Seq2SeqSpec),
    /// Training on a class of each row.
    SequenceClassification,
    /// Training on a class of each token.
    TokenClassification,
    /// Training on a class of each image.
    ImageClassification,
    /// One forward pass without gradients.
    InferenceForward,
    /// `generate` with a KV cache.
    Generate,
    /// TRL's `GRPOTrainer`: rollout, reward, log-probabilities, training in turn.
    Grpo(Box<GrpoSpec>),
    /// TRL's `DPOTrainer`: a policy and its reference on chosen and rejected answers.
    Dpo(Box<DpoSpec>),
    /// TRL's `KTOTrainer`: a policy and its reference on answers that are desirable or not.
    Kto(Box<KtoSpec>),
    /// TRL's `ORPOTrainer` and `CPOTrainer`: chosen and rejected answers, without a reference.
    Pairs(Box<PairsSpec>),
    /// TRL's `GKDTrainer`: a student learns a teacher's distribution.
    Gkd(Box<GkdSpec>),
    /// TRL's `PPOTrainer`: policy, value model, reference and reward model.
    Ppo(Box<PpoSpec>),
    /// TRL's `RewardTrainer`: a score of chosen and rejected rows.
    Reward(Box<RewardSpec>),
    /// Which text of a batch belongs to which image.
    Contrastive,
    /// sentence-transformers' trainer: texts near to one another, and far from the others of a batch.
    Embedding(Box<EmbeddingSpec>),
    /// A node of a swarm: generates, scores and trains on its own and other nodes' completions.
    Swarm(Box<SwarmSpec>),
    /// One segment of the hierarchical reasoning model's adaptive computation.
    Hrm,
    /// A denoiser of diffusers on latents with noise.
    Diffusion(DiffusionSpec),
}

impl Task {
    /// What is known of its kind: the one place where a task is told from another.
    pub fn facts(&self) -> &dyn TaskFacts {
        match self {
            Self::CausalLm => &causal_lm::CausalLm,
            Self::MaskedLm => &masked_lm::MaskedLm,
            Self::Seq2SeqLm(seq2seq) => seq2seq,
            Self::SequenceClassification => &classification::OF_SEQUENCES,
            Self::TokenClassification => &classification::OF_TOKENS,
            Self::ImageClassification => &classification::OF_IMAGES,
            Self::InferenceForward => &inference::InferenceForward,
            Self::Generate => &inference::Generate,
            Self::Grpo(grpo) => grpo.as_ref(),
            Self::Dpo(dpo) => dpo.as_ref(),
            Self::Kto(kto) => kto.as_ref(),
            Self::Pairs(pairs) => pairs.as_ref(),
            Self::Gkd(gkd) => gkd.as_ref(),
            Self::Ppo(ppo) => ppo.as_ref(),
            Self::Reward(reward) => reward.as_ref(),
            Self::Contrastive => &contrastive::Contrastive,
            Self::Embedding(embedding) => embedding.as_ref(),
            Self::Swarm(swarm) => swarm.as_ref(),
            Self::Hrm => &hrm::Hrm,
            Self::Diffusion(diffusion) => diffusion,
        }
    }

    /// Whether the task runs backward and an optimizer.
    pub fn trains(&self) -> bool {
        self.facts().loss() != LossOf::Nobody
    }

    /// What stands on the model that it is run with; `None` where the model's own config says it.
    pub const fn head(&self) -> Option<Head> {
        match self {
            Self::SequenceClassification | Self::Reward(_) => Some(Head::SequenceClassification),
            Self::TokenClassification => Some(Head::TokenClassification),
            Self::ImageClassification => Some(Head::ImageClassification),
            Self::Embedding(_) => Some(Head::Base),
            Self::InferenceForward => None,
            _ => Some(Head::LanguageModel),
        }
    }

    /// Labels of its head, where the task and no config says how many.
    pub const fn labels(&self) -> Option<u64> {
        match self {
            Self::Reward(_) => Some(1),
            _ => None,
        }
    }

    /// Its name in job files.
    pub fn name(&self) -> TaskName {
        self.facts().name()
    }

    /// What only GRPO has.
    pub const fn grpo(&self) -> Option<&GrpoSpec> {
        match self {
            Self::Grpo(grpo) => Some(grpo),
            _ => None,
        }
    }

    /// Tokens of the labels of a row, where they are not those of the row itself.
    pub const fn target_len(&self) -> Option<u64> {
        match self {
            Self::Seq2SeqLm(seq2seq) => Some(seq2seq.target_len),
            _ => None,
        }
    }

    /// What only DPO has.
    pub const fn dpo(&self) -> Option<&DpoSpec> {
        match self {
            Self::Dpo(dpo) => Some(dpo),
            _ => None,
        }
    }

    /// What only a swarm has.
    pub const fn swarm(&self) -> Option<&SwarmSpec> {
        match self {
            Self::Swarm(swarm) => Some(swarm),
            _ => None,
        }
    }
}

impl From<GrpoSpec> for Task {
    fn from(grpo: GrpoSpec) -> Self {
        Self::Grpo(Box::new(grpo))
    }
}

impl From<DpoSpec> for Task {
    fn from(dpo: DpoSpec) -> Self {
        Self::Dpo(Box::new(dpo))
    }
}

impl From<KtoSpec> for Task {
    fn from(kto: KtoSpec) -> Self {
        Self::Kto(Box::new(kto))
    }
}

impl From<PairsSpec> for Task {
    fn from(pairs: PairsSpec) -> Self {
        Self::Pairs(Box::new(pairs))
    }
}

impl From<GkdSpec> for Task {
    fn from(gkd: GkdSpec) -> Self {
        Self::Gkd(Box::new(gkd))
    }
}

impl From<PpoSpec> for Task {
    fn from(ppo: PpoSpec) -> Self {
        Self::Ppo(Box::new(ppo))
    }
}

impl From<RewardSpec> for Task {
    fn from(reward: RewardSpec) -> Self {
        Self::Reward(Box::new(reward))
    }
}

impl From<EmbeddingSpec> for Task {
    fn from(embedding: EmbeddingSpec) -> Self {
        Self::Embedding(Box::new(embedding))
    }
}

impl From<SwarmSpec> for Task {
    fn from(swarm: SwarmSpec) -> Self {
        Self::Swarm(Box::new(swarm))
    }
}

/// A task's name in job files and reference cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskName {
    /// `causal_lm`, of [`Task::CausalLm`].
    CausalLm,
    /// `masked_lm`, of [`Task::MaskedLm`].
    MaskedLm,
    /// `seq2seq_lm`, of [`Task::Seq2SeqLm`].
    #[serde(rename = "seq2seq_lm")]
    Seq2SeqLm,
    /// `sequence_classification`, of [`Task::SequenceClassification`].
    SequenceClassification,
    /// `token_classification`, of [`Task::TokenClassification`].
    TokenClassification,
    /// `image_classification`, of [`Task::ImageClassification`].
    ImageClassification,
    /// `inference_forward`, of [`Task::InferenceForward`].
    InferenceForward,
    /// `generate`, of [`Task::Generate`].
    Generate,
    /// `grpo`, of [`Task::Grpo`].
    Grpo,
    /// `rloo`, of [`Task::Grpo`] with another baseline.
    Rloo,
    /// `dpo`, of [`Task::Dpo`].
    Dpo,
    /// `kto`, of [`Task::Kto`].
    Kto,
    /// `orpo`, of [`Task::Pairs`].
    Orpo,
    /// `cpo`, of [`Task::Pairs`]; SimPO is one of its losses.
    Cpo,
    /// `gkd`, of [`Task::Gkd`].
    Gkd,
    /// `ppo`, of [`Task::Ppo`].
    Ppo,
    /// `reward`, of [`Task::Reward`].
    Reward,
    /// `contrastive`, of [`Task::Contrastive`].
    Contrastive,
    /// `embedding`, of [`Task::Embedding`].
    Embedding,
    /// `swarm`, of [`Task::Swarm`].
    Swarm,
    /// `hrm`, of [`Task::Hrm`].
    Hrm,
    /// `diffusion`, of [`Task::Diffusion`].
    Diffusion,
}

impl TaskName {
    /// Whether its labels are classes of rows, of their tokens, or of images.
    pub const fn has_classes(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification | Self::ImageClassification)
    }

    /// Whether it is trained on labels, or on images and their texts, with the model's own loss: what a Trainer does without help.
    pub const fn has_labels(self) -> bool {
        matches!(self, Self::CausalLm | Self::MaskedLm | Self::Seq2SeqLm | Self::Contrastive) || self.has_classes()
    }
}
