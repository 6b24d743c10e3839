//! Drawing and looking up tokens: `multinomial` (Distributions.cpp) and `isin` (TensorCompare.cpp), outside autograd.

use super::ReduceKind;
use super::create::full;
use crate::dtype::DType;
use crate::tensor::Tensor;

const MULTINOMIAL: &str = "multinomial.default";

impl Tensor {
    /// `multinomial(self, num_samples=1)` of the probabilities [rows, classes]: the class of the largest quotient with an
    /// exponentially distributed number.
    pub fn multinomial_one(&self) -> Tensor {
        let result = full(self.context(), MULTINOMIAL, &[self.size(0), 1], DType::Int64);
        let _is_valid = self.is_distribution();
        let has_empty_row = self.has_empty_row();
        drop(has_empty_row.map("bitwise_not.default", DType::Bool));
        let quotients = self.unary(MULTINOMIAL, self.dtype());
        quotients.reduce_last_into("argmax.out", ReduceKind::ArgMax, DType::Int64);
        result
    }

    /// `(self.sum(1) == 0).any()`
    fn has_empty_row(&self) -> Tensor {
        let sums = self.reduce_last("sum.dim_IntList", ReduceKind::Sum, self.dtype());
        let is_empty = sums.map("eq.Scalar", DType::Bool);
        is_empty.reduce_all("any.default", ReduceKind::Any, DType::Bool)
    }

    /// `(self.max() < inf) & (self.min() >= 0)`; C++ evaluates the right side first.
    fn is_distribution(&self) -> Tensor {
        let smallest = self.reduce_all("min.default", ReduceKind::WholeMax, self.dtype());
        let is_positive = smallest.map("ge.Scalar", DType::Bool);
        let largest = self.reduce_all("max.default", ReduceKind::WholeMax, self.dtype());
        let is_finite = largest.map("lt.Scalar", DType::Bool);
        is_finite.binary("bitwise_and.Tensor", &is_positive, DType::Bool)
    }

    /// `isin(self, tokens)` for a few tokens: compares with every one.
    pub fn is_in(&self, tokens: &Tensor) -> Tensor {
        let result = self.unary("isin.Tensor_Tensor", DType::Bool);
        let last = self.sizes().len();
        let equal = self.unsqueeze(last).binary("eq.Tensor", tokens, DType::Bool);
        equal.reduce_last("any.dim", ReduceKind::Any, DType::Bool);
        result
    }
}
