//! The loop of a node, a round a step: generates, publishes, waits, takes others' rollouts, trains, tells, evaluates, saves.

mod records;
mod rounds;

use std::path::Path;
use std::time::Instant;

use tonnage_core::job::TrainingSpec;
use tonnage_torch::{Device, Torch};

use super::super::asker::Asker;
use super::super::generate::Generation;
use super::super::policy::Policy;
use super::super::rollout::Sampler;
use super::exchange::Exchange;
use super::likeness::shown_weights;
use super::loss::Objective;
use super::progress::Progress;
use super::settings::SwarmSettings;
use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::optimizer::Optimizer;
use crate::training::{Event, Held, Outcome, Stepwise, held_memory, make_steps};
use rounds::Round;

/// What a node is made of.
pub(super) struct Parts<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a LanguageModel,
    pub settings: &'a SwarmSettings,
    /// Of its own questions.
    pub asker: &'a Asker<'a>,
    /// Of all questions, the same for all nodes: those that are held out.
    pub eval_asker: &'a Asker<'a>,
    pub tokenizer: &'a Tokenizer,
    /// The token that ends a completion.
    pub end: u32,
    /// Where checkpoints go; `None` keeps nothing, as in a rehearsal, in which no number means anything.
    pub output: Option<&'a Path>,
    /// Who it is among whom; `None` in a rehearsal.
    pub exchange: Option<Exchange>,
    /// Fills a checkpoint with the model: weights, config, tokenizer.
    pub write_model: &'a dyn Fn(&Path) -> Result<(), TrainError>,
}

/// A node with all that it holds.
pub(super) struct Node<'a> {
    parts: Parts<'a>,
    policy: Policy<'a>,
    objective: Objective<'a>,
    optimizer: Box<dyn Optimizer>,
    names: Vec<String>,
    progress: Progress,
    /// Rounds that are done, of the whole experiment.
    step: u64,
    /// The last that was made.
    round: Option<Round>,
    round_seconds: Vec<f64>,
    said: Said,
    /// Weights that it shows, as they were when this process took part.
    began_with: Vec<f32>,
    before: f64,
    begun: Instant,
}

/// What was said, and is not said again.
#[derive(Default)]
struct Said {
    identical: bool,
    small_pool: bool,
}

impl<'a> Node<'a> {
    pub fn new(parts: Parts<'a>) -> Result<Self, TrainError> {
        let settings = parts.settings;
        let autocast = settings.grpo.plain.autocast;
        let no_keys = || {
            let problem = "the guide's small GPT has no masks, which a swarm needs".to_owned();
            TrainError::refused_with(problem, "train a gpt2 or llama")
        };
        let policy = Policy::new(parts.model, autocast, settings.grpo.has_position_table).ok_or_else(no_keys)?;
        let objective = Objective {
            parts: parts.model.parts().ok_or_else(no_keys)?,
            swarm: &settings.spec,
            autocast,
            has_position_table: settings.grpo.has_position_table,
            epsilon: settings.grpo.how.epsilon,
            epsilon_high: settings.grpo.how.epsilon_high,
        };
        let trained: Vec<_> = parts.model.parameters().iter().filter(|one| one.is_trained).collect();
        let names = trained.iter().map(|one| one.name.clone()).collect();
        let tensors = trained.iter().map(|one| one.tensor.clone()).collect();
        let optimizer = settings.grpo.plain.optimizer(parts.torch, tensors)?;
        let name = parts.exchange.as_ref().map_or_else(String::new, |exchange| exchange.name.clone());
        let progress = Progress { words: settings.in_words(), name, ..Progress::default() };
        Ok(Self {
            parts,
            policy,
            objective,
            optimizer,
            names,
            progress,
            step: 0,
            round: None,
            round_seconds: Vec::new(),
            said: Said::default(),
            began_with: Vec::new(),
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

    fn sampler(&self, samples: bool) -> Sampler<'_> {
        let reads = self.reads_values();
        let spec = &self.parts.settings.spec;
        Sampler {
            policy: &self.policy,
            tokenizer: self.parts.tokenizer,
            how: Generation {
                max_new_tokens: spec.completion_len,
                samples,
                begins: self.parts.settings.begins,
                // GenRL names no end token: every row goes on to its full length. Here it ends, which takes no more memory.
                ends: if reads { vec![self.parts.end] } else { Vec::new() },
                pad: self.parts.end,
                padded: true,
                to_full_length: !reads,
            },
            ends: std::slice::from_ref(&self.parts.end),
            reads_values: reads,
            prompt_len: (!reads).then_some(spec.prompt_len),
        }
    }

    /// Takes part to the end, or until `stops` says so; then a checkpoint is written too.
    ///
    /// # Errors
    /// PyTorch's, the disk's, and a loss that is no number. What was saved before is still there.
    pub fn run(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<Outcome, TrainError> {
        self.begun = Instant::now();
        if self.reads_values() && self.step == 0 && !self.warm_up(stops, observe)? {
            return self.outcome(true);
        }
        self.join_swarm(self.rounds(), observe)?;
        if self.reads_values() {
            self.began_with = shown_weights(self.optimizer.parameters())?;
        }
        let was_stopped = make_steps(self, stops, observe)?;
        if let Some(exchange) = &self.parts.exchange {
            exchange.leave_at(self.step)?;
        }
        self.outcome(was_stopped)
    }

    /// Rounds of the whole experiment.
    fn rounds(&self) -> u64 {
        self.parts.exchange.as_ref().map_or(self.parts.settings.grpo.steps, |exchange| exchange.rounds)
    }

    fn outcome(&self, was_stopped: bool) -> Result<Outcome, TrainError> {
        Ok(Outcome { step: self.step, eval_loss: None, seconds: self.seconds(), held: self.held()?, was_stopped })
    }

    fn placed(&self, error: TrainError) -> TrainError {
        let module = self.parts.model.module_that_failed().filter(|module| !module.is_empty());
        error.in_step(self.step + 1, module.as_deref())
    }
}

impl Stepwise for Node<'_> {
    fn step(&self) -> u64 {
        self.step
    }

    fn steps(&self) -> u64 {
        self.rounds()
    }

    fn spec(&self) -> &TrainingSpec {
        &self.parts.settings.grpo.plain.training
    }

    fn one_step(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        if self.parts.exchange.as_ref().is_some_and(|exchange| exchange.is_left_behind(self.step)) {
            self.join_swarm(self.rounds(), observe)?;
            if self.step >= self.rounds() {
                self.round = None;
                return Ok(true);
            }
        }
        let began = Instant::now();
        self.round = self.one_round(stops, observe)?;
        if self.round.is_none() {
            return Ok(false);
        }
        self.step += 1;
        self.round_seconds.push(began.elapsed().as_secs_f64());
        Ok(true)
    }

    fn held(&self) -> Result<Held, TrainError> {
        held_memory(self.parts.torch, self.parts.device)
    }

    fn report(&mut self, is_last: bool, observe: &mut dyn FnMut(Event)) {
        self.report_round(is_last, observe);
    }

    fn evaluate(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.evaluate_policy(observe)
    }

    fn save(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.save_checkpoint(observe)
    }
}
