//! GKD as TRL's `GKDTrainer` runs it (trl 1.16, experimental/gkd/gkd_trainer.py): answers of the data, of the student or of the
//! teacher through both models, and the divergence of their whole distributions.

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{BuildError, Mode};
use crate::dtype::DType;
use crate::job::{AnswersOf, CheckpointPolicy, Divergence, GkdSpec, JobSpec};
use crate::model::family::{ForwardCall, Model};
use crate::op::{TokenOutputs, UNTOLD, full, number_from_host, stack};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::batches::{Batches, count_labels};
use super::completions::CompletionEnds;
use super::gathered::Processes;
use super::generate::{GenerateCall, GenerationConfig, SpecialTokens, generate_dict};
use super::liger::apply_liger_kernels;
use super::models::{Kind, Policy, load_model};
use super::prepared::Prepared;
use super::repetition::Repetition;
use super::sampling::Sampling;
use super::trainer::{self, Recipe};
use super::wrapped::{Called, Wrapped};

/// `temperature` of `GKDConfig`; one of 1 would save a copy of a token's logits.
const TEMPERATURE: f64 = 0.9;

/// Puts the teacher beside the student, and trains.
pub(super) fn train_gkd(
    job: &JobSpec,
    spec: &GkdSpec,
    context: &Rc<Context>,
    student: Policy,
) -> Result<Repetition, BuildError> {
    student.builder.load_buffers_last();
    student.builder.load_adapters_last();
    let mode = student.builder.mode();
    mode.disable_dropout();
    let (teacher, _) =
        load_model(job, context, ("teacher", &spec.teacher), Kind::of(spec.teacher_dtype.dtype()).moved())?;
    apply_liger_kernels(job, &mode);
    let parameters = student.builder.trainable();
    let model = Rc::clone(&student.model);
    let wrapped = Wrapped::new(job, context, student.into_loaded(), TokenOutputs::default());
    let (batches, num_items) = (Batches::default(), RefCell::default());
    let trainer = Trainer { job, spec, context, model, wrapped, mode, teacher, batches, num_items };
    Ok(trainer::run_trainer(job, context, &parameters, &trainer))
}

struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a GkdSpec,
    context: &'a Rc<Context>,
    /// `self.model`, without the wrapper.
    model: Rc<dyn Model>,
    wrapped: Wrapped<'a>,
    mode: Rc<Mode>,
    teacher: Box<dyn Model>,
    batches: Batches<Batch>,
    /// How many tokens of the running step's batches have a label.
    num_items: RefCell<Option<Tensor>>,
}

/// What the collator makes of rows; what is generated takes the place of its rows.
struct Batch {
    rows: RefCell<Rows>,
    prompts: Tensor,
    prompt_attention_mask: Tensor,
    _byte_offsets: Tensor,
}

/// Prompts with an answer each.
#[derive(Clone)]
struct Rows {
    input_ids: Tensor,
    attention_mask: Tensor,
    labels: Tensor,
}

impl Recipe for Trainer<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.wrapped
    }

    fn get_batch_samples(&self) {
        let batches: Vec<_> = (0..self.job.gradient_accumulation_steps).map(|_| self.make_batch()).collect();
        let mut num_items: Option<Tensor> = None;
        for batch in &batches {
            let count = count_labels(&batch.rows.borrow().labels);
            // `sum` begins with 0.
            num_items = Some(match &num_items {
                None => count.unary("add.Tensor", DType::Int64),
                Some(sum) => sum.binary("add.Tensor", &count, DType::Int64),
            });
        }
        let before = self.num_items.replace(num_items.map(|own| Processes::of(self.job).sum_of_items(own)));
        self.batches.replace(batches);
        drop(before);
    }

    fn generate_every(&self) -> u64 {
        self.spec.generate_every()
    }

    /// `training_step`, up to where the Trainer's own begins.
    fn prepare_inputs(&self, pass: u64) {
        let answers = self.answers_of(pass);
        if answers != AnswersOf::Data {
            self.batches.read(pass, |batch| self.generate_answers(batch, answers));
        }
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        let answer = match self.answers_of(pass) {
            AnswersOf::Data => self.spec.completion_len,
            AnswersOf::Student | AnswersOf::Teacher => self.spec.max_new_tokens,
        };
        self.batches.read(pass, |batch| self.loss(&batch.rows.borrow(), answer)).flatten()
    }

    fn end(&self) {
        self.batches.clear();
    }
}

