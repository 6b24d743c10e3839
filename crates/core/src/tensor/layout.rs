//! Shapes and strides: which views are free, which reshapes copy, and which layout an elementwise result takes.
//!
//! The rules are those of ATen's `TensorUtils.cpp` (`computeStride`) and `TensorIterator.cpp` (PyTorch 2.11).

use std::ops::{Deref, DerefMut};

/// The most dimensions a tensor has here; attention's repeat of key-value heads needs five.
pub const MAX_DIMS: usize = 5;

/// Sizes or strides of a tensor, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; MAX_DIMS],
    rank: u8,
}

impl Shape {
    /// A shape of at most [`MAX_DIMS`] dimensions; further ones are folded into the last.
    pub fn new(sizes: &[u64]) -> Self {
        let mut shape = Self { dims: [1; MAX_DIMS], rank: sizes.len().min(MAX_DIMS) as u8 };
        for (at, &size) in sizes.iter().enumerate() {
            match shape.dims.get_mut(at) {
                Some(dim) => *dim = size,
                None => shape.dims[MAX_DIMS - 1] = shape.dims[MAX_DIMS - 1].saturating_mul(size),
            }
        }
        shape
    }

    /// Number of elements, saturating.
    pub fn numel(&self) -> u64 {
        self.iter().fold(1, |n, &size| u64::saturating_mul(n, size))
    }

    /// Row-major strides for these sizes.
    pub fn contiguous_strides(&self) -> Self {
        let mut strides = *self;
        let mut step = 1u64;
        for at in (0..self.len()).rev() {
            strides[at] = step;
            step = step.saturating_mul(self[at].max(1));
        }
        strides
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
        &self.dims[..self.rank as usize]
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.dims[..self.rank as usize]
    }
}

/// Whether `strides` are row-major for `sizes`, dimensions of size 1 aside.
pub fn is_contiguous(sizes: &Shape, strides: &Shape) -> bool {
    let mut expected = 1u64;
    for at in (0..sizes.len()).rev() {
        if sizes[at] != 1 {
            if strides[at] != expected {
                return false;
            }
            expected = expected.saturating_mul(sizes[at]);
        }
    }
    true
}

/// Whether some permutation of the dimensions is contiguous (ATen's `is_non_overlapping_and_dense`).
pub fn is_non_overlapping_and_dense(sizes: &Shape, strides: &Shape) -> bool {
    let mut order = [0usize; MAX_DIMS];
    let rank = sizes.len();
    for (at, slot) in order.iter_mut().enumerate() {
        *slot = at;
    }
    order[..rank].sort_unstable_by_key(|&at| if sizes[at] < 2 { u64::MAX } else { strides[at] });
    let mut expected = 1u64;
    for &at in &order[..rank] {
        if sizes[at] < 2 {
            return true;
        }
        if strides[at] != expected {
            return false;
        }
        expected = expected.saturating_mul(sizes[at]);
    }
    true
}

/// The strides of a view with the sizes `new`, or `None` when only a copy can take them.
pub fn view_strides(sizes: &Shape, strides: &Shape, new: &Shape) -> Option<Shape> {
    if is_contiguous(sizes, strides) || sizes.numel() == 0 {
        return Some(new.contiguous_strides());
    }
    let mut result = new.contiguous_strides();
    let mut view_at = new.len();
    let mut base_stride = *strides.last()?;
    let (mut chunk_numel, mut view_numel) = (1u64, 1u64);
    for at in (0..sizes.len()).rev() {
        chunk_numel = chunk_numel.saturating_mul(sizes[at]);
        let ends_chunk = at == 0 || (sizes[at - 1] != 1 && strides[at - 1] != chunk_numel.saturating_mul(base_stride));
        if !ends_chunk {
            continue;
        }
        while view_at > 0 && (view_numel < chunk_numel || new[view_at - 1] == 1) {
            result[view_at - 1] = view_numel.saturating_mul(base_stride);
            view_numel = view_numel.saturating_mul(new[view_at - 1]);
            view_at -= 1;
        }
        if view_numel != chunk_numel {
            return None;
        }
        if at > 0 {
            base_stride = strides[at - 1];
            chunk_numel = 1;
            view_numel = 1;
        }
    }
    (view_at == 0).then_some(result)
}

