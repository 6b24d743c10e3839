//! The part of PyTorch's `TensorIterator` that reductions depend on: ordering, coalescing, 32-bit splitting.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::tensor::MAX_DIMS;

/// Byte offsets up to here fit the kernels' 32-bit indexing (`can_use_32bit_indexing`, TensorIterator.cpp).
const MAX_INDEX: u64 = i32::MAX as u64;

/// One dimension of a reduction; strides in bytes. A reduced dimension has output stride 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) size: u64,
    pub(super) output: u64,
    pub(super) input: u64,
}

impl Dim {
    /// As TensorIterator decides it: by the output's stride.
    pub(super) const fn is_reduced(&self) -> bool {
        self.output == 0
    }

    fn extent(&self) -> u64 {
        self.size.saturating_sub(1).saturating_mul(self.input.max(self.output))
    }
}

pub(super) type Dims = SmallVec<[Dim; MAX_DIMS]>;

/// A reduction's dimensions, fastest first and reduced ones in front, and the input's offset in bytes.
#[derive(Clone, Debug)]
pub(super) struct ReduceIter {
    pub(super) dims: Dims,
    pub(super) offset: u64,
}

impl ReduceIter {
    /// Orders and coalesces `dims`, given from the last to the first.
    pub(super) fn new(mut dims: Dims, offset: u64) -> Self {
        sort(&mut dims, |dim| *dim);
        coalesce(&mut dims);
        Self { dims, offset }
    }

    pub(super) fn reduced_dims(&self) -> usize {
        self.dims.iter().filter(|dim| dim.is_reduced()).count()
    }

    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().map(|dim| dim.size).product()
    }

    pub(super) fn outputs(&self) -> u64 {
        self.dims.iter().filter(|dim| !dim.is_reduced()).map(|dim| dim.size).product()
    }

    pub(super) fn fits_32_bits(&self) -> bool {
        let last = |stride: fn(&Dim) -> u64| {
            self.dims.iter().map(|dim| dim.size.saturating_sub(1).saturating_mul(stride(dim))).sum::<u64>() < MAX_INDEX
        };
        self.elements() <= MAX_INDEX && last(|dim| dim.input) && last(|dim| dim.output)
    }

    /// The pieces that `with_32bit_indexing` visits, in its order: halves along the widest dimension, first half first.
    pub(super) fn split(self) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut pending = vec![self];
        while let Some(mut piece) = pending.pop() {
            let widest = if piece.fits_32_bits() { None } else { piece.widest_dim() };
            let Some(widest) = widest else {
                pieces.push(piece);
                continue;
            };
            let mut first = piece.clone();
            let head = piece.dims[widest].size / 2;
            first.dims[widest].size = head;
            piece.dims[widest].size -= head;
            piece.offset += head * piece.dims[widest].input;
            pending.push(piece);
            pending.push(first);
        }
        pieces
    }

    /// The dimension with the largest extent in bytes; the slowest one where several tie.
    fn widest_dim(&self) -> Option<usize> {
        let mut best = None;
        let mut extent = 0;
        for (index, dim) in self.dims.iter().enumerate().rev() {
            if dim.size > 1 && dim.extent() > extent {
                extent = dim.extent();
                best = Some(index);
            }
        }
        best
    }
}

/// Insertion sort that tolerates ambiguous comparisons (`reorder_dimensions`).
fn sort<T>(dims: &mut [T], key: impl Fn(&T) -> Dim) {
    for start in 1..dims.len() {
        let mut at = start;
        for before in (0..start).rev() {
            match compare(&key(&dims[before]), &key(&dims[at])) {
                Ordering::Greater => {
                    dims.swap(before, at);
                    at = before;
                }
                Ordering::Less => break,
                Ordering::Equal => {}
            }
        }
    }
}

/// Strides, in elements, of a dense copy that keeps the order of the dimensions in memory (`empty_like`).
pub(super) fn dense_strides(sizes: &[u64], strides: &[u64]) -> Vec<u64> {
    let dims = sizes.iter().zip(strides).map(|(&size, &input)| Dim { size, output: 0, input });
    let mut order: Vec<(usize, Dim)> = dims.enumerate().collect();
    order.reverse();
    sort(&mut order, |(_, dim)| *dim);
    let mut out = vec![0; order.len()];
    let mut packed = 1;
    for (index, dim) in order {
        out[index] = packed;
        packed *= dim.size.max(1);
    }
    out
}

/// Whether `a` belongs after (`Greater`) or before (`Less`) `b`.
fn compare(a: &Dim, b: &Dim) -> Ordering {
    if a.is_reduced() != b.is_reduced() {
        return if b.is_reduced() { Ordering::Greater } else { Ordering::Less };
    }
    for (x, y) in [(a.output, b.output), (a.input, b.input)] {
        if x == 0 || y == 0 {
            continue;
        }
        match x.cmp(&y) {
            Ordering::Equal if a.size > b.size => return Ordering::Greater,
            Ordering::Equal => {}
            order => return order,
        }
    }
    Ordering::Equal
}

/// Merges neighbours that are one run of memory in every operand.
fn coalesce(dims: &mut Dims) {
    dims.dedup_by(|dim, last| {
        let merges = mergeable(last, dim);
        if merges {
            if last.size == 1 {
                (last.output, last.input) = (dim.output, dim.input);
            }
            last.size *= dim.size;
        }
        merges
    });
}

fn mergeable(a: &Dim, b: &Dim) -> bool {
    let run = |x: u64, y: u64| a.size.saturating_mul(x) == y;
    a.size == 1 || b.size == 1 || (run(a.output, b.output) && run(a.input, b.input))
}
