//! The language-model head and its loss (transformers/loss/loss_utils.py), or Liger's two in one
//! (liger-kernel 0.8.5, transformers/model/loss_utils.py).

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{CausalLoss, Kernel, ModelingFile};
use crate::op::{Reduction, fused_linear_cross_entropy, upcast_linear_cross_entropy};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::layers::{Embedding, Linear};
use crate::building::{Builder, Mode};

/// `lm_head`, tied to the embedding or with a weight of its own.
pub(crate) struct LmHead {
    linear: Rc<Linear>,
    mode: Rc<Mode>,
    file: ModelingFile,
}

/// What a head makes of hidden states.
pub(crate) struct HeadOutput {
    pub loss: Option<Tensor>,
    /// `None` where a fused loss makes no logits.
    pub logits: Option<Tensor>,
}

/// How a head is called.
pub(crate) struct HeadCall<'a> {
    pub labels: Option<&'a Tensor>,
    /// Labels that were shifted before; those of a job whose loss reads none of `labels` then.
    pub shift_labels: Option<&'a Tensor>,
    /// What the summed loss is divided by; `None` is a mean.
    pub num_items_in_batch: Option<&'a Tensor>,
    /// Positions whose logits are wanted, counted from the end; `None` is all.
    pub logits_to_keep: Option<u64>,
    /// Liger's loss where there are labels.
    pub fused_loss: bool,
}

impl LmHead {
    pub(crate) fn new(at: &Builder, width: u64, vocab_size: u64, tied: Option<&Embedding>) -> Self {
        let at = &at.of_head();
        let whole = |at: &Builder| Linear::head(at, width, vocab_size, false);
        let original = |at: &Builder| match tied {
            Some(embedding) => Linear::tied(at, embedding.tied_weight(), None),
            None => whole(at),
        };
        let linear = at.saved_if_named(original, whole).map_or_else(|| original(at), |(_, copy)| copy);
        Self { linear: Rc::new(linear), mode: at.mode(), file: ModelingFile::Llama }
    }

    /// The head of another modeling file than Llama's, where older versions of transformers treat it differently.
    pub(crate) fn of_file(self, file: ModelingFile) -> Self {
        Self { file, ..self }
    }

    /// With a bias and a weight of its own.
    pub(crate) fn with_bias(at: &Builder, width: u64, vocab_size: u64) -> Self {
        let at = &at.of_head();
        let whole = |at: &Builder| Linear::head(at, width, vocab_size, true);
        let linear = at.saved_if_named(whole, whole).map_or_else(|| whole(at), |(_, copy)| copy);
        Self { linear: Rc::new(linear), mode: at.mode(), file: ModelingFile::Llama }
    }

    /// The layer itself.
    pub(crate) fn linear(&self) -> Rc<Linear> {
        Rc::clone(&self.linear)
    }

    /// Logits and, with labels, the loss; `cap` is what the model does to its logits.
    pub(crate) fn forward(
        &self,
        hidden_states: &Tensor,
        call: &HeadCall,
        cap: impl Fn(Tensor) -> Tensor,
    ) -> HeadOutput {
        self.mode.note_hidden_states(hidden_states);
        match call.labels {
            Some(labels) if call.fused_loss => {
                HeadOutput { loss: Some(self.liger_loss(hidden_states, labels, call.num_items_in_batch)), logits: None }
            }
            Some(labels) if self.mode.has_kernel(Kernel::FusedCeLiger) && self.mode.is_training() => {
                HeadOutput { loss: Some(self.lce_loss(hidden_states, labels)), logits: None }
            }
            labels => {
                let form = hidden_states.context().transformers().causal_loss(self.file);
                let mut logits = cap(self.logits(hidden_states, call.logits_to_keep));
                if form == CausalLoss::UpcastInModel || (form == CausalLoss::UpcastForLoss && labels.is_some()) {
                    logits = logits.float();
                }
                let fast = self.mode.has_kernel(Kernel::FastLoss);
                let loss = labels.map(|labels| match form {
                    _ if fast => fast_loss(&logits, labels, (form, call.num_items_in_batch)),
                    CausalLoss::InModel | CausalLoss::UpcastInModel | CausalLoss::UpcastForLoss => {
                        shifted_loss(&logits, labels)
                    }
                    CausalLoss::ShiftedLogits => shifted_causal_lm_loss(&logits, labels),
                    CausalLoss::PaddedLabels => match call.shift_labels {
                        Some(shift_labels) => shifted_labels_loss(&logits, shift_labels),
                        None => causal_lm_loss(&logits, labels, call.num_items_in_batch),
                    },
                });
                HeadOutput { loss, logits: Some(logits) }
            }
        }
    }

