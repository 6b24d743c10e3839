//! Decides the keys of TRL's preference trainers beside DPO: KTO, ORPO and CPO.

use super::chooser::Chooser;
use super::job::Lengths;
use crate::job::keys;
use crate::job::{JobError, KtoSpec, PairLoss, PairsSpec, Task};

/// What `KTOConfig`, `ORPOConfig` and `CPOConfig` of TRL 1.16 share (base_config.py); `max_length` is 1024, prompt and answer together.
pub(super) const SHARED: [(&str, &str); 5] = [
    (keys::OPTIMIZER, "\"adamw_fused\""),
    (keys::CLIP_GRAD_NORM, "1.0"),
    (keys::GRADIENT_CHECKPOINTING, "true"),
    (keys::PROMPT_LEN, "512"),
    (keys::COMPLETION_LEN, "512"),
];

pub(super) fn resolve_kto(choose: &mut Chooser<'_>, lengths: &Lengths, rows: u64) -> Result<Task, JobError> {
    let precompute_ref_log_probs = choose.take_switch(keys::KTO_PRECOMPUTE_REF_LOG_PROBS);
    let loss = choose.take_word(keys::KTO_LOSS)?;
    let desirable_rows = choose.size_or(keys::KTO_DESIRABLE_ROWS, rows / 2, "half of micro_batch_size");
    Ok(KtoSpec {
        prompt_len: lengths.prompt,
        completion_len: lengths.completion,
        precompute_ref_log_probs,
        loss,
        desirable_rows,
    }
    .into())
}

pub(super) fn resolve_orpo(lengths: &Lengths) -> Task {
    let loss = PairLoss::OddsRatio;
    PairsSpec { prompt_len: lengths.prompt, completion_len: lengths.completion, loss, has_nll: true }.into()
}

pub(super) fn resolve_cpo(choose: &mut Chooser<'_>, lengths: &Lengths) -> Result<Task, JobError> {
    let loss = choose.take_word(keys::CPO_LOSS)?;
    let has_nll = choose.take_number(keys::CPO_ALPHA) != 0.0;
    Ok(PairsSpec { prompt_len: lengths.prompt, completion_len: lengths.completion, loss, has_nll }.into())
}
