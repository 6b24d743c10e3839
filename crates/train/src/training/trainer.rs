//! The loop over steps: schedules, evaluates, saves, and stops where going on would be of no use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonnage_torch::{Device, Torch};

use super::checkpoint::{self, Saved, State};
use super::data_parallel::DataParallel;
use super::event::{Event, Held, StepReport};
use super::random::Generators;
use super::settings::Settings;
use super::step::{Made, Maker, Variables};
use super::stepwise::WARM_UP;
use crate::data::batches::{Batch, BatchWalk, Examples};
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::optimizer::Optimizer;
use crate::ranks::Ranks;
use crate::scaler::GradScaler;
use crate::store::checkpoints::Checkpoints;

/// Tells of a step at least so often, for whoever watches.
const SHOWN: Duration = Duration::from_secs(5);

/// What a training is made of.
pub struct Parts<'a> {
    /// The loaded libtorch.
    pub torch: &'static Torch,
    /// Where the model lies.
    pub device: Device,
    /// The model whose parameters learn.
    pub model: &'a LanguageModel,
    /// What it goes by.
    pub settings: &'a Settings,
    /// What it learns from.
    pub train: &'a Examples,
    /// What it is held against.
    pub eval: Option<&'a Examples>,
    /// Which processes take part.
    pub ranks: &'a dyn Ranks,
    /// Where checkpoints go; `None` keeps nothing, as in a rehearsal, in which no number means anything.
    pub output: Option<&'a Path>,
    /// Fills a checkpoint with the model: weights, config, tokenizer.
    pub write_model: &'a dyn Fn(&Path) -> Result<(), TrainError>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Steps that are done, of the whole training.
    pub step: u64,
    /// The last evaluation.
    pub eval_loss: Option<f64>,
    /// Seconds of training, without loading.
    pub seconds: f64,
    /// At the end.
    pub held: Held,
    /// Whether it was asked to end before its last step.
    pub was_stopped: bool,
}

/// A training with all that it holds: model, rows, optimizer and what is told of it.
pub struct Trainer<'a> {
    maker: Maker<'a>,
    parts: Parts<'a>,
    optimizer: Box<dyn Optimizer>,
    scaler: Option<GradScaler>,
    names: Vec<String>,
    state: State,
    steps: u64,
    /// In a rehearsal the lengths of rows that come before the last, a step each.
    lengths: Vec<u64>,
    variables: Variables,
    lately: Lately,
    /// Seconds that were counted before this process began.
    before: f64,
    begun: Instant,
}

/// What came since the last report.
struct Lately {
    loss: f64,
    steps: u64,
    skipped: u64,
    tokens: u64,
    since: Instant,
    last: Made,
}

impl Lately {
    fn new() -> Self {
        Self { loss: 0.0, steps: 0, skipped: 0, tokens: 0, since: Instant::now(), last: Made::default() }
    }
}

impl<'a> Trainer<'a> {
    /// Before its first step.
    ///
    /// # Errors
    /// When the optimizer cannot be made, or a rank has gone.
    pub fn new(parts: Parts<'a>) -> Result<Self, TrainError> {
        let trained: Vec<_> = parts.model.parameters().iter().filter(|parameter| parameter.is_trained).collect();
        if trained.is_empty() {
            return Err(TrainError::refused_with(
                "the model has no weight that is trained".to_owned(),
                "set lora.targets to layers that it has",
            ));
        }
        let (names, parameters) = trained.iter().map(|one| (one.name.clone(), one.tensor.clone())).unzip();
        let settings = parts.settings;
        let wrapped = parts.ranks.group().zip(settings.ddp);
        let wrapper = wrapped.map(|(group, buckets)| DataParallel::new(group, parts.model, buckets)).transpose()?;
        let optimizer = settings.optimizer(parts.torch, parameters)?;
        let maker = Maker {
            torch: parts.torch,
            device: parts.device,
            model: parts.model,
            settings,
            ranks: parts.ranks,
            wrapper,
            reads_values: parts.output.is_some(),
        };
        let state = State {
            rows_per_step: settings.rows_per_step(),
            ranks: parts.ranks.count(),
            seq_len: settings.seq_len as u64,
            seed: settings.training.seed,
            rows: parts.train.rows(),
            max_steps: settings.steps(parts.train),
            ..State::default()
        };
        let lengths = settings.growth.filter(|_| !maker.reads_values).map(|growth| growth.rehearsed());
        let lengths = lengths.unwrap_or_default();
        Ok(Self {
            steps: settings.steps(parts.train) + lengths.len() as u64,
            lengths,
            scaler: settings.scales_loss.then(|| GradScaler::new(parts.torch, parts.device)),
            maker,
            parts,
            optimizer,
            names,
            state,
            variables: Variables::default(),
            lately: Lately::new(),
            before: 0.0,
            begun: Instant::now(),
        })
    }

