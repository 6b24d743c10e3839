//! Decides the keys of TRL's GKDTrainer.

use super::chooser::Chooser;
use super::job::Lengths;
use super::model_source;
use crate::job::keys;
use crate::job::{Divergence, GkdSpec, JobError, JobSource, OnPolicy, Task};

pub(super) fn resolve_gkd(choose: &mut Chooser<'_>, lengths: &Lengths, source: &JobSource) -> Result<Task, JobError> {
    let Some(setting) = choose.settings.get(keys::GKD_TEACHER_MODEL) else {
        return Err(JobError::new("GKD learns from a teacher, and none is named")
            .about(&[keys::GKD_TEACHER_MODEL])
            .hint("name a model of the same vocabulary, for example: gkd.teacher_model = \"Qwen/Qwen2.5-1.5B\""));
    };
    let teacher = model_source::second_model(keys::GKD_TEACHER_MODEL, setting, source)?;
    choose.take_value(keys::GKD_TEACHER_MODEL, serde_json::Value::Null, "");
    Ok(GkdSpec {
        prompt_len: lengths.prompt,
        completion_len: lengths.completion,
        max_new_tokens: choose.take_size(keys::GKD_MAX_NEW_TOKENS),
        on_policy: OnPolicy::of_lmbda(choose.take_number(keys::GKD_LMBDA)),
        seq_kd: choose.take_switch(keys::GKD_SEQ_KD),
        divergence: Divergence::of_beta(choose.take_number(keys::GKD_BETA)),
        teacher,
        teacher_dtype: choose.take_word(keys::GKD_TEACHER_DTYPE)?,
    }
    .into())
}
