//! Ops on positions and masks, which nobody differentiates.

use std::ops::Range;

use tonnage_torch::{Argument, operator};

use crate::tensor::{Tensor, or_stop};

fn int(number: u64) -> Argument<'static> {
    Argument::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A whole number stays one: integers are compared with it.
pub(super) fn scalar(number: f64) -> Argument<'static> {
    if number.fract() == 0.0 && number.abs() < 1e15 { Argument::Int(number as i64) } else { Argument::Double(number) }
}

impl Tensor {
    /// `self + number` of integers
    pub(crate) fn add_int(&self, number: u64) -> Tensor {
        self.run(operator!("add", "Scalar"), [int(number)])
    }

    /// `self - number` of integers
    pub(crate) fn sub_int(&self, number: u64) -> Tensor {
        self.run(operator!("sub", "Scalar"), [int(number)])
    }

    /// `self >= number`
    pub(crate) fn ge_number(&self, number: f64) -> Tensor {
        self.run(operator!("ge", "Scalar"), [scalar(number)])
    }

    /// `self >= other`
    pub(crate) fn ge_tensor(&self, other: &Tensor) -> Tensor {
        self.run(operator!("ge", "Tensor"), [other.into()])
    }

    /// `self | other`
    pub(crate) fn bitwise_or(&self, other: &Tensor) -> Tensor {
        self.run(operator!("bitwise_or", "Tensor"), [other.into()])
    }

    /// `self == number`
    pub(crate) fn eq_number(&self, number: f64) -> Tensor {
        self.run(operator!("eq", "Scalar"), [scalar(number)])
    }

    /// `self != number`
    pub(crate) fn ne_number(&self, number: f64) -> Tensor {
        self.run(operator!("ne", "Scalar"), [scalar(number)])
    }

    /// `self > number`
    pub(crate) fn gt_number(&self, number: f64) -> Tensor {
        self.run(operator!("gt", "Scalar"), [scalar(number)])
    }

    /// `self < number`
    pub(crate) fn lt_number(&self, number: f64) -> Tensor {
        self.run(operator!("lt", "Scalar"), [scalar(number)])
    }

    /// `self == other`
    pub(crate) fn eq_tensor(&self, other: &Tensor) -> Tensor {
        self.run(operator!("eq", "Tensor"), [other.into()])
    }

    /// `self > other`
    pub(crate) fn gt_tensor(&self, other: &Tensor) -> Tensor {
        self.run(operator!("gt", "Tensor"), [other.into()])
    }

    /// `self <= number`
    pub(crate) fn le_number(&self, number: f64) -> Tensor {
        self.run(operator!("le", "Scalar"), [scalar(number)])
    }

    /// `self <= other`
    pub(crate) fn le_tensor(&self, other: &Tensor) -> Tensor {
        self.run(operator!("le", "Tensor"), [other.into()])
    }

    /// `self & other`
    pub(crate) fn bitwise_and(&self, other: &Tensor) -> Tensor {
        self.run(operator!("bitwise_and", "Tensor"), [other.into()])
    }

    /// `~self` of booleans
    pub(crate) fn bitwise_not(&self) -> Tensor {
        self.run(operator!("bitwise_not"), [])
    }

    /// `abs(self)` of integers
    pub(crate) fn abs_int(&self) -> Tensor {
        self.run(operator!("abs"), [])
    }

    /// `floor(self)`
    pub(crate) fn floor(&self) -> Tensor {
        self.run(operator!("floor"), [])
    }

    /// `self / number` of integers, in fp32
    pub(crate) fn divide_int(&self, number: u64) -> Tensor {
        self.run(operator!("div", "Scalar"), [int(number)])
    }

    pub(crate) fn log1p(&self) -> Tensor {
        self.run(operator!("log1p"), [])
    }

    /// `cos(self)` of fp32 angles
    pub(crate) fn cos(&self) -> Tensor {
        self.run(operator!("cos"), [])
    }

    /// `sin(self)` of fp32 angles
    pub(crate) fn sin(&self) -> Tensor {
        self.run(operator!("sin"), [])
    }

    /// `cumsum(self, -1)`
    pub(crate) fn cumsum(&self) -> Tensor {
        self.run(operator!("cumsum"), [Argument::Int(-1)])
    }

    /// `triu(self, diagonal=1)`
    pub(crate) fn triu(&self) -> Tensor {
        self.run(operator!("triu"), [Argument::Int(1)])
    }

    /// `empty_like(self)`
    pub(crate) fn empty_like(&self) -> Tensor {
        self.run(operator!("empty_like"), [])
    }

    /// `rand_like(self)`
    pub(crate) fn rand_like(&self) -> Tensor {
        self.run(operator!("rand_like"), [])
    }

    /// `randint_like(self, low, high)`
    pub(crate) fn randint_like(&self, range: Range<u64>) -> Tensor {
        self.run(operator!("randint_like", "low_dtype"), [int(range.start), int(range.end)])
    }

    /// `clamp_min(self, number)` of integers
    pub(crate) fn clamp_min_int(&self, number: u64) -> Tensor {
        self.run(operator!("clamp_min"), [int(number)])
    }

    /// `maximum(self, other)` of one dtype
    pub(crate) fn maximum(&self, other: &Tensor) -> Tensor {
        self.run(operator!("maximum"), [other.into()])
    }

    /// `sigmoid(self)`
    pub(crate) fn sigmoid(&self) -> Tensor {
        self.run(operator!("sigmoid"), [])
    }

    /// `self.sum(-1)` of booleans
    pub(crate) fn count_last(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[-1].into()])
    }

    /// `argmax(self, -1)`
    pub(crate) fn argmax_last(&self) -> Tensor {
        self.run(operator!("argmax"), [Argument::Int(-1)])
    }

    /// `self.copy_(other)` of the same sizes and dtype
    pub(crate) fn copy_from(&self, other: &Tensor) {
        or_stop(self.context().torch.call(operator!("copy_"), &[self.into(), other.into()]).map(drop));
    }

    /// `self.any()`
    pub(crate) fn any(&self) -> Tensor {
        self.run(operator!("any"), [])
    }

    /// `zeros_like(self)`
    pub(crate) fn zeros_like(&self) -> Tensor {
        self.run(operator!("zeros_like"), [])
    }

    /// `self.nonzero()`
    pub(crate) fn places(&self, _count: u64) -> Tensor {
        self.run(operator!("nonzero"), [])
    }

    /// `self.all()`
    pub(crate) fn all(&self) -> Tensor {
        self.run(operator!("all"), [])
    }

    /// `self.sum()` of booleans or integers
    pub(crate) fn sum_int(&self) -> Tensor {
        self.run(operator!("sum"), [])
    }

    /// `self.max()` of integers
    pub(crate) fn max_int(&self) -> Tensor {
        self.run(operator!("max"), [])
    }

    /// `self.min()` of integers
    pub(crate) fn min_int(&self) -> Tensor {
        self.run(operator!("min"), [])
    }
}
