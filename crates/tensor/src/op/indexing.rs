//! Indexing by boolean masks (TensorAdvancedIndexing.cpp). Reference measurements run it another way: how many places are true is known in
//! advance, so these come from `nonzero_static`.

use super::create::full;
use super::scratch::indexing::{
    Mask, index_by_mask, index_put_accumulate, index_put_by_mask, index_put_of_host, masked_scatter,
    masked_scatter_spread, nonzero, nonzero_static, put_by_mask, select_by_spread_mask,
};
use super::scratch::{DeviceSteps, contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{Layout, NodeBuilder, Saved, Shape, Tensor, gradients};

/// What a kernel copies first of a mask, or of a gradient that is put in its places (a sum's), which is not contiguous.
pub(super) fn copied_bytes(tensor: &Tensor) -> u64 {
    if tensor.is_contiguous() { 0 } else { tensor.numel().saturating_mul(tensor.dtype().size()) }
}

impl Tensor {
    /// `self[mask]`, where `count` elements of the mask are true: [count, ...].
    pub fn masked_rows(&self, mask: &Tensor, count: u64) -> Tensor {
        if self.context().finds_places_first() {
            return self.rows_at_places(mask, count);
        }
        let described = Mask { elements: mask.numel(), dims: mask.sizes().len() as u64, found: count };
        let node = NodeBuilder::new("IndexBackward0", [self]);
        let saved_mask = node.save(mask);
        let out_sizes = Shape::new(&[&[count], &self.sizes()[mask.sizes().len()..]].concat());
        let bytes = out_sizes.iter().product::<u64>() * self.dtype().size();
        let steps = DeviceSteps::new(self.context(), |device| index_by_mask(described, bytes, device));
        let out = steps.run(self.context(), "index.Tensor", |_| contiguous(out_sizes, self.dtype())).take(0);
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let _mask = saved_mask.unpack();
            let into = full(grad.context(), "new_zeros.default", &from, grad.dtype());
            let copied = copied_bytes(grad);
            let steps = DeviceSteps::new(grad.context(), |device| index_put_by_mask(described, copied, device));
            steps.run(grad.context(), "_index_put_impl_.default", |_| contiguous(from, grad.dtype()));
            gradients![into]
        })
    }

    /// The same by the places that are true, which are found first and kept.
    fn rows_at_places(&self, mask: &Tensor, count: u64) -> Tensor {
        let indices = positions_of(mask, count);
        let node = NodeBuilder::new("IndexBackward0", [self]);
        let dims = mask.sizes().len();
        // `nonzero_static` writes one dimension's places behind the other's.
        let places = |at: u64| indices.alias_behind(Layout::contiguous(Shape::new(&[count])), at.saturating_mul(count));
        let saved: Vec<Saved> = (0..dims as u64).map(|at| node.save(&places(at))).collect();
        drop(indices);
        let rest = &self.sizes()[dims..];
        let out_sizes = Shape::new(&[&[count], rest].concat());
        let out = Tensor::empty(self.context(), "index.Tensor", out_sizes, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let _indices: Vec<Tensor> = saved.iter().map(Saved::unpack).collect();
            let rows = from[..dims].iter().product();
            let into = full(grad.context(), "new_zeros.default", &from, grad.dtype());
            let copied = copied_bytes(grad);
            let on = |device| index_put_accumulate((count, dims as u64, rows), copied, device);
            let steps = DeviceSteps::new(grad.context(), on);
            steps.run(grad.context(), "_index_put_impl_.default", |_| contiguous(from, grad.dtype()));
            gradients![into]
        })
    }

    /// `masked_scatter(self, mask, source)`: a copy in which the source takes the mask's places, one after another. Its
    /// gradient for the source is a copy of that many elements.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MaskedScatterBackward0", [source]);
        // The reference measurements run a function of their own in its place, which needs no mask.
        let saved_mask = (!self.context().finds_places_first()).then(|| node.save(mask));
        let steps = masked_scatter(self.numel(), self.dtype().size());
        let describe = |_| contiguous(*self.sizes(), self.dtype());
        let out = run_steps(self.context(), "masked_scatter.default", &steps, describe).take(0);
        let from = *source.sizes();
        node.finish(out, move |grad| {
            let _mask = saved_mask.as_ref().map(Saved::unpack);
            let flat = grad.reshape(&[grad.numel()]);
            gradients![flat.narrow_any(0, from.numel()).clone_contiguous().reshape(&from)]
        })
    }
}

