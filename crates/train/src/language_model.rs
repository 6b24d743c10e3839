//! [`LanguageModel`]: a model as a job says, over libtorch.

use std::collections::BTreeSet;
use std::rc::Rc;

use tonnage_core::model_type::{AGI2, is_only_simulated};
use tonnage_torch::{Argument, Device, Tensor, Torch, operator};

use crate::building::{BuildError, Builder, Mode, NewParameter};
use crate::cache::Cache;
use crate::error::TrainError;
use crate::job::{Attention, CheckpointPolicy, Fields, JobSpec};
use crate::model::family::agi2::{self, Agi2Model};
use crate::model::family::{Family, ForwardCall, LANGUAGE_MODELS, Model, RunOptions};
use crate::model::nn::{KvCache, Rope, RopeKind};
use crate::tensor::{self, Context, caught};

/// Where the numbers of weights come from.
pub enum Weights<'a> {
    /// As transformers' `_init_weights` makes them, on the CPU from its default generator, in the order of the parameters.
    Initial,
    /// By name, as Hugging Face's checkpoints have them. A model's own weights must be there; LoRA's begin as peft's do where they
    /// are not.
    Named(&'a mut dyn FnMut(&str) -> Result<Option<Tensor>, TrainError>),
    /// None: over a phantom GPU no number means anything, and those of a large model take minutes and the host's memory.
    Unset,
}

/// A parameter of a model.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// As `state_dict()` has it; that of peft's model has `base_model.model.` before it.
    pub name: String,
    /// On the device.
    pub tensor: Tensor,
    /// Whether gradients are computed for it.
    pub is_trained: bool,
    /// Whether it belongs to an adapter.
    pub is_adapter: bool,
}

/// A language model on a device. It stays on the thread that built it.
pub struct LanguageModel {
    context: Rc<Context>,
    model: Form,
    mode: Rc<Mode>,
    parameters: Vec<Parameter>,
    buffers: Vec<Tensor>,
}

/// What a program that calls the model's own functions gets: its context, and the model itself.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub context: &'a Rc<Context>,
    pub model: &'a dyn Model,
}

/// What is behind it.
enum Form {
    /// A model of transformers' shape, from core's own source.
    LanguageModel(Box<dyn Model>),
    /// The guide's, whose loop takes the loss and which keeps no keys.
    Agi2(Box<Agi2Model>),
}

/// The arguments of a pass.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// int64, [rows, tokens]
    pub input_ids: &'a Tensor,
    /// 1 where a token is one, 0 where it is padding: int64, [rows, tokens in the cache and new ones]
    pub attention_mask: Option<&'a Tensor>,
    /// int64, [rows, tokens]; after those of the cache where there are none.
    pub position_ids: Option<&'a Tensor>,
    /// int64, -100 where none counts; a causal model shifts them itself.
    pub labels: Option<&'a Tensor>,
    /// Keys and values of earlier tokens, to which those of this pass are added.
    pub cache: Option<&'a Cache>,
    /// Of how many last positions logits are made; `None` is all.
    pub logits_to_keep: Option<u64>,
}

impl<'a> Call<'a> {
    /// Of these tokens alone.
    pub fn of_tokens(input_ids: &'a Tensor) -> Self {
        Self { input_ids, attention_mask: None, position_ids: None, labels: None, cache: None, logits_to_keep: None }
    }
}

/// What a pass returns.
#[derive(Debug)]
pub struct Output {
    /// Where there were labels.
    pub loss: Option<Tensor>,
    /// [rows, tokens, vocabulary]
    pub logits: Option<Tensor>,
}

fn refused_job(problem: impl Into<String>, hint: &str) -> TrainError {
    BuildError::Refused { problem: problem.into(), hint: hint.to_owned() }.into()
}

impl LanguageModel {
    /// Why a model cannot be trained here, as far as its job tells it.
    ///
    /// # Errors
    /// When the model type, or what its job asks of it, is only simulated.
    pub fn check_job(job: &JobSpec) -> Result<(), TrainError> {
        let model_type = &job.model.model_type;
        if model_type == AGI2 {
            return Ok(());
        }
        if job.model.beside.vision.is_some() {
            let problem = "rows with images are not trained here".to_owned();
            return Err(refused_job(problem, "run your own script with `tonnage run -- python ...`"));
        }
        if family_of(job).is_none() || is_only_simulated(model_type) {
            let all = LANGUAGE_MODELS.iter().flat_map(|family| family.model_types).copied();
            let known: Vec<&str> = all.filter(|name| !is_only_simulated(name)).collect();
            let problem = format!("`{model_type}` is not trained here; {} are", known.join(", "));
            return Err(refused_job(problem, "run your own script with `tonnage run -- python ...`"));
        }
        if !matches!(job.attention, Attention::Sdpa | Attention::Eager) {
            return Err(refused_job(
                "`attention`: a kernel cannot be chosen here",
                "leave it out, or set it to \"eager\"",
            ));
        }
        let unknown = ropes_of(job).into_iter().find_map(|(_, rope)| match rope.kind {
            RopeKind::Other(name) => Some(name),
            _ => None,
        });
        unknown.map_or(Ok(()), |name| {
            Err(refused_job(
                format!("`rope_parameters`: frequencies of rope_type `{name}` are not computed here"),
                "default, linear, dynamic, llama3, yarn and longrope are; run your own script with `tonnage run -- python ...`",
            ))
        })
    }

