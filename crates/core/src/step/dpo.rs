//! DPO as TRL's `DPOTrainer` runs it (trl 1.16, trainer/dpo_trainer.py) with the sigmoid loss, its default: chosen and
//! rejected answers in one batch, through the policy with gradients and through the reference without.

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{BuildError, Mode};
use crate::dtype::DType;
use crate::job::{CheckpointPolicy, DpoSpec, JobSpec};
use crate::model::family::Model;
use crate::op::{TokenOutputs, UNTOLD, full};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::answers::{completion_labels, log_mean, log_mean_logits, sequence_logps};
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
pub(super) fn train_dpo(
    job: &JobSpec,
    spec: &DpoSpec,
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
    let trainer = Trainer {
        job,
        spec,
        context,
        model,
        wrapped,
        processes,
        mode,
        reference,
        barrier,
        batches: Batches::default(),
    };
    if spec.precompute_ref_log_probs {
        trainer.precompute_ref_logps();
    }
    Ok(trainer::run_trainer(job, context, &parameters, &trainer))
}

/// What the policy's head returns to be logged.
const HEAD_OUTPUTS: TokenOutputs = TokenOutputs { entropy: true, mean_logits: true, is_top1: true };

struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a DpoSpec,
    context: &'a Rc<Context>,
    /// `self.model`, without the wrapper.
    model: Rc<dyn Model>,
    wrapped: Wrapped<'a>,
    processes: Processes,
    /// What the last barrier left.
    barrier: RefCell<Option<Tensor>>,
    mode: Rc<Mode>,
    reference: Option<Wrapped<'a>>,
    batches: Batches<Batch>,
}

/// What the collator makes of pairs: chosen rows, then rejected ones.
struct Batch {
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_mask: Tensor,
    /// Log-probabilities of chosen and rejected answers under the reference, where they were computed before.
    reference: Option<[Tensor; 2]>,
}

