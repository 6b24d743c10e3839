//! Cases of TRL's PPO trainer, as `testdata/steps/measure_ppo.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::{CaseLora, CasePrecision, model_of_case, plain_job};
use crate::job::{JobError, JobSpec, KlEstimator, ModelSpec, OptimizerKind, PpoSpec};
use crate::model_type::QWEN2;

/// A case of kind `trl_ppo`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PpoCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    value: Option<Map<String, Value>>,
    reward: Option<Map<String, Value>>,
    precision: CasePrecision,
    batch: u64,
    grad_accum: u64,
    num_mini_batches: u64,
    num_ppo_epochs: u64,
    rollout_batch: u64,
    prompt_len: u64,
    response_length: u64,
    whiten_rewards: bool,
    kl_estimator: KlEstimator,
    stop_token: Option<String>,
    steps: u32,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    padded: bool,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for PpoCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            value: None,
            reward: None,
            precision: CasePrecision::Fp32,
            batch: 2,
            grad_accum: 1,
            num_mini_batches: 1,
            num_ppo_epochs: 4,
            rollout_batch: 64,
            prompt_len: 64,
            response_length: 53,
            whiten_rewards: false,
            kl_estimator: KlEstimator::K1,
            stop_token: None,
            steps: 2,
            optim: None,
            lora: None,
            padded: false,
            _note: String::new(),
        }
    }
}

/// A model with one label.
fn scorer(name: &str, fields: Map<String, Value>) -> Result<ModelSpec, JobError> {
    let mut model = model_of_case(name.to_owned(), fields)?;
    model.become_scorer();
    Ok(model)
}

pub(super) fn job_of_case(case: PpoCase) -> Result<JobSpec, JobError> {
    let of_policy = |fields: Option<Map<String, Value>>| fields.unwrap_or_else(|| case.model.clone());
    let spec = PpoSpec {
        prompt_len: case.prompt_len,
        response_length: case.response_length,
        num_ppo_epochs: case.num_ppo_epochs,
        num_mini_batches: case.num_mini_batches,
        rollout_batch: case.rollout_batch,
        whiten_rewards: case.whiten_rewards,
        kl_estimator: case.kl_estimator,
        stops: case.stop_token.is_some(),
        value: scorer("value", of_policy(case.value))?,
        reward: scorer("reward", of_policy(case.reward))?,
    };
    Ok(JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.prompt_len.saturating_add(case.response_length),
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        lora: case.lora.map(Into::into),
        padded: Some(case.padded),
        steps: case.steps,
        ..plain_job(model_of_case(case.id, case.model)?, spec.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Head, Task};

    #[test]
    fn scorers_have_one_label() {
        let job = job_of_case(PpoCase::default()).unwrap();
        let Task::Ppo(spec) = &job.task else { panic!("another task") };
        assert_eq!(spec.value.beside.head, Head::SequenceClassification);
        assert_eq!(spec.reward.config.num_labels(), Ok(1));
    }
}
