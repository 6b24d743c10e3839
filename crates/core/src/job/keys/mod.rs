//! The keys of a job, one row each. The job file's parser, the flags, their help and the JSON schema all read this
//! table, so a key is described in one place.

mod allocator;
mod diffusion;
mod embedding;
mod gkd;
mod grpo_training;
mod hrm_training;
mod judge;
mod lora;
mod optimizers;
mod ppo;
mod preference;
mod quantization;
mod ranks;
mod reward;
mod rl;
mod run;
mod step;
mod swarm;
mod swarm_training;
mod training;

pub use super::key_names::*;

use serde_json::Value;

use super::error::REHEARSE;
use super::key_names as names;
use super::kind::Kind;
use super::words::{self, Meaning};
use crate::nearest::nearest;

/// A key of a job: `name = value` in a job file, `--name value` as a flag, `name=value` as an assignment.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name; a dot separates a table from its key (`lora.r`).
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// What it is when nobody says.
    pub default: Default,
    /// What it means, in one sentence.
    pub doc: &'static str,
    /// A value as one would write it in a job file.
    pub example: &'static str,
}

/// What a key is when nobody says.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// This value, as JSON, and why this one.
    Fixed(&'static str, &'static str),
    /// What this rule gives.
    Rule(&'static str),
    /// Nothing: the feature is off.
    Unset,
}

impl Key {
    /// What helps whoever wrote `value`, which is none of the key's: an example, and what runs what is not simulated.
    pub(super) fn example_for(&self, value: &Value) -> String {
        let example = format!("for example: {} = {}", self.name, self.example);
        let is_a_word = value.as_str().is_some_and(|text| text.starts_with(|first: char| first.is_ascii_alphabetic()));
        match self.kind {
            _ if is_a_word && self.name == WORLD_SIZE => {
                format!("{example}; a GPU is named by --gpu, several are compared by `tonnage fit --gpus`")
            }
            Kind::Choice(_) if is_a_word => format!("{example}; what is none of these: {REHEARSE}"),
            _ => example,
        }
    }

    /// The key called `name`, whether with `-` or `_`.
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = name.replace('-', "_").to_lowercase();
        KEYS.iter().find(|key| key.name == name)
    }

    /// The same, also by the name that another program has for it.
    pub fn called(name: &str) -> Option<&'static Self> {
        Self::find(name).or_else(|| match words::meaning_of_name(name) {
            Some(Meaning::Key(ours)) => Self::find(ours),
            Some(Meaning::Says(_) | Meaning::Sentence(_)) => None,
            // `lora_r` is `lora.r`, as its flag is `--lora-r`.
            None => KEYS.iter().find(|key| key.name.contains('.') && key.name.replace('.', "_") == name),
        })
    }

    /// The key name that a mistyped one most likely meant.
    pub fn nearest(name: &str) -> Option<&'static str> {
        match words::meaning_of_name(name) {
            Some(Meaning::Key(ours)) => Some(ours),
            Some(_) => None,
            None => nearest(name, KEYS.iter().map(|key| key.name)),
        }
    }

    /// The flag that sets it.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace(['_', '.'], "-"))
    }

    /// The default in words.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Default::Fixed(value, _) => value.trim_matches('"'),
            Default::Rule(rule) => rule,
            Default::Unset => "not set",
        }
    }
}

/// More rows or tokens than any GPU holds; the bound keeps sums of sizes inside a `u64`.
const MAX_ROWS: u64 = 1 << 20;
const MAX_TOKENS: u64 = 1 << 24;
const MOST_NEW_TOKENS: u64 = 1 << 17;

/// How many keys there are.
const COUNT: usize = step::KEYS.len()
    + diffusion::KEYS.len()
    + lora::KEYS.len()
    + quantization::KEYS.len()
    + rl::KEYS.len()
    + preference::KEYS.len()
    + gkd::KEYS.len()
    + ppo::KEYS.len()
    + reward::KEYS.len()
    + embedding::KEYS.len()
    + grpo_training::KEYS.len()
    + hrm_training::KEYS.len()
    + swarm_training::KEYS.len()
    + judge::KEYS.len()
    + swarm::KEYS.len()
    + ranks::KEYS.len()
    + run::KEYS.len()
    + training::KEYS.len()
    + allocator::KEYS.len();

