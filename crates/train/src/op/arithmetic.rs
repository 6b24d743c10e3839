//! Arithmetic with numbers, activations and reductions.

use tonnage_torch::{Argument, operator};

use crate::dtype::DType;
use crate::precision::scalar_type;
use crate::tensor::{Tensor, ints};

use super::undifferentiated::scalar;

/// `gelu`'s `approximate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gelu {
    /// `none`
    Exact,
    /// `tanh`
    Tanh,
}

impl Tensor {
    /// `self * number`
    pub(crate) fn mul_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("mul", "Scalar"), [number.into()])
    }

    /// `self += other`
    pub(crate) fn add_in_place(&self, other: &Tensor) -> Tensor {
        self.run(operator!("add_", "Tensor"), [other.into()])
    }

    /// `self *= other`
    pub(crate) fn mul_in_place(&self, other: &Tensor) -> Tensor {
        self.run(operator!("mul_", "Tensor"), [other.into()])
    }

    /// `linalg.norm(self, dim=1)` of a matrix
    pub(crate) fn norm_of_rows(&self) -> Tensor {
        self.run(operator!("linalg_vector_norm"), [2.0.into(), ints(&[1])])
    }

    /// `self + number`
    pub(crate) fn add_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("add", "Scalar"), [number.into()])
    }

    /// `self / number`
    pub(crate) fn div_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("div", "Scalar"), [number.into()])
    }

    /// `bmm(self, other)` of two stacks of matrices
    pub(crate) fn bmm(&self, other: &Tensor) -> Tensor {
        self.run(operator!("bmm"), [other.into()])
    }

    /// `self / other`
    pub(crate) fn div_by(&self, other: &Tensor) -> Tensor {
        self.run(operator!("div", "Tensor"), [other.into()])
    }

    /// `self ** number`
    pub(crate) fn pow_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("pow", "Tensor_Scalar"), [number.into()])
    }

    /// `number - self`
    pub(crate) fn rsub_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("rsub", "Scalar"), [number.into()])
    }

    /// `self.clamp_(-limit, limit)`
    pub(crate) fn clamp_in_place(&self, limit: f64) -> Tensor {
        self.run(operator!("clamp_"), [(-limit).into(), limit.into()])
    }

    /// `self.clamp(-limit, limit)`, not in place.
    pub(crate) fn clamp_both(&self, limit: f64) -> Tensor {
        self.run(operator!("clamp"), [(-limit).into(), limit.into()])
    }

    /// `self.clamp(max=limit)`, without a lower bound.
    pub(crate) fn clamp_max(&self, limit: f64) -> Tensor {
        self.run(operator!("clamp_max"), [limit.into()])
    }

    /// `self - other`
    pub(crate) fn sub(&self, other: &Tensor) -> Tensor {
        self.run(operator!("sub", "Tensor"), [other.into()])
    }

    /// `self - number`
    pub(crate) fn sub_scalar(&self, number: f64) -> Tensor {
        self.run(operator!("sub", "Scalar"), [number.into()])
    }

    /// `-self`
    pub(crate) fn neg(&self) -> Tensor {
        self.run(operator!("neg"), [])
    }

    /// `self / other`
    pub(crate) fn div(&self, other: &Tensor) -> Tensor {
        self.run(operator!("div", "Tensor"), [other.into()])
    }

    /// `1 / self`
    pub(crate) fn reciprocal(&self) -> Tensor {
        self.run(operator!("reciprocal"), [])
    }

    /// `log(self)`
    pub(crate) fn log(&self) -> Tensor {
        self.run(operator!("log"), [])
    }

    /// `exp(self)`
    pub(crate) fn exp(&self) -> Tensor {
        self.run(operator!("exp"), [])
    }

    /// `softplus(self)`
    pub(crate) fn softplus(&self) -> Tensor {
        self.run(operator!("softplus"), [])
    }

    /// `tanh(self)`
    pub(crate) fn tanh(&self) -> Tensor {
        self.run(operator!("tanh"), [])
    }

    /// `rsqrt(self)`
    pub(crate) fn rsqrt(&self) -> Tensor {
        self.run(operator!("rsqrt"), [])
    }

    /// `silu(self)`
    pub(crate) fn silu(&self) -> Tensor {
        self.run(operator!("silu"), [])
    }

    /// `relu(self)`
    pub(crate) fn relu(&self) -> Tensor {
        self.run(operator!("relu"), [])
    }

    /// `gelu(self, approximate)`
    pub(crate) fn gelu(&self, approximate: Gelu) -> Tensor {
        let approximate = match approximate {
            Gelu::Exact => "none",
            Gelu::Tanh => "tanh",
        };
        self.run(operator!("gelu"), [approximate.into()])
    }

    /// `self.mean(-1, keepdim=True)`
    pub(crate) fn mean_last(&self) -> Tensor {
        self.run(operator!("mean", "dim"), [[-1].into(), true.into()])
    }

    /// `self.mean(dim=at)`
    pub(crate) fn mean_without(&self, at: usize) -> Tensor {
        self.run(operator!("mean", "dim"), [ints(&[at as u64])])
    }

    /// `self.std(-1, keepdim=True, unbiased=False)`
    pub(crate) fn std_last(&self) -> Tensor {
        self.run(operator!("std", "dim"), [[-1].into(), false.into(), true.into()])
    }

    pub(crate) fn sqrt(&self) -> Tensor {
        self.run(operator!("sqrt"), [])
    }

    /// `maximum(self, bound)`
    pub(crate) fn at_least(&self, bound: &Tensor) -> Tensor {
        self.run(operator!("maximum"), [bound.into()])
    }

    /// `Normal(0, 1).icdf(self)`
    pub(crate) fn normal_quantile(&self) -> Tensor {
        self.mul_scalar(2.0).sub_scalar(1.0).run(operator!("erfinv"), []).mul_scalar(2.0_f64.sqrt())
    }

    /// `self.data.clamp_(-limit, limit)`
    pub(crate) fn clamp_data(&self, limit: f64) {
        self.detach().run(operator!("clamp_"), [(-limit).into(), limit.into()]);
    }

    /// `self.sum(-1, keepdim=True)`
    pub(crate) fn sum_last(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[-1].into(), true.into()])
    }

    /// `self.sum(-1)`: one number of each row.
    pub(crate) fn sum_each(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[-1].into()])
    }

    /// `self.sum(dim=1)` of a matrix
    pub(crate) fn sum_rows(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[1].into()])
    }

    /// `self.sum()`
    pub(crate) fn sum(&self) -> Tensor {
        self.run(operator!("sum"), [])
    }

    /// `softmax(self, dim=-1, dtype)`
    pub(crate) fn softmax(&self, dtype: Option<DType>) -> Tensor {
        let dtype = dtype.map_or(Argument::None, |dtype| scalar_type(dtype).into());
        self.run(operator!("softmax", "int"), [Argument::Int(-1), dtype])
    }

    /// `dropout(self, p, train)`; without training or probability it is the input itself.
    pub(crate) fn dropout(&self, p: f64, train: bool) -> Tensor {
        if p == 0.0 || !train { self.clone() } else { self.run(operator!("dropout"), [p.into(), true.into()]) }
    }

    /// `masked_fill(self, mask, number)`
    pub(crate) fn masked_fill(&self, mask: &Tensor, number: f64) -> Tensor {
        self.run(operator!("masked_fill", "Scalar"), [mask.into(), number.into()])
    }

    /// `where(self as the condition, kept, other)`
    pub(crate) fn choose(&self, kept: &Tensor, other: &Tensor) -> Tensor {
        self.run(operator!("where", "self"), [kept.into(), other.into()])
    }

    /// `where(self as the condition, kept, number)`
    pub(crate) fn choose_or_number(&self, kept: &Tensor, number: f64) -> Tensor {
        self.run(operator!("where", "ScalarOther"), [kept.into(), scalar(number)])
    }

    /// `where(self as the condition, number, other)`
    pub(crate) fn choose_number(&self, number: f64, other: &Tensor) -> Tensor {
        self.run(operator!("where", "ScalarSelf"), [scalar(number), other.into()])
    }
}
