//! Elementwise arithmetic (BinaryOps, UnaryOps, PowKernel): results follow TensorIterator's dtype and stride rules. Numbers change no
//! byte; they are there for whoever computes with them.

use std::ops::{Add, Mul, Sub};

use crate::dtype::DType;
use crate::tensor::{Layout, NodeBuilder, Saved, Shape, Tensor, broadcast, gradients};

/// In place of a number that nobody computes with: the loops of trainers are simulated only.
pub const UNTOLD: f64 = f64::NAN;

/// The dtype of an elementwise result; a tensor without dimensions only counts when its kind is higher.
pub(super) fn promote(a: &Tensor, b: &Tensor) -> DType {
    let (left, right) = (a.dtype(), b.dtype());
    let same_kind = left.is_floating_point() == right.is_floating_point();
    match (a.sizes().is_empty(), b.sizes().is_empty()) {
        (true, false) if same_kind => right,
        (false, true) if same_kind => left,
        _ => promote_types(left, right),
    }
}

/// `torch.promote_types`: two different halves meet in fp32.
pub(super) fn promote_types(left: DType, right: DType) -> DType {
    match (left.is_floating_point(), right.is_floating_point()) {
        (true, false) => left,
        (false, true) => right,
        _ if left == right => left,
        _ if left.is_half() && right.is_half() => DType::Float32,
        _ if left.size() >= right.size() => left,
        _ => right,
    }
}

impl Tensor {
    /// The result of an elementwise op over `self` and `other`, outside autograd.
    pub fn binary(&self, op: &'static str, other: &Tensor, dtype: DType) -> Tensor {
        let sizes = broadcast(self.sizes(), other.sizes());
        let layout = Layout::elementwise(sizes, [self.layout(), other.layout()]);
        self.context().count_bytes(other.bytes());
        Tensor::empty_strided(self.context(), op, layout, dtype)
    }

    /// The result of an elementwise op over `self` alone, outside autograd.
    pub fn unary(&self, op: &'static str, dtype: DType) -> Tensor {
        Tensor::empty_strided(self.context(), op, self.dense_layout(), dtype)
    }

    /// `empty_like`'s layout: its own when dense, else its dimensions in the order of its strides.
    pub fn dense_layout(&self) -> Layout {
        if self.is_contiguous() {
            return Layout::contiguous(*self.sizes());
        }
        Layout::elementwise(*self.sizes(), [self.layout()])
    }

    /// `self + other`
    pub fn add(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("AddBackward0", [self, other]);
        let out = self.binary("add.Tensor", other, promote(self, other));
        node.finish(out, |grad| gradients![grad.clone(), grad.clone()])
    }

    /// `self - other`
    pub fn sub(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("SubBackward0", [self, other]);
        let needs_other = node.needs(1);
        let out = self.binary("sub.Tensor", other, promote(self, other));
        node.finish(out, move |grad| {
            let other = needs_other.then(|| grad.unary("neg.default", grad.dtype()));
            gradients![grad.clone(), other]
        })
    }

    /// `self * other`; each is saved only for the other's gradient.
    pub fn mul(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MulBackward0", [self, other]);
        let saved_other = node.save_for(0, other);
        let saved_self = node.save_for(1, self);
        let out = self.binary("mul.Tensor", other, promote(self, other));
        node.finish(out, move |grad| {
            let (other, this) = (saved_other.as_ref().map(Saved::unpack), saved_self.as_ref().map(Saved::unpack));
            let other_grad = this.as_ref().map(|this| grad.mul(this));
            let this_grad = other.as_ref().map(|other| grad.mul(other));
            gradients![this_grad, other_grad]
        })
    }

    /// `self * number`
    pub fn mul_scalar(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("MulBackward0", [self]);
        let out = self.unary("mul.Tensor", self.dtype());
        node.finish(out, |grad| gradients![grad.unary("mul.Tensor", grad.dtype())])
    }

    /// `self *= other`, a factor that nobody differentiates
    pub fn mul_in_place(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MulBackward0", [self]);
        let saved_other = node.save_for(0, other);
        node.finish(self.detach(), move |grad| gradients![saved_other.as_ref().map(|other| grad.mul(&other.unpack()))])
    }

    /// `self *= number`
    pub fn mul_scalar_in_place(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("MulBackward0", [self]);
        node.finish(self.detach(), |grad| gradients![grad.unary("mul.Tensor", grad.dtype())])
    }

    /// `self.clamp_(-limit, limit)`; the gradient needs what it was, which is copied.
    pub fn clamp_in_place(&self, _limit: f64) -> Tensor {
        let node = NodeBuilder::new("ClampBackward1", [self]);
        let original = node.needs(0).then(|| node.save(&self.map("clone.default", self.dtype())));
        node.finish(self.detach(), move |grad| {
            let original = original.as_ref().map_or_else(|| grad.clone(), Saved::unpack);
            gradients![clamp_gradient(grad, &original, &["ge.Scalar", "le.Scalar"])]
        })
    }

    /// `self.data.clamp_(-limit, limit)`, which nobody differentiates
    pub fn clamp_data(&self, _limit: f64) {}

    /// `self.clamp(-limit, limit)`, not in place.
    pub fn clamp_both(&self, _limit: f64) -> Tensor {
        self.clamped(&["ge.Scalar", "le.Scalar"])
    }

