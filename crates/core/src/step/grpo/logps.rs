//! `_get_per_token_logps_and_entropies` (trl 1.16, trainer/grpo_trainer.py), over the fused head that TRL patches into
//! the model's forward (trainer/utils.py, `add_fused_lm_head`), or over full logits as TRL 0.25 did.

use crate::dtype::DType;
use crate::job::LogProbs;
use crate::op::{cat, stack};
use crate::tensor::Tensor;

use super::trainer::Trainer;
use crate::step::fused_head::{FusedCall, RouterCall};
use crate::step::schedule::pieces_left_out;
use crate::step::wrapped::Called;

pub(super) struct LogpsCall<'a> {
    pub input_ids: &'a Tensor,
    pub attention_mask: &'a Tensor,
    pub logits_to_keep: u64,
    /// Rows at once; all when `None`.
    pub batch_size: Option<u64>,
    pub entropy: bool,
    /// Whether position ids are made from the mask, as `tonnage train` does where positions are rows of a table; TRL gives none.
    pub own_positions: bool,
    pub router: RouterCall,
}

/// What `_get_per_token_logps_and_entropies` returns.
pub(super) struct Logps {
    pub per_token: Tensor,
    /// If they are asked for.
    pub entropies: Option<Tensor>,
    /// Of a mixture of experts that is asked for it.
    pub aux_loss: Option<Tensor>,
}

impl Trainer<'_> {
    /// Log-probabilities of the completion's tokens, and what is asked for beside.
    pub(super) fn per_token_logps(&self, model: &dyn Called, call: &LogpsCall) -> Option<Logps> {
        match self.spec.log_probs {
            LogProbs::Fused => self.fused_logps(model, call),
            LogProbs::FullLogits => {
                let (per_token, entropies) = super::full_logits::per_token_logps(self.context, model, call);
                Some(Logps { per_token, entropies, aux_loss: None })
            }
        }
    }

    fn fused_logps(&self, model: &dyn Called, call: &LogpsCall) -> Option<Logps> {
        let rows = call.input_ids.size(0);
        let batch_size = call.batch_size.unwrap_or(rows).max(1);
        let (mut all_logps, mut all_entropies) = (Vec::new(), Vec::new());
        let mut all_aux_losses = Vec::new();
        let (mut labels, mut outputs) = (None, None);
        let pieces = rows.div_ceil(batch_size);
        let mut piece = 0;
        while piece < pieces && (piece == 0 || !self.context.has_failed()) {
            let count = batch_size.min(rows - piece * batch_size);
            let moment = self.context.moment();
            let input_ids = call.input_ids.narrow_any(0, count);
            let attention_mask = call.attention_mask.narrow_any(0, count);
            let labels = labels.insert(completion_labels(&input_ids, &attention_mask));
            // `accelerator.autocast()`, round that of the prepared model.
            let autocast = self.context.autocast(self.job.precision.autocast_dtype());
            let outputs = outputs.insert(model.call_fused(&FusedCall {
                input_ids: &input_ids,
                attention_mask: Some(&attention_mask),
                position_ids: None,
                labels,
                scored: count * self.spec.completion_len,
                cast_lm_head_to_fp32: self.spec.cast_lm_head_to_fp32,
                router: call.router,
                images: None,
            })?);
            drop(autocast);
            all_logps.push(outputs.log_probs.slice_any(1, call.logits_to_keep));
            if let Some(entropy) = outputs.entropy.as_ref().filter(|_| call.entropy) {
                all_entropies.push(entropy.slice_any(1, call.logits_to_keep));
            }
            all_aux_losses.extend(outputs.aux_loss.clone().filter(|_| call.router != RouterCall::Output));
            piece += 1;
            let left_out = pieces_left_out(self.context, piece, pieces);
            if left_out > 0 {
                piece += left_out;
                self.context.count_again(&moment, left_out);
                all_logps.extend((0..left_out).map(|_| outputs.log_probs.another().slice_any(1, call.logits_to_keep)));
            }
        }
        let logps = cat(&all_logps.iter().collect::<Vec<_>>(), 0);
        let entropies = call.entropy.then(|| cat(&all_entropies.iter().collect::<Vec<_>>(), 0));
        let aux_loss = stack(&all_aux_losses).map(|aux_losses| aux_losses.mean());
        Some(Logps { per_token: logps, entropies, aux_loss })
    }
}

/// `input_ids.masked_fill(attention_mask == 0, -100)` with the prompt's part overwritten.
fn completion_labels(input_ids: &Tensor, attention_mask: &Tensor) -> Tensor {
    let is_padding = attention_mask.map("eq.Scalar", DType::Bool);
    let labels = input_ids.unary("masked_fill.Scalar", input_ids.dtype());
    drop(is_padding);
    labels
}
