//! [`TensorMeta`]: a tensor without its memory.

use super::layout::Layout;
use crate::dtype::DType;
use crate::trace::AllocationId;

/// What can be seen of a tensor without holding it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TensorMeta {
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) requires_grad: bool,
    /// Whether it shares another object's memory, or is a view for autograd.
    pub is_view: bool,
    /// The allocation that holds it.
    pub allocation: Option<AllocationId>,
}

impl TensorMeta {
    /// The same with another layout.
    pub(super) fn resized(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Whether both look the same wherever they lie.
    pub(crate) fn resembles(&self, other: &Self) -> bool {
        let traits = |meta: &Self| (meta.dtype, meta.requires_grad, meta.is_view, meta.allocation.is_some());
        traits(self) == traits(other) && self.layout == other.layout
    }
}
