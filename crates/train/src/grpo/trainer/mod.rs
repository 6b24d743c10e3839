//! The loop: generates, pays, trains, tells, evaluates, saves, and stops when asked.

mod begin;
mod records;
mod rollouts;

use std::path::Path;
use std::time::Instant;

use tonnage_core::job::TrainingSpec;
use tonnage_torch::{Device, Torch};

use super::asker::Asker;
use super::batch::Batch;
use super::generate::Generation;
use super::judge::Judge;
use super::pay::Pay;
use super::policy::Policy;
use super::rollout::Sampler;
use super::saved::Progress;
use super::settings::{Groups, GrpoSettings};
use super::update::{Passed, Updater, Variables, total_loss};
use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::optimizer::Optimizer;
use crate::tensor::caught;
use crate::training::{Event, Held, Outcome, Stepwise, held_memory, make_steps};

/// What a training is made of.
pub(super) struct Parts<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a LanguageModel,
    pub reference: Option<&'a LanguageModel>,
    pub judge: Option<Judge>,
    pub settings: &'a GrpoSettings,
    pub asker: &'a Asker<'a>,
    pub tokenizer: &'a Tokenizer,
    /// Tokens that end a completion.
    pub ends: Vec<u32>,
    /// Where checkpoints go; `None` keeps nothing, as in a rehearsal, in which no number means anything.
    pub output: Option<&'a Path>,
    /// Fills a checkpoint with the model: weights, config, tokenizer.
    pub write_model: &'a dyn Fn(&Path) -> Result<(), TrainError>,
}

/// A training by GRPO with all that it holds.
pub(super) struct Trainer<'a> {
    parts: Parts<'a>,
    policy: Policy<'a>,
    reference: Option<Policy<'a>>,
    updater: Updater<'a>,
    optimizer: Groups,
    progress: Progress,
    step: u64,
    buffered: Option<Batch>,
    variables: Variables,
    lately: Lately,
    /// Seconds that were counted before this process began.
    before: f64,
    begun: Instant,
}

/// What came since the last report.
#[derive(Default)]
struct Lately {
    pays: Vec<Pay>,
    passes: Vec<Passed>,
    completions: u64,
    completion_tokens: u64,
    truncated: u64,
    redrawn: u64,
    grad_norm: Option<f64>,
    steps: u64,
    since: Option<Instant>,
}

impl<'a> Trainer<'a> {
    /// Before its first step.
    ///
    /// # Errors
    /// When the model keeps no keys, or the optimizer cannot be made.
    pub fn new(parts: Parts<'a>) -> Result<Self, TrainError> {
        let autocast = parts.settings.plain.autocast;
        let no_keys = || {
            TrainError::refused_with(
                "the guide's small GPT has no masks, which GRPO needs".to_owned(),
                "train a gpt2 or llama",
            )
        };
        let wrapped = |model| Policy::new(model, autocast, parts.settings.has_position_table).ok_or_else(no_keys);
        let policy = wrapped(parts.model)?;
        let reference = parts.reference.map(wrapped).transpose()?;
        let updater = Updater {
            torch: parts.torch,
            policy,
            terms: parts.settings.terms(),
            clip: parts.settings.plain.clip,
            reads_values: parts.output.is_some(),
        };
        let optimizer = parts.settings.optimizer(parts.torch, trained(parts.model))?;
        let progress = Progress { words: parts.settings.in_words(), ..Progress::default() };
        Ok(Self {
            parts,
            policy,
            reference,
            updater,
            optimizer,
            progress,
            step: 0,
            buffered: None,
            variables: Variables::default(),
            lately: Lately::default(),
            before: 0.0,
            begun: Instant::now(),
        })
    }

    const fn reads_values(&self) -> bool {
        self.parts.output.is_some()
    }

    fn seconds(&self) -> f64 {
        self.before + self.begun.elapsed().as_secs_f64()
    }

    fn generation(&self, samples: bool) -> Generation {
        Generation {
            max_new_tokens: self.parts.settings.spec.completion_len,
            samples,
            begins: false,
            ends: self.parts.ends.clone(),
            pad: self.parts.ends.first().copied().unwrap_or(0),
            padded: true,
            to_full_length: !self.reads_values(),
        }
    }