impl Tensor {
    /// `masked_scatter(self, mask, source)` with a mask of [rows, tokens, 1], which is spread over the last dimension: `source` has as
    /// many elements as that makes true.
    pub fn masked_scatter_tokens(&self, mask: &Tensor, source: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MaskedScatterBackward0", [self, source]);
        let saved_mask = node.save(mask);
        let needs = [0, 1].map(|at| node.needs(at));
        let steps = masked_scatter_spread(self.numel(), self.dtype().size());
        let describe = |_| contiguous(*self.sizes(), self.dtype());
        let out = run_steps(self.context(), "masked_scatter.default", &steps, describe).take(0);
        let from = *source.sizes();
        node.finish(out, move |grad| {
            let _mask = saved_mask.unpack();
            let of_self = needs[0].then(|| grad.unary("masked_fill.Scalar", grad.dtype()));
            let of_source = needs[1].then(|| {
                let mask = Mask { elements: grad.numel(), dims: grad.sizes().len() as u64, found: from.numel() };
                let bytes = from.numel() * grad.dtype().size();
                let steps = DeviceSteps::new(grad.context(), |device| select_by_spread_mask(mask, bytes, device));
                let op = "masked_scatter_backward.default";
                steps.run(grad.context(), op, |_| contiguous(from, grad.dtype())).take(0)
            });
            gradients![of_self, of_source]
        })
    }

    /// `self[mask] = rows`, in place: each true element of the mask gets a row.
    pub fn put_rows_by_mask(&self, mask: &Tensor, rows: &Tensor) -> Tensor {
        let node = NodeBuilder::new("IndexPutBackward0", [self, rows]);
        let saved_mask = node.save(mask);
        let needs = [0, 1].map(|at| node.needs(at));
        let described = Mask { elements: mask.numel(), dims: mask.sizes().len() as u64, found: rows.size(0) };
        let (whole, part) = (*self.sizes(), *rows.sizes());
        put_places(self, described);
        node.finish(self.detach(), move |grad| {
            let _mask = saved_mask.unpack();
            let of_self = needs[0].then(|| {
                let _zeros = full(grad.context(), "zeros.default", &part, grad.dtype());
                let put = full(grad.context(), "index_put.default", &whole, grad.dtype());
                put_places(&put, described);
                put
            });
            let of_rows = needs[1].then(|| {
                let bytes = part.iter().product::<u64>() * grad.dtype().size();
                let steps = DeviceSteps::new(grad.context(), |device| index_by_mask(described, bytes, device));
                steps.run(grad.context(), "index.Tensor", |_| contiguous(part, grad.dtype())).take(0)
            });
            gradients![of_self, of_rows]
        })
    }