/// A pair of vectors, of the chosen and of the rejected answers.
type Pair = [Tensor; 2];

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
        let pairs = self.job.micro_batch_size;
        let tokens = self.spec.prompt_len + self.spec.completion_len;
        let ids = || full(self.context, "_to_copy.default", &[2 * pairs, tokens], DType::Int64);
        let logps = || full(self.context, "_to_copy.default", &[pairs], DType::Float32);
        let has_reference = is_precomputed && self.spec.precompute_ref_log_probs;
        Batch {
            input_ids: ids(),
            attention_mask: ids(),
            completion_mask: ids(),
            reference: has_reference.then(|| [logps(), logps()]),
        }
    }

    fn unwrapped_policy(&self) -> Prepared<'_> {
        let autocast = self.job.precision.autocast_dtype();
        Prepared { context: self.context, model: self.model.as_ref(), autocast, head_outputs: HEAD_OUTPUTS }
    }

    /// `_precompute_ref_logps`: the policy, not trained yet, over all pairs.
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
            let labels = completion_labels(&batch.input_ids, &batch.completion_mask);
            let log_probs = {
                let _no_grad = self.context.set_grad_enabled(false);
                self.reference_forward(batch, &labels).map(|output| output.log_probs)
            };
            let logps = log_probs.as_ref().map(sequence_logps);
            drop((log_probs, labels));
            self.context.phase(PhaseKind::Load);
            let own: &Option<Pair> = last_logps.insert(logps.map(|logps| logps.split(0)));
            let gathered = own.as_ref().map(|own| own.each_ref().map(|part| self.processes.gather(part)));
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

    /// `model(..., labels=labels, fused_lm_head=True)`
    fn forward(
        &self,
        model: &dyn Called,
        batch: &Batch,
        labels: &Tensor,
        router: RouterCall,
    ) -> Option<FusedCausalLmOutput> {
        model.call_fused(&FusedCall {
            input_ids: &batch.input_ids,
            attention_mask: Some(&batch.attention_mask),
            position_ids: None,
            labels,
            scored: batch.input_ids.size(0) * self.spec.completion_len,
            cast_lm_head_to_fp32: false,
            router,
            images: None,
        })
    }

    /// The same under the reference: a model of its own, or the policy without its adapters.
    fn reference_forward(&self, batch: &Batch, labels: &Tensor) -> Option<FusedCausalLmOutput> {
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let router = RouterCall::Output;
        let output = match &self.reference {
            Some(reference) => self.forward(reference, batch, labels, router),
            None => {
                self.mode.enable_adapters(false);
                let output = match self.job.parallel.shards_frozen_models() {
                    true => self.forward(&self.wrapped, batch, labels, router),
                    false => self.forward(&self.unwrapped_policy(), batch, labels, router),
                };
                self.mode.enable_adapters(true);
                output
            }
        };
        self.mode.set_checkpointing(checkpointing);
        output
    }

    /// `_compute_loss`
    fn loss(&self, batch: &Batch) -> Option<Tensor> {
        let labels = completion_labels(&batch.input_ids, &batch.completion_mask);
        let outputs = self.forward(&self.wrapped, batch, &labels, RouterCall::WeightedOrOutput)?;
        let logps = sequence_logps(&outputs.log_probs);
        let [chosen_logps, rejected_logps] = logps.split(0);
        let mut _ref_outputs = None;
        let [ref_chosen_logps, ref_rejected_logps] = match &batch.reference {
            Some(reference) => reference.clone(),
            None => {
                let _no_grad = self.context.set_grad_enabled(false);
                let output = self.reference_forward(batch, &labels)?;
                let logps = sequence_logps(&output.log_probs);
                _ref_outputs = Some(output);
                logps.split(0)
            }
        };
        let chosen_logratios = &chosen_logps - &ref_chosen_logps;
        let rejected_logratios = &rejected_logps - &ref_rejected_logps;
        let delta_score = &chosen_logratios - &rejected_logratios;
        let per_sequence_loss = delta_score.mul_scalar(UNTOLD).log_sigmoid().neg();
        let mut loss = {
            let weighted = per_sequence_loss.mean().mul_scalar(UNTOLD);
            weighted.add_scalar(UNTOLD)
        };
        if let Some(aux_loss) = &outputs.aux_loss {
            loss = &loss + &aux_loss.mul_scalar(UNTOLD);
            log_router_loss(aux_loss, self.processes);
        }
        let completion_mask = batch.completion_mask.narrow_any(1, batch.completion_mask.size(1) - 1);
        let _logged = self.log_tokens(batch, &outputs, &completion_mask);
        self.log_rewards([&chosen_logratios, &rejected_logratios], [&chosen_logps, &rejected_logps]);
        Some(loss)
    }

    /// Entropy, number of tokens, mean logits and accuracy; returned is what lives to the end of the loss.
    fn log_tokens(&self, batch: &Batch, outputs: &FusedCausalLmOutput, mask: &Tensor) -> Vec<Tensor> {
        let (Some(entropy), Some(mean_logits), Some(is_top1)) =
            (&outputs.entropy, &outputs.mean_logits, &outputs.is_top1)
        else {
            return Vec::new();
        };
        let processes = self.processes;
        let mut entropy_sum = {
            let masked = entropy.detach().binary("mul.Tensor", mask, DType::Float32);
            sum_all(&masked)
        };
        let mut total_tokens = sum_all(mask);
        entropy_sum = processes.sum_of_all(entropy_sum.clone());
        total_tokens = processes.sum_of_all(total_tokens.clone());
        total_tokens.map("gt.Scalar", DType::Bool);
        processes.sum_of_all(sum_all(&batch.attention_mask));
        let masks: Pair = mask.split(0);
        log_mean_logits(processes, &mean_logits.split::<2>(0), &masks, self.spec.completion_len);
        let [chosen_mask, _] = &masks;
        let [chosen_is_top1, _]: Pair = is_top1.split(0);
        let correct = {
            let scored = chosen_mask.map("_to_copy.default", DType::Bool);
            chosen_is_top1.binary("bitwise_and.Tensor", &scored, DType::Bool)
        };
        total_tokens = sum_all(chosen_mask);
        let mut correct_tokens = sum_all(&correct);
        correct_tokens = processes.gather(&correct_tokens);
        total_tokens = processes.gather(&total_tokens);
        let total_sum = sum_all(&total_tokens);
        total_sum.map("gt.Scalar", DType::Bool);
        vec![entropy_sum, total_tokens, correct, correct_tokens, total_sum]
    }

    /// Rewards, their accuracy and margin, and the log-probabilities.
    fn log_rewards(&self, logratios: [&Tensor; 2], logps: [&Tensor; 2]) {
        let [chosen_rewards, rejected_rewards] = logratios.map(|logratio| logratio.detach().mul_scalar(UNTOLD));
        let agg_rewards = [&chosen_rewards, &rejected_rewards].map(|rewards| self.processes.gather(rewards));
        agg_rewards.iter().for_each(log_mean);
        let accuracies = {
            let is_greater = chosen_rewards.binary("gt.Tensor", &rejected_rewards, DType::Bool);
            is_greater.to(DType::Float32)
        };
        let agg_accuracies = self.processes.gather(&accuracies);
        log_mean(&agg_accuracies);
        let margins = &chosen_rewards - &rejected_rewards;
        let agg_margins = self.processes.gather(&margins);
        log_mean(&agg_margins);
        logps.iter().for_each(|logps| log_mean(&self.processes.gather(logps)));
    }
}
