//! Cases of AGI2's small-GPT trainer: batches through its own loop.

use serde::Deserialize;
use serde_json::Value;

use super::{CasePrecision, checkpoint_policy, clip_spec, model_of, plain_job};
use crate::job::{Attention, JobSpec, OptimizerKind, Task};
use crate::model_type::AGI2;

/// A case of kind `agi2`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    vocab_size: u64,
    n_embd: u64,
    n_layer: u64,
    n_head: u64,
    dropout: f64,
    tied: bool,
    batch: u64,
    seq_len: u64,
    precision: CasePrecision,
    clip_grad_norm: Option<f64>,
    gradient_checkpointing: bool,
    grad_accum: u64,
    optimizer: OptimizerKind,
    steps: u32,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            vocab_size: 50_257,
            n_embd: 384,
            n_layer: 6,
            n_head: 6,
            dropout: 0.1,
            tied: true,
            batch: 4,
            seq_len: 512,
            precision: CasePrecision::Fp32,
            clip_grad_norm: Some(1.0),
            gradient_checkpointing: false,
            grad_accum: 1,
            optimizer: OptimizerKind::Adamw,
            steps: 3,
            _note: String::new(),
        }
    }
}

impl Case {
    fn config(&self) -> [(&'static str, Value); 7] {
        [
            ("vocab_size", self.vocab_size.into()),
            ("n_embd", self.n_embd.into()),
            ("n_layer", self.n_layer.into()),
            ("n_head", self.n_head.into()),
            ("embd_pdrop", self.dropout.into()),
            ("attn_pdrop", self.dropout.into()),
            ("tie_word_embeddings", self.tied.into()),
        ]
    }
}

pub(super) fn job_of_case(case: Case) -> JobSpec {
    let model = model_of(&case.id, AGI2, case.config());
    JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.seq_len,
        steps: case.steps,
        precision: case.precision.precision(),
        attention: Attention::Eager,
        clip_grad_norm: clip_spec(case.clip_grad_norm),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        gradient_accumulation_steps: case.grad_accum,
        optimizer: case.optimizer,
        ..plain_job(model, Task::CausalLm)
    }
}
