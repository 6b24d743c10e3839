//! Cases of TRL's KTO, ORPO and CPO trainers, as `testdata/steps/measure_preference.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::sharding::{CaseSharding, ranks_of_trl};
use super::trainer::{CaseQuantization, offload_of_trl};
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{
    Framework, JobError, JobSpec, KtoLoss, KtoSpec, OptimizerKind, PairLoss, PairsSpec, QuantizationSpec,
    QuantizedBase, Task,
};
use crate::model_type::QWEN2;

/// A case of kind `trl_kto`, `trl_orpo` or `trl_cpo`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PreferenceCase {
    id: String,
    kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    batch: u64,
    prompt_len: u64,
    completion_len: u64,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    liger: bool,
    max_grad_norm: f64,
    padded: bool,
    world: u64,
    sharded: Option<CaseSharding>,
    activation_offloading: bool,
    quantization: Option<CaseQuantization>,
    precompute: bool,
    loss_type: Option<Value>,
    desirable: Option<u64>,
    cpo_alpha: f64,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for PreferenceCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            precision: CasePrecision::AmpBf16,
            batch: 4,
            prompt_len: 64,
            completion_len: 64,
            steps: 2,
            grad_accum: 1,
            gradient_checkpointing: true,
            optim: None,
            lora: None,
            liger: false,
            max_grad_norm: 1.0,
            padded: false,
            world: 1,
            sharded: None,
            activation_offloading: false,
            quantization: None,
            precompute: false,
            loss_type: None,
            desirable: None,
            cpo_alpha: 1.0,
            _note: String::new(),
        }
    }
}

impl PreferenceCase {
    fn task(&self) -> Result<Task, JobError> {
        let (prompt_len, completion_len) = (self.prompt_len, self.completion_len);
        let loss = match self.kind.as_str() {
            "trl_kto" => {
                return Ok(Task::from(KtoSpec {
                    prompt_len,
                    completion_len,
                    precompute_ref_log_probs: self.precompute,
                    loss: read_word(self.loss_type.as_ref(), KtoLoss::Kto)?,
                    desirable_rows: self.desirable.unwrap_or(self.batch / 2),
                }));
            }
            "trl_orpo" => PairLoss::OddsRatio,
            _ => read_word(self.loss_type.as_ref(), PairLoss::Sigmoid)?,
        };
        let has_nll = loss == PairLoss::OddsRatio || self.cpo_alpha > 0.0;
        Ok(PairsSpec { prompt_len, completion_len, loss, has_nll }.into())
    }
}

fn read_word<T: for<'a> Deserialize<'a>>(word: Option<&Value>, default: T) -> Result<T, JobError> {
    word.map_or(Ok(default), |word| {
        T::deserialize(word).map_err(|error| JobError::new(format!("reference case: {error}")))
    })
}

pub(super) fn job_of_case(case: PreferenceCase) -> Result<JobSpec, JobError> {
    let task = case.task()?;
    let quantization = case.quantization.map(|quantization| QuantizationSpec {
        prepared: task.facts().quantized_base() == QuantizedBase::Prepared,
        recast: false,
        group_size: 128,
        ..quantization.spec(Framework::Trl)
    });
    let parallel = ranks_of_trl(
        (case.world, case.sharded),
        case.precision.precision(),
        case.lora.is_some(),
        case.gradient_checkpointing,
    );
    Ok(JobSpec {
        parallel,
        micro_batch_size: case.batch,
        seq_len: case.prompt_len.saturating_add(case.completion_len),
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        device_map: quantization.is_some(),
        quantization,
        liger_kernels: case.liger,
        padded: Some(case.padded),
        activation_offload: offload_of_trl(case.activation_offloading),
        steps: case.steps,
        ..plain_job(model_of_case(case.id, case.model)?, task)
    })
}
