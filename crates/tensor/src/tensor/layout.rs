//! Layouts: which views are free, which reshapes copy, and which layout an elementwise result takes.
//!
//! The rules are those of ATen's `TensorUtils.cpp` (`computeStride`) and `TensorIterator.cpp` (PyTorch 2.11).

use std::rc::Rc;

use super::shape::{MAX_DIMS, Shape};

/// How a tensor lies in its memory.
///
/// Most tensors are row-major. Their strides follow from the sizes and are not kept, which makes a layout half as
/// large: every op makes one.
#[derive(Clone, Debug, Eq)]
pub struct Layout {
    pub sizes: Shape,
    /// Strides other than [`Shape::contiguous_strides`].
    strided: Option<Rc<Strided>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Strided {
    strides: Shape,
    /// Whether only dimensions of size 1 differ from row-major.
    is_contiguous: bool,
    /// Whether it is known to be a [`Layout::is_regular`] one with its dimensions exchanged.
    is_permuted: bool,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.sizes == other.sizes && self.strides() == other.strides()
    }
}

impl Layout {
    /// Row-major, without gaps.
    pub fn contiguous(sizes: Shape) -> Self {
        Self { sizes, strided: None }
    }

    /// Strides as given, in elements.
    pub fn strided(sizes: Shape, strides: Shape) -> Self {
        Self::with(sizes, strides, false)
    }

    fn with(sizes: Shape, strides: Shape, is_permuted: bool) -> Self {
        if strides == sizes.contiguous_strides() {
            return Self::contiguous(sizes);
        }
        let is_contiguous = is_contiguous(&sizes, &strides);
        Self { sizes, strided: Some(Rc::new(Strided { strides, is_contiguous, is_permuted })) }
    }

    /// The strides, in elements.
    pub fn strides(&self) -> Shape {
        self.strided.as_ref().map_or_else(|| self.sizes.contiguous_strides(), |strided| strided.strides)
    }

    /// Whether the strides are row-major, dimensions of size 1 aside.
    pub fn is_contiguous(&self) -> bool {
        self.strided.as_ref().is_none_or(|strided| strided.is_contiguous)
    }

    /// With the dimensions `a` and `b` exchanged.
    pub fn transposed(&self, a: usize, b: usize) -> Self {
        Self::with(self.sizes.swapped(a, b), self.strides().swapped(a, b), self.is_regular())
    }

    /// With its dimensions in this order.
    pub fn permuted<const N: usize>(&self, dims: [usize; N]) -> Self {
        let strides = self.strides();
        Self::strided(Shape::new(&dims.map(|at| self.sizes[at])), Shape::new(&dims.map(|at| strides[at])))
    }

    /// Whether some permutation of the dimensions is contiguous (ATen's `is_non_overlapping_and_dense`).
    pub fn is_dense(&self) -> bool {
        self.is_contiguous() || is_non_overlapping_and_dense(&self.sizes, &self.strides())
    }

    /// A view with the sizes `new`, or `None` when only a copy can take them.
    pub fn viewed_as(&self, new: Shape) -> Option<Self> {
        if self.is_contiguous() || self.sizes.numel() == 0 {
            return Some(Self::contiguous(new));
        }
        view_strides(&self.sizes, &self.strides(), &new).map(|strides| Self::strided(new, strides))
    }

    /// The layout of an elementwise result of these sizes: the order of the operands' strides is kept, the first
    /// operand that tells two dimensions apart deciding (TensorIterator's `reorder_dimensions`).
    pub fn elementwise<const N: usize>(sizes: Shape, operands: [&Self; N]) -> Self {
        let keeps_order = operands.iter().all(|operand| operand.is_contiguous() && operand.sizes == sizes);
        if keeps_order || Self::all_descend(&sizes, operands) {
            return Self::contiguous(sizes);
        }
        // The first operand decides alone, and for its own layout.
        if let Some(&first) = operands.first().filter(|first| first.sizes == sizes && first.is_regular()) {
            return first.clone();
        }
        let strides = operands.map(|operand| broadcast_strides(operand, &sizes));
        if strides.iter().all(strides_descend) {
            return Self::contiguous(sizes);
        }
        Self::strided(sizes, reordered_strides(&sizes, &strides))
    }