/// The sizes two shapes broadcast to.
pub fn broadcast(a: &Shape, b: &Shape) -> Shape {
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

/// The strides of an elementwise result of sizes `out` over `operands` (sizes, strides): the order of the operands'
/// strides is kept, the first operand that tells two dimensions apart deciding (TensorIterator's
/// `reorder_dimensions`).
pub fn elementwise_strides(out: &Shape, operands: &[(&Shape, &Shape)]) -> Shape {
    let all_contiguous = operands.iter().all(|(sizes, strides)| **sizes == *out && is_contiguous(sizes, strides));
    if all_contiguous {
        return out.contiguous_strides();
    }
    let rank = out.len();
    let mut perm = [0usize; MAX_DIMS];
    for (at, slot) in perm[..rank].iter_mut().enumerate() {
        *slot = rank - 1 - at;
    }
    insertion_sort(&mut perm[..rank], |a, b| faster(out, operands, a, b));
    let mut strides = *out;
    let mut step = 1u64;
    for &at in &perm[..rank] {
        strides[at] = step;
        step = step.saturating_mul(out[at].max(1));
    }
    strides
}

/// TensorIterator's own insertion sort: ambiguous comparisons leave the order and keep looking outward.
fn insertion_sort(perm: &mut [usize], compare: impl Fn(usize, usize) -> i8) {
    for i in 1..perm.len() {
        let mut dim1 = i;
        for dim0 in (0..i).rev() {
            match compare(perm[dim0], perm[dim1]) {
                1.. => {
                    perm.swap(dim0, dim1);
                    dim1 = dim0;
                }
                0 => {}
                _ => break,
            }
        }
    }
}

/// Compares dimension `a` (now the faster one) with `b`: 1 when they should be exchanged, -1 when not, 0 when no
/// operand tells.
fn faster(out: &Shape, operands: &[(&Shape, &Shape)], a: usize, b: usize) -> i8 {
    for (sizes, strides) in operands {
        let (stride_a, stride_b) = (operand_stride(out, sizes, strides, a), operand_stride(out, sizes, strides, b));
        if stride_a == 0 || stride_b == 0 {
            continue;
        }
        if stride_a < stride_b {
            return -1;
        }
        if stride_a > stride_b {
            return 1;
        }
        if out[a] > out[b] {
            return 1;
        }
    }
    0
}

/// The stride of an operand along dimension `at` of the result, 0 where it is broadcast.
fn operand_stride(out: &Shape, sizes: &Shape, strides: &Shape, at: usize) -> u64 {
    let offset = out.len() - sizes.len();
    if at < offset || (sizes[at - offset] == 1 && out[at] != 1) { 0 } else { strides[at - offset] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[u64]) -> Shape {
        Shape::new(sizes)
    }

    #[test]
    fn a_transposed_tensor_views_only_where_dimensions_stay_apart() {
        let (sizes, strides) = (shape(&[2, 3, 4, 5]), shape(&[60, 5, 15, 1]));
        assert!(!is_contiguous(&sizes, &strides));
        assert!(is_non_overlapping_and_dense(&sizes, &strides));
        assert_eq!(view_strides(&sizes, &strides, &shape(&[6, 4, 5])), None);
        assert_eq!(view_strides(&sizes, &strides, &shape(&[2, 3, 4, 5, 1])), Some(shape(&[60, 5, 15, 1, 1])));
    }

    #[test]
    fn elementwise_results_keep_the_first_operands_order() {
        let (sizes, strides) = (shape(&[2, 3, 4, 5]), shape(&[60, 5, 15, 1]));
        let rotary = (shape(&[2, 1, 4, 5]), shape(&[20, 20, 5, 1]));
        let out = elementwise_strides(&sizes, &[(&sizes, &strides), (&rotary.0, &rotary.1)]);
        assert_eq!(out, strides);
    }

    #[test]
    fn broadcasting_takes_the_longer_shape() {
        assert_eq!(broadcast(&shape(&[4, 1, 8]), &shape(&[8])), shape(&[4, 1, 8]));
        assert_eq!(broadcast(&shape(&[1, 8]), &shape(&[4, 3, 1])), shape(&[4, 3, 8]));
    }
}
