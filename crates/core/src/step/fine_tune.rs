//! Fine-tuning on labels as the trainers do it: Hugging Face's `Trainer` with the model's own loss (transformers 5.17,
//! trainer.py, `compute_loss`), and TRL's `SFTTrainer` with its fused head (trl 1.16, trainer/sft_trainer.py).

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::Builder;
use crate::dtype::DType;
use crate::job::{Attention, Framework, JobSpec, Kernel, LossKernel, Strategy, Task, keys};
use crate::model::family::{ForwardCall, Images, ModelOutput};
use crate::model_type::takes_item_count;
use crate::op::{TokenOutputs, UNTOLD, full, number_from_host};
use crate::parallel::{Loaded, Wrapper};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::batches::{count_all, count_labels};
use super::fused_head::{FusedCall, RouterCall, log_router_loss};
use super::gathered::{Processes, sum_all};
use super::inputs::{labels, main_input, renew_images, row_numbers};
use super::liger::apply_liger_kernels;
use super::repetition::Repetition;
use super::train::caches_keys;
use super::trainer::{self, Recipe};
use super::wrapped::{Called, Wrapped};

/// Batches of a step that are tensors of their own; those beyond lie in one.
const BATCHES: u64 = 1024;
/// More than any GPU holds.
const MAX_ELEMENTS: u64 = 1 << 44;

/// Which loop trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainingLoop {
    /// The framework's own.
    Own,
    /// A plain one, as was asked for.
    Plain,
    /// A plain one with the framework's settings, for this reason.
    PlainFor(&'static str),
}

/// The loop that a job of causal or masked language modelling is trained in.
pub(crate) fn training_loop(job: &JobSpec) -> TrainingLoop {
    let fine_tunes = job.task.name().has_labels() && job.model.is_in_transformers();
    let is_trl = match job.framework {
        Framework::Trainer if fine_tunes => false,
        Framework::Trl if fine_tunes => true,
        _ => return TrainingLoop::Plain,
    };
    if is_trl && job.task != Task::CausalLm {
        return TrainingLoop::PlainFor("SFTTrainer trains next tokens alone");
    }
    if !job.train_mode {
        return TrainingLoop::PlainFor("a Trainer's model is always in training mode");
    }
    if !job.zero_grad_set_to_none {
        return TrainingLoop::PlainFor("a Trainer always sets gradients to none");
    }
    match job.parallel.strategy {
        Strategy::None | Strategy::Ddp(_) | Strategy::Fsdp1(_) | Strategy::TensorParallel { .. } => TrainingLoop::Own,
        Strategy::Fsdp2(_) | Strategy::Zero1 { .. } | Strategy::DeepSpeed(_) if !is_trl => TrainingLoop::Own,
        Strategy::Fsdp2(_) | Strategy::Zero1 { .. } | Strategy::DeepSpeed(_) => {
            TrainingLoop::PlainFor("SFTTrainer's fused head is not simulated with a model that is sharded")
        }
        Strategy::DataParallel | Strategy::AllReduce | Strategy::PipelineParallel { .. } => {
            TrainingLoop::PlainFor("the trainer's loop is not simulated with this strategy")
        }
    }
}

/// Trains as the framework's trainer does; what was run of the steps.
pub(super) fn run_fine_tune(job: &JobSpec, context: &Rc<Context>, builder: &Builder, loaded: Loaded) -> Repetition {
    if job.framework == Framework::Trl && job.quantization.is_none() {
        builder.load_adapters_last();
    }
    let is_trl = job.framework == Framework::Trl;
    // Rows with images are prepared as they come: no rank waits for them.
    let prepares = is_trl && job.model.beside.vision.is_none();
    let barrier = prepares.then(|| Processes::of(job).wait_for_main(context)).flatten();
    apply_liger_kernels(job, &builder.mode());
    if lays_end_to_end(job) {
        context.pack_rows();
    }
    let parameters = loaded.parameters.clone();
    let head_outputs = TokenOutputs { entropy: true, mean_logits: false, is_top1: true };
    let trainer = FineTune {
        job,
        context,
        model: Wrapped::new(job, context, loaded, head_outputs),
        _barrier: barrier,
        batches: RefCell::default(),
        kept: RefCell::default(),
    };
    trainer::run_trainer(job, context, &parameters, &trainer)
}

