//! GKD as TRL's `GKDTrainer` runs it: a student learns a teacher's distribution, on the data's answers or on what it writes itself.

use serde::Deserialize;

use super::{Spreading, TaskFacts, TaskName};
use crate::dtype::DType;
use crate::gpu::Gpu;
use crate::job::{JobError, JobSpec, ModelSpec, check};

/// What GKD needs beyond the student. `micro_batch_size` counts rows, a prompt with an answer each.
#[derive(Clone, Debug, PartialEq)]
pub struct GkdSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the data's answer.
    pub completion_len: u64,
    /// Tokens of an answer that is generated.
    pub max_new_tokens: u64,
    /// How often the student generates (`lmbda`).
    pub on_policy: OnPolicy,
    /// Whether the teacher generates where the student does not (`seq_kd`).
    pub seq_kd: bool,
    /// Of which distributions the loss is the divergence (`beta`).
    pub divergence: Divergence,
    /// The model that is learnt from.
    pub teacher: ModelSpec,
    /// The dtype of its weights.
    pub teacher_dtype: TeacherDtype,
}

/// The dtype that the teacher is loaded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeacherDtype {
    /// 4 bytes a weight (`torch.float32`).
    #[serde(alias = "float32")]
    Fp32,
    /// 2 bytes a weight (`torch.bfloat16`).
    #[serde(alias = "bfloat16")]
    Bf16,
}

impl TeacherDtype {
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Fp32 => DType::Float32,
            Self::Bf16 => DType::Bfloat16,
        }
    }
}

/// In which passes the student generates what it is trained on: each draws for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPolicy {
    /// In none: `lmbda` is 0.
    Never,
    /// In some, taken to be every second one.
    Sometimes,
    /// In all: `lmbda` is 1.
    Always,
}

impl OnPolicy {
    pub(in crate::job) fn of_lmbda(lmbda: f64) -> Self {
        match lmbda {
            ..=0.0 => Self::Never,
            1.0.. => Self::Always,
            _ => Self::Sometimes,
        }
    }
}

/// Of which distributions the divergence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// Of the teacher's from the student's: `beta` is 0.
    Forward,
    /// Of both from their mixture.
    JensenShannon,
    /// Of the student's from the teacher's: `beta` is 1.
    Reverse,
}

impl Divergence {
    pub(in crate::job) fn of_beta(beta: f64) -> Self {
        match beta {
            ..=0.0 => Self::Forward,
            1.0.. => Self::Reverse,
            _ => Self::JensenShannon,
        }
    }
}

/// Whose answers a pass is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswersOf {
    Data,
    Student,
    Teacher,
}

impl GkdSpec {
    /// Whose answers pass number `pass` of `passes` is trained on; a single one that draws has the longer ones.
    pub(crate) const fn answers_of(&self, pass: u64, passes: u64) -> AnswersOf {
        let is_longer = passes > 1 || self.max_new_tokens >= self.completion_len;
        match self.on_policy {
            OnPolicy::Always => AnswersOf::Student,
            OnPolicy::Sometimes if pass.is_multiple_of(2) && is_longer => AnswersOf::Student,
            OnPolicy::Sometimes | OnPolicy::Never if self.seq_kd => AnswersOf::Teacher,
            OnPolicy::Sometimes | OnPolicy::Never => AnswersOf::Data,
        }
    }

    /// After how many passes the same kind of answers comes again; `u64::MAX` where nothing is ever generated.
    pub(crate) const fn generate_every(&self) -> u64 {
        match self.on_policy {
            OnPolicy::Sometimes => 2,
            OnPolicy::Never if !self.seq_kd => u64::MAX,
            OnPolicy::Never | OnPolicy::Always => 1,
        }
    }

    /// Tokens of the longest row that is trained on.
    pub(crate) fn longest_row(&self) -> u64 {
        let generated = if self.generate_every() == u64::MAX { 0 } else { self.max_new_tokens };
        self.prompt_len.saturating_add(self.completion_len.max(generated))
    }
}

impl TaskFacts for GkdSpec {
    fn name(&self) -> TaskName {
        TaskName::Gkd
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::gkd::check_gkd(job, self)
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.completion_len)
    }

    fn spreading(&self) -> Spreading {
        Spreading::Replicas
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn remarks(&self, _gpu: &Gpu) -> Vec<(&'static str, &'static str)> {
        let remark =
            "each pass draws whether the student generates (gkd.lmbda): every second one is simulated as one that does";
        if self.on_policy == OnPolicy::Sometimes { vec![("on_policy_drawn", remark)] } else { Vec::new() }
    }
}