/// All keys, in the order in which people are told of them.
pub static KEYS: [Key; COUNT] = {
    let tables: [&[Key]; 19] = [
        &step::KEYS,
        &diffusion::KEYS,
        &lora::KEYS,
        &quantization::KEYS,
        &rl::KEYS,
        &preference::KEYS,
        &gkd::KEYS,
        &ppo::KEYS,
        &reward::KEYS,
        &embedding::KEYS,
        &grpo_training::KEYS,
        &hrm_training::KEYS,
        &swarm_training::KEYS,
        &judge::KEYS,
        &swarm::KEYS,
        &ranks::KEYS,
        &run::KEYS,
        &training::KEYS,
        &allocator::KEYS,
    ];
    let mut all = [step::KEYS[0]; COUNT];
    let (mut table, mut at) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            all[at] = tables[table][row];
            (row, at) = (row + 1, at + 1);
        }
        table += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::super::key_names::ALL;
    use super::*;
    use crate::job::{
        AnswerIn, Attention, ComputeDtype, Ema, ForeignAdvantages, Framework, Init, JudgePhase, JudgePlace,
        JudgeWeights, LearningRateSchedule, LogProbs, LossKernel, LossType, OptimizerKind, Pooling, Precision,
        PuzzleKind, QuantizedWeights, RewardBy, ScaleRewards, Schedule, ShardInit, SwarmFilter, TaskName, TrlVersion,
    };

    #[test]
    fn every_row_is_consistent() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name && other.flag() != key.flag()));
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
            let example: toml::Table = toml::from_str(&format!("x = {}", key.example)).unwrap();
            let example = serde_json::to_value(&example["x"]).unwrap();
            assert!(key.kind.check(&example).is_ok(), "{}: {example}", key.name);
            if let Default::Fixed(json, why) = key.default {
                assert!(key.kind.check(&serde_json::from_str(json).unwrap()).is_ok(), "{}", key.name);
                assert!(!why.is_empty(), "{}", key.name);
            }
        }
    }

    fn reads_all<T: DeserializeOwned>(kind: Kind) {
        let Kind::Choice(choices) = kind else { panic!("not a choice") };
        for (word, meaning) in choices {
            assert!(serde_json::from_value::<T>((*word).into()).is_ok(), "{word}");
            assert!(!meaning.is_empty(), "{word}");
        }
    }

    #[test]
    fn every_choice_is_a_variant() {
        reads_all::<TaskName>(step::TASKS);
        reads_all::<Precision>(step::PRECISIONS);
        reads_all::<Attention>(step::ATTENTIONS);
        reads_all::<OptimizerKind>(optimizers::OPTIMIZERS);
        reads_all::<Ema>(optimizers::AVERAGES);
        reads_all::<LossKernel>(step::LOSSES);
        reads_all::<Pooling>(embedding::POOLINGS);
        reads_all::<TrlVersion>(rl::TRL_VERSIONS);
        reads_all::<LogProbs>(rl::LOG_PROBS);
        reads_all::<JudgeWeights>(judge::WEIGHTS);
        reads_all::<QuantizedWeights>(quantization::WEIGHTS);
        reads_all::<ComputeDtype>(quantization::COMPUTE_DTYPES);
        reads_all::<JudgePhase>(judge::PHASES);
        reads_all::<JudgePlace>(judge::PLACES);
        reads_all::<ShardInit>(ranks::INITS);
        reads_all::<Schedule>(ranks::SCHEDULES);
        reads_all::<Framework>(step::FRAMEWORKS);
        reads_all::<LearningRateSchedule>(training::SCHEDULES);
        reads_all::<Init>(training::INITS);
        reads_all::<LossType>(grpo_training::LOSS_TYPES);
        reads_all::<ScaleRewards>(grpo_training::SCALES);
        reads_all::<AnswerIn>(grpo_training::ANSWER_FORMS);
        reads_all::<RewardBy>(grpo_training::REWARDS);
        reads_all::<PuzzleKind>(hrm_training::PUZZLE_KINDS);
        reads_all::<SwarmFilter>(swarm_training::FILTERS);
        reads_all::<ForeignAdvantages>(swarm_training::FOREIGN_ADVANTAGES);
    }

    #[test]
    fn every_name_is_a_key_and_is_called_as_its_constant() {
        assert_eq!(ALL.len(), KEYS.len());
        for (constant, name) in ALL {
            assert_eq!(constant.to_lowercase(), name.replace('.', "_"));
            assert!(Key::find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn finds_keys_and_suggests() {
        assert_eq!(Key::find("micro-batch-size").map(|key| key.name), Some("micro_batch_size"));
        assert_eq!(Key::find("lora.r").map(Key::flag), Some("--lora-r".to_owned()));
        assert_eq!(Key::nearest("per_device_train_batch_size"), Some("micro_batch_size"));
        assert_eq!(Key::nearest("gradient_acumulation_steps"), Some("gradient_accumulation_steps"));
        assert_eq!(Key::nearest("lora.rank"), Some("lora.r"));
    }
}