    fn sampler(&self, samples: bool) -> Sampler<'_> {
        Sampler {
            policy: &self.policy,
            tokenizer: self.parts.tokenizer,
            how: self.generation(samples),
            ends: &self.parts.ends,
            reads_values: self.reads_values(),
            prompt_len: (!self.reads_values()).then_some(self.parts.settings.spec.prompt_len),
        }
    }

    /// Trains to the end, or until `stops` says so, which is asked after every step; then a checkpoint is written too.
    ///
    /// # Errors
    /// PyTorch's, the disk's, and a loss that is no number. What was saved before is still there.
    pub fn run(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<Outcome, TrainError> {
        self.parts.model.train(true);
        self.begun = Instant::now();
        if self.step == 0 && self.reads_values() && !self.begin(stops, observe)? {
            return self.outcome(true);
        }
        if self.parts.device != Device::Cpu {
            self.parts.torch.empty_cache()?;
        }
        let _tr_loss = total_loss(&self.policy)?;
        let was_stopped = make_steps(self, stops, observe)?;
        self.outcome(was_stopped)
    }

    fn outcome(&self, was_stopped: bool) -> Result<Outcome, TrainError> {
        Ok(Outcome { step: self.step, eval_loss: None, seconds: self.seconds(), held: self.held()?, was_stopped })
    }

    fn placed(&self, error: TrainError) -> TrainError {
        let module = self.parts.model.module_that_failed().filter(|module| !module.is_empty());
        error.in_step(self.step + 1, module.as_deref())
    }

    fn no_number(&self, loss: f64) -> TrainError {
        let problem = format!("the loss of step {} is {loss}: the training has diverged", self.step + 1);
        TrainError::refused_with(problem, "a lower learning_rate, clip_grad_norm = 1.0, or precision amp-bf16")
    }
}

impl Stepwise for Trainer<'_> {
    fn step(&self) -> u64 {
        self.step
    }

    fn steps(&self) -> u64 {
        self.parts.settings.steps
    }

    fn spec(&self) -> &TrainingSpec {
        &self.parts.settings.plain.training
    }

    fn one_step(&mut self, _: &dyn Fn() -> bool, _: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        let settings = self.parts.settings;
        self.lately.since.get_or_insert_with(Instant::now);
        self.optimizer.set_learning_rate(settings.plain.learning_rate(self.step, settings.steps));
        let spg = settings.spec.steps_per_generation;
        for at in 0..settings.plain.accumulation {
            let pass = self.step * settings.plain.accumulation + at;
            if pass.is_multiple_of(settings.generate_every()) {
                let began = Instant::now();
                let made = self.generation_batch().map_err(|error| self.placed(error))?;
                self.buffered = Some(made);
                self.progress.seconds_sampling += began.elapsed().as_secs_f64();
            }
            let began = Instant::now();
            let Some(buffered) = &self.buffered else { continue };
            let batch = caught(|| buffered.part(pass % spg, spg))?;
            let passed = self.updater.pass(&batch, &mut self.variables).map_err(|error| self.placed(error))?;
            if !passed.loss.is_finite() {
                return Err(self.no_number(passed.loss));
            }
            self.progress.tokens_trained += passed.tokens;
            self.progress.seconds_training += began.elapsed().as_secs_f64();
            self.lately.passes.push(passed);
        }
        let began = Instant::now();
        self.lately.grad_norm = self.updater.update(&mut self.optimizer, &mut self.variables)?;
        self.progress.seconds_training += began.elapsed().as_secs_f64();
        self.step += 1;
        self.lately.steps += 1;
        Ok(true)
    }

    fn held(&self) -> Result<Held, TrainError> {
        held_memory(self.parts.torch, self.parts.device)
    }

    fn report(&mut self, is_last: bool, observe: &mut dyn FnMut(Event)) {
        self.report_step(is_last, observe);
    }

    fn evaluate(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.evaluate_policy(observe)
    }

    fn save(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.save_checkpoint(observe)
    }
}

/// Parameters that gradients are computed for, with their names.
fn trained(model: &LanguageModel) -> Vec<(String, tonnage_torch::Tensor)> {
    let trained = model.parameters().iter().filter(|parameter| parameter.is_trained);
    trained.map(|one| (one.name.clone(), one.tensor.clone())).collect()
}
