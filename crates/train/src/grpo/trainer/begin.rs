//! What comes before the first step: the worst case, the warm start, and what held-out questions earn then.

use std::rc::Rc;

use tonnage_verifiable::Split;

use super::super::batch::{Batch, Shape};
use super::super::update::{Updater, Variables};
use super::super::warm_start::{self, WarmStart};
use super::rollouts::frozen;
use super::{Trainer, trained};
use crate::error::TrainError;
use crate::optimizer::Optimizer;
use crate::ranks::Alone;
use crate::tensor::caught;
use crate::training::{Event, Generators, Stepwise};

impl Trainer<'_> {
    /// Before the first step: the worst case, the warm start, and what held-out questions earn. `false` where it was stopped.
    pub(super) fn begin(
        &mut self,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        self.probe_worst_case(observe)?;
        if self.parts.settings.how.warm_start_reward > 0.0 {
            let mut updater = Updater { terms: self.updater.terms, ..self.updater };
            updater.terms.loss_type = warm_start::loss_type();
            updater.terms.beta = 0.0;
            let warm_start = WarmStart {
                torch: self.parts.torch,
                settings: self.parts.settings,
                asker: self.parts.asker,
                updater: &updater,
                sampler: &self.sampler(true),
            };
            let Some(warmed) = warm_start.run(trained(self.parts.model), stops)? else { return Ok(false) };
            let (steps, reward, seconds) = (warmed.steps, warmed.reward, self.seconds());
            observe(Event::WarmedUp { steps, reward, seconds });
            if let Some(reference) = self.parts.reference {
                for ((_, of), (_, to)) in self.parts.model.named().iter().zip(reference.named()) {
                    to.overwrite(&of.to_bytes()?)?;
                }
            }
        }
        self.evaluate_policy(observe)?;
        Ok(true)
    }

    /// Generates, trains and steps once at the longest lengths, so that memory that is not there is missed now and not after hours.
    /// Weights, state and random numbers are afterwards as they were.
    fn probe_worst_case(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let generators = Generators::gather_states(self.parts.torch, self.parts.device, &Alone)?;
        let settings = self.parts.settings;
        let asked = Rc::new(self.parts.asker.ask(Split::Training, u64::MAX, 0)?);
        let (prompt_len, completion_len) = (settings.spec.prompt_len, settings.spec.completion_len);
        let questions = vec![asked; usize::try_from(settings.generation_rows()).unwrap_or(usize::MAX)];
        let mut sampler = self.sampler(true);
        sampler.how.to_full_length = true;
        sampler.prompt_len = Some(prompt_len);
        self.parts.model.set_checkpointing(false);
        let mut rows = sampler.complete(&questions)?;
        self.parts.model.set_checkpointing(settings.checkpoints);
        self.parts.judge.as_ref().map_or(Ok(()), |judge| judge.rehearse(&rows))?;
        rows.iter_mut().for_each(|row| row.advantage = 1.0);
        let shape = Shape { pad: 0, lengths: Some((prompt_len, completion_len)), masks_truncated: false };
        let batch = caught(|| {
            let mut batch = Batch::new(self.policy.context(), &rows, shape);
            batch.take_advantages(&rows);
            batch
        })?;
        let mut optimizer = settings.optimizer(self.parts.torch, trained(self.parts.model))?;
        optimizer.set_learning_rate(0.0);
        let mut variables = Variables::default();
        for _ in 0..2 {
            let mut batch = caught(|| batch.part(0, settings.spec.steps_per_generation))?;
            // The divergence from itself is nothing, and takes its memory.
            batch.ref_per_token_logps = self.reference.as_ref().map(|one| frozen(one, &batch, settings)).transpose()?;
            self.updater.pass(&batch, &mut variables)?;
            self.updater.update(&mut optimizer, &mut variables)?;
        }
        generators.restore(self.parts.torch, self.parts.device)?;
        observe(Event::Measured(self.held()?));
        Ok(())
    }
}
