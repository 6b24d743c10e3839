//! Ops on positions and masks, which nobody differentiates.

use super::scratch::reduce::ReduceKind;
use crate::dtype::DType;
use crate::tensor::Tensor;

impl Tensor {
    /// `self + number` of integers
    pub(crate) fn add_int(&self, _number: u64) -> Tensor {
        self.map("add.Tensor", DType::Int64)
    }

    /// `self - number` of integers
    pub(crate) fn sub_int(&self, _number: u64) -> Tensor {
        self.map("sub.Tensor", DType::Int64)
    }

    /// `self == number`
    pub(crate) fn eq_number(&self, _number: f64) -> Tensor {
        self.map("eq.Scalar", DType::Bool)
    }

    /// `self != number`
    pub(crate) fn ne_number(&self, _number: f64) -> Tensor {
        self.map("ne.Scalar", DType::Bool)
    }

    /// `self > number`
    pub(crate) fn gt_number(&self, _number: f64) -> Tensor {
        self.map("gt.Scalar", DType::Bool)
    }

    /// `self < number`
    pub(crate) fn lt_number(&self, _number: f64) -> Tensor {
        self.map("lt.Scalar", DType::Bool)
    }

    /// `self == other`
    pub(crate) fn eq_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("eq.Tensor", other, DType::Bool)
    }

    /// `self > other`
    pub(crate) fn gt_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("gt.Tensor", other, DType::Bool)
    }

    /// `self <= other`
    pub(crate) fn le_tensor(&self, other: &Tensor) -> Tensor {
        self.binary("le.Tensor", other, DType::Bool)
    }

    /// `self & other`
    pub(crate) fn bitwise_and(&self, other: &Tensor) -> Tensor {
        self.binary("bitwise_and.Tensor", other, DType::Bool)
    }

    /// `~self` of booleans
    pub(crate) fn bitwise_not(&self) -> Tensor {
        self.map("bitwise_not.default", DType::Bool)
    }

    /// `abs(self)` of integers
    pub(crate) fn abs_int(&self) -> Tensor {
        self.map("abs.default", DType::Int64)
    }

    /// `cos(self)` of fp32 angles
    pub(crate) fn cos(&self) -> Tensor {
        self.map("cos.default", DType::Float32)
    }

    /// `sin(self)` of fp32 angles
    pub(crate) fn sin(&self) -> Tensor {
        self.map("sin.default", DType::Float32)
    }

    /// `triu(self, diagonal=1)`
    pub(crate) fn triu(&self) -> Tensor {
        self.map("triu.default", self.dtype())
    }

    /// `self.all()`
    pub(crate) fn all(&self) -> Tensor {
        self.reduce_all("all.default", ReduceKind::Any, DType::Bool)
    }

    /// `self.sum()` of booleans or integers
    pub(crate) fn sum_int(&self) -> Tensor {
        self.reduce_all("sum.default", ReduceKind::Sum, DType::Int64)
    }

    /// `self.max()` of integers
    pub(crate) fn max_int(&self) -> Tensor {
        self.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64)
    }

    /// `self.min()` of integers
    pub(crate) fn min_int(&self) -> Tensor {
        self.reduce_all("min.default", ReduceKind::WholeMax, DType::Int64)
    }
}
