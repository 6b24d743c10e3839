//! Ops on positions and masks, which nobody differentiates.

use std::ops::Range;

use super::create::full;
use super::reduce::only;
use super::scratch::reduce::ReduceKind;
use crate::dtype::DType;
use crate::tensor::Tensor;

impl Tensor {
    /// `self + number` of integers
    pub fn add_int(&self, _number: u64) -> Tensor {
        self.map("add.Tensor", self.dtype())
    }

    /// `self - number` of integers
    pub fn sub_int(&self, _number: u64) -> Tensor {
        self.map("sub.Tensor", DType::Int64)
    }

    /// `self == number`
    pub fn eq_number(&self, _number: f64) -> Tensor {
        self.map("eq.Scalar", DType::Bool)
    }

    /// `self != number`
    pub fn ne_number(&self, _number: f64) -> Tensor {
        self.map("ne.Scalar", DType::Bool)
    }

    /// `self > number`
    pub fn gt_number(&self, _number: f64) -> Tensor {
        self.map("gt.Scalar", DType::Bool)
    }

    /// `self < number`
    pub fn lt_number(&self, _number: f64) -> Tensor {
        self.map("lt.Scalar", DType::Bool)
    }

    /// `self >= number`
    pub fn ge_number(&self, _number: f64) -> Tensor {
        self.map("ge.Scalar", DType::Bool)
    }

    /// `self >= other`
    pub fn ge_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("ge.Tensor", other, DType::Bool)
    }

    /// `self | other`
    pub fn bitwise_or(&self, other: &Tensor) -> Tensor {
        self.binary("bitwise_or.Tensor", other, DType::Bool)
    }

    /// `self == other`
    pub fn eq_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("eq.Tensor", other, DType::Bool)
    }

    /// `self > other`
    pub fn gt_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("gt.Tensor", other, DType::Bool)
    }

    /// `self <= number`
    pub fn le_number(&self, _number: f64) -> Tensor {
        self.map("le.Scalar", DType::Bool)
    }

    /// `self <= other`
    pub fn le_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("le.Tensor", other, DType::Bool)
    }

    /// `self & other`
    pub fn bitwise_and(&self, other: &Tensor) -> Tensor {
        self.binary("bitwise_and.Tensor", other, DType::Bool)
    }

    /// `~self` of booleans
    pub fn bitwise_not(&self) -> Tensor {
        self.map("bitwise_not.default", DType::Bool)
    }

    /// `abs(self)` of integers
    pub fn abs_int(&self) -> Tensor {
        self.map("abs.default", DType::Int64)
    }

    /// `floor(self)`
    pub fn floor(&self) -> Tensor {
        self.map("floor.default", self.dtype())
    }

    /// `self / number` of integers, in fp32
    pub fn divide_int(&self, _number: u64) -> Tensor {
        self.map("div.Tensor", DType::Float32)
    }

    /// `cos(self)` of fp32 angles
    pub fn cos(&self) -> Tensor {
        self.map("cos.default", DType::Float32)
    }

    /// `sin(self)` of fp32 angles
    pub fn sin(&self) -> Tensor {
        self.map("sin.default", DType::Float32)
    }

    /// `triu(self, diagonal=1)`
    pub fn triu(&self) -> Tensor {
        self.map("triu.default", self.dtype())
    }

    /// `tril(self)`, with or without the diagonal
    pub fn tril(&self) -> Tensor {
        self.map("tril.default", self.dtype())
    }

    /// `empty_like(self)`
    pub fn empty_like(&self) -> Tensor {
        self.map("empty_like.default", self.dtype())
    }

    /// `rand_like(self)`
    pub fn rand_like(&self) -> Tensor {
        self.map("rand_like.default", self.dtype())
    }

    /// `randint_like(self, low, high)`
    pub fn randint_like(&self, _range: Range<u64>) -> Tensor {
        self.map("randint_like.low_dtype", self.dtype())
    }

    /// `clamp_min(self, number)` of integers
    pub fn clamp_min_int(&self, _number: u64) -> Tensor {
        self.map("clamp_min.default", self.dtype())
    }

    /// `number ** self`; the number becomes a tensor on the way.
    pub fn power_of(&self, _number: f64) -> Tensor {
        let powers = self.map("pow.Scalar", self.dtype());
        drop(full(self.context(), "scalar_tensor.default", &[], DType::Float64));
        powers
    }

    /// `self.sum(-1)` of booleans
    pub fn count_last(&self) -> Tensor {
        self.reduce_last("sum.dim_IntList", ReduceKind::Sum, DType::Int64)
    }

    /// `argmax(self, -1)`
    pub fn argmax_last(&self) -> Tensor {
        self.reduce_last("argmax.default", ReduceKind::ArgMax, DType::Int64)
    }

    /// `self.copy_(other)` of the same sizes and dtype, which allocates nothing.
    pub fn copy_from(&self, _other: &Tensor) {}

    /// `self.scatter_(1, places, 1)`, which allocates nothing.
    pub fn set_ones_at(&self, _places: &Tensor) {}

    /// Which columns of `[rows, columns]` booleans have one that is true: `[columns]` (`any(dim=0)`).
    pub fn any_row(&self) -> Tensor {
        self.reduce_to("any.dim", ReduceKind::Any, &only(0), self.sizes().removed(0))
    }

    /// `self.max(-1)`: values and their places
    pub fn largest_last(&self) -> [Tensor; 2] {
        let sizes = self.sizes().removed(self.sizes().len().saturating_sub(1));
        [self.dtype(), DType::Int64].map(|dtype| full(self.context(), "max.dim", &sizes, dtype))
    }

    /// `self.any()`
    pub fn any(&self) -> Tensor {
        self.reduce_all("any.default", ReduceKind::Any, DType::Bool)
    }

    /// `self.all()`
    pub fn all(&self) -> Tensor {
        self.reduce_all("all.default", ReduceKind::Any, DType::Bool)
    }

    /// `self.sum()` of booleans or integers
    pub fn sum_int(&self) -> Tensor {
        self.reduce_all("sum.default", ReduceKind::Sum, DType::Int64)
    }

    /// `self.max()` of integers
    pub fn max_int(&self) -> Tensor {
        self.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64)
    }

    /// `self.min()` of integers
    pub fn min_int(&self) -> Tensor {
        self.reduce_all("min.default", ReduceKind::WholeMax, DType::Int64)
    }
}