    /// Whether the strides of all operands fall from dimension to dimension, those of broadcast ones aside.
    fn all_descend<const N: usize>(sizes: &Shape, operands: [&Self; N]) -> bool {
        operands.iter().all(|operand| operand.strided.is_none()) && has_distinct_strides(sizes)
    }

    /// Whether it is dense and no two dimensions have the same stride; some layouts that are regular are not known to
    /// be.
    fn is_regular(&self) -> bool {
        self.strided.as_ref().map_or_else(|| has_distinct_strides(&self.sizes), |strided| strided.is_permuted)
    }
}

/// Whether row-major strides of these sizes differ: a dimension of size 1 repeats the stride before it, and the first
/// has none before it.
fn has_distinct_strides(sizes: &Shape) -> bool {
    sizes.iter().skip(1).all(|size| *size > 1)
}

/// Whether strides fall from dimension to dimension, those of broadcast ones aside: the order of the result then is
/// that of the dimensions.
fn strides_descend(strides: &Shape) -> bool {
    let mut last = u64::MAX;
    strides.iter().filter(|stride| **stride != 0).all(|&stride| std::mem::replace(&mut last, stride) > stride)
}

/// Whether `strides` are row-major for `sizes`, dimensions of size 1 aside.
fn is_contiguous(sizes: &Shape, strides: &Shape) -> bool {
    let mut expected = 1u64;
    for (&size, &stride) in sizes.iter().zip(strides.iter()).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected = expected.saturating_mul(size);
        }
    }
    true
}

fn is_non_overlapping_and_dense(sizes: &Shape, strides: &Shape) -> bool {
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

/// `computeStride` of a tensor that is not contiguous.
fn view_strides(sizes: &Shape, strides: &Shape, new: &Shape) -> Option<Shape> {
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

/// The strides of an operand along the dimensions of the result, 0 where it is broadcast.
fn broadcast_strides(operand: &Layout, out: &Shape) -> Shape {
    if operand.sizes == *out {
        return operand.strides();
    }
    let (mut strides, own) = (*out, operand.strides());
    let offset = out.len() - operand.sizes.len();
    for at in 0..out.len() {
        let is_broadcast = at < offset || (operand.sizes[at - offset] == 1 && out[at] != 1);
        strides[at] = if is_broadcast { 0 } else { own[at - offset] };
    }
    strides
}

/// The strides of a dense result whose dimensions lie in the order the operands' strides ask for.
fn reordered_strides(out: &Shape, operands: &[Shape]) -> Shape {
    let rank = out.len();
    let mut perm = [0usize; MAX_DIMS];
    for (at, slot) in perm[..rank].iter_mut().enumerate() {
        *slot = rank - 1 - at;
    }
    insertion_sort(&mut perm[..rank], |a, b| is_faster(out, operands, a, b));
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
fn is_faster(out: &Shape, operands: &[Shape], a: usize, b: usize) -> i8 {
    for strides in operands {
        let (stride_a, stride_b) = (strides[a], strides[b]);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[u64]) -> Shape {
        Shape::new(sizes)
    }

    #[test]
    fn a_transposed_tensor_views_only_where_dimensions_stay_apart() {
        let transposed = Layout::strided(shape(&[2, 3, 4, 5]), shape(&[60, 5, 15, 1]));
        assert!(!transposed.is_contiguous());
        assert!(transposed.is_dense());
        assert_eq!(transposed.viewed_as(shape(&[6, 4, 5])), None);
        let deeper = transposed.viewed_as(shape(&[2, 3, 4, 5, 1])).map(|view| view.strides());
        assert_eq!(deeper, Some(shape(&[60, 5, 15, 1, 1])));
    }

    #[test]
    fn elementwise_results_keep_the_first_operands_order() {
        let transposed = Layout::strided(shape(&[2, 3, 4, 5]), shape(&[60, 5, 15, 1]));
        let rotary = Layout::strided(shape(&[2, 1, 4, 5]), shape(&[20, 20, 5, 1]));
        assert_eq!(Layout::elementwise(transposed.sizes, [&transposed, &rotary]), transposed);
    }
}
