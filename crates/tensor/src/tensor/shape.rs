//! Sizes and strides.

use std::num::NonZeroU8;
use std::ops::{Deref, DerefMut};

/// The most dimensions a tensor has here; the products of Mamba-2's scan need six.
pub const MAX_DIMS: usize = 6;

/// Sizes or strides of a tensor, outermost first.
///
/// Dimensions beyond the rank are 1, so that loops over all of [`MAX_DIMS`], which need no branches, give the same
/// products as loops over the rank.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Shape {
    dims: [u64; MAX_DIMS],
    /// One more than the rank: an option of a shape is no larger than one.
    beyond_rank: NonZeroU8,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (self.dims, other.dims);
        let differing = (a ^ g) | (b ^ h) | (c ^ i) | (d ^ j) | (e ^ k) | (f ^ l);
        differing == 0 && self.beyond_rank == other.beyond_rank
    }
}

impl Shape {
    /// A shape of at most [`MAX_DIMS`] dimensions; further ones are folded into the last.
    pub fn new(sizes: &[u64]) -> Self {
        let beyond_rank = NonZeroU8::MIN.saturating_add(sizes.len().min(MAX_DIMS) as u8);
        let mut shape = Self { dims: [1; MAX_DIMS], beyond_rank };
        for (dim, size) in shape.dims.iter_mut().zip(sizes) {
            *dim = *size;
        }
        for size in sizes.iter().skip(MAX_DIMS) {
            shape.dims[MAX_DIMS - 1] = shape.dims[MAX_DIMS - 1].saturating_mul(*size);
        }
        shape
    }

    fn rank(&self) -> usize {
        usize::from(self.beyond_rank.get()) - 1
    }

    /// Number of elements, saturating.
    pub fn numel(&self) -> u64 {
        let [a, b, c, d, e, f] = self.dims;
        let product = u64::saturating_mul;
        product(product(product(a, b), product(c, d)), product(e, f))
    }

    /// Row-major strides for these sizes.
    pub fn contiguous_strides(&self) -> Self {
        let [_, b, c, d, e, f] = self.dims;
        let times = |step: u64, size: u64| step.saturating_mul(size.max(1));
        let of_e = times(1, f);
        let of_d = times(of_e, e);
        let of_c = times(of_d, d);
        let of_b = times(of_c, c);
        Self { dims: [times(of_b, b), of_b, of_c, of_d, of_e, 1], ..*self }
    }

    /// These sizes with the dimensions `a` and `b` exchanged.
    pub fn swapped(mut self, a: usize, b: usize) -> Self {
        self.swap(a, b);
        self
    }

    /// These sizes with `size` inserted before dimension `at`.
    pub fn inserted(&self, at: usize, size: u64) -> Self {
        let mut sizes = [1; MAX_DIMS + 1];
        sizes[..at].copy_from_slice(&self[..at]);
        sizes[at] = size;
        sizes[at + 1..=self.len()].copy_from_slice(&self[at..]);
        Self::new(&sizes[..=self.len()])
    }

    /// These sizes without dimension `at`.
    pub fn removed(&self, at: usize) -> Self {
        let mut sizes = [1; MAX_DIMS];
        sizes[..at].copy_from_slice(&self[..at]);
        sizes[at..self.len() - 1].copy_from_slice(&self[at + 1..]);
        Self::new(&sizes[..self.len() - 1])
    }

    /// These sizes with dimension `at` set to `size`.
    pub fn with(mut self, at: usize, size: u64) -> Self {
        self[at] = size;
        self
    }

    /// The last size, 1 for a scalar.
    pub fn last_size(&self) -> u64 {
        self.last().copied().unwrap_or(1)
    }
}

impl Deref for Shape {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.dims[..self.rank()]
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [u64] {
        let rank = self.rank();
        &mut self.dims[..rank]
    }
}

/// The sizes two shapes broadcast to.
pub fn broadcast(a: &Shape, b: &Shape) -> Shape {
    if a == b {
        return *a;
    }
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut sizes = *long;
    let offset = long.len() - short.len();
    for (at, &size) in short.iter().enumerate() {
        if sizes[at + offset] == 1 {
            sizes[at + offset] = size;
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[u64]) -> Shape {
        Shape::new(sizes)
    }

    #[test]
    fn broadcasting_takes_the_longer_shape() {
        assert_eq!(broadcast(&shape(&[4, 1, 8]), &shape(&[8])), shape(&[4, 1, 8]));
        assert_eq!(broadcast(&shape(&[1, 8]), &shape(&[4, 3, 1])), shape(&[4, 3, 8]));
    }
}
