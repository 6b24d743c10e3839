//! What sends tokens to experts: choosing, sorting and counting places, and moving rows (TensorTopK.cpp, Sort.cpp, SummaryOps.cu,
//! TensorAdvancedIndexing.cpp).

use super::create::full;
use super::division::divisor_gradient;
use super::indexing::copied_bytes;
use super::scratch::indexing::index_put_accumulate;
use super::scratch::reduce::ReduceKind;
use super::scratch::scan::cumsum;
use super::scratch::sort::sort;
use super::scratch::{DeviceSteps, contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients};

impl Tensor {
    /// `topk(self, k, dim=-1)`: values, and their places.
    pub fn topk(&self, k: u64) -> (Tensor, Tensor) {
        let op = "topk.default";
        let node = NodeBuilder::new("TopkBackward0", [self]);
        let sizes = self.sizes().with(self.sizes().len() - 1, k);
        let values = Tensor::empty(self.context(), op, sizes, self.dtype());
        let places = Tensor::empty(self.context(), op, sizes, DType::Int64);
        let saved = node.save(&places);
        let from = *self.sizes();
        let values = node.finish(values, move |grad| {
            let _places = saved.unpack();
            gradients![full(grad.context(), "zeros.default", &from, grad.dtype())]
        });
        (values, places)
    }

    /// `self.max(dim=-1, keepdim=True).values`: indices are computed too, and kept for the gradient.
    pub fn max_last(&self) -> Tensor {
        let op = "max.dim";
        let node = NodeBuilder::new("MaxBackward0", [self]);
        let sizes = self.sizes().with(self.sizes().len() - 1, 1);
        let values = Tensor::empty(self.context(), op, sizes, self.dtype());
        let saved = node.save(&Tensor::empty(self.context(), op, sizes, DType::Int64));
        let from = *self.sizes();
        node.finish(values, move |grad| {
            let _places = saved.unpack();
            gradients![full(grad.context(), "zeros.default", &from, grad.dtype())]
        })
    }

    /// `self.scatter_(1, places, values)` of a constant
    pub fn scatter_in_place(&self, places: &Tensor, values: &Tensor) -> Tensor {
        let node = NodeBuilder::new("ScatterBackward0", [values]);
        let saved = node.save(places);
        node.finish(self.detach(), move |grad| {
            let places = saved.unpack();
            gradients![Tensor::empty(grad.context(), "gather.default", *places.sizes(), grad.dtype())]
        })
    }

    /// `self.repeat(times, 1)` of a matrix
    pub fn repeat_rows(&self, times: u64) -> Tensor {
        let node = NodeBuilder::new("RepeatBackward0", [self]);
        let (rows, width) = (self.size(0), self.size(1));
        let repeated =
            Tensor::empty(self.context(), "repeat.default", self.sizes().with(0, rows * times), self.dtype());
        node.finish(repeated, move |grad| gradients![grad.reshape(&[times, rows, width]).sum_along(0)])
    }

    /// `self /= other`; the dividend is copied first where the divisor's gradient needs it.
    pub fn div_in_place(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("DivBackward0", [self, other]);
        let saved_this = node.needs(1).then(|| node.save(&self.unary("clone.default", self.dtype())));
        let saved_other = node.save(other);
        node.finish(self.detach(), move |grad| {
            let (this, other) = (saved_this.as_ref().map(Saved::unpack), saved_other.unpack());
            let other_grad = this.as_ref().map(|this| divisor_gradient(grad, this, &other));
            gradients![Some(grad.div(&other)), other_grad]
        })
    }

    /// `one_hot(self, count)` of places
    pub fn one_hot(&self, count: u64) -> Tensor {
        let sizes = self.sizes().inserted(self.sizes().len(), count);
        full(self.context(), "zeros.default", &sizes, DType::Int64)
    }

    /// `self.index_add_(0, places, rows)`
    pub fn add_rows_in_place(&self, places: &Tensor, rows: &Tensor) -> Tensor {
        let node = NodeBuilder::new("IndexAddBackward0", [self, rows]);
        // What is added is kept too, for its sizes.
        let saved = [node.save(places), node.save(rows)];
        node.finish(self.detach(), move |grad| {
            let [_places, rows] = saved.each_ref().map(Saved::unpack);
            let of_rows = Tensor::empty(grad.context(), "index_select.default", *rows.sizes(), grad.dtype());
            gradients![grad.clone(), of_rows]
        })
    }

    /// `sort(self)` of a vector: in order, and where each came from.
    pub fn sort_places(&self) -> (Tensor, Tensor) {
        let steps = DeviceSteps::new(self.context(), |device| sort(self.numel(), self.dtype(), device));
        let dtypes = [self.dtype(), DType::Int64];
        let mut made =
            steps.run(self.context(), "sort.default", |at| contiguous(*self.sizes(), dtypes[usize::from(at)]));
        (made.take(0), made.take(1))
    }

