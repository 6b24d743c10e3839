//! [`Batches`]: those of the running optimizer step, which the Trainer brings to the device before its first pass.

use std::cell::RefCell;

use crate::dtype::DType;
use crate::tensor::Tensor;

use super::gathered::sum_all;

/// The batches of a step, one for each pass.
pub(super) struct Batches<B>(RefCell<Vec<B>>);

impl<B> Default for Batches<B> {
    fn default() -> Self {
        Self(RefCell::new(Vec::new()))
    }
}

impl<B> Batches<B> {
    /// Makes `count` batches; those of the step before live until all are there.
    pub(super) fn load(&self, count: u64, make: impl Fn() -> B) {
        self.replace((0..count).map(|_| make()).collect());
    }

    /// These are the step's.
    pub(super) fn replace(&self, batches: Vec<B>) {
        let used_up = self.0.replace(batches);
        drop(used_up);
    }

    /// What `read` makes of the batch of pass number `pass`, counted over all steps.
    pub(super) fn read<T>(&self, pass: u64, read: impl FnOnce(&B) -> T) -> Option<T> {
        let batches = self.0.borrow();
        let at = pass.checked_rem(batches.len() as u64)?;
        batches.get(at as usize).map(read)
    }

    /// Frees the batches of the step that has ended.
    pub(super) fn clear(&self) {
        let used_up = self.0.take();
        drop(used_up);
    }
}

/// How many tokens behind the first of each row have a label: [] in int64 (`labels[..., 1:].ne(-100).sum()`).
pub(super) fn count_labels(labels: &Tensor) -> Tensor {
    count_all(&labels.narrow_any(1, labels.size(1).saturating_sub(1)))
}

/// How many tokens have a label, those at the start of rows too: [] in int64.
pub(super) fn count_all(labels: &Tensor) -> Tensor {
    let counted = labels.map("ne.Scalar", DType::Bool);
    sum_all(&counted)
}
