//! The loop: a segment a step, tells, evaluates, saves, and stops when asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tonnage_core::job::TrainingSpec;
use tonnage_torch::{Device, Torch};
use tonnage_verifiable::puzzles::PuzzleSet;

use super::evaluate::Evaluation;
use super::feeder::Feeder;
use super::model::ReasoningModel;
use super::report::{Halted, HrmReport, PuzzleReport};
use super::saved::{gather_thoughts, read_thoughts, write_thoughts};
use super::settings::HrmSettings;
use super::trainer::SegmentTrainer;
use crate::error::TrainError;
use crate::ranks::Ranks;
use crate::store::checkpoints::Checkpoints;
use crate::training::{Event, Generators, Held, Outcome, Saved, State, StateParts, Stepwise, held_memory, make_steps};

/// What a training is made of.
pub(super) struct Parts<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a ReasoningModel,
    pub settings: &'a HrmSettings,
    pub set: &'a PuzzleSet,
    /// Which processes take part.
    pub ranks: &'a dyn Ranks,
    /// Where checkpoints go; `None` keeps nothing, as in a rehearsal, in which no number means anything.
    pub output: Option<&'a Path>,
    /// Fills a checkpoint with the model: weights and config.
    pub write_model: &'a dyn Fn(&Path) -> Result<(), TrainError>,
}

/// A training of HRM with all that it holds.
pub(super) struct Learning<'a> {
    parts: Parts<'a>,
    trainer: SegmentTrainer<'a>,
    feeder: Feeder<'a>,
    /// Of the optimizer's parameters.
    names: Vec<String>,
    step: u64,
    /// Whether a rank was asked to end.
    is_asked_to_end: bool,
    lately: Lately,
    before: f64,
    begun: Instant,
}

/// Sums since the last report.
#[derive(Default)]
struct Lately {
    steps: u64,
    sums: Vec<f64>,
    since: Option<Instant>,
}

impl<'a> Learning<'a> {
    pub fn new(parts: Parts<'a>, trainer: SegmentTrainer<'a>) -> Self {
        let settings = parts.settings;
        let (rows, ranks) = (settings.plain.micro_batch_size, (parts.ranks.count(), parts.ranks.rank()));
        let feeder = Feeder::new(parts.set, settings.plain.training.seed, settings.views(), rows, ranks);
        let names = parts.model.trained_names();
        Self {
            parts,
            trainer,
            feeder,
            names,
            step: 0,
            is_asked_to_end: false,
            lately: Lately::default(),
            before: 0.0,
            begun: Instant::now(),
        }
    }

    /// Of all ranks.
    const fn rows_per_step(&self) -> u64 {
        self.feeder.rows.saturating_mul(self.feeder.ranks.0)
    }

    const fn reads_values(&self) -> bool {
        self.parts.output.is_some()
    }

    fn seconds(&self) -> f64 {
        self.before + self.begun.elapsed().as_secs_f64()
    }

    /// Trains to the end, or until `stops` says so, which is asked after every step; then a checkpoint is written too.
    ///
    /// # Errors
    /// PyTorch's, the disk's, and a loss that is no number. What was saved before is still there.
    pub fn run(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<Outcome, TrainError> {
        self.parts.model.train(true);
        self.begun = Instant::now();
        let was_stopped = make_steps(self, stops, observe)?;
        Ok(Outcome { step: self.step, eval_loss: None, seconds: self.seconds(), held: self.held()?, was_stopped })
    }

    fn tokens_trained(&self) -> u64 {
        let row = self.parts.set.encoding.tokens() as u64;
        self.step.saturating_mul(self.rows_per_step()).saturating_mul(row)
    }

    fn state_parts(&self) -> StateParts<'_> {
        let Parts { torch, device, ranks, .. } = self.parts;
        StateParts { torch, device, rank: ranks.rank(), names: &self.names }
    }

    /// Goes on from a checkpoint, whose weights the model has already.
    ///
    /// # Errors
    /// When it is of another training.
    pub fn resume(&mut self, from: &Path, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let saved = Saved::read(self.parts.torch, from)?;
        saved.state.require_same_training(&self.state(), from)?;
        let words = self.parts.settings.in_words();
        let (torch, device, rank) = (self.parts.torch, self.parts.device, self.parts.ranks.rank());
        self.trainer.set_thoughts(read_thoughts(torch, device, from, &words, self.parts.model, rank)?);
        self.step = saved.state.step;
        self.before = saved.state.seconds;
        let names = self.names.clone();
        let parts = StateParts { torch, device, rank, names: &names };
        parts.restore_into(saved, self.trainer.optimizer_mut(), None)?;
        observe(Event::Resumed { step: self.step, from: from.to_owned() });
        Ok(())
    }

    fn state(&self) -> State {
        let settings = self.parts.settings;
        State {
            step: self.step,
            max_steps: settings.steps,
            tokens_trained: self.tokens_trained(),
            seconds: self.seconds(),
            rows_per_step: self.rows_per_step(),
            ranks: self.parts.ranks.count(),
            seq_len: self.parts.set.encoding.tokens() as u64,
            seed: settings.plain.training.seed,
            rows: self.parts.set.train.len() as u64,
            ..State::default()
        }
    }
}