/// Whether a batch is one row. The flash-attn package's kernels take its sequences apart by themselves: with it each is simulated as
/// a row of its own, and the range allows for what is between them.
fn lays_end_to_end(job: &JobSpec) -> bool {
    job.padding_free && job.attention != Attention::FlashAttention2
}

struct FineTune<'a> {
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    model: Wrapped<'a>,
    /// What the barriers left.
    _barrier: Option<Tensor>,
    batches: RefCell<Batches>,
    /// What a `compute_loss` of one's own keeps of the last pass.
    kept: RefCell<Option<ModelOutput>>,
}

/// Those of the running step, and how many tokens have a label.
#[derive(Default)]
struct Batches {
    inputs: Vec<Inputs>,
    _rest: Option<Inputs>,
    num_items_in_batch: Option<Tensor>,
}

/// What the collator makes of rows of one length.
#[derive(Clone)]
struct Inputs {
    input_ids: Tensor,
    /// None where the loss is of images and their texts.
    labels: Option<Tensor>,
    rows: Rows,
    images: Option<Images>,
    /// What `DataCollatorForSeq2Seq` makes of the labels.
    decoder_input_ids: Option<Tensor>,
}

/// How it says where rows end.
#[derive(Clone)]
enum Rows {
    Padded {
        attention_mask: Tensor,
    },
    /// The rows of the batch end to end in one (TRL's `padding_free`).
    EndToEnd {
        position_ids: Tensor,
        _boundaries: [Tensor; 3],
    },
    /// Not at all: images are of one size.
    Whole,
}

impl Inputs {
    fn attention_mask(&self) -> Option<&Tensor> {
        match &self.rows {
            Rows::Padded { attention_mask } => Some(attention_mask),
            Rows::EndToEnd { .. } | Rows::Whole => None,
        }
    }

    fn position_ids(&self) -> Option<&Tensor> {
        match &self.rows {
            Rows::Padded { .. } | Rows::Whole => None,
            Rows::EndToEnd { position_ids, .. } => Some(position_ids),
        }
    }
}

impl Recipe for FineTune<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.model
    }

    fn divides_loss(&self) -> bool {
        !self.counts_items()
    }

    fn get_batch_samples(&self) {
        let rows = self.job.micro_batch_size;
        let batches = self.job.gradient_accumulation_steps;
        let inputs: Vec<_> = (0..batches.min(BATCHES)).map(|_| self.make_inputs(rows)).collect();
        let rest =
            batches.saturating_sub(BATCHES).saturating_mul(rows).min(MAX_ELEMENTS / row_numbers(self.job).max(1));
        let rest = (rest > 0).then(|| self.make_inputs(rest));
        let counted = self.counts_items().then(|| self.num_items(&inputs)).flatten();
        let num_items_in_batch = counted.map(|own| Processes::of(self.job).sum_of_items(own));
        let used_up = self.batches.replace(Batches { inputs, _rest: rest, num_items_in_batch });
        drop(used_up);
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        let at = (pass % self.job.gradient_accumulation_steps.max(1)).min(BATCHES - 1) as usize;
        let (inputs, num_items) = {
            let batches = self.batches.borrow();
            (batches.inputs.get(at)?.clone(), batches.num_items_in_batch.clone())
        };
        match self.job.framework {
            Framework::Trl => self.fused_loss(&inputs, num_items.as_ref()),
            _ => self.own_loss(&inputs, num_items.as_ref()),
        }
    }

    fn end(&self) {
        let used_up = self.batches.take();
        drop(used_up);
        let kept = self.kept.take();
        drop(kept);
    }
}