    /// The most tokens of a row, where a model turns longer ones by other frequencies than those that are computed here
    /// (rope_type dynamic and longrope).
    pub fn longest_row(job: &JobSpec) -> Option<u64> {
        let of_rope = |(parameters, rope): (Fields, Rope)| match rope.kind {
            // `max_seq_len_cached` begins with all positions of the model.
            RopeKind::Dynamic => Some(positions_of(job)),
            RopeKind::LongRope { .. } => Some(rope.original_max_positions),
            // Phi-3's older configs call longrope `yarn`.
            RopeKind::Yarn(_) if parameters.get("short_factor").is_some() => Some(rope.original_max_positions),
            _ => None,
        };
        ropes_of(job).into_iter().filter_map(of_rope).min()
    }

    /// Builds the model on a device.
    ///
    /// # Errors
    /// Those of [`LanguageModel::check_job`], a config that its family cannot read (the error names the key), weights that are missing or
    /// of other sizes, and a device without room.
    pub fn build_model(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        weights: Weights<'_>,
    ) -> Result<Self, TrainError> {
        Self::check_job(job)?;
        let context = Context::new(torch, device);
        let checkpointing = job.gradient_checkpointing == CheckpointPolicy::EveryLayer;
        let builder = Builder::new(&context, job.precision.weight_dtype(), job.lora.clone(), checkpointing);
        let options =
            RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: job.lora.is_some(), tower: None };
        let model = caught(|| match family_of(job) {
            Some(family) => (family.build)(&job.model, &builder, &options).map(Form::LanguageModel),
            None => {
                agi2::build(&job.model.config, job.seq_len, &builder, &options).map(|model| Form::Agi2(Box::new(model)))
            }
        })??;
        let buffers = builder.take_buffers().iter().map(|buffer| buffer.inner().clone()).collect();
        let parameters = fill_weights(torch, builder.finish()?, weights)?;
        Ok(Self { parameters, buffers, mode: builder.mode(), context, model })
    }

    /// All parameters in the order of `model.parameters()`, tied ones once.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// All buffers in the order of `model.buffers()`.
    pub fn buffers(&self) -> &[Tensor] {
        &self.buffers
    }

    /// Those that gradients are computed for, in the same order.
    pub fn trained(&self) -> Vec<Tensor> {
        self.parameters.iter().filter(|parameter| parameter.is_trained).map(|one| one.tensor.clone()).collect()
    }

    /// All parameters with their names, as a safetensors file has them.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        self.parameters.iter().map(|one| (one.name.clone(), one.tensor.clone())).collect()
    }

    /// `model.train(training)`
    pub fn train(&self, training: bool) {
        self.mode.train(training);
    }

    /// `model.gradient_checkpointing_enable()`, or `_disable()`
    pub fn set_checkpointing(&self, on: bool) {
        self.mode.set_checkpointing(on);
    }

    /// peft's `disable_adapter()`, and its end.
    pub fn enable_adapters(&self, enabled: bool) {
        self.mode.enable_adapters(enabled);
    }

    /// Whether a pass with labels returns their loss; else the loop takes it from the logits.
    pub fn returns_loss(&self) -> bool {
        matches!(self.model, Form::LanguageModel(_))
    }

    /// `None` for the guide's small GPT, which has no keys, masks or positions of its own.
    pub(crate) fn parts(&self) -> Option<Parts<'_>> {
        match &self.model {
            Form::LanguageModel(model) => Some(Parts { context: &self.context, model: model.as_ref() }),
            Form::Agi2(_) => None,
        }
    }

    /// Whether it decodes over a cache; else each pass is over all tokens.
    pub fn keeps_keys(&self) -> bool {
        matches!(self.model, Form::LanguageModel(_))
    }

    /// The cache that `DynamicCache(config)` is for this model.
    pub fn new_cache(&self) -> Cache {
        let layers = match &self.model {
            Form::LanguageModel(model) => model.new_cache(),
            Form::Agi2(_) => Rc::new(KvCache::default()),
        };
        Cache::new(&self.context, layers)
    }

    /// A pass. The guide's small GPT makes logits only: its loop takes the loss.
    ///
    /// # Errors
    /// PyTorch's; [`LanguageModel::module_that_failed`] says where.
    pub fn forward(&self, call: Call<'_>) -> Result<Output, TrainError> {
        self.context.forget_failure();
        let padded = call.attention_mask.map_or(Ok(false), hides_something)?;
        let asked = call.position_ids.filter(|_| call.attention_mask.is_none() && call.cache.is_none());
        self.context.take_rows_as(padded, asked.map_or(Ok(false), is_packed)?);
        let here = |tensor: &Tensor| tensor::Tensor::of(&self.context, tensor.clone());
        caught(|| {
            let input_ids = here(call.input_ids);
            let [attention_mask, position_ids, labels] =
                [call.attention_mask, call.position_ids, call.labels].map(|tensor| tensor.map(here));
            let model = match &self.model {
                Form::LanguageModel(model) => model,
                Form::Agi2(model) => {
                    return Output { loss: None, logits: Some(model.forward(&input_ids).inner().clone()) };
                }
            };
            let output = model.forward(&ForwardCall {
                attention_mask: attention_mask.as_ref(),
                position_ids: position_ids.as_ref(),
                labels: labels.as_ref(),
                cache: call.cache.map(Cache::shared),
                logits_to_keep: call.logits_to_keep,
                ..ForwardCall::new(&input_ids)
            });
            let [loss, logits] = [output.loss, output.logits].map(|tensor| tensor.map(|tensor| tensor.inner().clone()));
            Output { loss, logits }
        })
    }

    /// The path of the module in which the last pass failed.
    pub fn module_that_failed(&self) -> Option<String> {
        self.context.failed_in()
    }
}

