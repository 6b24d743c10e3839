//! KTO as TRL's `KTOTrainer` runs it (trl 1.16, trainer/kto_trainer.py): answers that are desirable or not, their log-probabilities
//! under the policy and under the reference, and those of mismatched answers, from which the divergence is estimated.

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{BuildError, Mode};
use crate::dtype::DType;
use crate::job::{CheckpointPolicy, JobSpec, KtoLoss, KtoSpec};
use crate::model::family::Model;
use crate::op::{ReduceKind, TokenOutputs, UNTOLD, cat, full};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::answers::{completion_labels, log_mean_logits, sequence_logps};
use super::batches::Batches;
use super::fused_head::{FusedCall, FusedCausalLmOutput, RouterCall, log_router_loss};
use super::gathered::{Processes, sum_all};
use super::liger::apply_liger_kernels;
use super::models::{Policy, load_reference};
use super::prepared::Prepared;
use super::repetition::Repetition;
use super::schedule::pieces_left_out;
use super::trainer::{self, Recipe};
use super::wrapped::{Called, Wrapped};

/// Puts the reference beside the policy, and trains.
pub(super) fn train_kto(
    job: &JobSpec,
    spec: &KtoSpec,
    context: &Rc<Context>,
    policy: Policy,
) -> Result<Repetition, BuildError> {
    if job.quantization.is_none() {
        policy.builder.load_buffers_last();
        policy.builder.load_adapters_last();
    }
    let mode = policy.builder.mode();
    mode.disable_dropout();
    let processes = Processes::of(job);
    let barrier = RefCell::new(processes.wait_for_main(context));
    let has_reference = job.lora.is_none() && !spec.precompute_ref_log_probs;
    let reference = has_reference.then(|| load_reference(job, context, false)).transpose()?;
    apply_liger_kernels(job, &mode);
    let parameters = policy.builder.trainable();
    let model = Rc::clone(&policy.model);
    let wrapped = Wrapped::new(job, context, policy.into_loaded(), HEAD_OUTPUTS);
    let batches = Batches::default();
    let trainer = Trainer { job, spec, context, model, wrapped, processes, mode, reference, barrier, batches };
    if spec.precompute_ref_log_probs {
        trainer.precompute_ref_logps();
    }
    Ok(trainer::run_trainer(job, context, &parameters, &trainer))
}

/// What the policy's head returns to be logged.
const HEAD_OUTPUTS: TokenOutputs = TokenOutputs { entropy: true, mean_logits: true, is_top1: false };

struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a KtoSpec,
    context: &'a Rc<Context>,
    /// `self.model`, without the wrapper.
    model: Rc<dyn Model>,
    wrapped: Wrapped<'a>,
    processes: Processes,
    mode: Rc<Mode>,
    reference: Option<Wrapped<'a>>,
    /// What the last barrier left.
    barrier: RefCell<Option<Tensor>>,
    batches: Batches<Batch>,
}

/// Prompts with an answer each.
struct Answers {
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_mask: Tensor,
}

/// What the collator makes of rows.
struct Batch {
    matched: Answers,
    /// The same prompts, each with another's answer, where the divergence is estimated.
    mismatched: Option<Answers>,
    /// Log-probabilities under the reference of both, where they were computed before.
    ref_logps: Option<Tensor>,
    ref_kl_logps: Option<Tensor>,
    /// Whether an answer is desirable.
    label: Tensor,
}

/// Of the answers, and of the mismatched ones.
type RefLogps = (Tensor, Option<Tensor>);

/// Of rows that are desirable, and of those that are not: one kind may have none.
type Split = [Tensor; 2];

impl Recipe for Trainer<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.wrapped
    }

    fn get_batch_samples(&self) {
        self.batches.load(self.job.gradient_accumulation_steps, || self.make_batch(true));
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        self.batches.read(pass, |batch| self.loss(batch)).flatten()
    }

    fn divides_loss(&self) -> bool {
        true
    }

    fn end(&self) {
        self.batches.clear();
    }
}

