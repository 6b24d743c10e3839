//! Sizes of a tensor.

use std::ops::Deref;

/// The most dimensions a model's tensor has; attention's repeat of key-value heads needs five.
const MAX_DIMS: usize = 8;

/// Sizes, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    sizes: [u64; MAX_DIMS],
    rank: usize,
}

impl Shape {
    /// At most [`MAX_DIMS`] sizes.
    pub(crate) fn new(sizes: &[u64]) -> Self {
        let mut shape = Self { sizes: [1; MAX_DIMS], rank: sizes.len().min(MAX_DIMS) };
        shape.sizes.iter_mut().zip(sizes).for_each(|(slot, size)| *slot = *size);
        shape
    }

    /// These sizes with that of one dimension replaced.
    pub(crate) fn with(mut self, at: usize, size: u64) -> Self {
        self.sizes[at] = size;
        self
    }

    pub(crate) fn numel(&self) -> u64 {
        self.iter().product()
    }
}

impl Deref for Shape {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.sizes[..self.rank]
    }
}