    /// Steps of the whole training.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes on from a checkpoint, whose weights the model has already.
    ///
    /// # Errors
    /// When it is of another training.
    pub fn resume(&mut self, saved: Saved, from: &Path, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        saved.state.require_same_training(&self.state, from)?;
        let parts = checkpoint_parts(&self.parts, &self.names);
        let restored = parts.restore_into(saved, self.optimizer.as_mut(), self.scaler.as_mut())?;
        self.state = State { max_steps: self.steps, ..restored };
        self.before = self.state.seconds;
        observe(Event::Resumed { step: self.state.step, from: from.to_owned() });
        Ok(())
    }

    /// Trains to the end, or until `stops` says so, which is asked after every step; then a checkpoint is written too.
    ///
    /// # Errors
    /// PyTorch's, the disk's, and a loss that is no number. What was saved before is still there.
    pub fn run(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<Outcome, TrainError> {
        let mut walk = self.parts.train.walk(self.state.position);
        let mut eval_loss = None;
        let mut measured = false;
        self.parts.model.train(true);
        self.begun = Instant::now();
        self.lately = Lately::new();
        let (first, mut was_stopped) = (self.state.step, false);
        while self.state.step < self.steps && !self.state.patience.is_over {
            let epochs = self.state.position.epoch;
            was_stopped = self.one_step(&mut walk, stops)? && self.state.step < self.steps;
            let mut is_over = self.waited_for_epoch(epochs);
            if !measured && (self.state.step - first >= WARM_UP || self.state.step == self.steps) {
                measured = true;
                observe(Event::Measured(self.memory_held()?));
            }
            let mut last = self.state.step == self.steps || is_over || was_stopped;
            self.report_step(last, observe);
            let training = &self.parts.settings.training;
            let saves = last || self.state.step.is_multiple_of(training.save_steps);
            let evaluates = training.eval_steps.map_or(saves, |steps| last || self.state.step.is_multiple_of(steps));
            if evaluates && self.maker.reads_values {
                let loss = self.evaluate(observe)?;
                is_over |= loss.is_some_and(|loss| self.waited_for_evaluation(loss));
                last |= is_over;
                eval_loss = loss.or(eval_loss);
            }
            if saves || last {
                self.save(observe)?;
            }
            if let Some(patience) = training.early_stopping_patience.filter(|_| is_over) {
                let epochs = self.parts.settings.waits_for_epochs;
                observe(Event::StoppedEarly { step: self.state.step, patience, epochs });
            }
            if last {
                break;
            }
        }
        self.state.seconds = self.seconds();
        Ok(Outcome {
            step: self.state.step,
            eval_loss,
            seconds: self.state.seconds,
            held: self.memory_held()?,
            was_stopped,
        })
    }

    /// Tokens of a row of the next step in a rehearsal of rows that grow: no number means anything there.
    fn rehearsed_length(&self) -> Option<u64> {
        let grows = self.parts.settings.growth.filter(|_| !self.maker.reads_values)?;
        let step = usize::try_from(self.state.step).ok()?;
        Some(self.lengths.get(step).copied().unwrap_or(grows.last))
    }

    /// Whether the epoch that ended, if one did, was the last that is waited for.
    fn waited_for_epoch(&mut self, epochs_before: u64) -> bool {
        let settings = self.parts.settings;
        let most = settings.training.early_stopping_patience.filter(|_| settings.waits_for_epochs);
        let ended = self.state.position.epoch > epochs_before;
        most.is_some_and(|most| ended && self.state.patience.epoch(most))
    }

    fn waited_for_evaluation(&mut self, loss: f64) -> bool {
        let settings = self.parts.settings;
        let most = settings.training.early_stopping_patience.filter(|_| !settings.waits_for_epochs);
        most.is_some_and(|most| self.state.patience.loss(loss, most))
    }

    /// Whether it was asked to stop, by any rank: none goes on alone.
    fn one_step(&mut self, walk: &mut BatchWalk<'_>, stops: &dyn Fn() -> bool) -> Result<bool, TrainError> {
        let settings = self.parts.settings;
        self.optimizer.set_learning_rate(settings.learning_rate(self.state.step, self.steps));
        let mut learnt = 0;
        let length = self.rehearsed_length();
        let next = || {
            let batch = match length {
                Some(tokens) => Batch::blank(settings.micro_batch_size, tokens),
                None => walk.next_batch(settings.micro_batch_size, settings.seq_len),
            };
            learnt += batch.learnt;
            batch
        };
        let made = self
            .maker
            .step(next, &mut self.variables, self.optimizer.as_mut(), self.scaler.as_mut())
            .map_err(|error| self.placed_error(error))?;
        let all = self.parts.ranks.sum(&[made.loss, learnt as f64, f64::from(u8::from(stops()))])?;
        let (loss, tokens) = (all[0] / self.parts.ranks.count() as f64, all[1] as u64);
        self.state.step += 1;
        self.state.position = walk.position();
        self.state.tokens_trained += tokens;
        if !loss.is_finite() {
            return Err(self.no_number(loss));
        }
        self.state.patience.step(loss);
        self.lately.loss += loss;
        self.lately.steps += 1;
        self.lately.tokens += tokens;
        self.lately.skipped += u64::from(!made.stepped);
        self.lately.last = Made { loss, ..made };
        Ok(all[2] > 0.0)
    }

    /// The error with the step and the module in which it arose.
    fn placed_error(&self, error: TrainError) -> TrainError {
        let module = self.parts.model.module_that_failed().filter(|module| !module.is_empty());
        error.in_step(self.state.step + 1, module.as_deref())
    }

    fn no_number(&self, loss: f64) -> TrainError {
        let kept = match self.parts.output.map(|folder| Checkpoints::new(folder, 1).newest()) {
            Some(Ok(Some((step, path)))) => format!("the checkpoint of step {step} is whole: {}", path.display()),
            _ => "no checkpoint was written yet".to_owned(),
        };
        TrainError::refused_with(
            format!("the loss of step {} is {loss}: the training has diverged; {kept}", self.state.step),
            "a lower learning_rate, warmup_steps, clip_grad_norm = 1.0, or precision amp-bf16 in place of fp16",
        )
    }

    fn seconds(&self) -> f64 {
        self.before + self.begun.elapsed().as_secs_f64()
    }

    fn report_step(&mut self, last: bool, observe: &mut dyn FnMut(Event)) {
        let elapsed = self.lately.since.elapsed();
        let every = self.parts.settings.training.logging_steps.max(1);
        if !(last || self.state.step.is_multiple_of(every) || elapsed >= SHOWN) || self.lately.steps == 0 {
            return;
        }
        let rows = self.state.rows.max(1);
        let settings = self.parts.settings;
        let per_step = elapsed.as_secs_f64() / self.lately.steps as f64;
        let report = StepReport {
            step: self.state.step,
            steps: self.steps,
            epoch: match settings.growth {
                Some(_) => self.state.position.epoch as f64,
                None => self.state.step as f64 * settings.rows_per_step() as f64 / rows as f64,
            },
            loss: self.lately.loss / self.lately.steps as f64,
            learning_rate: settings.learning_rate(self.state.step.saturating_sub(1), self.steps),
            grad_norm: self.lately.last.grad_norm,
            skipped: self.lately.skipped,
            tokens_per_second: self.lately.tokens as f64 / elapsed.as_secs_f64().max(1e-9),
            tokens_trained: self.state.tokens_trained,
            seconds: self.seconds(),
            seconds_left: per_step * (self.steps - self.state.step) as f64,
        };
        self.lately = Lately::new();
        observe(Event::Step(report));
    }

    fn evaluate(&mut self, observe: &mut dyn FnMut(Event)) -> Result<Option<f64>, TrainError> {
        let Some(examples) = self.parts.eval else { return Ok(None) };
        let began = Instant::now();
        let loss = self.maker.evaluate(examples)?;
        // What evaluating takes is no training.
        self.lately.since += began.elapsed();
        let (step, seconds, tokens_trained) = (self.state.step, self.seconds(), self.state.tokens_trained);
        observe(Event::Evaluated { step, loss, seconds, tokens_trained });
        Ok(Some(loss))
    }

    fn save(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let Some(output) = self.parts.output else { return Ok(()) };
        self.state.seconds = self.seconds();
        let generators = Generators::gather_states(self.parts.torch, self.parts.device, self.parts.ranks)?;
        if self.parts.ranks.rank() != 0 {
            // The first rank writes; the others wait for it, so that none trains on a checkpoint that failed.
            self.parts.ranks.sum(&[0.0])?;
            return Ok(());
        }
        let began = Instant::now();
        let keep = usize::try_from(self.parts.settings.training.save_total_limit).unwrap_or(usize::MAX);
        let path = self.write(output, keep, &generators)?;
        self.parts.ranks.sum(&[0.0])?;
        self.lately.since += began.elapsed();
        observe(Event::Saved { step: self.state.step, path });
        Ok(())
    }

    fn write(&self, output: &Path, keep: usize, generators: &Generators) -> Result<PathBuf, TrainError> {
        fs::create_dir_all(output).map_err(|error| TrainError::about_file(output, error))?;
        let parts = checkpoint_parts(&self.parts, &self.names);
        Checkpoints::new(output, keep).save(self.state.step, |folder| {
            (self.parts.write_model)(folder)?;
            parts.write_checkpoint(folder, &self.state, self.optimizer.as_ref(), self.scaler.as_ref(), generators)
        })
    }

    fn memory_held(&self) -> Result<Held, TrainError> {
        held_memory(self.parts.torch, self.parts.device)
    }
}

/// What this process holds on a device.
pub(crate) fn held_memory(torch: &'static Torch, device: Device) -> Result<Held, TrainError> {
    Ok(match device {
        Device::Cpu => Held::Host(peak_of_host()),
        device => Held::Gpu(torch.memory(device)?),
    })
}

fn checkpoint_parts<'n>(parts: &Parts<'_>, names: &'n [String]) -> checkpoint::Parts<'n> {
    checkpoint::Parts { torch: parts.torch, device: parts.device, rank: parts.ranks.rank(), names }
}

/// `VmHWM` of this process in bytes.
pub fn peak_of_host() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
