//! [`TensorMeta`]: a tensor without its memory.

use super::layout::Layout;
use crate::dtype::DType;

/// What can be seen of a tensor without holding it.
#[derive(Clone)]
pub struct TensorMeta {
    pub(super) layout: Layout,
    pub(super) dtype: DType,
}

impl TensorMeta {
    /// The same with another layout.
    pub(super) fn resized(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}