impl Trainer<'_> {
    fn answers_of(&self, pass: u64) -> AnswersOf {
        self.spec.answers_of(pass, u64::from(self.job.steps).saturating_mul(self.job.gradient_accumulation_steps))
    }

    fn make_batch(&self) -> Batch {
        let _category = self.context.enter_category(Category::Input);
        let ids = |sizes: &[u64]| full(self.context, "_to_copy.default", sizes, DType::Int64);
        let (rows, prompt) = (self.job.micro_batch_size, self.spec.prompt_len);
        let tokens = prompt + self.spec.completion_len;
        let [input_ids, attention_mask, labels] = [(); 3].map(|()| ids(&[rows, tokens]));
        let [prompts, prompt_attention_mask] = [(); 2].map(|()| ids(&[rows, prompt]));
        let byte_offsets = ids(&[rows, tokens, 2]);
        let rows = RefCell::new(Rows { input_ids, attention_mask, labels });
        Batch { rows, prompts, prompt_attention_mask, _byte_offsets: byte_offsets }
    }

    fn prepared<'b>(&'b self, model: &'b dyn Model) -> Prepared<'b> {
        let autocast = self.job.precision.autocast_dtype();
        Prepared { context: self.context, model, autocast, head_outputs: TokenOutputs::default() }
    }

    /// Answers of the student or of the teacher take the place of the data's.
    fn generate_answers(&self, batch: &Batch, of: AnswersOf) {
        self.context.phase(PhaseKind::Generate);
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let generated = match (of, &self.job.lora) {
            (AnswersOf::Teacher, _) => self.generate_outputs(&self.prepared(self.teacher.as_ref()), batch),
            // What is wrapped is `PeftModel.forward`; its `generate` calls the base model's own.
            (_, Some(_)) => self.generate_outputs(self.model.as_ref(), batch),
            (_, None) => self.generate_outputs(&self.prepared(self.model.as_ref()), batch),
        };
        self.mode.set_checkpointing(checkpointing);
        self.context.phase(PhaseKind::Between);
        let used_up = batch.rows.replace(generated);
        drop(used_up);
    }

    /// Prompts with answers of `model`, labelled whole (`generate_on_policy_outputs`).
    fn generate_outputs(&self, model: &dyn Model, batch: &Batch) -> Rows {
        let _no_grad = self.context.set_grad_enabled(false);
        let config = GenerationConfig {
            max_new_tokens: self.spec.max_new_tokens,
            sampling: Some(Sampling { temperature: TEMPERATURE }),
            special_tokens: SpecialTokens { begin: false, end: true, pad: true },
            output_scores: false,
            use_cache: self.job.gradient_checkpointing == CheckpointPolicy::Off,
        };
        let (input_ids, attention_mask) = (&batch.prompts, &batch.prompt_attention_mask);
        let generated =
            generate_dict(self.context, model, &GenerateCall { input_ids, attention_mask, config: &config });
        let generated_tokens = &generated.sequences;
        let completion_ids = generated_tokens.narrow_any(1, self.spec.max_new_tokens);
        let _ends = CompletionEnds::find(&completion_ids, &[]);
        let new_attention_mask = generated_tokens.ones_like();
        let new_labels = generated_tokens.unary("clone.default", DType::Int64);
        new_attention_mask.map("eq.Scalar", DType::Bool);
        Rows { input_ids: generated_tokens.clone(), attention_mask: new_attention_mask, labels: new_labels }
    }

    /// The divergence over the last `answer` tokens of the rows; `None` where the wrapper cannot be called (`compute_loss`).
    fn loss(&self, rows: &Rows, answer: u64) -> Option<Tensor> {
        let call = ForwardCall { attention_mask: Some(&rows.attention_mask), ..ForwardCall::new(&rows.input_ids) };
        let student_outputs = self.wrapped.call(&call)?;
        let teacher_outputs = {
            let _no_grad = self.context.set_grad_enabled(false);
            // The teacher's config is as it was loaded: it caches.
            let cache = Some(self.teacher.new_cache());
            self.prepared(self.teacher.as_ref()).forward(&ForwardCall { cache, ..call })
        };
        let positions = rows.input_ids.size(1) - 1;
        let shifted = |logits: &Tensor| logits.slice_any(1, positions);
        let student_logits = shifted(student_outputs.logits.as_ref()?);
        let teacher_logits = shifted(teacher_outputs.logits.as_ref()?);
        let labels = rows.labels.narrow_any(1, positions);
        let loss = self.generalized_jsd_loss([&student_logits, &teacher_logits], &labels, answer);
        self.context.empty_cache();
        loss
    }

    /// Of the positions that have a label, `answer` a row.
    fn generalized_jsd_loss(&self, logits: [&Tensor; 2], labels: &Tensor, answer: u64) -> Option<Tensor> {
        // A temperature of 1 divides all the same.
        let logits = logits.map(|logits| logits.div_scalar(UNTOLD));
        let [student_log_probs, teacher_log_probs] = logits.each_ref().map(Tensor::log_softmax);
        let mut mixed = None;
        let mut jsd = match self.spec.divergence {
            Divergence::Forward => kl_div(&student_log_probs, &teacher_log_probs),
            Divergence::Reverse => kl_div(&teacher_log_probs, &student_log_probs),
            Divergence::JensenShannon => {
                let mixture = mixed.insert(Mixture::new(&student_log_probs, &teacher_log_probs)?);
                mixture.divergence()
            }
        };
        let mask = labels.map("ne.Scalar", DType::Bool);
        jsd = jsd.masked_rows(&mask, labels.size(0) * answer);
        let jsd_sum = jsd.sum();
        Some(jsd_sum.div_by(self.num_items.borrow().as_ref()?))
    }
}

