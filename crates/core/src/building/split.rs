//! Layers whose weights lie over several ranks, as the `tp_plan` of most decoders divides them (transformers 5.17,
//! distributed/tensor_parallel.py): what the ranks send each other round a layer.

use std::cell::Cell;
use std::rc::Rc;

use crate::tensor::Tensor;

/// A layer of which each rank has a part.
#[derive(Clone, Copy)]
pub(super) struct Split {
    form: Form,
    ranks: u64,
}

#[derive(Clone, Copy)]
enum Form {
    /// `colwise`: outputs are divided, and stay so.
    Outputs,
    /// `colwise_gather_output`
    GatheredOutputs,
    /// `rowwise`: inputs are divided, what comes out is a part of a sum.
    Inputs,
    /// `replicated_with_grad_allreduce`: a norm of queries or keys, of which a rank has but its own heads.
    OwnHeads,
    /// An embedding that has its weight in common with a head whose outputs are divided.
    Rows,
}

/// By the last part of a module's name: the plan of Llama's configuration and that of its class with a head.
const PLAN: [(&str, Form); 10] = [
    ("q_proj", Form::Outputs),
    ("k_proj", Form::Outputs),
    ("v_proj", Form::Outputs),
    ("gate_proj", Form::Outputs),
    ("up_proj", Form::Outputs),
    ("q_norm", Form::OwnHeads),
    ("k_norm", Form::OwnHeads),
    ("o_proj", Form::Inputs),
    ("down_proj", Form::Inputs),
    ("lm_head", Form::GatheredOutputs),
];

impl Split {
    /// The layer at this path, if it is one of the plan's.
    pub(super) fn of_layer(path: &str, ranks: u64) -> Option<Self> {
        let name = path.rsplit('.').next()?;
        PLAN.iter().find(|(known, _)| *known == name).map(|&(_, form)| Self { form, ranks })
    }

    /// An embedding whose weight is the head's too.
    pub(super) const fn of_rows(ranks: u64) -> Self {
        Self { form: Form::Rows, ranks }
    }

    /// Whether each rank has a part of its weight.
    pub(super) const fn divides_weight(self) -> bool {
        !matches!(self.form, Form::OwnHeads)
    }

    /// Whether those are rows of the vocabulary, of which the config says all; other sizes it says as this rank has them.
    pub(super) const fn divides_rows(self) -> bool {
        matches!(self.form, Form::GatheredOutputs | Form::Rows)
    }

    /// `compute(input)` with this rank's part of the weight.
    pub(super) fn run(self, input: &Tensor, compute: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        match self.form {
            Form::Outputs => compute(&input.replicated()),
            Form::GatheredOutputs => compute(&input.replicated()).gathered_over_ranks(self.ranks),
            Form::Inputs => compute(input).summed_over_ranks(),
            Form::OwnHeads => with_full_backward_hook(input, compute),
            Form::Rows => compute(input).summed_over_ranks(),
        }
    }

    /// `embedding(weight, ids)` of this rank's rows, before it is summed.
    pub(super) fn look_up(self, weight: &Tensor, ids: &Tensor) -> Tensor {
        weight.embedding_over_ranks(ids, self.ranks)
    }
}

/// `register_full_backward_hook`: the gradient of the output stays until that of the input is there (torch/utils/hooks.py,
/// `BackwardHook`).
fn with_full_backward_hook(input: &Tensor, compute: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    const NODE: &str = "BackwardHookFunctionBackward";
    let grad_outputs = Rc::new(Cell::new(None));
    let kept = Rc::clone(&grad_outputs);
    let output = compute(&input.with_backward_hook(NODE, move || drop(kept.take())));
    output.with_gradient_hook(NODE, move |gradient| grad_outputs.set(Some(gradient.clone())))
}
