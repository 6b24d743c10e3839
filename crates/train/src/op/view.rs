//! Views, copies and casts.

use std::ops::Range;

use tonnage_torch::{Argument, operator};

use crate::dtype::DType;
use crate::precision::scalar_type;
use crate::tensor::{Tensor, ints, or_stop};

fn at(dimension: usize) -> Argument<'static> {
    Argument::Int(i64::try_from(dimension).unwrap_or(i64::MAX))
}

impl Tensor {
    /// `self.to(dtype)`: itself when it has the dtype.
    pub(crate) fn to(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype {
            self.clone()
        } else {
            self.run(operator!("to", "dtype"), [scalar_type(dtype).into()])
        }
    }

    /// `self.float()`
    pub(crate) fn float(&self) -> Tensor {
        self.to(DType::Float32)
    }

    /// `self.contiguous()`
    pub(crate) fn contiguous(&self) -> Tensor {
        self.run(operator!("contiguous"), [])
    }

    /// `self.view(sizes)`
    pub(crate) fn view(&self, sizes: &[u64]) -> Tensor {
        self.run(operator!("view"), [ints(sizes)])
    }

    /// `self.reshape(sizes)`
    pub(crate) fn reshape(&self, sizes: &[u64]) -> Tensor {
        self.run(operator!("reshape"), [ints(sizes)])
    }

    /// `self.transpose(a, b)`
    pub(crate) fn transpose(&self, a: usize, b: usize) -> Tensor {
        self.run(operator!("transpose", "int"), [at(a), at(b)])
    }

    pub(crate) fn permute(&self, dims: [usize; 4]) -> Tensor {
        self.run(operator!("permute"), [ints(&dims.map(|at| at as u64))])
    }

    /// `view = self.permute(dims); view += other`: the view.
    pub(crate) fn permute_and_add(&self, dims: [usize; 4], other: &Tensor) -> Tensor {
        self.permute(dims).add_in_place(other)
    }

    /// `self[1:] += other`
    pub(crate) fn add_to_rest(&self, other: &Tensor) -> Tensor {
        self.slice(0, 1..self.size(0)).add_in_place(other);
        self.clone()
    }

    /// `self.t()` of a matrix
    pub(crate) fn t(&self) -> Tensor {
        self.run(operator!("t"), [])
    }

    /// `self.unsqueeze(dimension)`
    pub(crate) fn unsqueeze(&self, dimension: usize) -> Tensor {
        self.run(operator!("unsqueeze"), [at(dimension)])
    }

    /// `self.squeeze(dimension)`
    pub(crate) fn squeeze(&self, dimension: usize) -> Tensor {
        self.run(operator!("squeeze", "dim"), [at(dimension)])
    }

    /// `self.expand(sizes)`
    pub(crate) fn expand(&self, sizes: &[u64]) -> Tensor {
        self.run(operator!("expand"), [ints(sizes)])
    }

    /// `self.select(dimension, index)`
    pub(crate) fn select(&self, dimension: usize, index: u64) -> Tensor {
        let index = Argument::Int(i64::try_from(index).unwrap_or(i64::MAX));
        self.run(operator!("select", "int"), [at(dimension), index])
    }

    /// `self.detach()`
    pub(crate) fn detach(&self) -> Tensor {
        self.run(operator!("detach"), [])
    }

    /// `self[...]` with full ranges only: the same memory under a node of its own.
    pub(crate) fn alias_all(&self) -> Tensor {
        self.run(operator!("alias"), [])
    }

    /// `self[..., range]` along a dimension; Python's indexing slices nothing where the range is full.
    pub(crate) fn slice(&self, dimension: usize, range: Range<u64>) -> Tensor {
        if range.start == 0 && self.sizes().get(dimension) == Some(&range.end) {
            return self.alias_all();
        }
        let bound = |bound: u64| Argument::Int(i64::try_from(bound).unwrap_or(i64::MAX));
        self.run(operator!("slice", "Tensor"), [at(dimension), bound(range.start), bound(range.end)])
    }

    /// `self[..., first::2]`: every second number of the last dimension.
    pub(crate) fn every_other(&self, first: u64) -> Tensor {
        let bound = |bound: u64| Argument::Int(i64::try_from(bound).unwrap_or(i64::MAX));
        let last = Argument::Int(-1);
        self.run(operator!("slice", "Tensor"), [last, bound(first), bound(self.size(-1)), Argument::Int(2)])
    }

    /// `self.split([first, rest], dim=-1)`
    pub(crate) fn split_at(&self, first: u64) -> [Tensor; 2] {
        let (last, width) = (self.sizes().len() - 1, self.size(-1));
        [self.slice(last, 0..first), self.slice(last, first..width)]
    }

    /// `self.split(widths, dim=-1)`
    pub(crate) fn split_widths<const N: usize>(&self, widths: [u64; N]) -> [Tensor; N] {
        let last = self.sizes().len() - 1;
        let mut start = 0;
        widths.map(|width| {
            start += width;
            self.slice(last, start - width..start)
        })
    }

    /// `self.clone(memory_format=torch.contiguous_format)`
    pub(crate) fn clone_contiguous(&self) -> Tensor {
        self.run(operator!("clone"), []).contiguous()
    }

    /// The same of values that nobody differentiates.
    pub(crate) fn narrow(&self, dimension: usize, range: Range<u64>) -> Tensor {
        self.slice(dimension, range)
    }

    /// `self.split(size, dim=-1)` into `N` parts
    pub(crate) fn split_last<const N: usize>(&self) -> [Tensor; N] {
        self.split(self.sizes().len() - 1)
    }

    /// `self.chunk(N, dim)`
    pub(crate) fn split<const N: usize>(&self, dimension: usize) -> [Tensor; N] {
        let part = i64::try_from(self.sizes()[dimension] / N as u64).unwrap_or(i64::MAX);
        let arguments = [self.into(), Argument::Int(part), at(dimension)];
        let torch = self.context().torch;
        let parts =
            or_stop(torch.call(operator!("split", "Tensor"), &arguments).and_then(|made| made.into_array::<N>()));
        parts.map(|part| Self::of(self.context(), part))
    }

    /// `self.repeat(count, 1, 1)`
    pub(crate) fn repeat_first(&self, count: u64) -> Tensor {
        self.run(operator!("repeat"), [ints(&[count, 1, 1])])
    }

    /// `self.repeat(count, 1, 1, 1)` of three dimensions
    pub(crate) fn repeat_beside(&self, count: u64) -> Tensor {
        self.run(operator!("repeat"), [ints(&[count, 1, 1, 1])])
    }

    /// `self.unbind(dimension)` of `N`: a view of each.
    pub(crate) fn unbind_at<const N: usize>(&self, dimension: usize) -> [Tensor; N] {
        let torch = self.context().torch;
        let parts = torch.call(operator!("unbind", "int"), &[self.into(), at(dimension)]);
        or_stop(parts.and_then(|made| made.into_array::<N>())).map(|part| Self::of(self.context(), part))
    }
}
