//! Cases of sentence-transformers' trainer, as `testdata/steps/measure_embedding.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{Attention, EmbeddingSpec, Framework, JobError, JobSpec, OptimizerKind, Pooling};
use crate::model_type::QWEN2;

/// A case of kind `embedding`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EmbeddingCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    framework: CaseFramework,
    model: Map<String, Value>,
    pooling: Pooling,
    normalize: bool,
    precision: CasePrecision,
    batch: u64,
    anchor_len: u64,
    seq_len: u64,
    negatives: u64,
    mini_batch: Option<u64>,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    attn: Attention,
    max_grad_norm: f64,
    padded: bool,
    #[serde(rename = "note")]
    _note: String,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CaseFramework {
    Trainer,
    Loop,
}

impl Default for EmbeddingCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            framework: CaseFramework::Trainer,
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            pooling: Pooling::Mean,
            normalize: true,
            precision: CasePrecision::Fp32,
            batch: 8,
            anchor_len: 32,
            seq_len: 128,
            negatives: 0,
            mini_batch: None,
            steps: 2,
            grad_accum: 1,
            gradient_checkpointing: false,
            optim: None,
            lora: None,
            attn: Attention::Sdpa,
            max_grad_norm: 1.0,
            padded: false,
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(case: EmbeddingCase) -> Result<JobSpec, JobError> {
    let spec = EmbeddingSpec {
        anchor_len: case.anchor_len,
        negatives: case.negatives,
        pooling: case.pooling,
        normalize: case.normalize,
        mini_batch_size: case.mini_batch,
    };
    let (framework, usual) = match case.framework {
        CaseFramework::Trainer => (Framework::Trainer, OptimizerKind::AdamwFused),
        CaseFramework::Loop => (Framework::Loop, OptimizerKind::Adamw),
    };
    Ok(JobSpec {
        framework,
        micro_batch_size: case.batch,
        seq_len: case.seq_len,
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        attention: case.attn,
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(usual, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        padded: Some(case.padded),
        steps: case.steps,
        ..plain_job(model_of_case(case.id, case.model)?, spec.into())
    })
}
