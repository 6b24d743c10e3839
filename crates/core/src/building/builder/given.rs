//! Tensors that a model is built of in place of new ones: a replica's, and what modules have in common.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::tensor::Tensor;

/// Parameters and buffers in the order they are asked for.
pub(super) struct ReplicaTensors {
    pub parameters: RefCell<VecDeque<Tensor>>,
    pub buffers: RefCell<VecDeque<Tensor>>,
}

/// Parameters that modules of one form have in common: the first that is built makes them.
#[derive(Clone, Default)]
pub(crate) struct SharedParameters(pub(super) Rc<(RefCell<Vec<Tensor>>, Cell<usize>)>);

impl SharedParameters {
    /// The next one, which `make` makes in the first module.
    pub(super) fn next_or_make(&self, make: impl FnOnce() -> Tensor) -> Tensor {
        let (made, next) = &*self.0;
        let at = next.replace(next.get() + 1);
        let known = made.borrow().get(at).cloned();
        known.unwrap_or_else(|| {
            let parameter = make();
            made.borrow_mut().push(parameter.clone());
            parameter
        })
    }
}
