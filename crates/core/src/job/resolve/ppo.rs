//! Decides the keys of TRL's PPOTrainer.

use super::chooser::Chooser;
use super::job::Lengths;
use super::model_source;
use crate::job::keys;
use crate::job::{JobError, JobSource, ModelSpec, PpoSpec, Task};

/// `PPOConfig` of TRL 1.12; `bf16=True` does not reach its accelerator, and weights are as `from_pretrained` loads them.
pub(super) const PPO: [(&str, &str); 5] = [
    (keys::OPTIMIZER, "\"adamw_fused\""),
    (keys::CLIP_GRAD_NORM, "0.0"),
    (keys::GRADIENT_CHECKPOINTING, "false"),
    (keys::PROMPT_LEN, "512"),
    (keys::COMPLETION_LEN, "53"),
];

pub(super) fn resolve_ppo(choose: &mut Chooser<'_>, lengths: &Lengths, source: &JobSource) -> Result<Task, JobError> {
    let Some(reward) = scorer(choose, keys::PPO_REWARD_MODEL, source)? else {
        return Err(JobError::new("PPO asks a reward model, and none is named")
            .about(&[keys::PPO_REWARD_MODEL])
            .hint("name one, for example: ppo.reward_model = \"Qwen/Qwen2.5-0.5B\""));
    };
    let value = scorer(choose, keys::PPO_VALUE_MODEL, source)?.unwrap_or_else(|| reward.clone());
    Ok(PpoSpec {
        prompt_len: lengths.prompt,
        response_length: lengths.completion,
        num_ppo_epochs: choose.take_size(keys::PPO_NUM_PPO_EPOCHS),
        num_mini_batches: choose.take_size(keys::PPO_NUM_MINI_BATCHES),
        rollout_batch: choose.take_size(keys::PPO_LOCAL_ROLLOUT_FORWARD_BATCH_SIZE),
        whiten_rewards: choose.take_switch(keys::PPO_WHITEN_REWARDS),
        kl_estimator: choose.take_word(keys::PPO_KL_ESTIMATOR)?,
        stops: choose.take_switch(keys::PPO_STOP_TOKEN),
        value,
        reward,
    }
    .into())
}

/// A model with one label beside the policy, if it is named.
fn scorer(choose: &mut Chooser<'_>, key: &'static str, source: &JobSource) -> Result<Option<ModelSpec>, JobError> {
    let Some(setting) = choose.settings.get(key) else { return Ok(None) };
    let mut model = model_source::second_model(key, setting, source)?;
    choose.take_value(key, serde_json::Value::Null, "");
    model.become_scorer();
    Ok(Some(model))
}
