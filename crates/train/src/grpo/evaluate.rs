//! Held-out questions: what the likeliest completion earns, and one that is drawn as in training.

use std::rc::Rc;

use tonnage_verifiable::Split;

use super::asker::{Asked, Asker};
use super::judge::Judge;
use super::rollout::{Row, Sampler};
use crate::error::TrainError;

/// The round of held-out questions, which are the same at every evaluation.
const EVALUATION: u64 = 0;

/// The mean reward of so many held-out questions, `rows` at once.
pub(super) fn held_out_reward(
    sampler: &Sampler<'_>,
    asker: &Asker<'_>,
    judge: Option<&Judge>,
    (questions, rows): (u64, u64),
) -> Result<f64, TrainError> {
    let mut earned = 0.0;
    let mut slot = 0;
    while slot < questions {
        let end = slot.saturating_add(rows.max(1)).min(questions);
        let asked: Result<Vec<Rc<Asked>>, TrainError> =
            (slot..end).map(|slot| asker.ask(Split::Evaluation, EVALUATION, slot).map(Rc::new)).collect();
        let mut completed = sampler.complete(&asked?)?;
        pay(&mut completed, judge)?;
        earned += completed.iter().map(|row| row.reward).sum::<f64>();
        slot = end;
    }
    Ok(earned / questions.max(1) as f64)
}

/// Gives every row its reward; what has no end earns nothing, as nobody knows what it would have become.
pub(super) fn pay(rows: &mut [Row], judge: Option<&Judge>) -> Result<(), TrainError> {
    match judge {
        Some(judge) => judge.pay(rows),
        None => {
            for row in rows.iter_mut() {
                row.reward = if row.is_truncated { 0.0 } else { row.asked.reward(&row.text) };
            }
            Ok(())
        }
    }
}
