//! RLOO as TRL's `RLOOTrainer` runs it (trl 1.16, trainer/rloo_trainer.py) over GRPO's rollout: rewards less those of the other
//! completions, with the divergence taken off, and a ratio of whole completions.

use crate::dtype::DType;
use crate::job::CheckpointPolicy;
use crate::op::{ReduceKind, UNTOLD, cat};
use crate::tensor::{Shape, Tensor};

use super::batch::Batch;
use super::logps::{Logps, LogpsCall};
use super::loss::clipped_ratios;
use super::scoring::Completions;
use super::statistics::{is_zero, log_reduced, nanmean, nanstd, nansum};
use super::trainer::Trainer;
use crate::step::fused_head::{RouterCall, log_router_loss};
use crate::step::gathered::Processes;

/// Log-probabilities before training: of the policy, and of the reference where there is one.
struct Frozen {
    old_per_token_logps: Tensor,
    old_logps: Tensor,
    ref_per_token_logps: Option<Tensor>,
}

impl Trainer<'_> {
    /// `_generate_and_score_completions`, from where the completions are on the device.
    pub(super) fn score_left_out(&self, completions: Completions, call: &LogpsCall) -> Option<Batch> {
        let mask = &completions.completion_mask;
        let frozen = self.frozen_of_policy(call, mask)?;
        let rewards_per_func = self.calculate_rewards(mask.size(0));
        let advantages = self.left_out_advantages(&rewards_per_func, &frozen, mask);
        let Completions { prompt_ids, prompt_mask, completion_ids, completion_mask } = completions;
        Some(Batch {
            prompt_ids,
            prompt_mask,
            completion_ids,
            completion_mask,
            old_logps: Some(frozen.old_logps),
            advantages,
            num_items_in_batch: None,
            old_per_token_logps: None,
            importance_sampling_ratio: None,
            sampling_per_token_logps: None,
            ref_per_token_logps: None,
        })
    }

    fn frozen_of_policy(&self, call: &LogpsCall, mask: &Tensor) -> Option<Frozen> {
        let _no_grad = self.context.set_grad_enabled(false);
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let old_per_token_logps = self.frozen_logps_of(&self.prepared_policy(), call)?;
        let old_logps = (&old_per_token_logps * mask).sum_each();
        let ref_per_token_logps = self.reference_logps(call);
        self.mode.set_checkpointing(checkpointing);
        Some(Frozen { old_per_token_logps, old_logps, ref_per_token_logps })
    }

    /// Rewards less the mean of the others of their group; and what is logged of them.
    fn left_out_advantages(&self, rewards_per_func: &Tensor, frozen: &Frozen, mask: &Tensor) -> Tensor {
        let rows = rewards_per_func.size(0);
        let _unscorable_mask = {
            let is_nan = rewards_per_func.map("ne.Tensor", DType::Bool);
            is_nan.reduce_last("all.dim", ReduceKind::Any, DType::Bool)
        };
        let mut rewards = self.weighted_sum(rewards_per_func);
        let divergence = frozen.ref_per_token_logps.as_ref().map(|reference| {
            let per_token_kl = &frozen.old_per_token_logps - reference;
            let own = (&per_token_kl * mask).sum_each();
            let kl = self.processes.gather(&own);
            drop(own);
            rewards = &rewards - &kl.mul_scalar(UNTOLD);
            (per_token_kl, kl)
        });
        let grouped = rewards.view(&[rows / self.spec.num_generations, self.spec.num_generations]);
        let _mean_grouped_rewards = nanmean(&grouped);
        let std_rewards = nanstd(&grouped);
        let (scorable_counts, grouped_sum) = (counts_of_numbers(&grouped), nansum(&grouped).unsqueeze(1));
        let baselines = {
            let others = grouped_sum.binary("sub.Tensor", &grouped, DType::Float32);
            let counts = scorable_counts.sub_int(1);
            others.binary("div.Tensor", &counts.unsqueeze(1), DType::Float32)
        };
        let mut advantages = &rewards - &baselines.view(&[rows]);
        advantages = advantages.unary("nan_to_num.default", DType::Float32);
        let is_std_zero = is_zero(&std_rewards);
        let _all_process_advantages = advantages.clone_contiguous();
        // `advantages[process_slice]`: a view of those of all processes.
        let local_rows = mask.size(0);
        advantages = advantages.narrow_any(0, local_rows);
        let _kl_stats = divergence.as_ref().map(|(per_token_kl, _)| log_total_mean(per_token_kl, mask));
        self.log_scores(rewards_per_func, rewards, &is_std_zero);
        self.gather_texts(local_rows);
        advantages
    }

    /// The rewards and their deviation, of each function and of all.
    pub(super) fn log_scores(&self, rewards_per_func: &Tensor, rewards: Tensor, is_std_zero: &Tensor) {
        let all = |rewards: &Tensor| rewards.view(&[1, rewards.numel()]);
        nanmean(&all(rewards_per_func));
        nanstd(&all(rewards_per_func));
        let logged = self.weighted_sum(rewards_per_func);
        drop(rewards);
        nanmean(&all(&logged));
        nanstd(&all(&logged));
        log_reduced(is_std_zero, "mean.default", ReduceKind::Mean);
    }
}

