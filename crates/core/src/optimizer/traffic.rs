//! The bytes that an optimizer's step moves in place, where no tensor is made that would show them.

use crate::tensor::Tensor;

use super::Optimizer;

/// What a step reads and writes in place, counted in the optimizer's source, kernel by kernel. What makes tensors (`sqrt` of
/// foreach Adam) counts itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// How often it reads or writes something of a parameter's size.
    pub passes: u64,
    /// Bytes of an element's state that is not of the parameter's size.
    pub state_bytes_per_element: u64,
}

impl Traffic {
    /// Of an optimizer whose parts count for themselves.
    pub(crate) const COUNTED_ELSEWHERE: Self = Self::of_passes(0);

    pub(super) const fn of_passes(passes: u64) -> Self {
        Self { passes, state_bytes_per_element: 0 }
    }
}

/// An optimizer whose traffic is counted.
pub(super) struct Counted {
    optimizer: Box<dyn Optimizer>,
    parameters: Vec<Tensor>,
}

impl Counted {
    pub(super) fn new(optimizer: Box<dyn Optimizer>, parameters: Vec<Tensor>) -> Self {
        Self { optimizer, parameters }
    }
}

impl Optimizer for Counted {
    fn step(&mut self) {
        let Traffic { passes, state_bytes_per_element } = self.traffic();
        for parameter in self.parameters.iter().filter(|parameter| parameter.has_grad()) {
            let state = parameter.numel().saturating_mul(state_bytes_per_element);
            let moved = parameter.bytes().saturating_mul(passes).saturating_add(state);
            parameter.context().count_bytes(moved);
        }
        self.optimizer.step();
    }

    fn unscales(&self) -> bool {
        self.optimizer.unscales()
    }

    fn fused_backward(&mut self, loss: &Tensor) -> bool {
        self.optimizer.fused_backward(loss)
    }

    fn traffic(&self) -> Traffic {
        self.optimizer.traffic()
    }
}