fn family_of(job: &JobSpec) -> Option<&'static Family> {
    LANGUAGE_MODELS.iter().find(|family| family.model_types.contains(&job.model.model_type.as_str()))
}

/// Positions of the model by its config, else the fewest that a decoder's config class has by default.
fn positions_of(job: &JobSpec) -> u64 {
    let written = job.model.config.get("max_position_embeddings").and_then(serde_json::Value::as_u64);
    written.filter(|positions| *positions > 0).unwrap_or(2048)
}

/// What the config says of its rotary embeddings, with their parameters, one for each type of layers that has its own; what it says
/// wrong comes up where the model is built.
fn ropes_of(job: &JobSpec) -> Vec<(Fields, Rope)> {
    let config = &job.model.config;
    let older = config.object("rope_scaling").ok().flatten().filter(|older| !older.0.is_empty());
    let newer = || config.object("rope_parameters").ok().flatten();
    let Some(parameters) = older.or_else(newer) else { return Vec::new() };
    let nested = parameters.0.keys().filter_map(|key| parameters.object(key).ok().flatten());
    let all: Vec<Fields> = nested.chain([parameters.clone()]).collect();
    let read = |parameters: Fields| {
        let rope = Rope::of_parameters(&parameters, config, 10_000.0, positions_of(job)).ok()?;
        Some((parameters, rope))
    };
    all.into_iter().filter_map(read).collect()
}

/// Whether a mask hides a token; it is read from the device.
fn hides_something(mask: &Tensor) -> Result<bool, TrainError> {
    let all = mask.torch().call(operator!("all"), &[mask.into()])?.tensor()?;
    Ok(all.to_vec::<bool>()? == [false])
}

/// Whether positions go back or leave some out within a row; they are read from the device.
fn is_packed(position_ids: &Tensor) -> Result<bool, TrainError> {
    let tokens = position_ids.sizes().last().copied().map_or(1, |tokens| usize::try_from(tokens).unwrap_or(1).max(1));
    let positions = position_ids.to_vec::<i64>()?;
    Ok(positions.chunks(tokens).any(|row| row.windows(2).any(|pair| pair[1] != pair[0] + 1)))
}

/// Gives every weight its numbers.
pub(crate) fn fill_weights(
    torch: &'static Torch,
    new: Vec<NewParameter>,
    mut weights: Weights<'_>,
) -> Result<Vec<Parameter>, TrainError> {
    let _no_grad = torch.no_grad();
    let mut missing = BTreeSet::new();
    for one in &new {
        let sizes = one.tensor.sizes();
        let given = match &mut weights {
            Weights::Unset => continue,
            Weights::Initial => None,
            Weights::Named(named) => named(&one.name)?,
        };
        let numbers = match given {
            Some(given) => given,
            None if one.is_adapter || matches!(weights, Weights::Initial) => {
                one.init.numbers(torch, sizes, one.deviation)?
            }
            None => {
                missing.insert(one.name.as_str());
                continue;
            }
        };
        if !numbers.sizes().iter().map(|&size| u64::try_from(size).unwrap_or_default()).eq(sizes.iter().copied()) {
            let problem = format!("`{}` has sizes {:?}, the model wants {:?}", one.name, numbers.sizes(), &sizes[..]);
            return Err(refused_job(problem, "are they the weights of this config?"));
        }
        let arguments = [Argument::from(&one.tensor), Argument::from(&numbers)];
        torch.call(operator!("copy_"), &arguments)?;
    }
    if let Some(first) = missing.first() {
        let problem = format!("{} weights are missing, the first is `{first}`", missing.len());
        return Err(refused_job(problem, "are they the weights of this config?"));
    }
    let parameter = |new: NewParameter| Parameter {
        tensor: new.tensor.inner().clone(),
        name: new.name,
        is_trained: new.is_trained,
        is_adapter: new.is_adapter,
    };
    Ok(new.into_iter().map(parameter).collect())
}
