//! The head that TRL patches into a model's forward (trl 1.16, trainer/utils.py, `add_fused_lm_head`): per-token
//! log-probabilities in place of logits, of the positions that have a label.

use crate::dtype::DType;
use crate::model::family::{ForwardCall, Images, Model};
use crate::model::nn::RouterLoss;
use crate::op::{ReduceKind, UNTOLD, chunked_log_probs, full};
use crate::tensor::Tensor;

use super::gathered::Processes;
use super::prepared::Prepared;

/// The arguments of `model(..., labels=labels, fused_lm_head=True)`, and what the head was made with.
pub(super) struct FusedCall<'a> {
    pub input_ids: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    pub position_ids: Option<&'a Tensor>,
    pub labels: &'a Tensor,
    /// How many positions have a label.
    pub scored: u64,
    pub cast_lm_head_to_fp32: bool,
    pub router: RouterCall,
    pub images: Option<&'a Images>,
}

/// Whether a mixture of experts is asked for the loss that balances them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RouterCall {
    /// Where its coefficient is anything: `aux_loss_enabled` of TRL's trainers, which is so by every such config's default.
    Weighted,
    /// The same, or where the config asks for it.
    WeightedOrOutput,
    /// Where the config asks for it.
    Output,
}

impl RouterCall {
    fn asks(self, router: &RouterLoss) -> bool {
        (self != Self::Output && router.coefficient != 0.0) || (self != Self::Weighted && router.is_output)
    }
}

/// `FusedCausalLMOutput`, [rows, tokens - 1] each.
pub(super) struct FusedCausalLmOutput {
    pub log_probs: Tensor,
    pub entropy: Option<Tensor>,
    pub mean_logits: Option<Tensor>,
    pub is_top1: Option<Tensor>,
    loss: Tensor,
    pub label_mask: Tensor,
    /// Of a mixture of experts that was asked for it.
    pub aux_loss: Option<Tensor>,
}

impl FusedCausalLmOutput {
    /// All its tensors, in the order of its fields.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let optional = [&self.entropy, &self.mean_logits, &self.is_top1].into_iter().flatten();
        let first = [&self.loss, &self.log_probs].into_iter().chain(optional);
        first.chain([&self.label_mask]).chain(&self.aux_loss).cloned().collect()
    }

    /// The same output with these in their place.
    pub(super) fn with_tensors(mut self, tensors: Vec<Tensor>) -> Self {
        let optional = [&mut self.entropy, &mut self.mean_logits, &mut self.is_top1].into_iter().flatten();
        let first = [&mut self.loss, &mut self.log_probs].into_iter().chain(optional);
        let all = first.chain([&mut self.label_mask]).chain(&mut self.aux_loss);
        all.zip(tensors).for_each(|(field, tensor)| *field = tensor);
        self
    }
}

/// `_fused_forward`
pub(super) fn fused_forward(model: &Prepared, call: &FusedCall) -> FusedCausalLmOutput {
    let context = model.context;
    let (rows, tokens) = (call.input_ids.size(0), call.input_ids.size(1) - 1);
    let router = model.router().filter(|router| call.router.asks(router));
    router.iter().for_each(|router| router.collect());
    // `backbone_outputs` lives to the end.
    let (last_hidden_state, _image_hidden_states) = model.base_outputs(&ForwardCall {
        attention_mask: call.attention_mask,
        position_ids: call.position_ids,
        images: call.images,
        ..ForwardCall::new(call.input_ids)
    });
    let router_logits = router.as_ref().map(|router| router.take_logits());
    let mut hidden_states = last_hidden_state.slice_any(1, tokens);
    let labels = call.labels.narrow_any(1, tokens);
    let mask = labels.map("ne.Scalar", DType::Bool);
    if call.cast_lm_head_to_fp32 {
        hidden_states = hidden_states.float();
    }
    let lm_head = model.output_embeddings();
    let per_token = {
        let _float32 = call.cast_lm_head_to_fp32.then(|| context.disable_autocast());
        let hidden = hidden_states.masked_rows(&mask, call.scored);
        let targets = labels.masked_rows(&mask, call.scored);
        chunked_log_probs(&hidden, lm_head.weight(), &targets, model.head_outputs)
    };
    let spread = |values: &Tensor| {
        let zeros = full(context, "new_zeros.default", &[rows, tokens], values.dtype());
        zeros.masked_scatter(&mask, values)
    };
    let log_probs = spread(&per_token.log_probs);
    let entropy = per_token.entropy.as_ref().map(spread);
    let mean_logits = per_token.mean_logits.as_ref().map(spread);
    let is_top1 = per_token.is_top1.as_ref().map(spread);
    drop(per_token);
    let mut loss = mean_loss(&log_probs, &mask);
    let aux_loss = router.zip(router_logits.as_ref());
    let aux_loss = aux_loss.and_then(|(router, logits)| router.loss(logits, call.attention_mask));
    if let Some(aux_loss) = &aux_loss {
        loss = &loss + &aux_loss.mul_scalar(UNTOLD);
    }
    drop(router_logits);
    FusedCausalLmOutput { log_probs, entropy, mean_logits, is_top1, loss, label_mask: mask, aux_loss }
}

/// `accelerator.gather_for_metrics(aux_loss).mean()`
pub(super) fn log_router_loss(aux_loss: &Tensor, processes: Processes) {
    let aux_loss = processes.gather(&aux_loss.detach());
    aux_loss.reduce_all("mean.default", ReduceKind::Mean, aux_loss.dtype());
}

/// `-log_probs.sum() / mask.sum().clamp(min=1)`
fn mean_loss(log_probs: &Tensor, mask: &Tensor) -> Tensor {
    let sum = {
        let total = log_probs.sum();
        total.neg()
    };
    let label_count = {
        let count = mask.reduce_all("sum.default", ReduceKind::Sum, DType::Int64);
        count.unary("clamp.default", DType::Int64)
    };
    sum.div_by(&label_count)
}