/// `F.kl_div(input, target, reduction="none", log_target=True)` (aten/src/ATen/native/Loss.cpp)
fn kl_div(input: &Tensor, target: &Tensor) -> Tensor {
    let difference = target - input;
    let likelihood = target.exp();
    &likelihood * &difference
}

/// The mixture of both distributions, and how far each is from it.
struct Mixture {
    beta: Tensor,
    _mixture_log_probs: Tensor,
    kl_teacher: Tensor,
    kl_student: Tensor,
}

impl Mixture {
    fn new(student_log_probs: &Tensor, teacher_log_probs: &Tensor) -> Option<Self> {
        let context = student_log_probs.context();
        let beta = number_from_host(context, "tensor", UNTOLD, student_log_probs.dtype());
        let mixture_log_probs = {
            let rest = {
                let negated = beta.map("neg.default", beta.dtype());
                negated.map("log1p.default", beta.dtype())
            };
            let student = student_log_probs + &rest;
            drop(rest);
            let share = beta.map("log.default", beta.dtype());
            let teacher = teacher_log_probs + &share;
            drop(share);
            let both = stack(&[student, teacher])?;
            both.logsumexp_along(0)
        };
        let kl_teacher = kl_div(&mixture_log_probs, teacher_log_probs);
        let kl_student = kl_div(&mixture_log_probs, student_log_probs);
        Some(Self { beta, _mixture_log_probs: mixture_log_probs, kl_teacher, kl_student })
    }

    /// `beta * kl_teacher + (1 - beta) * kl_student`
    fn divergence(&self) -> Tensor {
        let of_teacher = self.beta.mul(&self.kl_teacher);
        let of_student = {
            let rest = self.beta.map("rsub.Scalar", self.beta.dtype());
            rest.mul(&self.kl_student)
        };
        &of_teacher + &of_student
    }
}
