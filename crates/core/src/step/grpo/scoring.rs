//! `_generate_and_score_completions` and `_calculate_rewards` (trl 1.16, trainer/grpo_trainer.py): from prompts to a batch
//! with advantages.

use crate::dtype::DType;
use crate::job::{Baseline, CheckpointPolicy};
use crate::op::{ReduceKind, cat, full};
use crate::tensor::Tensor;
use crate::trace::{Category, PhaseKind};

use super::batch::Batch;
use super::logps::LogpsCall;
use super::statistics::{is_zero, nanmean, nanstd, nansum};
use super::trainer::Trainer;
use super::vllm::Correction;
use crate::step::fused_head::RouterCall;
use crate::step::trainer::Recipe;
use crate::step::wrapped::Called;

/// Prompts with their completions, on the device.
pub(super) struct Completions {
    pub prompt_ids: Tensor,
    pub prompt_mask: Tensor,
    pub completion_ids: Tensor,
    pub completion_mask: Tensor,
}

/// UTF-8 bytes of a token of text; more than English takes. Texts are gathered before anything is trained, where no job is largest.
const TEXT_BYTES_OF_TOKEN: u64 = 4;
/// Bytes of an empty list, pickled.
const NO_NAMES: u64 = 5;

/// What is computed of a batch before it is trained on.
struct Frozen {
    old_per_token_logps: Option<Tensor>,
    correction: Option<Correction>,
    ref_per_token_logps: Option<Tensor>,
}