    /// `self[index]` by a list of places that lies in the host's memory and is copied to the device for it, and again in backward.
    pub fn rows_of_host_index(&self) -> Tensor {
        let node = NodeBuilder::new("IndexBackward0", [self]);
        let (op, count) = ("index.Tensor", self.size(0));
        let out = {
            let _index = Tensor::scratch(self.context(), op, count * DType::Int64.size());
            Tensor::empty(self.context(), op, *self.sizes(), self.dtype())
        };
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let into = full(grad.context(), "new_zeros.default", &from, grad.dtype());
            let steps = DeviceSteps::new(grad.context(), |device| index_put_of_host(count, device));
            steps.run(grad.context(), "index_put.default", |_| contiguous(from, grad.dtype()));
            gradients![into]
        })
    }

    /// `self[i, j]`: what the leading dimensions hold at so many places, an index of each dimension.
    pub fn at_places(&self, indices: &[&Tensor]) -> Tensor {
        let dims = indices.len();
        let count = indices.first().map_or(0, |index| index.numel());
        let node = NodeBuilder::new("IndexBackward0", [self]);
        let saved: Vec<Saved> = indices.iter().map(|index| node.save(index)).collect();
        let out_sizes = Shape::new(&[&[count], &self.sizes()[dims..]].concat());
        let out = Tensor::empty(self.context(), "index.Tensor", out_sizes, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let _indices: Vec<Tensor> = saved.iter().map(Saved::unpack).collect();
            let into = full(grad.context(), "new_zeros.default", &from, grad.dtype());
            let rows = from[..dims].iter().product();
            let copied = copied_bytes(grad);
            let on = |device| index_put_accumulate((count, dims as u64, rows), copied, device);
            let steps = DeviceSteps::new(grad.context(), on);
            steps.run(grad.context(), "_index_put_impl_.default", |_| contiguous(from, grad.dtype()));
            gradients![into]
        })
    }

    /// `nonzero(self)` of a mask of which `count` elements are true: [count, dimensions].
    pub fn places(&self, count: u64) -> Tensor {
        if self.context().finds_places_first() {
            return positions_of(self, count);
        }
        let mask = Mask { elements: self.numel(), dims: self.sizes().len() as u64, found: count };
        let steps = DeviceSteps::new(self.context(), |device| nonzero(mask, copied_bytes(self), device));
        let sizes = Shape::new(&[count, mask.dims]);
        let mut found = steps.run(self.context(), "nonzero.default", |_| contiguous(sizes, DType::Int64));
        if count > 0 { found.take(0) } else { Tensor::nowhere(self.context(), sizes, DType::Int64) }
    }

    /// `index_select(self, 0, index)`
    pub fn index_select(&self, index: &Tensor) -> Tensor {
        let node = NodeBuilder::new("IndexSelectBackward0", [self]);
        let saved_index = node.save(index);
        let sizes = self.sizes().with(0, index.size(0));
        let out = Tensor::empty(self.context(), "index_select.default", sizes, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let _index = saved_index.unpack();
            // What `index_add_` writes into.
            gradients![full(grad.context(), "new_zeros.default", &from, grad.dtype())]
        })
    }

    /// `gather(self, 1, index.view(-1, 1, 1).expand(-1, 1, width)).squeeze(1)` of [rows, tokens, width]: a token of each row.
    pub fn gather_token(&self, index: &Tensor) -> Tensor {
        let node = NodeBuilder::new("GatherBackward0", [self]);
        let saved = [node.save(index), node.save(self)];
        let out = Tensor::empty(self.context(), "gather.default", self.sizes().removed(1), self.dtype());
        node.finish(out, move |grad| {
            let [_index, this] = saved.each_ref().map(Saved::unpack);
            gradients![full(grad.context(), "new_zeros.default", this.sizes(), grad.dtype())]
        })
    }

    /// `gather(self, -1, index.unsqueeze(-1)).squeeze(-1)`: one value of each row.
    pub fn gather_one(&self, index: &Tensor) -> Tensor {
        let node = NodeBuilder::new("GatherBackward0", [self]);
        let saved = [node.save(index), node.save(self)];
        let out = Tensor::empty(self.context(), "gather.default", *index.sizes(), self.dtype());
        node.finish(out, move |grad| {
            let [_index, this] = saved.each_ref().map(Saved::unpack);
            gradients![full(grad.context(), "new_zeros.default", this.sizes(), grad.dtype())]
        })
    }
}

/// What a kernel takes that writes where a mask is true.
fn put_places(into: &Tensor, mask: Mask) {
    let steps = DeviceSteps::new(into.context(), |device| put_by_mask(mask, device));
    steps.run(into.context(), "_index_put_impl_.default", |_| contiguous(*into.sizes(), into.dtype()));
}

fn positions_of(mask: &Tensor, count: u64) -> Tensor {
    let dims = mask.sizes().len() as u64;
    let described = Mask { elements: mask.numel(), dims, found: count };
    let steps = DeviceSteps::new(mask.context(), |device| nonzero_static(described, copied_bytes(mask), device));
    let sizes = Shape::new(&[count, dims]);
    let mut found = steps.run(mask.context(), "nonzero_static.default", |_| contiguous(sizes, DType::Int64));
    if count > 0 { found.take(0) } else { Tensor::nowhere(mask.context(), sizes, DType::Int64) }
}
