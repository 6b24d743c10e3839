//! Supervised learning from right answers, until completions that are drawn earn enough for groups to differ: the loss of GRPO itself
//! with the answer as completion and an advantage of one, whose gradient is that of the answer's log-probability. So a step takes no
//! more memory than one of GRPO.

use std::rc::Rc;

use tonnage_core::job::{LossType, keys};
use tonnage_torch::Torch;
use tonnage_verifiable::Split;

use super::asker::{Asked, Asker};
use super::batch::{Batch, Shape};
use super::evaluate::pay;
use super::rollout::{Row, Sampler};
use super::settings::GrpoSettings;
use super::update::{Updater, Variables};
use crate::error::TrainError;
use crate::optimizer::Optimizer;
use crate::tensor::caught;

/// Steps between two looks at what completions earn, and in which the learning rate rises.
const LOOKS_EVERY: u64 = 20;
const RISES: f64 = 100.0;
/// Questions of a look: a standard error of three points at a reward of 0.2.
const LOOKED_AT: u64 = 160;
/// Rounds of questions that GRPO never comes to: from here on they are the warm start's, then those of its looks.
const ROUNDS: u64 = 1 << 40;
const LOOKS: u64 = 1 << 41;

/// What a warm start needs.
pub(super) struct WarmStart<'a> {
    pub torch: &'static Torch,
    pub settings: &'a GrpoSettings,
    pub asker: &'a Asker<'a>,
    pub updater: &'a Updater<'a>,
    pub sampler: &'a Sampler<'a>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Warmed {
    pub steps: u64,
    /// What completions that are drawn earned at its end.
    pub reward: f64,
}

impl WarmStart<'_> {
    /// Learns until the reward is reached; `None` where `stops` said so first.
    ///
    /// # Errors
    /// PyTorch's, and when the reward is not reached in as many steps as are allowed.
    pub fn run(
        &self,
        named: Vec<(String, tonnage_torch::Tensor)>,
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<Warmed>, TrainError> {
        let how = &self.settings.how;
        let mut optimizer = self.settings.optimizer(self.torch, named)?;
        let mut variables = Variables::default();
        let mut reward = self.look(0)?;
        let mut step = 0;
        while reward < how.warm_start_reward {
            if stops() {
                return Ok(None);
            }
            if step >= how.warm_start_steps {
                return Err(self.too_slow(reward));
            }
            let rate = how.warm_start_learning_rate * ((step + 1) as f64 / RISES).min(1.0);
            optimizer.set_learning_rate(rate);
            self.step(step, &mut optimizer, &mut variables)?;
            step += 1;
            if step.is_multiple_of(LOOKS_EVERY) {
                reward = self.look(step)?;
            }
        }
        Ok(Some(Warmed { steps: step, reward }))
    }

    fn step(&self, step: u64, optimizer: &mut dyn Optimizer, variables: &mut Variables) -> Result<(), TrainError> {
        let plain = &self.settings.plain;
        for pass in 0..plain.accumulation {
            let slots = pass * plain.micro_batch_size..(pass + 1) * plain.micro_batch_size;
            let rows: Result<Vec<Row>, TrainError> = slots
                .map(|slot| self.asker.ask(Split::Training, ROUNDS + step, slot).and_then(|asked| self.answered(asked)))
                .collect();
            let batch = caught(|| {
                let rows = rows.as_deref().unwrap_or_default();
                let shape = Shape { pad: self.sampler.how.pad, lengths: None, masks_truncated: false };
                let mut batch = Batch::new(self.sampler.policy.context(), rows, shape);
                batch.take_advantages(rows);
                batch
            });
            rows?;
            self.updater.pass(&batch?, variables)?;
        }
        self.updater.update(optimizer, variables).map(|_| ())
    }

    fn answered(&self, asked: Asked) -> Result<Row, TrainError> {
        let text = asked.right_completion();
        let mut tokens = self.asker.tokenizer.encode(&text, false)?;
        tokens.extend(self.sampler.ends.first());
        let most = usize::try_from(self.settings.spec.completion_len).unwrap_or(usize::MAX);
        if tokens.len() > most {
            let problem =
                format!("an answer of {} has {} tokens, and `completion_len` is {most}", asked.kind.name, tokens.len());
            return Err(TrainError::refused_with(problem, format!("set completion_len to {} or more", tokens.len())));
        }
        Ok(Row { asked: Rc::new(asked), tokens, is_truncated: false, text, reward: 1.0, advantage: 1.0 })
    }

    /// What completions of training questions earn.
    fn look(&self, step: u64) -> Result<f64, TrainError> {
        let asked: Result<Vec<Rc<Asked>>, TrainError> =
            (0..LOOKED_AT).map(|slot| self.asker.ask(Split::Training, LOOKS + step, slot).map(Rc::new)).collect();
        let mut rows = self.sampler.complete(&asked?)?;
        pay(&mut rows, None)?;
        Ok(rows.iter().map(|row| row.reward).sum::<f64>() / LOOKED_AT as f64)
    }

    fn too_slow(&self, reward: f64) -> TrainError {
        let how = &self.settings.how;
        let problem = format!(
            "after {} steps from answers, completions earn {reward:.3} and not {} (`{}`): GRPO would have nothing to go by",
            how.warm_start_steps,
            how.warm_start_reward,
            keys::GRPO_WARM_START_REWARD
        );
        TrainError::refused_with(
            problem,
            "an easier grpo.question_level, a larger model, or more grpo.warm_start_steps",
        )
    }
}

/// The mean over the tokens of a micro-batch: what supervised learning takes, whatever GRPO does.
pub(super) const fn loss_type() -> LossType {
    LossType::Bnpo
}
