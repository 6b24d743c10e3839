//! What is told, evaluated, saved, and gone on from.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::evaluate::HeldOut;
use super::super::pay::Pay;
use super::super::report::{EvaluationReport, GrpoReport};
use super::super::saved::{self, Progress};
use super::super::update::Passed;
use super::Trainer;
use crate::error::TrainError;
use crate::ranks::Alone;
use crate::store::checkpoints::Checkpoints;
use crate::store::numbers::Numbers;
use crate::training::{Event, Generators, Saved, State, StateParts};

impl Trainer<'_> {
    pub(super) fn report_step(&mut self, is_last: bool, observe: &mut dyn FnMut(Event)) {
        let settings = self.parts.settings;
        let every = settings.plain.training.logging_steps.max(1);
        if !(is_last || self.step.is_multiple_of(every)) || self.lately.steps == 0 {
            return;
        }
        let lately = std::mem::take(&mut self.lately);
        let of_steps = |sum: f64| sum / lately.steps as f64;
        let of_passes = |value: &dyn Fn(&Passed) -> f64| {
            lately.passes.iter().map(value).sum::<f64>() / lately.passes.len().max(1) as f64
        };
        let of_pays =
            |value: fn(&Pay) -> f64| lately.pays.iter().map(value).sum::<f64>() / lately.pays.len().max(1) as f64;
        let of_completions = |count: u64| count as f64 / lately.completions.max(1) as f64;
        let elapsed = lately.since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let has_kl = lately.passes.iter().any(|passed| passed.kl.is_some());
        let report = GrpoReport {
            step: self.step,
            steps: settings.steps,
            loss: of_steps(lately.passes.iter().map(|passed| passed.loss).sum()),
            learning_rate: settings.plain.learning_rate(self.step.saturating_sub(1), settings.steps),
            grad_norm: lately.grad_norm,
            pay: Pay {
                mean: of_pays(|pay| pay.mean),
                deviation: of_pays(|pay| pay.deviation),
                group_variance: of_pays(|pay| pay.group_variance),
                dead_groups: of_pays(|pay| pay.dead_groups),
                floor: lately.pays.iter().map(|pay| pay.floor).fold(f64::INFINITY, f64::min),
                at_floor: of_pays(|pay| pay.at_floor),
            },
            completion_tokens: of_completions(lately.completion_tokens),
            truncated: of_completions(lately.truncated),
            entropy: of_passes(&|passed| passed.entropy),
            kl: has_kl.then(|| of_passes(&|passed| passed.kl.unwrap_or(0.0))),
            clipped: of_passes(&|passed| passed.clipped),
            redrawn_groups: lately.redrawn as f64,
            tokens_generated: self.progress.tokens_generated,
            tokens_trained: self.progress.tokens_trained,
            seconds_sampling: self.progress.seconds_sampling,
            seconds_training: self.progress.seconds_training,
            seconds: self.seconds(),
            seconds_left: of_steps(elapsed) * (settings.steps - self.step) as f64,
        };
        observe(Event::Grpo(Box::new(report)));
    }

    pub(super) fn evaluate_policy(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let questions = self.parts.settings.how.eval_questions;
        if questions == 0 || !self.reads_values() {
            return Ok(());
        }
        let held_out = HeldOut {
            torch: self.parts.torch,
            device: self.parts.device,
            model: self.parts.model,
            seed: self.parts.settings.plain.training.seed,
            asker: self.parts.asker,
            judge: self.parts.judge.as_ref(),
            questions,
            rows: self.parts.settings.generation_rows(),
        };
        self.parts.model.set_checkpointing(false);
        let (greedy, sampled) = held_out.rewards(|samples| self.sampler(samples))?;
        self.parts.model.set_checkpointing(self.parts.settings.checkpoints);
        observe(Event::EvaluatedReward(EvaluationReport {
            step: self.step,
            questions,
            greedy,
            sampled,
            seconds: self.seconds(),
            tokens_trained: self.progress.tokens_trained,
        }));
        Ok(())
    }

    pub(super) fn save_checkpoint(&self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let Some(output) = self.parts.output else { return Ok(()) };
        fs::create_dir_all(output).map_err(|error| TrainError::about_file(output, error))?;
        let settings = self.parts.settings;
        let keep = usize::try_from(settings.plain.training.save_total_limit).unwrap_or(usize::MAX);
        let generators = Generators::gather_states(self.parts.torch, self.parts.device, &Alone)?;
        let names = &self.optimizer.names;
        let parts = StateParts { torch: self.parts.torch, device: self.parts.device, rank: 0, names };
        let path: PathBuf = Checkpoints::new(output, keep).save(self.step, |folder| {
            (self.parts.write_model)(folder)?;
            self.progress.write(folder)?;
            if let Some(batch) = self.buffered.as_ref().filter(|_| self.is_within_batch()) {
                saved::write_batch(folder, batch)?;
            }
            if let Some(reference) = self.parts.reference.filter(|_| settings.how.warm_start_reward > 0.0) {
                saved::write_reference(folder, &reference.named())?;
            }
            parts.write_checkpoint(folder, &self.state(), &self.optimizer, None, &generators)
        })?;
        observe(Event::Saved { step: self.step, path });
        Ok(())
    }

    /// Goes on from a checkpoint, whose weights the model has already.
    ///
    /// # Errors
    /// When it is of another training.
    pub fn resume(&mut self, from: &Path, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let saved = Saved::read(self.parts.torch, from)?;
        saved.state.require_same_training(&self.state(), from)?;
        self.progress = Progress::read(from, &self.parts.settings.in_words())?;
        self.step = saved.state.step;
        self.before = saved.state.seconds;
        if self.is_within_batch() {
            self.buffered = Some(saved::read_batch(self.parts.torch, from, self.policy.context())?);
        }
        if let Some(reference) = self.parts.reference.filter(|_| self.parts.settings.how.warm_start_reward > 0.0) {
            saved::read_reference(self.parts.torch, from, &reference.named())?;
        }
        let names = self.optimizer.names.clone();
        let parts = StateParts { torch: self.parts.torch, device: self.parts.device, rank: 0, names: &names };
        parts.restore_into(saved, &mut self.optimizer, None)?;
        observe(Event::Resumed { step: self.step, from: from.to_owned() });
        Ok(())
    }

    /// Whether the next pass trains on completions that were generated before.
    fn is_within_batch(&self) -> bool {
        !(self.step * self.parts.settings.plain.accumulation).is_multiple_of(self.parts.settings.generate_every())
    }

    fn state(&self) -> State {
        let settings = self.parts.settings;
        State {
            step: self.step,
            max_steps: settings.steps,
            tokens_trained: self.progress.tokens_trained,
            seconds: self.seconds(),
            rows_per_step: settings.plain.rows_per_step(),
            ranks: 1,
            seq_len: settings.spec.prompt_len + settings.spec.completion_len,
            seed: settings.plain.training.seed,
            ..State::default()
        }
    }
}