impl Trainer<'_> {
    /// A batch on the device; the precomputed log-probabilities are part of it once they are there.
    fn make_batch(&self, is_precomputed: bool) -> Batch {
        let _category = self.context.enter_category(Category::Input);
        let rows = self.job.micro_batch_size;
        let sizes = [rows, self.spec.prompt_len + self.spec.completion_len];
        let ids = || full(self.context, "_to_copy.default", &sizes, DType::Int64);
        let answers = || Answers { input_ids: ids(), attention_mask: ids(), completion_mask: ids() };
        let logps = || full(self.context, "_to_copy.default", &[rows], DType::Float32);
        let has_reference = is_precomputed && self.spec.precompute_ref_log_probs;
        Batch {
            matched: answers(),
            mismatched: self.spec.loss.estimates_divergence().then(answers),
            ref_logps: has_reference.then(logps),
            ref_kl_logps: (has_reference && self.spec.loss.estimates_divergence()).then(logps),
            label: full(self.context, "_to_copy.default", &[rows], DType::Bool),
        }
    }

    fn unwrapped_policy(&self) -> Prepared<'_> {
        let autocast = self.job.precision.autocast_dtype();
        Prepared { context: self.context, model: self.model.as_ref(), autocast, head_outputs: HEAD_OUTPUTS }
    }

    /// `_precompute_ref_logps`: the policy, not trained yet, over all rows.
    fn precompute_ref_logps(&self) {
        let mut last_batch = None;
        let mut last_logps = None;
        let batches = u64::from(self.job.steps).saturating_mul(self.job.gradient_accumulation_steps);
        let mut done = 0;
        while done < batches {
            let begun = self.context.phases();
            done += 1;
            let batch = &*last_batch.insert(self.make_batch(false));
            self.context.phase(PhaseKind::Logps);
            let logps = self.compute_ref_log_probs(batch);
            self.context.phase(PhaseKind::Load);
            let own: &Option<RefLogps> = last_logps.insert(logps);
            let gather = |logps: &Tensor| self.processes.gather(logps);
            let gathered = own.as_ref().map(|(logps, kl_logps)| (gather(logps), kl_logps.as_ref().map(gather)));
            last_logps = Some(gathered);
            let left_out = pieces_left_out(self.context, done, batches);
            if left_out > 0 {
                done += left_out;
                self.context.count_phases_again(begun..self.context.phases(), left_out);
            }
        }
        // `accelerator.wait_for_everyone()`
        let before = self.barrier.replace(self.processes.barrier(self.context));
        drop((before, last_batch, last_logps));
    }

    /// `compute_ref_log_probs`
    fn compute_ref_log_probs(&self, batch: &Batch) -> Option<RefLogps> {
        let answers = &batch.matched;
        let labels = completion_labels(&answers.input_ids, &answers.completion_mask);
        let mut kl_labels = None;
        let (per_token_logps, kl_per_token_logps) = self.with_reference(|model| {
            let per_token_logps = self.forward(model, answers, &labels, RouterCall::Output)?.log_probs;
            let kl_per_token_logps = batch.mismatched.as_ref().and_then(|answers| {
                let labels = kl_labels.insert(completion_labels(&answers.input_ids, &answers.completion_mask));
                Some(self.forward(model, answers, labels, RouterCall::Output)?.log_probs)
            });
            Some((per_token_logps, kl_per_token_logps))
        })?;
        Some((sequence_logps(&per_token_logps), kl_per_token_logps.as_ref().map(sequence_logps)))
    }

    /// `model(..., labels=labels, fused_lm_head=True)`
    fn forward(
        &self,
        model: &dyn Called,
        answers: &Answers,
        labels: &Tensor,
        router: RouterCall,
    ) -> Option<FusedCausalLmOutput> {
        model.call_fused(&FusedCall {
            input_ids: &answers.input_ids,
            attention_mask: Some(&answers.attention_mask),
            position_ids: None,
            labels,
            scored: answers.input_ids.size(0) * self.spec.completion_len,
            cast_lm_head_to_fp32: false,
            router,
            images: None,
        })
    }

    /// What `run` makes of the reference, a model of its own or the policy without its adapters: without gradients, and without
    /// checkpointing.
    fn with_reference<T>(&self, run: impl FnOnce(&dyn Called) -> T) -> T {
        let _no_grad = self.context.set_grad_enabled(false);
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let result = match &self.reference {
            Some(reference) => run(reference),
            None => {
                self.mode.enable_adapters(false);
                let result = match self.job.parallel.shards_frozen_models() {
                    true => run(&self.wrapped),
                    false => run(&self.unwrapped_policy()),
                };
                self.mode.enable_adapters(true);
                result
            }
        };
        self.mode.set_checkpointing(checkpointing);
        result
    }

    /// `_compute_kl_logps`: of the mismatched answers, without gradients.
    fn kl_logps(&self, model: &dyn Called, batch: &Batch) -> Option<Tensor> {
        let answers = batch.mismatched.as_ref()?;
        let labels = completion_labels(&answers.input_ids, &answers.completion_mask);
        let per_token_logps = {
            let _no_grad = self.context.set_grad_enabled(false);
            self.forward(model, answers, &labels, RouterCall::Output)?.log_probs
        };
        Some(sequence_logps(&per_token_logps))
    }

    /// `_compute_loss`
    fn loss(&self, batch: &Batch) -> Option<Tensor> {
        let num_chosen = sum_all(&batch.label);
        let num_rejected = num_chosen.map("rsub.Scalar", DType::Int64);
        let kl_logps = self.kl_logps(&self.wrapped, batch);
        let labels = completion_labels(&batch.matched.input_ids, &batch.matched.completion_mask);
        let outputs = self.forward(&self.wrapped, &batch.matched, &labels, RouterCall::WeightedOrOutput)?;
        let completion_logps = sequence_logps(&outputs.log_probs);
        let indices = self.split_rows(&batch.label);
        let logps = select_rows(&completion_logps, &indices);
        let mut _ref_outputs = None;
        let (ref_completion_logps, ref_kl_logps) = match &batch.ref_logps {
            Some(logps) => (logps.clone(), batch.ref_kl_logps.clone()),
            None => self.with_reference(|model| {
                let ref_kl_logps = self.kl_logps(model, batch);
                let outputs = self.forward(model, &batch.matched, &labels, RouterCall::Output)?;
                let logps = sequence_logps(&outputs.log_probs);
                _ref_outputs = Some(outputs);
                Some((logps, ref_kl_logps))
            })?,
        };
        let ref_logps = select_rows(&ref_completion_logps, &indices);
        let kl = self.divergence(kl_logps.as_ref().zip(ref_kl_logps.as_ref()));
        let mut kept = Vec::new();
        let (losses, rewards) = self.losses([&logps, &ref_logps], &kl, &mut kept);
        kept.extend(self.log_tokens(batch, &outputs, &indices));
        log_rows(self.processes, [&num_chosen, &num_rejected], [&rewards, &logps]);
        let mut loss = losses.nanmean();
        if let Some(aux_loss) = &outputs.aux_loss {
            loss = &loss + &aux_loss.mul_scalar(UNTOLD);
            log_router_loss(aux_loss, self.processes);
        }
        Some(loss)
    }

    /// The places of desirable rows and of the others.
    fn split_rows(&self, label: &Tensor) -> Split {
        let desirable = self.spec.desirable_rows;
        let chosen = label.places(desirable);
        let rejected = {
            let is_rejected = label.map("bitwise_not.default", DType::Bool);
            is_rejected.places(self.job.micro_batch_size - desirable)
        };
        [chosen, rejected].map(|places| places.view(&[places.size(0)]))
    }

    /// The divergence, never below zero.
    fn divergence(&self, logps: Option<(&Tensor, &Tensor)>) -> Tensor {
        let Some((kl_logps, ref_kl_logps)) = logps else {
            return full(self.context, "_to_copy.default", &[1], DType::Float32);
        };
        let mut kl = (kl_logps - ref_kl_logps).mean();
        kl = {
            let gathered = self.processes.gather(&kl);
            let gathered = gathered.reduce_all("mean.default", ReduceKind::Mean, DType::Float32);
            gathered.unary("clamp.default", DType::Float32)
        };
        kl
    }

    /// The losses of all rows; `kept` lives to the end of the loss: differences, losses and rewards of both kinds.
    fn losses(&self, [logps, ref_logps]: [&Split; 2], kl: &Tensor, kept: &mut Vec<Tensor>) -> (Tensor, Split) {
        let of_kind = |at: usize| {
            let logratios = &logps[at] - &ref_logps[at];
            let losses = self.losses_of(&logratios, kl, at == 0);
            let rewards = logratios.detach().mul_scalar(UNTOLD);
            (logratios, losses, rewards)
        };
        let (chosen, rejected) = (of_kind(0), of_kind(1));
        let all = {
            let weighted = [&chosen.1, &rejected.1].map(|losses| losses.mul_scalar(UNTOLD));
            cat(&weighted.each_ref(), 0)
        };
        kept.extend([chosen.0, chosen.1, rejected.0, rejected.1]);
        (all, [chosen.2, rejected.2])
    }

    fn losses_of(&self, logratios: &Tensor, kl: &Tensor, is_desirable: bool) -> Tensor {
        if logratios.size(0) == 0 {
            return full(self.context, "_to_copy.default", &[0], DType::Float32);
        }
        let scaled = match (self.spec.loss, is_desirable) {
            (KtoLoss::Kto, true) => {
                let margin = logratios - kl;
                margin.mul_scalar(UNTOLD)
            }
            (KtoLoss::Kto, false) => {
                let margin = kl - logratios;
                margin.mul_scalar(UNTOLD)
            }
            (KtoLoss::ApoZeroUnpaired, _) => logratios.mul_scalar(UNTOLD),
        };
        let likely = scaled.sigmoid();
        drop(scaled);
        if self.spec.loss == KtoLoss::ApoZeroUnpaired && !is_desirable { likely } else { likely.rsub_scalar(1.0) }
    }

    /// Entropy, number of tokens and mean logits; returned is what lives to the end of the loss.
    fn log_tokens(&self, batch: &Batch, outputs: &FusedCausalLmOutput, indices: &Split) -> Vec<Tensor> {
        let (Some(entropy), Some(mean_logits)) = (&outputs.entropy, &outputs.mean_logits) else { return Vec::new() };
        let mask = batch.matched.completion_mask.narrow_any(1, batch.matched.completion_mask.size(1) - 1);
        let mut entropy_sum = {
            let masked = entropy.detach().binary("mul.Tensor", &mask, DType::Float32);
            sum_all(&masked)
        };
        let mut total_tokens = sum_all(&mask);
        let processes = self.processes;
        entropy_sum = processes.sum_of_all(entropy_sum.clone());
        total_tokens = processes.sum_of_all(total_tokens.clone());
        total_tokens.map("gt.Scalar", DType::Bool);
        processes.sum_of_all(sum_all(&batch.matched.attention_mask));
        let logits = select_rows(&mean_logits.detach(), indices);
        let masks = select_rows(&mask, indices);
        log_mean_logits(processes, &logits, &masks, self.spec.completion_len);
        [entropy_sum, total_tokens].into_iter().chain(logits).chain(masks).collect()
    }
}

/// `x.index_select(0, index)` for both kinds of rows.
fn select_rows(x: &Tensor, indices: &Split) -> Split {
    indices.each_ref().map(|index| x.index_select(index))
}

/// Numbers of rows, and where there are some the sums of their rewards and log-probabilities.
fn log_rows(processes: Processes, counts: [&Tensor; 2], [rewards, logps]: [&Split; 2]) {
    counts.into_iter().for_each(|count| drop(processes.sum_of_all(count.clone())));
    for (rewards, logps) in rewards.iter().zip(logps).filter(|(rewards, _)| rewards.size(0) > 0) {
        for values in [rewards, logps] {
            let sum = values.reduce_all("nansum.default", ReduceKind::Sum, values.dtype());
            let gathered = processes.gather(&sum);
            drop(sum);
            gathered.reduce_all("nansum.default", ReduceKind::Sum, values.dtype());
        }
    }
}