    /// `self // number` of int64
    pub fn floor_divide(&self, _number: u64) -> Tensor {
        self.map("floor_divide.default", DType::Int64)
    }

    /// `clamp(self, 0, count - 1)` of int64
    pub fn clamp_places(&self, _count: u64) -> Tensor {
        self.map("clamp.default", DType::Int64)
    }

    /// `histc(self.int(), bins=count, min=0, max=count - 1)`: how many there are of each; the numbers as int32 too, which Python holds.
    pub fn count_each(&self, count: u64) -> [Tensor; 2] {
        let numbers = self.map("_to_copy.default", DType::Int32);
        let counts = full(self.context(), "histc.default", &[count], DType::Int32);
        [numbers, counts]
    }

    /// `bincount(self.reshape(-1), minlength=count).float()` (SummaryOps.cu); the least and the largest are looked up on the host first.
    pub fn count_chosen(&self, count: u64) -> Tensor {
        let op = "bincount.default";
        self.reduce_all(op, ReduceKind::WholeMax, self.dtype());
        self.reduce_all(op, ReduceKind::WholeMax, self.dtype());
        full(self.context(), op, &[count], DType::Int64).to(DType::Float32)
    }

    /// `zeros(count).scatter_add_(0, self.reshape(-1), mask.repeat_interleave(k))`, where `k` of `self` are one of the mask.
    pub fn count_chosen_where(&self, mask: &Tensor, count: u64) -> Tensor {
        let sums = full(self.context(), "zeros.default", &[count], mask.dtype());
        drop(full(self.context(), "clone.default", &[self.numel()], mask.dtype()));
        sums
    }

    /// `cumsum(self, dim=0, dtype=int32)` of a vector of int32
    pub fn running_sum(&self) -> Tensor {
        // Without a conversion, as of any type of 4 bytes.
        let steps = cumsum(1, self.numel(), DType::Float32, true);
        run_steps(self.context(), "cumsum.default", &steps, |_| contiguous(*self.sizes(), DType::Int32)).take(0)
    }

    /// `self[places]` of rows: the gradient is added up at the places.
    pub fn select_rows(&self, places: &Tensor) -> Tensor {
        self.select_along(0, places)
    }

    /// `self[:, places]`, or of another dimension.
    pub fn select_along(&self, at: usize, places: &Tensor) -> Tensor {
        let node = NodeBuilder::new("IndexBackward0", [self]);
        let saved = node.save(places);
        let out = Tensor::empty(self.context(), "index.Tensor", self.sizes().with(at, places.size(0)), self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let places = saved.unpack();
            let into = full(grad.context(), "new_zeros.default", &from, grad.dtype());
            let copied = copied_bytes(grad);
            let on = |device| index_put_accumulate((places.size(0), 1, from[at]), copied, device);
            let steps = DeviceSteps::new(grad.context(), on);
            steps.run(grad.context(), "_index_put_impl_.default", |_| contiguous(from, grad.dtype()));
            gradients![into]
        })
    }

    /// `inverse[self] = arange(n)`: where each of a permutation went.
    pub fn inverse_permutation(&self) -> Tensor {
        let inverse = self.empty_like();
        drop(full(self.context(), "arange.default", self.sizes(), DType::Int64));
        inverse
    }

    /// `masked_fill(self, mask, 0)`
    pub fn zero_where(&self, mask: &Tensor) -> Tensor {
        self.zero(mask, |this| this.unary("masked_fill.Scalar", this.dtype()))
    }

    /// `self.masked_fill_(mask, 0)`
    pub fn zero_where_in_place(&self, mask: &Tensor) -> Tensor {
        self.zero(mask, Tensor::detach)
    }

    fn zero(&self, mask: &Tensor, make: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let node = NodeBuilder::new("MaskedFillBackward0", [self]);
        let saved = node.save(mask);
        node.finish(make(self), move |grad| {
            let _mask = saved.unpack();
            gradients![grad.unary("masked_fill.Scalar", grad.dtype())]
        })
    }

    /// `self.sum(dim=0)` of a matrix
    pub fn sum_first(&self) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let from = *self.sizes();
        let sums = self.sum_along(0);
        node.finish(sums, move |grad| gradients![grad.unsqueeze(0).expand(&from)])
    }

    /// `self.sum(dim=1)` of three dimensions
    pub fn sum_middle(&self) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let from = *self.sizes();
        let sums = self.sum_along(1);
        node.finish(sums, move |grad| gradients![grad.unsqueeze(1).expand(&from)])
    }
}
