//! Views (ViewOps): they share storage; only `reshape` may copy.

use std::ops::Range;

use crate::tensor::{Layout, NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `self.view(sizes)`. PyTorch refuses a view that the strides cannot express; here it is taken as `reshape`.
    pub fn view(&self, sizes: &[u64]) -> Tensor {
        self.reshape(sizes)
    }

    /// `self.reshape(sizes)`: a view where the strides allow one, else a contiguous copy.
    pub fn reshape(&self, sizes: &[u64]) -> Tensor {
        let sizes = Shape::new(sizes);
        match self.layout().viewed_as(sizes) {
            Some(layout) => {
                let node = NodeBuilder::new("ViewBackward0", [self]);
                let from = *self.sizes();
                node.finish(self.alias(layout), move |grad| gradients![grad.reshape(&from)])
            }
            None => self.clone_contiguous().unsafe_view(sizes),
        }
    }

    /// `_unsafe_view`: a contiguous tensor under new sizes, not counted as a view by autograd.
    pub fn unsafe_view(&self, sizes: Shape) -> Tensor {
        let node = NodeBuilder::new("UnsafeViewBackward0", [self]);
        let from = *self.sizes();
        let out = self.alias_as(Layout::contiguous(sizes), false);
        node.finish(out, move |grad| gradients![grad.reshape(&from)])
    }

    /// `self.view(...).permute(...).reshape(sizes)` where only copies can take the sizes, as of patches of an image: the gradient is
    /// copied back.
    pub fn rearranged(&self, sizes: &[u64]) -> Tensor {
        let node = NodeBuilder::new("CloneBackward0", [self]);
        let (from, op) = (*self.sizes(), "clone.default");
        let out = Tensor::empty(self.context(), op, Shape::new(sizes), self.dtype());
        node.finish(out, move |grad| gradients![Tensor::empty_view(grad.context(), op, from, grad.dtype())])
    }

    /// `self.transpose(a, b)`
    pub fn transpose(&self, a: usize, b: usize) -> Tensor {
        let node = NodeBuilder::new("TransposeBackward0", [self]);
        let out = self.alias(self.layout().transposed(a, b));
        node.finish(out, move |grad| gradients![grad.transpose(a, b)])
    }

    /// `self.permute(dims)`
    pub fn permute<const N: usize>(&self, dims: [usize; N]) -> Tensor {
        let node = NodeBuilder::new("PermuteBackward0", [self]);
        let mut inverse = dims;
        dims.iter().enumerate().for_each(|(at, dim)| inverse[*dim] = at);
        node.finish(self.alias(self.layout().permuted(dims)), move |grad| gradients![grad.permute(inverse)])
    }

    /// `self.t()` of a matrix
    pub fn t(&self) -> Tensor {
        let node = NodeBuilder::new("TBackward0", [self]);
        let out = self.alias(self.layout().transposed(0, 1));
        node.finish(out, |grad| gradients![grad.t()])
    }

    /// `self.unsqueeze(at)`
    pub fn unsqueeze(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("UnsqueezeBackward0", [self]);
        let stride = if at < self.sizes().len() { self.sizes()[at].saturating_mul(self.strides()[at]) } else { 1 };
        let out = self.alias(Layout::strided(self.sizes().inserted(at, 1), self.strides().inserted(at, stride)));
        node.finish(out, move |grad| gradients![grad.squeeze(at)])
    }

    /// `self.detach()`: the same memory, outside autograd.
    pub fn detach(&self) -> Tensor {
        self.alias(self.layout().clone())
    }

    /// `self.squeeze(at)` of a dimension of size 1
    pub fn squeeze(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("SqueezeBackward1", [self]);
        let out = self.alias(Layout::strided(self.sizes().removed(at), self.strides().removed(at)));
        node.finish(out, move |grad| gradients![grad.unsqueeze(at)])
    }

    /// `self.expand(sizes)`: broadcast dimensions get stride 0.
    pub fn expand(&self, sizes: &[u64]) -> Tensor {
        let node = NodeBuilder::new("ExpandBackward0", [self]);
        let out_sizes = Shape::new(sizes);
        let (own, mut strides) = (self.strides(), out_sizes);
        let offset = out_sizes.len() - self.sizes().len();
        for at in 0..out_sizes.len() {
            let kept = at >= offset && self.sizes()[at - offset] == out_sizes[at];
            strides[at] = if kept { own[at - offset] } else { 0 };
        }
        let from = *self.sizes();
        node.finish(self.alias(Layout::strided(out_sizes, strides)), move |grad| gradients![grad.sum_to(&from)])
    }

    /// `self[..., range]` along dimension `at`; the gradient is written into zeros of the full size.
    pub fn slice(&self, at: usize, range: Range<u64>) -> Tensor {
        self.slice_from(at, range.start, range.end.saturating_sub(range.start))
    }

    /// So many positions along dimension `at`, wherever they begin: for loops that are simulated only.
    pub fn slice_any(&self, at: usize, length: u64) -> Tensor {
        self.slice_from(at, 0, length)
    }

    fn slice_from(&self, at: usize, start: u64, length: u64) -> Tensor {
        let node = NodeBuilder::new("SliceBackward0", [self]);
        let from = *self.sizes();
        let out = self.narrow_from(at, start, length);
        node.finish(out, move |grad| {
            gradients![Tensor::empty(grad.context(), "slice_backward.default", from, grad.dtype())]
        })
    }

    /// `part = self[..., range]; part /= number`: the part, whose gradient becomes one of all of `self` (`CopySlices` of
    /// csrc/autograd/functions/tensor.cpp).
    pub fn divide_slice_in_place(&self, at: usize, length: u64) -> Tensor {
        let node = NodeBuilder::new("CopySlices", [self]);
        let (whole, part) = (*self.sizes(), self.sizes().with(at, length));
        let base = node.finish(self.detach(), move |grad| {
            let result = Tensor::empty(grad.context(), "new_empty_strided.default", whole, grad.dtype());
            let cloned = Tensor::empty(grad.context(), "clone.default", part, grad.dtype());
            let _divided = cloned.unary("div.Tensor", cloned.dtype());
            drop(cloned);
            gradients![result]
        });
        base.slice_any(at, length)
    }

    /// `self[..., first::2]`: every second number of the last dimension.
    pub fn every_other(&self, first: u64) -> Tensor {
        let node = NodeBuilder::new("SliceBackward0", [self]);
        let (from, strides) = (*self.sizes(), self.strides());
        let last = from.len() - 1;
        let layout = Layout::strided(from.with(last, from[last] / 2), strides.with(last, strides[last] * 2));
        node.finish(self.alias_behind(layout, first), move |grad| {
            gradients![Tensor::empty(grad.context(), "slice_backward.default", from, grad.dtype())]
        })
    }

    /// `self.select(at, index)`: one position of dimension `at`, which goes; the gradient is written into zeros.
    pub fn select(&self, at: usize, index: u64) -> Tensor {
        let node = NodeBuilder::new("SelectBackward0", [self]);
        let from = *self.sizes();
        let layout = Layout::strided(self.sizes().removed(at), self.strides().removed(at));
        let out = self.alias_behind(layout, index.saturating_mul(self.strides()[at]));
        node.finish(out, move |grad| {
            gradients![Tensor::empty(grad.context(), "select_backward.default", from, grad.dtype())]
        })
    }

    /// `self[...]` with full ranges only: the same memory under a node of its own.
    pub fn alias_all(&self) -> Tensor {
        let node = NodeBuilder::new("AliasBackward0", [self]);
        node.finish(self.alias(self.layout().clone()), |grad| gradients![grad.clone()])
    }

    /// A part of a tensor along dimension `at`, outside autograd.
    pub fn narrow(&self, at: usize, range: Range<u64>) -> Tensor {
        self.narrow_from(at, range.start, range.end.saturating_sub(range.start))
    }

    /// So many positions along dimension `at`, wherever they begin, outside autograd.
    pub fn narrow_any(&self, at: usize, length: u64) -> Tensor {
        self.narrow_from(at, 0, length)
    }

    fn narrow_from(&self, at: usize, start: u64, length: u64) -> Tensor {
        let strides = self.strides();
        let behind = start.saturating_mul(strides.get(at).copied().unwrap_or(0));
        self.alias_behind(Layout::strided(self.sizes().with(at, length), strides), behind)
    }

    /// `self.split([first, rest], dim=-1)`; their gradients are joined by `cat`, zeros where there is none.
    pub fn split_at(&self, first: u64) -> [Tensor; 2] {
        self.split_widths([first, self.size(-1).saturating_sub(first)])
    }

    /// `self.split(widths, dim=-1)`, with gradients as those of [`Self::split_at`].
    pub fn split_widths<const N: usize>(&self, widths: [u64; N]) -> [Tensor; N] {
        let node = NodeBuilder::new("SplitWithSizesBackward0", [self]);
        let (from, at, dtype) = (*self.sizes(), self.sizes().len() - 1, self.dtype());
        let mut start: u64 = 0;
        let parts = widths.map(|width| {
            let part = self.narrow_from(at, start, width);
            start = start.saturating_add(width);
            part
        });
        node.finish_many(parts, move |grads| {
            let Some(some) = grads.iter().flatten().next() else { return gradients![None::<Tensor>] };
            let context = some.context();
            let missing = |(grad, width): (&Option<Tensor>, u64)| {
                let zeros = || Tensor::empty(context, "zeros.default", from.with(at, width), dtype);
                grad.is_none().then(zeros)
            };
            let zeros: Vec<_> = grads.iter().zip(widths).map(missing).collect();
            let channels_last =
                grads.iter().all(|grad| grad.as_ref().is_some_and(|grad| is_channels_last(grad.layout())));
            let layout = if channels_last { channels_last_layout(&from) } else { Layout::contiguous(from) };
            let joined = Tensor::empty_strided(context, "cat.default", layout, dtype);
            drop(zeros);
            gradients![joined]
        })
    }

    /// `self.split(lengths, dim=at)`, with gradients as those of [`Self::split_at`].
    pub fn split_lengths(&self, at: usize, lengths: &[u64]) -> Vec<Tensor> {
        let node = NodeBuilder::new("SplitWithSizesBackward0", [self]);
        let (from, dtype) = (*self.sizes(), self.dtype());
        let mut start: u64 = 0;
        let part = |length: &u64| {
            let part = self.narrow_from(at, start, *length);
            start = start.saturating_add(*length);
            part
        };
        let parts = lengths.iter().map(part).collect();
        node.finish_list(parts, move |grads| {
            let some = grads.iter().flatten().next();
            gradients![some.map(|grad| Tensor::empty(grad.context(), "cat.default", from, dtype))]
        })
    }

    /// `self.split(size, dim=-1)` into `N` parts; their gradients are joined by `cat`, zeros where there is none.
    pub fn split_last<const N: usize>(&self) -> [Tensor; N] {
        self.split(self.sizes().len() - 1)
    }

    /// `self.chunk(N, dim=at)` into parts of one size; their gradients as those of [`Self::split_last`].
    pub fn split<const N: usize>(&self, at: usize) -> [Tensor; N] {
        let node = NodeBuilder::new("SplitBackward0", [self]);
        let part = self.size(at as isize) / (N as u64);
        let from = *self.sizes();
        let parts = std::array::from_fn(|index| self.narrow_from(at, part.saturating_mul(index as u64), part));
        let dtype = self.dtype();
        node.finish_many(parts, move |grads| {
            let Some(some) = grads.iter().flatten().next() else { return gradients![None::<Tensor>] };
            let context = some.context();
            let zeros: Vec<Tensor> = grads
                .iter()
                .filter(|grad| grad.is_none())
                .map(|_| Tensor::empty(context, "zeros.default", from.with(at, part), dtype))
                .collect();
            let joined = Tensor::empty(context, "cat.default", from, dtype);
            drop(zeros);
            gradients![joined]
        })
    }
}

/// `suggest_memory_format` says channels last (c10/core/MemoryFormat.h): then `cat` makes its result so.
pub(super) fn is_channels_last(layout: &Layout) -> bool {
    let (sizes, strides) = (&layout.sizes, layout.strides());
    let mut least = 0;
    let fits = |at: usize| {
        let fits = strides[at] >= least && (at != 0 || least != strides[1]);
        least = strides[at].saturating_mul(sizes[at].max(1));
        fits
    };
    sizes.len() == 4 && strides[1] != 0 && [1, 3, 2, 0].into_iter().all(fits)
}

/// Four dimensions, of which the second lies innermost.
pub(super) fn channels_last_layout(sizes: &Shape) -> Layout {
    let (channels, width) = (sizes[1], sizes[3]);
    let row = width.saturating_mul(channels);
    Layout::strided(*sizes, Shape::new(&[row.saturating_mul(sizes[2]), 1, row, channels]))
}