    /// Logits of the last `logits_to_keep` positions, of all when `None` or where the model cannot leave any out.
    pub(crate) fn logits(&self, hidden_states: &Tensor, logits_to_keep: Option<u64>) -> Tensor {
        let leaves_out = hidden_states.context().transformers().leaves_logits_out(self.file);
        match logits_to_keep.filter(|&keep| leaves_out && keep < hidden_states.size(1)) {
            Some(keep) => {
                let tokens = hidden_states.size(1);
                self.project(&hidden_states.slice(1, tokens - keep..tokens))
            }
            None => self.project(hidden_states),
        }
    }

    fn project(&self, hidden_states: &Tensor) -> Tensor {
        if self.mode.has_fp32_head() {
            return self.linear.forward(&hidden_states.float());
        }
        self.linear.forward(hidden_states)
    }

    /// `lce_forward` of fms-acceleration: copies of all hidden states but the last and of all labels but the first.
    fn lce_loss(&self, hidden_states: &Tensor, labels: &Tensor) -> Tensor {
        let context = hidden_states.context();
        context.phase(PhaseKind::Loss);
        let (shift_hidden_states, shift_labels) = shifted(hidden_states, labels);
        let loss = upcast_linear_cross_entropy(&shift_hidden_states, self.linear.weight(), &shift_labels);
        drop((shift_hidden_states, shift_labels));
        context.phase(PhaseKind::ForwardTail);
        loss
    }

    /// `LigerForCausalLMLoss`: reads the head's weight and nothing else of it.
    fn liger_loss(&self, hidden_states: &Tensor, labels: &Tensor, num_items_in_batch: Option<&Tensor>) -> Tensor {
        let context = hidden_states.context();
        context.phase(PhaseKind::Loss);
        let loss = {
            let padded = labels.pad_labels();
            let shift_labels = padded.narrow(1, 1..1 + labels.size(1)).contiguous();
            let rows = shift_labels.numel();
            let flat = hidden_states.view(&[rows, hidden_states.size(-1)]);
            let loss = fused_linear_cross_entropy(&flat, self.linear.weight(), &shift_labels.view(&[rows]));
            divide_loss(loss, num_items_in_batch)
        };
        context.phase(PhaseKind::ForwardTail);
        loss
    }
}