impl Trainer<'_> {
    /// Generates and scores `rows` completions.
    pub(super) fn generate_and_score(&self, rows: u64, pass: u64) -> Option<Batch> {
        self.context.phase(PhaseKind::Prepare);
        self.generate_rows(rows, pass);
        let completions = self.completions_on_device(rows);
        let is_group = self.spec.baseline == Baseline::Group;
        let completion_mask = &completions.completion_mask;
        let samples = is_group && self.uses_vllm();
        let sampling_per_token_logps =
            samples.then(|| self.rows_on_device([rows, self.spec.completion_len], DType::Float32));
        let num_items_in_batch = is_group.then(|| {
            let items = completion_mask.reduce_all("sum.default", ReduceKind::Sum, DType::Int64);
            self.processes.sum_of_all(items)
        });
        let prompt_completion_ids = cat(&[&completions.prompt_ids, &completions.completion_ids], 1);
        let attention_mask = cat(&[&completions.prompt_mask, completion_mask], 1);
        let call = LogpsCall {
            input_ids: &prompt_completion_ids,
            attention_mask: &attention_mask,
            logits_to_keep: self.spec.completion_len,
            batch_size: Some(self.job.micro_batch_size),
            entropy: false,
            own_positions: self.makes_positions(),
            router: RouterCall::Output,
        };
        if !is_group {
            let batch = self.score_left_out(completions, &call);
            drop((prompt_completion_ids, attention_mask));
            self.context.phase(PhaseKind::Between);
            return batch;
        }
        let frozen = self.frozen_logps(&call, sampling_per_token_logps.as_ref().map(|logps| (logps, completion_mask)));
        let rewards_per_func = self.calculate_rewards(rows);
        let advantages = self.compute_advantages(&rewards_per_func, rows);
        let Frozen { old_per_token_logps, correction, ref_per_token_logps } = frozen;
        if let (Some(old), Some(sampling), Some(correction)) =
            (&old_per_token_logps, &sampling_per_token_logps, &correction)
        {
            let ratio = &correction.importance_sampling_ratio;
            self.log_importance_sampling(old, sampling, completion_mask, ratio);
        }
        let importance_sampling_ratio = correction.map(|correction| correction.importance_sampling_ratio);
        drop((rewards_per_func, prompt_completion_ids, attention_mask));
        self.context.phase(PhaseKind::Between);
        let Completions { prompt_ids, prompt_mask, completion_ids, completion_mask } = completions;
        Some(Batch {
            prompt_ids,
            prompt_mask,
            completion_ids,
            completion_mask,
            old_logps: None,
            advantages,
            num_items_in_batch,
            old_per_token_logps,
            importance_sampling_ratio,
            sampling_per_token_logps,
            ref_per_token_logps,
        })
    }

    /// Prompts and completions with their masks.
    fn completions_on_device(&self, rows: u64) -> Completions {
        let ids = |tokens: u64| self.rows_on_device([rows, tokens], DType::Int64);
        Completions {
            prompt_ids: ids(self.spec.prompt_len),
            prompt_mask: ids(self.spec.prompt_len),
            completion_ids: ids(self.spec.completion_len),
            completion_mask: ids(self.spec.completion_len),
        }
    }

    fn rows_on_device(&self, sizes: [u64; 2], dtype: DType) -> Tensor {
        let _category = self.context.enter_category(Category::Input);
        full(self.context, "_to_copy.default", &sizes, dtype)
    }

    /// Log-probabilities of the policy before it is trained, where generation and updates do not meet or an engine samples
    /// (`sampled`: its own, and the mask), and of the reference, which is the policy without its adapters where it has some.
    fn frozen_logps(&self, call: &LogpsCall, sampled: Option<(&Tensor, &Tensor)>) -> Frozen {
        let _no_grad = self.context.set_grad_enabled(false);
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let is_aligned = self.job.gradient_accumulation_steps.is_multiple_of(self.generate_every());
        let is_needed = !is_aligned || sampled.is_some();
        let old_per_token_logps = is_needed.then(|| self.frozen_logps_of(&self.prepared_policy(), call)).flatten();
        let correction = old_per_token_logps
            .as_ref()
            .and_then(|old| sampled.map(|(sampling, mask)| self.importance_sampling(old, sampling, mask)));
        let ref_per_token_logps = self.reference_logps(call);
        self.mode.set_checkpointing(checkpointing);
        Frozen { old_per_token_logps, correction, ref_per_token_logps }
    }

    /// Those of the reference, or of the policy without its adapters, where the divergence counts.
    pub(super) fn reference_logps(&self, call: &LogpsCall) -> Option<Tensor> {
        let logps = (self.spec.beta != 0.0).then(|| match &self.reference {
            Some(reference) => self.frozen_logps_of(reference, call),
            None => {
                self.mode.enable_adapters(false);
                let logps = self.frozen_logps_of(&self.prepared_policy(), call);
                self.mode.enable_adapters(true);
                logps
            }
        });
        logps.flatten()
    }

    pub(super) fn frozen_logps_of(&self, model: &dyn Called, call: &LogpsCall) -> Option<Tensor> {
        self.context.phase(PhaseKind::Logps);
        let logps = self.per_token_logps(model, call).map(|logps| logps.per_token);
        self.context.phase(PhaseKind::Prepare);
        logps
    }

    /// `_calculate_rewards`: one reward function, which may ask a judge.
    pub(super) fn calculate_rewards(&self, rows: u64) -> Tensor {
        let context = self.context;
        context.phase(PhaseKind::Reward);
        let rewards_per_func = full(context, "zeros.default", &[rows, 1], DType::Float32);
        self.judge_rows(rows);
        full(context, "_to_copy.default", &[rows], DType::Float32);
        let is_unscored = {
            let is_nan = rewards_per_func.map("ne.Tensor", DType::Bool);
            is_nan.reduce_last("all.dim", ReduceKind::Any, DType::Bool)
        };
        is_unscored.reduce_all("any.default", ReduceKind::Any, DType::Bool);
        drop(is_unscored);
        let rewards_per_func = self.processes.gather(&rewards_per_func);
        context.phase(PhaseKind::Prepare);
        rewards_per_func
    }

    /// Rewards less their group's mean, over their group's deviation; and what is logged of them.
    fn compute_advantages(&self, rewards_per_func: &Tensor, local_rows: u64) -> Tensor {
        let rows = rewards_per_func.size(0);
        let groups = rows / self.spec.num_generations;
        let _unscorable_mask = {
            let is_nan = rewards_per_func.map("ne.Tensor", DType::Bool);
            is_nan.reduce_last("all.dim", ReduceKind::Any, DType::Bool)
        };
        let rewards = self.weighted_sum(rewards_per_func);
        let grouped = rewards.view(&[groups, self.spec.num_generations]);
        let repeated = |values: Tensor| full(values.context(), "clone.default", &[rows], DType::Float32);
        let mean_grouped_rewards = repeated(nanmean(&grouped));
        let std_rewards = repeated(nanstd(&grouped));
        drop(grouped);
        let mut advantages = rewards.binary("sub.Tensor", &mean_grouped_rewards, DType::Float32);
        advantages = {
            let scale = std_rewards.unary("add.Tensor", DType::Float32);
            advantages.binary("div.Tensor", &scale, DType::Float32)
        };
        let is_std_zero = is_zero(&std_rewards);
        advantages = advantages.unary("nan_to_num.default", DType::Float32);
        let _all_process_advantages = advantages.clone_contiguous();
        // `advantages[process_slice]`: a view of those of all processes.
        advantages = advantages.narrow_any(0, local_rows);
        self.log_scores(rewards_per_func, rewards, &is_std_zero);
        self.gather_texts(local_rows);
        advantages
    }

    /// Prompts and completions of all processes, to be logged; then the names of what was logged beside, of which there are none.
    pub(super) fn gather_texts(&self, rows: u64) {
        for tokens in [self.spec.prompt_len, self.spec.completion_len] {
            let bytes = rows.saturating_mul(tokens).saturating_mul(TEXT_BYTES_OF_TOKEN);
            self.processes.gather_object(self.context, bytes);
        }
        [NO_NAMES; 2].iter().for_each(|bytes| self.processes.gather_object(self.context, *bytes));
    }

    /// `(rewards_per_func * reward_weights.to(device).unsqueeze(0)).nansum(dim=1)`
    pub(super) fn weighted_sum(&self, rewards_per_func: &Tensor) -> Tensor {
        let weighted = {
            let weights = full(self.context, "_to_copy.default", &[1], DType::Float32);
            rewards_per_func.binary("mul.Tensor", &weights.unsqueeze(0), DType::Float32)
        };
        nansum(&weighted)
    }
}
