//! Cases of the hierarchical reasoning model: one segment a step.

use serde::Deserialize;
use serde_json::Value;

use super::{model_of, plain_job};
use crate::job::{JobSpec, OptimizerKind, Parallel, Strategy, Task};
use crate::model_type::HRM;

/// A case of kind `hrm`. What is not about the batch is a field of the model's config, under its own name there.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    batch: u64,
    seq_len: u64,
    vocab_size: u64,
    num_puzzle_identifiers: u64,
    hidden_size: u64,
    num_heads: u64,
    expansion: f64,
    #[serde(rename = "H_layers")]
    h_layers: u64,
    #[serde(rename = "L_layers")]
    l_layers: u64,
    #[serde(rename = "H_cycles")]
    h_cycles: u64,
    #[serde(rename = "L_cycles")]
    l_cycles: u64,
    puzzle_emb_ndim: Option<u64>,
    halt_max_steps: u64,
    halt_exploration_prob: f64,
    loss_type: String,
    pos_encodings: String,
    forward_dtype: String,
    steps: u32,
    world: u64,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            batch: 384,
            seq_len: 81,
            vocab_size: 11,
            num_puzzle_identifiers: 1,
            hidden_size: 512,
            num_heads: 8,
            expansion: 4.0,
            h_layers: 4,
            l_layers: 4,
            h_cycles: 2,
            l_cycles: 2,
            puzzle_emb_ndim: None,
            halt_max_steps: 16,
            halt_exploration_prob: 0.1,
            loss_type: "stablemax_cross_entropy".to_owned(),
            pos_encodings: "rope".to_owned(),
            forward_dtype: "bfloat16".to_owned(),
            steps: 3,
            world: 1,
            _note: String::new(),
        }
    }
}

impl Case {
    fn config(&self) -> [(&'static str, Value); 15] {
        [
            ("vocab_size", self.vocab_size.into()),
            ("num_puzzle_identifiers", self.num_puzzle_identifiers.into()),
            ("hidden_size", self.hidden_size.into()),
            ("num_heads", self.num_heads.into()),
            ("expansion", self.expansion.into()),
            ("H_layers", self.h_layers.into()),
            ("L_layers", self.l_layers.into()),
            ("H_cycles", self.h_cycles.into()),
            ("L_cycles", self.l_cycles.into()),
            ("puzzle_emb_ndim", self.puzzle_emb_ndim.unwrap_or(self.hidden_size).into()),
            ("halt_max_steps", self.halt_max_steps.into()),
            ("halt_exploration_prob", self.halt_exploration_prob.into()),
            ("loss_type", self.loss_type.as_str().into()),
            ("pos_encodings", self.pos_encodings.as_str().into()),
            ("forward_dtype", self.forward_dtype.as_str().into()),
        ]
    }
}

pub(super) fn job_of_case(case: Case) -> JobSpec {
    let model = model_of(&case.id, HRM, case.config());
    let strategy = if case.world > 1 { Strategy::AllReduce } else { Strategy::None };
    JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.seq_len,
        steps: case.steps,
        optimizer: OptimizerKind::AdamAtan2,
        parallel: Parallel { world_size: case.world, strategy, ..Parallel::default() },
        ..plain_job(model, Task::Hrm)
    }
}
