//! The rollout: `_generate_single_turn` with `model.generate`, and the statistics that `_generate` logs of it (trl 1.16,
//! trainer/grpo_trainer.py).

use crate::dtype::DType;
use crate::job::{CheckpointPolicy, Rollout};
use crate::op::{ReduceKind, full};
use crate::tensor::Tensor;
use crate::trace::{Category, PhaseKind};

use super::statistics::log_reduced;
use super::trainer::Trainer;
use crate::step::completions::CompletionEnds;
use crate::step::generate::{GenerateCall, GenerationConfig, SpecialTokens, generate};
use crate::step::sampling::Sampling;

impl Trainer<'_> {
    /// `_generate(prompts)` for so many rows.
    pub(super) fn generate_rows(&self, rows: u64, pass: u64) {
        match self.spec.rollout {
            Rollout::Generate => {
                self.context.phase(PhaseKind::Generate);
                self.generate_single_turn(rows);
            }
            Rollout::Vllm { sleep_mode, .. } => self.sync_weights(sleep_mode, pass),
        }
        self.context.phase(PhaseKind::Prepare);
        self.log_lengths(rows);
    }

    fn generate_single_turn(&self, rows: u64) {
        let context = self.context;
        let completion_len = self.spec.completion_len;
        let input = || {
            let _category = context.enter_category(Category::Input);
            full(context, "_to_copy.default", &[rows, self.spec.prompt_len], DType::Int64)
        };
        let (input_ids, attention_mask) = (input(), input());
        let prompt_completion_ids = self.generate_chunk(&input_ids, &attention_mask);
        let completion_ids = prompt_completion_ids.narrow_any(1, completion_len);
        let ends = CompletionEnds::find(&completion_ids, &[1]);
        // To the host: what is not contiguous is copied first.
        completion_ids.clone_contiguous();
        ends.completion_mask.to(DType::Bool);
    }

    /// `unwrapped_model.generate(...)`, with gradient checkpointing off.
    fn generate_chunk(&self, input_ids: &Tensor, attention_mask: &Tensor) -> Tensor {
        let _no_grad = self.context.set_grad_enabled(false);
        let checkpointing = self.mode.set_checkpointing(CheckpointPolicy::Off);
        let config = GenerationConfig {
            max_new_tokens: self.spec.completion_len,
            sampling: Some(Sampling::PLAIN),
            // The tokenizer's; its begin token, if it has one, would be eight bytes more.
            special_tokens: SpecialTokens { begin: false, end: true, pad: true },
            use_cache: true,
            output_scores: false,
        };
        let call = GenerateCall { input_ids, attention_mask, config: &config };
        // What `prepare` has wrapped is `PeftModel.forward`; its `generate` calls the base model's own.
        let ids = match self.job.lora {
            Some(_) => generate(self.context, self.model.as_ref(), &call),
            None => generate(self.context, &self.prepared_policy(), &call),
        };
        self.mode.set_checkpointing(checkpointing);
        ids
    }

    /// Numbers of tokens and of truncated rows.
    fn log_lengths(&self, rows: u64) {
        let context = self.context;
        let to_device = |dtype| full(context, "_to_copy.default", &[rows], dtype);
        let prompt_lengths = to_device(DType::Int64);
        let completion_lengths = to_device(DType::Int64);
        let total = |lengths: &Tensor| lengths.reduce_all("sum.default", ReduceKind::Sum, DType::Int64);
        let [agg_prompt_lengths, agg_completion_lengths] =
            [&prompt_lengths, &completion_lengths].map(|lengths| self.processes.gather(lengths));
        let total_prompt_tokens = total(&agg_prompt_lengths);
        {
            let completion_tokens = total(&agg_completion_lengths);
            total_prompt_tokens.binary("add.Tensor", &completion_tokens, DType::Int64);
        }
        log_mean_min_max(&agg_completion_lengths);
        let is_truncated = to_device(DType::Bool);
        let agg_is_truncated = self.processes.gather(&is_truncated);
        log_reduced(&agg_is_truncated, "mean.default", ReduceKind::Mean);
        agg_is_truncated.map("bitwise_not.default", DType::Bool);
        // No row has ended by itself: the lengths of those that have are one zero.
        let term_completion_lengths = full(context, "zeros.default", &[1], DType::Float32);
        log_mean_min_max(&term_completion_lengths);
    }
}

fn log_mean_min_max(lengths: &Tensor) {
    log_reduced(lengths, "mean.default", ReduceKind::Mean);
    log_reduced(lengths, "min.default", ReduceKind::WholeMax);
    log_reduced(lengths, "max.default", ReduceKind::WholeMax);
}