/// The loss of a model whose forward pass computes it (before 4.46): copies of all logits but the last and of all labels
/// but the first. The reference measurements see it begin where cross_entropy does.
fn shifted_loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let context = logits.context();
    let (shift_logits, shift_labels) = shifted(logits, labels);
    context.phase(PhaseKind::Loss);
    let loss = shift_logits.cross_entropy(&shift_labels, Reduction::Mean);
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `FastCrossEntropyLoss` of fms-acceleration: copies of all logits but the last and of all labels but the first.
fn fast_loss(logits: &Tensor, labels: &Tensor, (form, num_items): (CausalLoss, Option<&Tensor>)) -> Tensor {
    let context = logits.context();
    context.phase(PhaseKind::Loss);
    let in_model = matches!(form, CausalLoss::InModel | CausalLoss::UpcastInModel | CausalLoss::UpcastForLoss);
    let loss = {
        // `FastForCausalLMLoss` where losses are functions.
        let logits = if in_model { logits.clone() } else { logits.to(DType::Float32) };
        let (shift_logits, shift_labels) = shifted(&logits, labels);
        shift_logits.fast_cross_entropy(&shift_labels, num_items.filter(|_| !in_model))
    };
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `ForCausalLMLoss` of 4.46 to 4.48: fp32 logits, and their copy without the last.
fn shifted_causal_lm_loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let context = logits.context();
    context.phase(PhaseKind::Loss);
    let loss = {
        let logits = logits.to(DType::Float32);
        let (shift_logits, shift_labels) = shifted(&logits, labels);
        shift_logits.cross_entropy(&shift_labels, Reduction::Mean)
    };
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `logits[..., :-1, :].contiguous()` and `labels[..., 1:].contiguous()`, as rows.
fn shifted(logits: &Tensor, labels: &Tensor) -> (Tensor, Tensor) {
    let length = labels.size(1).saturating_sub(1);
    let shift_logits = logits.slice(1, 0..length).contiguous();
    let shift_labels = labels.narrow(1, 1..1 + length).contiguous();
    let rows = shift_labels.numel();
    (shift_logits.view(&[rows, logits.size(-1)]), shift_labels.view(&[rows]))
}

/// What follows `reduction="sum"` in `fixed_cross_entropy` and in Liger's loss.
fn divide_loss(loss: Tensor, num_items_in_batch: Option<&Tensor>) -> Tensor {
    match num_items_in_batch {
        Some(num_items_in_batch) => loss.div_by(num_items_in_batch),
        None => loss,
    }
}

/// `ForCausalLMLoss`: fp32 logits, labels shifted by padding, cross-entropy.
fn causal_lm_loss(logits: &Tensor, labels: &Tensor, num_items_in_batch: Option<&Tensor>) -> Tensor {
    let context = logits.context();
    context.phase(PhaseKind::Loss);
    let loss = {
        let logits = logits.to(DType::Float32);
        let padded = labels.pad_labels();
        let shift_labels = padded.narrow(1, 1..1 + labels.size(1)).contiguous();
        let rows = shift_labels.numel();
        let logits = logits.view(&[rows, logits.size(-1)]);
        let shift_labels = shift_labels.view(&[rows]);
        let reduction = if num_items_in_batch.is_some() { Reduction::Sum } else { Reduction::Mean };
        divide_loss(logits.cross_entropy(&shift_labels, reduction), num_items_in_batch)
    };
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `ForCausalLMLoss` with `shift_labels`.
fn shifted_labels_loss(logits: &Tensor, shift_labels: &Tensor) -> Tensor {
    let context = logits.context();
    context.phase(PhaseKind::Loss);
    let rows = shift_labels.numel();
    let logits = logits.to(DType::Float32).view(&[rows, logits.size(-1)]);
    let loss = logits.cross_entropy(&shift_labels.view(&[rows]), Reduction::Mean);
    drop(logits);
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `CrossEntropyLoss` over all positions, in the scores' dtype.
pub(crate) fn masked_lm_loss(prediction_scores: &Tensor, labels: &Tensor) -> Tensor {
    let context = prediction_scores.context();
    context.phase(PhaseKind::Loss);
    let rows = labels.numel();
    let loss = prediction_scores
        .view(&[rows, prediction_scores.size(-1)])
        .cross_entropy(&labels.view(&[rows]), Reduction::Mean);
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `ForMaskedLMLoss`: cross-entropy over all positions in fp32.
pub(crate) fn float_masked_lm_loss(logits: &Tensor, labels: &Tensor, num_items_in_batch: Option<&Tensor>) -> Tensor {
    let logits = logits.float();
    fixed_cross_entropy(&logits, labels, num_items_in_batch)
}

/// `fixed_cross_entropy` of a class for each label: summed and divided where the number of labels is told.
pub(crate) fn fixed_cross_entropy(logits: &Tensor, labels: &Tensor, num_items_in_batch: Option<&Tensor>) -> Tensor {
    let context = logits.context();
    let rows = labels.numel();
    let (logits, labels) = (logits.view(&[rows, logits.size(-1)]), labels.view(&[rows]));
    context.phase(PhaseKind::Loss);
    let reduction = if num_items_in_batch.is_some() { Reduction::Sum } else { Reduction::Mean };
    let loss = logits.cross_entropy(&labels, reduction);
    context.phase(PhaseKind::ForwardTail);
    divide_loss(loss, num_items_in_batch)
}
