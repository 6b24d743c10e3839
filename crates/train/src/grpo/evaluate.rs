//! Held-out questions: what the likeliest completion earns, and one that is drawn as in training.

use std::rc::Rc;

use tonnage_torch::{Device, Torch};
use tonnage_verifiable::Split;

use super::asker::{Asked, Asker};
use super::judge::Judge;
use super::rollout::{Row, Sampler};
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::ranks::Alone;
use crate::training::Generators;

/// The round of held-out questions, which are the same at every evaluation.
const EVALUATION: u64 = 0;

/// What held-out questions are asked of, and by whom they are paid.
pub(super) struct HeldOut<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a LanguageModel,
    pub seed: u64,
    pub asker: &'a Asker<'a>,
    pub judge: Option<&'a Judge>,
    pub questions: u64,
    /// Completed at once.
    pub rows: u64,
}

impl HeldOut<'_> {
    /// Mean rewards of the likeliest completions and of drawn ones, for which `sampler` makes completions. What is drawn here
    /// changes no random number of the training.
    pub fn rewards<'s>(&self, sampler: impl Fn(bool) -> Sampler<'s>) -> Result<(f64, f64), TrainError> {
        let generators = Generators::gather_states(self.torch, self.device, &Alone)?;
        self.model.train(false);
        self.torch.seed(self.seed)?;
        let earned = |samples| held_out_reward(&sampler(samples), self.asker, self.judge, (self.questions, self.rows));
        let rewards = (earned(false)?, earned(true)?);
        self.model.train(true);
        generators.restore(self.torch, self.device)?;
        Ok(rewards)
    }
}

/// The mean reward of so many held-out questions, `rows` at once.
fn held_out_reward(
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
