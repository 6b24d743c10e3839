//! The bytes that an optimizer's step moves in place, where no tensor is made that would show them.

use crate::job::OptimizerKind;
use crate::tensor::Tensor;

use super::Optimizer;

/// How often a step reads or writes something of a parameter's size, in place: counted in the optimizer's source, kernel
/// by kernel. What makes tensors (`sqrt` of foreach Adam) counts itself.
const fn passes_over_memory(kind: OptimizerKind) -> u64 {
    match kind {
        // torch/optim/adam.py, _multi_tensor_adam: mul_ (decay) 2, lerp_ 3, mul_ 2, addcmul_ 3, div_ 2, add_ 2, addcdiv_ 4.
        OptimizerKind::Adamw | OptimizerKind::Adam => 18,
        // One kernel: parameter, gradient and two moments read, three of them written.
        OptimizerKind::AdamwFused | OptimizerKind::AdamAtan2 => 7,
        // _single_tensor_adam: as foreach, the division makes a tensor.
        OptimizerKind::AdamwForloop => 16,
        // torch/optim/sgd.py: add_; with momentum mul_ and add_ before.
        OptimizerKind::Sgd => 3,
        OptimizerKind::SgdMomentum => 8,
        // Parameter and gradient read, parameter written; the moments are bytes.
        OptimizerKind::Adamw8bit => 3,
        // torch/optim/_adafactor.py: decay 2, lerps of the variances 2, scaling the update 4, add_ 3.
        OptimizerKind::Adafactor => 11,
        // lion-pytorch: decay 2, two lerps 6, sign_ 2, add_ 3.
        OptimizerKind::Lion => 13,
        // torch/optim/_muon.py: momentum 3, decay 2, add_ 3.
        OptimizerKind::Muon => 8,
    }
}

/// Bytes of an element's state that is not of the parameter's size, read and written.
const fn bytes_per_element(kind: OptimizerKind) -> u64 {
    match kind {
        OptimizerKind::Adamw8bit => 4,
        _ => 0,
    }
}

/// An optimizer whose traffic is counted.
pub(super) struct Counted {
    optimizer: Box<dyn Optimizer>,
    kind: OptimizerKind,
    parameters: Vec<Tensor>,
}

impl Counted {
    pub(super) fn new(optimizer: Box<dyn Optimizer>, kind: OptimizerKind, parameters: Vec<Tensor>) -> Self {
        Self { optimizer, kind, parameters }
    }
}

impl Optimizer for Counted {
    fn step(&mut self) {
        for parameter in self.parameters.iter().filter(|parameter| parameter.grad().is_some()) {
            let state = parameter.numel().saturating_mul(bytes_per_element(self.kind));
            let moved = parameter.bytes().saturating_mul(passes_over_memory(self.kind)).saturating_add(state);
            parameter.context().count_bytes(moved);
        }
        self.optimizer.step();
    }

    fn unscales(&self) -> bool {
        self.optimizer.unscales()
    }
}
