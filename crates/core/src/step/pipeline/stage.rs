//! A stage of a pipeline with what `PipelineStage` keeps of its micro-batches (torch/distributed/pipelining/stage.py, PyTorch 2.11).

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::dtype::DType;
use crate::model::family::ForwardCall;
use crate::op::{Reduction, UNTOLD, full};
use crate::parallel::WrappedStage;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

/// What the first stage reads and the last compares with, of all micro-batches of a step.
pub(super) struct Rows {
    pub ids: Option<Tensor>,
    pub micro_batch_size: u64,
    pub micro_batches: usize,
}

impl Rows {
    /// Those of one micro-batch, a view.
    fn of(&self, micro_batch: usize) -> Option<Tensor> {
        let first = micro_batch as u64 * self.micro_batch_size;
        self.ids.as_ref().map(|ids| ids.narrow(0, first..first + self.micro_batch_size))
    }
}

/// Which tensors stages hand to each other.
#[derive(Clone, Copy)]
pub(super) struct Handed {
    pub sizes: [u64; 3],
    pub dtype: DType,
}

pub(super) struct Stage {
    stage: Box<dyn WrappedStage>,
    is_first: bool,
    is_last: bool,
    /// Where each micro-batch arrives, and the gradient of what it was made into; made before the first of them and kept.
    inputs: Vec<Tensor>,
    output_gradients: Vec<Tensor>,
    /// What micro-batches were made into whose backward pass is still to come.
    outputs: BTreeMap<usize, Tensor>,
    losses: Vec<Tensor>,
    /// Of the last stage the logits of all micro-batches, until the next step.
    output_chunks: Vec<Tensor>,
}

impl Stage {
    pub(super) fn new(stage: Box<dyn WrappedStage>, [is_first, is_last]: [bool; 2]) -> Self {
        let (inputs, output_gradients, outputs) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (losses, output_chunks) = (Vec::new(), Vec::new());
        Self { stage, is_first, is_last, inputs, output_gradients, outputs, losses, output_chunks }
    }

    /// What is trained of it.
    pub(super) fn parameters(&self) -> &[Tensor] {
        self.stage.parameters()
    }

    /// Makes the buffers that micro-batches arrive in (`_prepare_forward_infra`).
    pub(super) fn prepare_forward(&mut self, context: &Rc<Context>, micro_batches: usize, handed: Handed) {
        if !self.is_first {
            self.inputs = (0..micro_batches).map(|_| buffer(context, handed).into_parameter()).collect();
        }
    }

    /// Makes the buffers that gradients of outputs arrive in (`_prepare_backward_infra`).
    pub(super) fn prepare_backward(&mut self, context: &Rc<Context>, micro_batches: usize, handed: Handed) {
        if !self.is_last {
            self.output_gradients = (0..micro_batches).map(|_| buffer(context, handed)).collect();
        }
    }

    /// Forgets the logits of the step before (`clear_runtime_states`).
    pub(super) fn clear(&mut self) {
        self.output_chunks.clear();
    }

    /// `forward_one_chunk` and the loss; what a schedule of one stage calls `output`.
    pub(super) fn run_forward(&mut self, context: &Rc<Context>, micro_batch: usize, rows: &Rows) -> Option<Tensor> {
        context.phase(PhaseKind::Forward);
        self.stage.wait_for_gather();
        let received = self.inputs.get(micro_batch);
        let own = rows.of(micro_batch);
        let call = ForwardCall::new(received.or(own.as_ref())?);
        let output = self.stage.forward(&call, received)?;
        if self.is_last {
            context.phase(PhaseKind::Loss);
            self.losses.push(loss_of(&output, own.as_ref()?));
            self.output_chunks.push(output.detach());
        }
        self.outputs.insert(micro_batch, output.clone());
        Some(output)
    }

    /// `backward_one_chunk`, the step's last of this stage or another: the gradient for the stage before.
    pub(super) fn run_backward(&mut self, context: &Rc<Context>, micro_batch: usize, is_last: bool) -> Option<Tensor> {
        context.phase(PhaseKind::Backward);
        self.stage.wait_for_gather();
        let output = self.outputs.remove(&micro_batch)?;
        self.stage.begin_backward(is_last);
        match self.output_gradients.get(micro_batch) {
            Some(gradient) => output.backward_from(gradient),
            None => self.losses.get(micro_batch)?.backward(),
        }
        let input = self.inputs.get(micro_batch)?;
        let gradient = input.grad();
        input.set_grad(None);
        gradient
    }

    /// `perform_reduce_grad`: gradients are reduced, then divided by the micro-batches that they are the sum of (`scale_grads`).
    pub(super) fn reduce_gradients(&self, micro_batches: usize) {
        self.stage.reduce_gradients();
        if micro_batches > 1 {
            let gradients = self.parameters().iter().filter_map(Tensor::grad);
            gradients.for_each(|gradient| drop(gradient.mul_scalar_in_place(UNTOLD)));
        }
    }

    /// Begins to gather the stage if it is sharded, before passes that come.
    pub(super) fn gather(&self) {
        self.stage.gather();
    }

    /// Lets go of the stage's gathered weights.
    pub(super) fn reshard(&self) {
        self.stage.reshard();
    }

    /// The schedule has its losses at a step's end (`_update_losses`), the last of which it may have in a variable too.
    pub(super) fn take_losses(&mut self) -> Option<Tensor> {
        let last = self.losses.pop();
        self.losses.clear();
        last
    }

    /// What the last stage returns: the logits of all micro-batches in one tensor.
    pub(super) fn merge_outputs(&self) -> Option<Tensor> {
        let chunks: Vec<&Tensor> = self.output_chunks.iter().collect();
        (!chunks.is_empty()).then(|| crate::op::cat(&chunks, 0))
    }
}

fn buffer(context: &Rc<Context>, handed: Handed) -> Tensor {
    full(context, "empty.memory_format", &handed.sizes, handed.dtype)
}

/// `cross_entropy(logits.float().flatten(0, 1), labels.flatten())`
fn loss_of(logits: &Tensor, labels: &Tensor) -> Tensor {
    let rows = labels.numel();
    let flat = logits.float().view(&[rows, logits.size(-1)]);
    flat.cross_entropy(&labels.view(&[rows]), Reduction::Mean)
}
