//! [`Tensor`]: a handle on PyTorch's own, with its sizes and dtype at hand.

use std::ops::{Add, Mul, Sub};
use std::rc::Rc;

use tonnage_torch::{Argument, Operator, operator};

use super::context::Context;
use super::shape::Shape;
use super::stop::or_stop;
use crate::dtype::DType;
use crate::precision::{dtype_of, scalar_type};

/// A tensor of a model. A clone is another Python name of it.
#[derive(Clone)]
pub(crate) struct Tensor {
    inner: Rc<tonnage_torch::Tensor>,
    sizes: Shape,
    dtype: DType,
    context: Rc<Context>,
}

/// Sizes as an operator takes them.
pub(crate) fn ints(sizes: &[u64]) -> Argument<'static> {
    Argument::Ints(sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect())
}

impl<'a> From<&'a Tensor> for Argument<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Argument::Tensor(&tensor.inner)
    }
}

impl Tensor {
    /// A tensor of PyTorch's.
    pub(crate) fn of(context: &Rc<Context>, inner: tonnage_torch::Tensor) -> Self {
        let sizes: Vec<u64> = inner.sizes().iter().map(|&size| u64::try_from(size).unwrap_or_default()).collect();
        let dtype = dtype_of(or_stop(inner.scalar_type()));
        Self { inner: Rc::new(inner), sizes: Shape::new(&sizes), dtype, context: Rc::clone(context) }
    }

    /// Numbers of the host, on the device.
    pub(crate) fn of_numbers(context: &Rc<Context>, numbers: &[f64], sizes: &[u64], dtype: DType) -> Self {
        let sizes: Vec<i64> = sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
        let host = or_stop(context.torch.tensor(numbers, &sizes));
        let arguments = [Argument::Tensor(&host), scalar_type(dtype).into()];
        let cast = or_stop(context.torch.call(operator!("to", "dtype"), &arguments).and_then(|made| made.tensor()));
        Self::of(context, or_stop(cast.to_device(context.device)))
    }

    /// The engine's tensor.
    pub(crate) fn inner(&self) -> &tonnage_torch::Tensor {
        &self.inner
    }

    /// Runs an operator on this tensor and more arguments.
    pub(crate) fn run<const N: usize>(&self, operator: &'static Operator, more: [Argument<'_>; N]) -> Self {
        let arguments: smallvec::SmallVec<[Argument<'_>; 10]> =
            [Argument::from(self)].into_iter().chain(more).collect();
        Self::of(&self.context, or_stop(self.context.torch.call(operator, &arguments).and_then(|made| made.tensor())))
    }

    /// A tensor without memory of its own.
    pub(crate) fn nowhere(context: &Rc<Context>, sizes: Shape, dtype: DType) -> Self {
        crate::op::empty(context, &sizes, dtype)
    }

    /// Itself, as a leaf that gradients are computed for.
    pub(crate) fn into_parameter(self) -> Self {
        let inner = or_stop((*self.inner).clone().requiring_grad());
        Self { inner: Rc::new(inner), ..self }
    }

    /// The same in a forward hook of the module that made it.
    pub(crate) fn require_grad_in_hook(self) -> Self {
        self.into_parameter()
    }

    pub(crate) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    pub(crate) fn sizes(&self) -> &Shape {
        &self.sizes
    }

    /// The size of a dimension, counted from the end where negative.
    pub(crate) fn size(&self, at: isize) -> u64 {
        let at = if at < 0 { self.sizes.len().wrapping_add_signed(at) } else { at.unsigned_abs() };
        self.sizes.get(at).copied().unwrap_or(1)
    }

    pub(crate) fn numel(&self) -> u64 {
        self.sizes.numel()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }
}

macro_rules! arithmetic {
    ($trait:ident, $method:ident, $name:literal) => {
        impl $trait for &Tensor {
            type Output = Tensor;

            fn $method(self, other: &Tensor) -> Tensor {
                self.run(operator!($name, "Tensor"), [other.into()])
            }
        }
    };
}

arithmetic!(Add, add, "add");
arithmetic!(Sub, sub, "sub");
arithmetic!(Mul, mul, "mul");