    /// `self.clamp(max=limit)`, without a lower bound.
    pub fn clamp_max(&self, _limit: f64) -> Tensor {
        self.clamped(&["le.Scalar"])
    }

    /// No element below `_limit`; the gradient is that of elements above it (`clamp_min`).
    pub fn clamp_min(&self, _limit: f64) -> Tensor {
        self.clamped(&["ge.Scalar"])
    }

    fn clamped(&self, comparisons: &'static [&'static str]) -> Tensor {
        let node = NodeBuilder::new("ClampBackward1", [self]);
        let saved = node.save(self);
        let out = self.unary("clamp.default", self.dtype());
        node.finish(out, move |grad| gradients![clamp_gradient(grad, &saved.unpack(), comparisons)])
    }

    /// `self += other`
    pub fn add_in_place(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("AddBackward0", [self, other]);
        node.finish(self.detach(), |grad| gradients![grad.clone(), grad.clone()])
    }

    /// `self + number`
    pub fn add_scalar(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("AddBackward0", [self]);
        let out = self.unary("add.Tensor", self.dtype());
        node.finish(out, |grad| gradients![grad.clone()])
    }

    /// `self += number`
    pub fn add_scalar_in_place(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("AddBackward0", [self]);
        node.finish(self.detach(), |grad| gradients![grad.clone()])
    }

    /// `self - number`
    pub fn sub_scalar(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("SubBackward0", [self]);
        let out = self.unary("sub.Tensor", self.dtype());
        node.finish(out, |grad| gradients![grad.clone()])
    }

    /// `self / number`
    pub fn div_scalar(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("DivBackward0", [self]);
        let out = self.unary("div.Tensor", self.dtype());
        node.finish(out, |grad| gradients![grad.unary("div.Tensor", grad.dtype())])
    }

    /// `self / other`, a divisor that nobody differentiates
    pub fn div_by(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("DivBackward0", [self]);
        let saved_other = node.save(other);
        let out = self.binary("div.Tensor", other, promote(self, other));
        node.finish(out, move |grad| {
            let other = saved_other.unpack();
            gradients![grad.binary("div.Tensor", &other, promote(grad, &other))]
        })
    }

    /// `exp(self)`; on autocast's fp32 list.
    pub fn exp(&self) -> Tensor {
        let input = self.cast_to_float32();
        let node = NodeBuilder::new("ExpBackward0", [&input]);
        let out = input.unary("exp.default", input.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            gradients![grad.mul(&result)]
        })
    }

    /// `-self`
    pub fn neg(&self) -> Tensor {
        let node = NodeBuilder::new("NegBackward0", [self]);
        let out = self.unary("neg.default", self.dtype());
        node.finish(out, |grad| gradients![grad.unary("neg.default", grad.dtype())])
    }

    /// `self ** number`; on autocast's fp32 list.
    pub fn pow_scalar(&self, _number: f64) -> Tensor {
        let base = self.cast_to_float32();
        let node = NodeBuilder::new("PowBackward0", [&base]);
        let saved = node.save(&base);
        let out = base.unary("pow.Tensor_Scalar", base.dtype());
        node.finish(out, move |grad| {
            let base = saved.unpack();
            let power = base.unary("pow.Tensor_Scalar", base.dtype());
            let scaled = power.unary("mul.Scalar", power.dtype());
            gradients![grad.mul(&scaled)]
        })
    }

    /// `tanh(self)`
    pub fn tanh(&self) -> Tensor {
        let node = NodeBuilder::new("TanhBackward0", [self]);
        let out = self.unary("tanh.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            gradients![grad.binary("tanh_backward.default", &result, promote(grad, &result))]
        })
    }

    /// `rsqrt(self)`; on autocast's fp32 list.
    pub fn rsqrt(&self) -> Tensor {
        let input = self.cast_to_float32();
        let node = NodeBuilder::new("RsqrtBackward0", [&input]);
        let out = input.unary("rsqrt.default", input.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            let cubed = result.unary("pow.Tensor_Scalar", result.dtype());
            let scaled = grad.unary("mul.Scalar", grad.dtype());
            gradients![scaled.mul(&cubed)]
        })
    }

    /// `zeros_like(self)`
    pub fn zeros_like(&self) -> Tensor {
        self.unary("zeros_like.default", self.dtype())
    }

    /// `ones_like(self)`
    pub fn ones_like(&self) -> Tensor {
        self.unary("ones_like.default", self.dtype())
    }

    /// An op on values nobody differentiates (positions, masks), with a result of another dtype.
    pub fn map(&self, op: &'static str, dtype: DType) -> Tensor {
        self.unary(op, dtype)
    }
}

/// The gradient of a clamp where `this` was compared with its bounds.
fn clamp_gradient(grad: &Tensor, this: &Tensor, comparisons: &[&'static str]) -> Tensor {
    let _zero = Tensor::empty(grad.context(), "scalar_tensor.default", Shape::new(&[]), grad.dtype());
    let _within: Vec<Tensor> = comparisons.iter().map(|comparison| this.map(comparison, DType::Bool)).collect();
    grad.unary("where.self", grad.dtype())
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl $trait for &Tensor {
            type Output = Tensor;

            fn $method(self, other: &Tensor) -> Tensor {
                Tensor::$method(self, other)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
