//! Before the first round, and what is told, evaluated, saved and gone on from.

use std::fs;
use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use super::Node;
use crate::error::TrainError;
use crate::grpo::evaluate::HeldOut;
use crate::grpo::report::EvaluationReport;
use crate::grpo::swarm::progress::Progress;
use crate::grpo::swarm::report::{SwarmNote, SwarmReport};
use crate::grpo::swarm::shared::hash_bytes;
use crate::grpo::update::Updater;
use crate::grpo::warm_start::{self, WarmStart};
use crate::ranks::Alone;
use crate::store::checkpoints::Checkpoints;
use crate::store::numbers::Numbers;
use crate::training::{Event, Generators, Saved, State, StateParts};

/// Rounds whose median says how long one takes.
const TIMED: usize = 20;

impl Node<'_> {
    pub(super) fn report_round(&self, is_last: bool, observe: &mut dyn FnMut(Event)) {
        let Some(round) = &self.round else { return };
        let settings = &self.parts.settings.grpo;
        let every = settings.plain.training.logging_steps.max(1);
        if !(is_last || self.step.is_multiple_of(every)) || !self.reads_values() {
            return;
        }
        let mut lately: Vec<f64> = self.round_seconds.iter().rev().take(TIMED).copied().collect();
        lately.small_sort_by(f64::total_cmp);
        let median = lately.get(lately.len() / 2).copied().unwrap_or(0.0);
        let progress = &self.progress;
        observe(Event::Round(Box::new(SwarmReport {
            step: self.step,
            steps: self.rounds(),
            loss: round.loss,
            learning_rate: settings.plain.learning_rate(self.step.saturating_sub(1), settings.steps),
            on_policy: round.pay.mean,
            training_set: round.training_set,
            cumulative: progress.cumulative,
            swarm_cumulative: progress.swarm_cumulative,
            group_variance: round.pay.group_variance,
            floor: round.pay.floor,
            at_floor: round.pay.at_floor,
            groups: round.groups,
            live_groups: round.live_groups,
            pool: round.counts.groups,
            chosen: round.counts.chosen,
            completion_tokens: round.completion_tokens,
            truncated: round.truncated,
            ignored_files: progress.ignored_files,
            refused_groups: progress.refused_groups,
            cut: progress.cut,
            lost_rounds: progress.lost_rounds,
            updates: progress.updates,
            tokens_generated: progress.tokens_generated,
            tokens_trained: progress.tokens_trained,
            seconds_sampling: progress.seconds_sampling,
            seconds_training: progress.seconds_training,
            seconds_waiting: progress.seconds_waiting,
            seconds: self.seconds(),
            seconds_left: median * (self.rounds() - self.step) as f64,
        })));
    }

    pub(super) fn evaluate_policy(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let settings = &self.parts.settings.grpo;
        let questions = settings.how.eval_questions;
        if questions == 0 || !self.reads_values() {
            return Ok(());
        }
        let held_out = HeldOut {
            torch: self.parts.torch,
            device: self.parts.device,
            model: self.parts.model,
            seed: settings.plain.training.seed,
            asker: self.parts.eval_asker,
            judge: None,
            questions,
            rows: self.parts.settings.spec.train_rows,
        };
        let (greedy, sampled) = held_out.rewards(|samples| self.sampler(samples))?;
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
        let keep = self.parts.settings.grpo.plain.training.save_total_limit;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let generators = Generators::gather_states(self.parts.torch, self.parts.device, &Alone)?;
        let parts = StateParts { torch: self.parts.torch, device: self.parts.device, rank: 0, names: &self.names };
        let path = Checkpoints::new(output, keep).save(self.step, |folder| {
            (self.parts.write_model)(folder)?;
            self.progress.write(folder)?;
            parts.write_checkpoint(folder, &self.state(), &*self.optimizer, None, &generators)
        })?;
        observe(Event::Saved { step: self.step, path });
        Ok(())
    }

    /// Goes on from a checkpoint, whose weights the model has already.
    ///
    /// # Errors
    /// When it is of another training.
    pub(in super::super) fn resume(&mut self, from: &Path, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let saved = Saved::read(self.parts.torch, from)?;
        saved.state.require_same_training(&self.state(), from)?;
        let name = self.progress.name.clone();
        self.progress = Progress { name, ..Progress::read(from, &self.parts.settings.in_words())? };
        self.step = saved.state.step;
        self.before = saved.state.seconds;
        let names = self.names.clone();
        let parts = StateParts { torch: self.parts.torch, device: self.parts.device, rank: 0, names: &names };
        parts.restore_into(saved, &mut *self.optimizer, None)?;
        observe(Event::Resumed { step: self.step, from: from.to_owned() });
        Ok(())
    }

    fn state(&self) -> State {
        let settings = self.parts.settings;
        State {
            step: self.step,
            max_steps: self.rounds(),
            tokens_trained: self.progress.tokens_trained,
            seconds: self.seconds(),
            rows_per_step: settings.spec.train_rows,
            ranks: 1,
            seq_len: settings.spec.prompt_len + settings.spec.completion_len,
            seed: settings.grpo.plain.training.seed,
            ..State::default()
        }
    }

    /// Before the first round: the warm start, the same on all nodes, and what held-out questions earn.
    pub(super) fn warm_up(
        &mut self,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        let settings = &self.parts.settings.grpo;
        self.parts.model.train(true);
        if settings.how.warm_start_reward > 0.0 {
            let mut terms = settings.terms();
            terms.loss_type = warm_start::loss_type();
            let clip = settings.plain.clip;
            let updater = Updater { torch: self.parts.torch, policy: self.policy, terms, clip, reads_values: true };
            let warm_start = WarmStart {
                torch: self.parts.torch,
                settings,
                asker: self.parts.eval_asker,
                updater: &updater,
                sampler: &self.sampler(true),
            };
            let trained = self.parts.model.parameters().iter().filter(|one| one.is_trained);
            let trained = trained.map(|one| (one.name.clone(), one.tensor.clone())).collect();
            let Some(warmed) = warm_start.run(trained, stops)? else { return Ok(false) };
            observe(Event::WarmedUp { steps: warmed.steps, reward: warmed.reward, seconds: self.seconds() });
        }
        // From here on each node draws for itself.
        self.parts.torch.seed(settings.plain.training.seed ^ hash_bytes(self.progress.name.as_bytes()))?;
        self.evaluate_policy(observe)?;
        Ok(true)
    }

    /// Goes to the round that the swarm is in: what went by meanwhile is lost, and is counted as lost.
    pub(super) fn join_swarm(&mut self, rounds: u64, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let Some(exchange) = &self.parts.exchange else { return Ok(()) };
        let current = exchange.join_at(self.step, rounds)?;
        self.progress.lost_rounds += current.saturating_sub(self.step);
        self.step = self.step.max(current);
        let (name, asks) = (exchange.name.clone(), self.parts.asker.names());
        observe(Event::Swarm(SwarmNote::Joined { name, round: self.step, asks }));
        Ok(())
    }
}
