//! Remedies: what can be done about a job that needs too much, a file each kind. A remedy is a change to the job, or
//! declines with a reason; what it saves and what it costs are the differences of two simulations.
//!
//! One more remedy is one file here and one line in [`REMEDIES`].

mod activations;
mod attention;
mod cached_loss;
mod checkpointing;
mod judge;
mod lengths;
mod loss;
pub mod micro_batch;
mod nodes;
mod offload;
mod optimizer;
mod precision;
pub mod segments;
mod sharding;
mod vllm;
mod weights;

use crate::job::{JobSpec, Origin, Override};

/// Something that can be done.
pub struct Remedy {
    /// A name for programs (`checkpointing`).
    pub name: &'static str,
    /// What it does, for people.
    pub text: &'static str,
    /// Whether the training's results change.
    pub results: Results,
    /// What the simulated operations do not show of its cost; empty where they show all.
    pub caution: &'static str,
    /// The changes to this job, or why it declines.
    pub apply: fn(&JobSpec) -> Result<Vec<Change>, Declined>,
}

pub use super::Change;

/// Why a remedy is none for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The job has nothing that it is for.
    NotApplicable(&'static str),
    /// The job does so already.
    Done(&'static str),
    /// It would save nothing here.
    SavesNothing,
    /// PyTorch or the trainer would refuse it, or it is not simulated.
    Refused(String),
    /// As much was simulated for others as may be.
    NotTried,
}

impl Declined {
    /// The reason in words.
    pub fn reason(&self) -> &str {
        match self {
            Self::NotApplicable(reason) | Self::Done(reason) => reason,
            Self::SavesNothing => "saves nothing here",
            Self::Refused(reason) => reason,
            Self::NotTried => {
                "not tried: with those before it the plan has simulated as much as it may; `tonnage estimate --set` tries it"
            }
        }
    }

    /// Whether people looking for a way out want to read it.
    pub const fn is_of_interest(&self) -> bool {
        matches!(self, Self::SavesNothing | Self::Refused(_) | Self::NotTried)
    }
}

/// What a remedy does to the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Results {
    /// The same numbers, up to the order of sums.
    Same,
    /// Other numbers, of which trainings do not usually notice.
    Rounding,
    /// Another training: another model, other data or another optimizer.
    Changed,
}

impl Results {
    /// For screens and JSON.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Same => "same results",
            Self::Rounding => "results differ by rounding",
            Self::Changed => "changes the training",
        }
    }
}

/// In the order in which they are tried: those that change no result first.
pub const REMEDIES: &[&Remedy] = &[
    &segments::EXPANDABLE,
    &optimizer::FUSED,
    &loss::LIGER,
    &loss::FUSED_LOG_PROBS,
    &loss::COMPLETION_LOGITS,
    &loss::CHUNKED_HEAD,
    &attention::SDPA,
    &checkpointing::LAYERS,
    &cached_loss::CACHED_LOSS,
    &micro_batch::SMALLER,
    &optimizer::EIGHT_BIT,
    &precision::AUTOCAST,
    &precision::HALF_WEIGHTS,
    &judge::EIGHT_BIT,
    &judge::FOUR_BIT,
    &judge::SMALLER,
    &judge::FEWER_ROWS,
    &judge::OFFLOAD,
    &judge::OTHER_GPU,
    &vllm::SLEEP,
    &vllm::SMALLER_SHARE,
    &nodes::LEASE,
    &nodes::FEWER,
    &sharding::ZERO1,
    &sharding::FSDP2,
    &sharding::TWICE_THE_GPUS,
    &sharding::BUCKET_VIEWS,
    &offload::TO_HOST,
    &activations::TO_HOST,
    &weights::LORA,
    &weights::NO_REFERENCE,
    &weights::PRECOMPUTED_REFERENCE,
    &lengths::SHORTER_COMPLETIONS,
    &lengths::SHORTER_ROWS,
];

impl Remedy {
    /// Who sets what it changes.
    pub fn origin(&self) -> Origin {
        Origin::Remedy(self.name.to_owned())
    }
}

/// The changes as overrides that `origin` sets.
pub fn overrides(changes: &[Change], origin: &Origin) -> Vec<Override> {
    changes.iter().map(|(key, value)| Override::new(*key, value, origin.clone())).collect()
}

/// What `apply` gives.
type Applied = Result<Vec<Change>, Declined>;

/// A single change.
fn change_one(key: &'static str, value: impl Into<String>) -> Applied {
    Ok(vec![(key, value.into())])
}

/// Declines where the task's program has no switch for a key.
fn is_read(job: &JobSpec, key: &str) -> Result<(), Declined> {
    match job.task.facts().unread_keys().iter().find(|(unread, _)| *unread == key) {
        Some((_, why)) => Err(Declined::NotApplicable(why)),
        None => Ok(()),
    }
}

/// Declines for a job that has nothing it is for.
const fn not_for(reason: &'static str) -> Applied {
    Err(Declined::NotApplicable(reason))
}

/// Declines for a job that does so already.
const fn already_done(reason: &'static str) -> Applied {
    Err(Declined::Done(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_texts_are_fragments() {
        for (at, remedy) in REMEDIES.iter().enumerate() {
            assert!(REMEDIES[..at].iter().all(|other| other.name != remedy.name), "{}", remedy.name);
            assert!(!remedy.text.is_empty() && !remedy.text.ends_with('.'), "{}", remedy.name);
            assert!(!remedy.caution.ends_with('.'), "{}", remedy.name);
        }
    }
}