impl Stepwise for Learning<'_> {
    fn step(&self) -> u64 {
        self.step
    }

    fn steps(&self) -> u64 {
        self.parts.settings.steps
    }

    fn spec(&self) -> &TrainingSpec {
        &self.parts.settings.plain.training
    }

    fn is_asked_to_end(&self, _: &dyn Fn() -> bool) -> bool {
        self.is_asked_to_end
    }

    fn one_step(&mut self, stops: &dyn Fn() -> bool, _: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        self.lately.since.get_or_insert_with(Instant::now);
        let settings = self.parts.settings;
        let rate = settings.plain.learning_rate(self.step, settings.steps);
        self.trainer.set_learning_rates(rate, settings.puzzle_learning_rate(self.step));
        let puzzles = self.feeder.rows_of(self.step).to_device(self.parts.torch, self.parts.device)?;
        let mut metrics = self.trainer.step(&puzzles).map_err(|error| {
            let module = self.parts.model.module_that_failed().filter(|module| !module.is_empty());
            error.in_step(self.step + 1, module.as_deref())
        })?;
        // None goes on alone.
        metrics.push(f64::from(u8::from(stops())));
        metrics = self.parts.ranks.sum(&metrics)?;
        self.is_asked_to_end = metrics.pop().is_some_and(|asked| asked > 0.0);
        if self.reads_values() {
            if let Some(loss) = metrics.iter().find(|metric| !metric.is_finite()) {
                let problem = format!("a loss of step {} is {loss}: the training has diverged", self.step + 1);
                return Err(TrainError::refused_with(problem, "a lower learning_rate, or more warmup_steps"));
            }
            self.lately.sums.resize(metrics.len(), 0.0);
            self.lately.sums.iter_mut().zip(&metrics).for_each(|(sum, metric)| *sum += metric);
        }
        self.step += 1;
        self.lately.steps += 1;
        Ok(true)
    }

    fn held(&self) -> Result<Held, TrainError> {
        held_memory(self.parts.torch, self.parts.device)
    }

    fn report(&mut self, is_last: bool, observe: &mut dyn FnMut(Event)) {
        let settings = self.parts.settings;
        let every = settings.plain.training.logging_steps.max(1);
        if !(is_last || self.step.is_multiple_of(every)) || self.lately.steps == 0 {
            return;
        }
        let lately = std::mem::take(&mut self.lately);
        let sum = |at: usize| lately.sums.get(at).copied();
        let rows = (lately.steps * self.rows_per_step()).max(1) as f64;
        // In the order of `Segment::METRICS`.
        let halted = sum(0).filter(|count| *count > 0.0).map(|count| Halted {
            accuracy: sum(1).unwrap_or(0.0) / count,
            exact_accuracy: sum(2).unwrap_or(0.0) / count,
            q_halt_accuracy: sum(3).unwrap_or(0.0) / count,
            steps: sum(4).unwrap_or(0.0) / count,
        });
        let elapsed = lately.since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        observe(Event::Reasoned(Box::new(HrmReport {
            step: self.step,
            steps: settings.steps,
            epoch: self.feeder.epochs(self.step),
            loss: sum(5).unwrap_or(0.0) / rows,
            q_halt_loss: sum(6).unwrap_or(0.0) / rows,
            q_continue_loss: sum(7).map(|loss| loss / rows),
            halted,
            learning_rate: settings.plain.learning_rate(self.step.saturating_sub(1), settings.steps),
            tokens_trained: self.tokens_trained(),
            seconds: self.seconds(),
            seconds_left: elapsed / lately.steps as f64 * (settings.steps - self.step) as f64,
        })));
    }

    /// No random number is drawn here.
    fn evaluate(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if self.parts.set.eval.is_empty() || !self.reads_values() {
            return Ok(());
        }
        let settings = self.parts.settings;
        self.parts.model.train(false);
        let evaluation = Evaluation {
            torch: self.parts.torch,
            device: self.parts.device,
            model: self.parts.model,
            set: self.parts.set,
            rows: usize::try_from(settings.plain.micro_batch_size).unwrap_or(usize::MAX),
            views: settings.how.eval_views,
            trained_views: settings.views(),
            ranks: self.parts.ranks,
        };
        let found = evaluation.run();
        self.parts.model.train(true);
        let found = found?;
        observe(Event::EvaluatedPuzzles(Box::new(PuzzleReport {
            is_last: self.step == settings.steps,
            step: self.step,
            results: found.results,
            loss: found.loss,
            q_halt_accuracy: found.q_halt_accuracy,
            seconds: self.seconds(),
            tokens_trained: self.tokens_trained(),
        })));
        Ok(())
    }

    fn save(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let Parts { torch, device, ranks, .. } = self.parts;
        let (Some(output), Some(thoughts)) = (self.parts.output, self.trainer.thoughts()) else { return Ok(()) };
        let generators = Generators::gather_states(torch, device, ranks)?;
        let thoughts = gather_thoughts(torch, thoughts, ranks)?;
        if ranks.rank() != 0 {
            // The first rank writes; the others wait for it, so that none trains on a checkpoint that failed.
            ranks.sum(&[0.0])?;
            return Ok(());
        }
        fs::create_dir_all(output).map_err(|error| TrainError::about_file(output, error))?;
        let settings = self.parts.settings;
        let keep = usize::try_from(settings.plain.training.save_total_limit).unwrap_or(usize::MAX);
        let path: PathBuf = Checkpoints::new(output, keep).save(self.step, |folder| {
            (self.parts.write_model)(folder)?;
            write_thoughts(folder, &settings.in_words(), &thoughts)?;
            self.state_parts().write_checkpoint(folder, &self.state(), self.trainer.optimizer(), None, &generators)
        })?;
        ranks.sum(&[0.0])?;
        observe(Event::Saved { step: self.step, path });
        Ok(())
    }
}