/// `_compute_loss`
pub(super) fn compute_rloo_loss(trainer: &Trainer, inputs: &Batch) -> Option<Tensor> {
    let input_ids = cat(&[&inputs.prompt_ids, &inputs.completion_ids], 1);
    let attention_mask = cat(&[&inputs.prompt_mask, &inputs.completion_mask], 1);
    let call = LogpsCall {
        input_ids: &input_ids,
        attention_mask: &attention_mask,
        logits_to_keep: inputs.completion_ids.size(1),
        batch_size: None,
        entropy: true,
        own_positions: trainer.makes_positions(),
        router: RouterCall::WeightedOrOutput,
    };
    let logps = trainer.per_token_logps(&trainer.wrapped, &call)?;
    let Logps { per_token: per_token_logps, entropies, aux_loss } = logps;
    let logps = (&per_token_logps * &inputs.completion_mask).sum_each();
    let log_ratio = &logps - inputs.old_logps.as_ref()?;
    let coef_1 = log_ratio.exp();
    let coef_2 = coef_1.clamp();
    let per_sequence_loss1 = &coef_1 * &inputs.advantages;
    let per_sequence_loss2 = &coef_2 * &inputs.advantages;
    let per_sequence_loss = {
        let smaller = per_sequence_loss1.minimum(&per_sequence_loss2);
        smaller.neg()
    };
    let mut loss = per_sequence_loss.mean();
    if let Some(aux_loss) = &aux_loss {
        loss = &loss + &aux_loss.mul_scalar(UNTOLD);
        log_router_loss(aux_loss, trainer.processes);
    }
    let _entropy_stats = entropies.as_ref().map(|entropies| log_total_mean(entropies, &inputs.completion_mask));
    log_clipping(trainer.processes, &coef_1, &inputs.advantages);
    Some(loss)
}

/// `(~torch.isnan(x)).sum(dim=1)`
fn counts_of_numbers(x: &Tensor) -> Tensor {
    let is_number = {
        let is_nan = x.map("ne.Tensor", DType::Bool);
        is_nan.map("bitwise_not.default", DType::Bool)
    };
    is_number.count_last()
}

/// The sum of what the mask selects and its count as one pair, which `accelerator.reduce` copies; and their quotient, which is logged.
fn log_total_mean(x: &Tensor, mask: &Tensor) -> Tensor {
    let total = (x * mask).sum();
    let count = {
        let count = mask.reduce_all("sum.default", ReduceKind::Sum, DType::Int64);
        count.to(DType::Float32)
    };
    let totals = {
        let pair = Tensor::empty(x.context(), "stack.default", Shape::new(&[2]), DType::Float32);
        drop((total, count));
        pair.unary("clone.default", DType::Float32)
    };
    let least = total_of(&totals, "clamp.default");
    let _mean = total_of(&totals, "div.Tensor");
    drop(least);
    totals
}

/// What an op makes of one number of a pair.
fn total_of(pair: &Tensor, op: &'static str) -> Tensor {
    Tensor::empty(pair.context(), op, Shape::new(&[]), DType::Float32)
}

/// The shares of clipped ratios, a ratio a row.
fn log_clipping(processes: Processes, coef_1: &Tensor, advantages: &Tensor) {
    let [low, high, region] = clipped_ratios(coef_1, advantages);
    let log = |is_clipped: &Tensor| {
        let own = is_clipped.to(DType::Float32);
        let gathered = processes.gather(&own);
        drop(own);
        nanmean(&gathered.view(&[1, gathered.numel()]));
        gathered
    };
    let gathered_low_clip = log(&low);
    gathered_low_clip.reduce_all("min.default", ReduceKind::WholeMax, DType::Float32);
    let gathered_high_clip = log(&high);
    gathered_high_clip.reduce_all("max.default", ReduceKind::WholeMax, DType::Float32);
    let _gathered_clip_ratio = log(&region);
}
