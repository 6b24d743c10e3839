//! The records of metrics that Tonnage writes and reads: JSON lines, each with `record` saying what it is. A line that is torn or
//! of a newer version is counted, never fatal. docs/report.md describes the format for writers in other languages.
//!
//! ```json
//! {"record": "run", "format": 1, "suite": "sapo-gpt2", "configuration": "4/4", "seed": 3, "command": ["python", "train.py"], "gpu": "H100"}
//! {"record": "point", "step": 10, "seconds": 41.5, "gpu_hours": 0.0115, "tokens_generated": 81920, "metrics": {"eval/accuracy": 0.31}}
//! {"record": "item", "item": "sudoku-17", "difficulty": "hard", "samples": 8, "correct": 3}
//! {"record": "memory", "predicted_bytes": 6442450944, "measured_bytes": 6339693773}
//! {"record": "end", "outcome": "succeeded", "attempts": 2, "lost_seconds": 95.0}
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version that is written. It rises when an old reader would misunderstand, not when something is added.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// What runs; the first line of a file.
    Run(Box<Identity>),
    /// Metrics at a step.
    Point(Point),
    /// What became of one question of a test set.
    Item(Item),
    /// What was said and seen of the GPU's memory.
    Memory(Memory),
    /// How the run ended; the last line.
    End(End),
}

/// What runs. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// The experiment that it belongs to.
    pub suite: String,
    /// What is compared: runs of one configuration differ in nothing but the seed.
    pub configuration: String,
    pub seed: Option<u64>,
    /// One of several processes that make up a run, as the nodes of a swarm: nodes are no seeds.
    pub node: Option<String>,
    /// The command that makes it again, word by word.
    pub command: Vec<String>,
    /// Versions by name: `torch`, `transformers`, `tonnage`, `git`.
    pub versions: BTreeMap<String, String>,
    /// The GPU's name.
    pub gpu: Option<String>,
    /// GPUs; GPU-hours are theirs.
    pub gpus: Option<u64>,
    /// Values that differ between configurations, and others worth saying (`I`, `J`, `G`, `learning_rate`).
    pub parameters: BTreeMap<String, Value>,
    /// What `reward` adds up.
    pub reward: RewardScale,
    /// Whether runs of one seed see the same data in the same order in all configurations, so that they are pairs.
    pub shares_data_order: Option<bool>,
    /// The text of the suite's file.
    pub suite_file: Option<String>,
}

/// On what scale rewards are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RewardScale {
    /// Whether a reward is the mean over the completions of a round, or their sum; `None` where nobody says.
    pub of_completions: Option<Total>,
    /// The most that one completion can earn.
    pub max: Option<f64>,
    pub min: Option<f64>,
    /// Completions of a round of a node that a sum is over.
    pub completions: Option<u64>,
}

/// How rewards of completions are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Total {
    /// The mean over completions.
    Mean,
    Sum,
}

/// Metrics at a step. All but `metrics` count from the beginning of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// Optimizer steps, or rounds.
    pub step: f64,
    /// Wall time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// GPU-hours: wall time times GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_hours: Option<f64>,
    /// Tokens sampled from the policy, over all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_generated: Option<f64>,
    /// Tokens that gradients were computed for, over all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_trained: Option<f64>,
    /// Floating-point operations since the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// Values by name: `reward/on_policy`, `eval/accuracy`, `reward/training_set`, `groups`, `groups_with_variance`.
    pub metrics: BTreeMap<String, f64>,
}

/// One question of a test set, and the answers of a run to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
    /// Its name, the same in all runs.
    pub item: String,
    /// `eval`, or `train` of what was trained on.
    pub split: String,
    /// What kind of question.
    pub kind: String,
    /// How hard, in the words of its source.
    pub difficulty: String,
    /// Independent answers drawn.
    pub samples: u64,
    /// Of these, right ones.
    pub correct: u64,
    /// For answers that were voted on (ARC): the place of the right one among the distinct answers by votes, from 1.
    pub rank: Option<u64>,
    /// Share of its tokens that were right.
    pub token_accuracy: Option<f64>,
    /// What kind of failure, of a wrong answer.
    pub failure: Option<String>,
    /// A wrong answer, to look at.
    pub example: Option<String>,
}

/// Bytes of GPU memory: peaks of one process, reserved by its allocator, with its context where `total` says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// By the estimate.
    pub predicted_bytes: Option<u64>,
    /// By a rehearsal.
    pub rehearsed_bytes: Option<u64>,
    /// On the GPU.
    pub measured_bytes: Option<u64>,
}

/// How a run ended, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// `succeeded`, `failed`, `stopped`.
    pub outcome: String,
    /// Why, where it did not succeed.
    pub reason: String,
    /// Starts of the command.
    pub attempts: u32,
    /// Seconds from start to end.
    pub seconds: Option<f64>,
    /// Of these, seconds of attempts that failed.
    pub lost_seconds: Option<f64>,
    /// Energy of the GPUs in joules.
    pub energy_joules: Option<f64>,
    /// Price in dollars.
    pub dollars: Option<f64>,
}

impl Record {
    /// The line, with its end.
    pub fn line(&self) -> String {
        // Of these types nothing can fail to be written; numbers that JSON lacks become null.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let records = [
            Record::Run(Box::new(Identity {
                format: FORMAT,
                configuration: "4/4".to_owned(),
                seed: Some(3),
                ..Identity::default()
            })),
            Record::Point(Point {
                step: 10.0,
                metrics: BTreeMap::from([("reward".to_owned(), 0.5)]),
                ..Point::default()
            }),
            Record::Item(Item { item: "a".to_owned(), samples: 8, correct: 3, ..Item::default() }),
            Record::Memory(Memory { predicted_bytes: Some(1 << 33), ..Memory::default() }),
            Record::End(End { outcome: "failed".to_owned(), attempts: 2, ..End::default() }),
        ];
        for record in records {
            let line = record.line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record, "{line}");
        }
    }

    #[test]
    fn an_older_or_newer_writer_is_read() {
        let line = r#"{"record":"run","configuration":"a","seed":1,"colour":"red"}"#;
        let Record::Run(identity) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        assert_eq!((identity.configuration.as_str(), identity.format), ("a", 0));
    }
}
