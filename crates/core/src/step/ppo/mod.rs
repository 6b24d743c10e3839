//! PPO as TRL's `PPOTrainer` runs it (trl 1.12, the last version that has it, experimental/ppo/ppo_trainer.py): policy, value model,
//! reference and reward model on one GPU; an update generates, scores and then trains on its rows in several epochs.

mod loss;
mod returns;
mod rollout;

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{BuildError, Mode};
use crate::dtype::DType;
use crate::job::{JobSpec, ModelSpec, PpoSpec, keys};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::{UNTOLD, full};
use crate::optimizer::Optimizer;
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::models::{Kind, Policy, load_model};
use super::repetition::Repetition;
use super::settled::has_enough;
use super::trainer::create_optimizers;
use rollout::Rollout;

/// A model beside the policy and its switches.
struct Beside {
    model: Box<dyn Model>,
    mode: Rc<Mode>,
}

/// The trainer and its models.
struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a PpoSpec,
    context: &'a Rc<Context>,
    policy: Rc<dyn Model>,
    mode: Rc<Mode>,
    value: Beside,
    /// `None` where adapters are switched off for it.
    reference: Option<Beside>,
    reward: Beside,
}

/// What a model is asked with: its mask and ids, which live as long as the call.
struct Asked {
    attention_mask: Tensor,
    position_ids: Tensor,
    input_ids: Tensor,
}

/// An output with all hidden states.
struct Output {
    output: ModelOutput,
    _hidden_states: Vec<Tensor>,
}

/// Scores, and what the backbone returned.
struct Scored {
    scores: Tensor,
    _hidden_states: Vec<Tensor>,
    _cache: Option<Rc<KvCache>>,
}

/// Puts the other models beside the policy, and trains.
pub(super) fn train_ppo(
    job: &JobSpec,
    spec: &PpoSpec,
    context: &Rc<Context>,
    policy: Policy,
) -> Result<Repetition, BuildError> {
    let mut parameters = policy.builder.trainable();
    let dtype = job.precision.weight_dtype();
    let load = |role: &str, model: &ModelSpec| load_model(job, context, (role, model), Kind::of(dtype).moved());
    let beside = |(model, builder): super::models::Loaded| Beside { model, mode: builder.mode() };
    let (value, value_builder) = load("value", &spec.value)?;
    parameters.extend(value_builder.trainable());
    let reference = job.lora.is_none().then(|| load("reference", &job.model)).transpose()?.map(beside);
    let reward = beside(load("reward", &spec.reward)?);
    let mode = policy.builder.mode();
    mode.disable_dropout();
    value_builder.mode().disable_dropout();
    let value = Beside { model: value, mode: value_builder.mode() };
    let trainer = Trainer { job, spec, context, policy: Rc::clone(&policy.model), mode, value, reference, reward };
    Ok(trainer.train(&parameters))
}