impl FineTune<'_> {
    /// Whether the loss of a batch is divided by the tokens of the whole step (`model_accepts_loss_kwargs`), or by its own.
    fn counts_items(&self) -> bool {
        // A batch of images and their texts has no labels to count.
        self.job.task != Task::Contrastive
            // fms-acceleration's forward with Liger's loss takes no `**kwargs`.
            && !self.job.kernels.has(Kernel::FusedCeLiger)
            && self.job.model.beside.vision.as_ref().is_none_or(|vision| takes_item_count(&vision.model_type))
    }

    /// Whether the text model behind a tower makes a cache: the Trainer's `use_cache` is written into the outer config alone.
    fn keeps_keys(&self) -> bool {
        let model = &self.job.model;
        model.beside.vision.is_some() && model.config.flag(keys::USE_CACHE, true).unwrap_or(true)
    }

    fn make_inputs(&self, rows: u64) -> Inputs {
        if lays_end_to_end(self.job) {
            return self.make_end_to_end(rows);
        }
        let _category = self.context.enter_category(Category::Input);
        let sizes = [rows, self.job.seq_len];
        if self.job.task == Task::ImageClassification || self.job.model.facts().hears {
            let pixel_values = main_input(self.job, self.context, rows);
            let labels = labels(self.context, &self.job.task, sizes);
            return Inputs {
                input_ids: pixel_values,
                labels: Some(labels),
                rows: Rows::Whole,
                images: None,
                decoder_input_ids: None,
            };
        }
        let mut images = None;
        let ids = || full(self.context, "_to_copy.default", &sizes, DType::Int64);
        if self.job.task == Task::Contrastive {
            // run_clip.py's collator has the images first.
            renew_images(self.job, self.context, rows, &mut images);
            let (input_ids, attention_mask) = (ids(), ids());
            return Inputs {
                input_ids,
                labels: None,
                rows: Rows::Padded { attention_mask },
                images,
                decoder_input_ids: None,
            };
        }
        let (input_ids, attention_mask) = (ids(), ids());
        renew_images(self.job, self.context, rows, &mut images);
        let targets = || labels(self.context, &self.job.task, sizes);
        let labels = targets();
        let decoder_input_ids = self.job.model.facts().prepares_targets.then(targets);
        Inputs { input_ids, labels: Some(labels), rows: Rows::Padded { attention_mask }, images, decoder_input_ids }
    }

    /// One row a sequence: with more of them the boundaries take a few bytes more.
    fn make_end_to_end(&self, rows: u64) -> Inputs {
        let _category = self.context.enter_category(Category::Input);
        let sizes = [1, rows.saturating_mul(self.job.seq_len)];
        let moved = |sizes: &[u64], dtype| full(self.context, "_to_copy.default", sizes, dtype);
        let ids = || moved(&sizes, DType::Int64);
        let (input_ids, labels, position_ids) = (ids(), ids(), ids());
        let cu_seq_lens = || moved(&[rows.saturating_add(1)], DType::Int32);
        let (cu_seq_lens_q, cu_seq_lens_k, seq_idx) = (cu_seq_lens(), cu_seq_lens(), moved(&sizes, DType::Int32));
        let rows = Rows::EndToEnd { position_ids, _boundaries: [cu_seq_lens_q, cu_seq_lens_k, seq_idx] };
        Inputs { input_ids, labels: Some(labels), rows, images: None, decoder_input_ids: None }
    }

    /// `sum(labels[..., 1:].ne(-100).sum() for ...)`, of all labels where none is shifted.
    fn num_items(&self, inputs: &[Inputs]) -> Option<Tensor> {
        let mut sum: Option<Tensor> = None;
        for labels in inputs.iter().filter_map(|batch| batch.labels.as_ref()) {
            let count = match self.job.task {
                Task::CausalLm => count_labels(labels),
                _ => count_all(labels),
            };
            sum = Some(match &sum {
                None => count.unary("add.Tensor", DType::Int64),
                Some(sum) => sum.binary("add.Tensor", &count, DType::Int64),
            });
        }
        sum
    }

    /// `model(**inputs, num_items_in_batch=...)["loss"]`: the model sums the losses and divides by the number.
    fn own_loss(&self, inputs: &Inputs, num_items: Option<&Tensor>) -> Option<Tensor> {
        let asks = self.job.use_cache || self.keeps_keys() || self.job.model.facts().keeps_cache;
        let caches = asks && caches_keys(self.job) && !self.job.turns_cache_off();
        let in_model = self.context.transformers().divides_losses_in_models();
        let outputs = self.model.call(&ForwardCall {
            attention_mask: inputs.attention_mask(),
            position_ids: inputs.position_ids(),
            labels: inputs.labels.as_ref(),
            num_items_in_batch: num_items.filter(|_| in_model),
            cache: self.model.wrapper().filter(|_| caches).map(Wrapper::new_cache),
            logits_to_keep: self.job.logits.logits_to_keep,
            fused_loss: self.job.logits.loss == LossKernel::Liger,
            images: inputs.images.as_ref(),
            decoder_input_ids: inputs.decoder_input_ids.as_ref(),
            ..ForwardCall::new(&inputs.input_ids)
        })?;
        let loss = match self.job.task {
            // Its own loss is a mean, whatever it is told.
            ref task if *task != Task::CausalLm => outputs.loss.clone()?,
            _ => match num_items.filter(|_| !in_model) {
                Some(num_items) => outputs.loss.as_ref()?.div_by(num_items),
                None => outputs.loss.clone()?,
            },
        };
        // `loss *= num_processes`
        let scales = num_items.is_some() && self.context.transformers().averages_tokens_across_devices();
        let loss = if scales { loss.mul_scalar_in_place(UNTOLD) } else { loss };
        if self.job.logits.keep_outputs {
            let before = self.kept.replace(Some(ModelOutput { loss: Some(loss.clone()), ..outputs }));
            drop(before);
        }
        Some(loss)
    }

    /// `model(**inputs, fused_lm_head=True)` and what is logged of it.
    fn fused_loss(&self, inputs: &Inputs, num_items: Option<&Tensor>) -> Option<Tensor> {
        let outputs = self.model.call_fused(&FusedCall {
            input_ids: &inputs.input_ids,
            attention_mask: inputs.attention_mask(),
            position_ids: inputs.position_ids(),
            labels: inputs.labels.as_ref()?,
            scored: self.job.micro_batch_size * (self.job.seq_len - 1),
            cast_lm_head_to_fp32: false,
            // SFTTrainer overrides what the config says by whether the coefficient is anything.
            router: RouterCall::Weighted,
            images: inputs.images.as_ref(),
        })?;
        let per_token_loss = outputs.log_probs.neg();
        let num_tokens = num_items.cloned().unwrap_or_else(|| sum_all(&outputs.label_mask));
        let mut loss = {
            let sum = per_token_loss.sum();
            let clamped = num_tokens.unary("clamp.default", DType::Int64);
            sum.div_by(&clamped)
        };
        let weighted_aux_loss = outputs.aux_loss.as_ref().map(|aux_loss| aux_loss.mul_scalar(UNTOLD));
        if num_items.is_some() {
            loss = loss.mul_scalar(UNTOLD);
        }
        if let Some(weighted_aux_loss) = &weighted_aux_loss {
            loss = &loss + &weighted_aux_loss.div_scalar(UNTOLD);
        }
        let processes = Processes::of(self.job);
        let count = |x: &Tensor| processes.sum_of_all(sum_all(x));
        let num_valid = count(&outputs.label_mask);
        let entropy_sum = outputs.entropy.as_ref().map(|entropy| count(&entropy.detach()));
        let num_correct = outputs.is_top1.as_ref().map(count);
        for logged in [&entropy_sum, &num_correct].into_iter().flatten() {
            num_valid.map("gt.Scalar", DType::Bool);
            logged.binary("div.Tensor", &num_valid, DType::Float32);
        }
        match &inputs.rows {
            Rows::Padded { attention_mask } => count(attention_mask),
            Rows::EndToEnd { .. } | Rows::Whole => {
                processes.sum_of_all(number_from_host(self.context, "tensor", 0.0, DType::Int64))
            }
        };
        outputs.aux_loss.as_ref().inspect(|aux_loss| log_router_loss(aux_loss, processes));
        Some(loss)
    }
}