impl Trainer<'_> {
    fn train(&self, parameters: &[Tensor]) -> Repetition {
        let context = self.context;
        context.begin_step(1);
        context.phase(PhaseKind::Between);
        let mut optimizers = create_optimizers(self.job, parameters, None);
        let passes = self.job.gradient_accumulation_steps;
        let stats = self.spec.num_ppo_epochs.saturating_mul(self.spec.num_mini_batches).saturating_mul(passes);
        let _stats: Vec<Tensor> = (0..7).map(|_| full(context, "zeros.default", &[stats], DType::Float32)).collect();
        let mut data: Option<[Tensor; 2]> = None;
        let mut rollout = Rollout::default();
        let vf_loss_max = RefCell::default();
        let mut run = Repetition::begin(passes);
        let mut update = 1;
        while update <= self.job.steps && !context.has_failed() {
            run.steps += 1;
            let queries = self.next_batch(&mut data);
            let trained = (parameters, &mut optimizers);
            if self.update(&queries, &mut rollout, trained, &vf_loss_max).is_none() {
                context
                    .fail_unsimulated(&[keys::TASK], || "PPOTrainer: a tensor of an update was never made".to_owned());
            }
            // The work of later updates is the last one's.
            let is_long = has_enough(context) && update >= 3;
            update += 1;
            context.begin_step(update.min(self.job.steps.saturating_add(1)));
            context.phase(PhaseKind::Between);
            rollout.end_update();
            if is_long {
                break;
            }
        }
        context.end();
        run
    }

    /// From the prompts to what is logged of the epochs; `None` where a tensor that is asked for was not made.
    fn update(
        &self,
        queries: &Tensor,
        rollout: &mut Rollout,
        trained: (&[Tensor], &mut Vec<Box<dyn Optimizer>>),
        vf_loss_max: &RefCell<Option<Tensor>>,
    ) -> Option<()> {
        self.roll_out(queries, rollout)?;
        rollout.compute_returns(self)?;
        self.context.empty_cache();
        self.train_epochs(rollout, trained, vf_loss_max)?;
        rollout.log(self)
    }

    /// `data = next(iter_dataloader)`; its ids.
    fn next_batch(&self, data: &mut Option<[Tensor; 2]>) -> Tensor {
        let _category = self.context.enter_category(Category::Input);
        let rows = self.job.micro_batch_size * self.job.gradient_accumulation_steps;
        let ids = || full(self.context, "_to_copy.default", &[rows, self.spec.prompt_len], DType::Int64);
        let before = data.replace([ids(), ids()]);
        drop(before);
        data.as_ref().map_or_else(ids, |[input_ids, _]| input_ids.clone())
    }

    /// `num_ppo_epochs` times over all rows.
    fn train_epochs(
        &self,
        rollout: &mut Rollout,
        (parameters, optimizers): (&[Tensor], &mut Vec<Box<dyn Optimizer>>),
        vf_loss_max: &RefCell<Option<Tensor>>,
    ) -> Option<()> {
        let (passes, mini_batches) = (self.job.gradient_accumulation_steps, self.spec.num_mini_batches);
        for _ in 0..self.spec.num_ppo_epochs {
            let mut done = 0;
            for _ in 0..mini_batches {
                let mut variables = loss::Variables::default();
                variables.vf_loss_max = vf_loss_max.take();
                for _ in 0..passes / mini_batches {
                    done += 1;
                    let loss = variables.compute_loss(self, rollout)?;
                    self.context.phase(PhaseKind::Backward);
                    loss.div_scalar(UNTOLD).backward();
                    drop(loss);
                    self.context.phase(PhaseKind::Between);
                    // accelerate steps when as many passes have accumulated, in whatever mini-batch.
                    if done == passes {
                        self.context.phase(PhaseKind::Optimizer);
                        optimizers.iter_mut().for_each(|optimizer| optimizer.step());
                        self.context.phase(PhaseKind::Between);
                        parameters.iter().for_each(|parameter| parameter.set_grad(None));
                    }
                    variables.log(self, rollout)?;
                }
                let kept = variables.vf_loss_max.take();
                drop(variables);
                vf_loss_max.replace(kept);
                self.context.empty_cache();
            }
        }
        Some(())
    }

    /// `forward(model, query_responses, pad_token_id)`, and the first lines of `get_reward`.
    fn ask(&self, query_responses: &Tensor) -> Asked {
        let attention_mask = query_responses.map("ne.Scalar", DType::Bool);
        let position_ids = {
            // The sum of booleans is taken of a copy.
            let counted = full(self.context, "cumsum.default", attention_mask.sizes(), DType::Int64);
            drop(attention_mask.to(DType::Int64));
            let own = attention_mask.to(DType::Int64);
            counted.binary("sub.Tensor", &own, DType::Int64)
        };
        let input_ids = {
            let _is_padding = attention_mask.map("bitwise_not.default", DType::Bool);
            full(self.context, "masked_fill.Scalar", query_responses.sizes(), DType::Int64)
        };
        Asked { attention_mask, position_ids, input_ids }
    }
}

impl Asked {
    fn call<'a>(&'a self, model: &dyn Model, caches: bool) -> ForwardCall<'a> {
        ForwardCall {
            attention_mask: Some(&self.attention_mask),
            position_ids: Some(&self.position_ids),
            cache: caches.then(|| model.new_cache()),
            ..ForwardCall::new(&self.input_ids)
        }
    }

    /// `model(..., output_hidden_states=True)` of a language model, which caches.
    fn output(&self, model: &dyn Model, mode: &Mode) -> Output {
        let (output, hidden_states) = mode.with_hidden_states(|| model.forward(&self.call(model, true)));
        Output { output, _hidden_states: hidden_states }
    }
}

impl Beside {
    /// `model.score(backbone(...).hidden_states[-1])`, [rows, tokens, 1]
    fn score(&self, asked: &Asked, caches: bool) -> Scored {
        let call = asked.call(self.model.as_ref(), caches);
        let (last, mut hidden_states) = self.mode.with_hidden_states(|| self.model.hidden_states(&call));
        let scores = self.model.output_embeddings().forward(&last);
        hidden_states.push(last);
        Scored { scores, _hidden_states: hidden_states, _cache: call.cache }
    }
}
