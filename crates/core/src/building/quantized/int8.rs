//! `Linear8bitLt`. No activation is taken to pass the threshold: columns that do are multiplied on their own, which takes less than the
//! product in int32 has taken by then.

use std::cell::Cell;
use std::rc::Rc;

use crate::building::builder::Builder;
use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};
use crate::trace::Category;

use super::count_product;
use super::packed::full_like;

/// A weight in int8 and the scale of each of its rows.
pub(crate) struct Int8Weight {
    parts: Rc<Parts>,
    /// Whether the bias has been cast, as the first call does for good.
    bias_cast: Cell<bool>,
}

struct Parts {
    weight: Tensor,
    /// [outputs, inputs]
    sizes: [u64; 2],
    scb: Tensor,
}

impl Int8Weight {
    /// `Int8Params._quantize`: the weight in fp16, the scale of each row, then the weight in int8.
    pub(super) fn quantize(at: &Builder, sizes: [u64; 2]) -> Self {
        let _half = at.load(&sizes, DType::Float16, Category::Temporary);
        let scb = at.load(&[sizes[0]], DType::Float32, Category::Parameter);
        let weight = at.load(&sizes, DType::Int8, Category::Parameter);
        Self { parts: Rc::new(Parts { weight, sizes, scb }), bias_cast: Cell::new(false) }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.parts.weight
    }

    /// `MatMul8bitLt`: the input is kept in its own dtype. A bias is added in place.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        // `self.bias.data = self.bias.data.to(x.dtype)`
        if let Some(bias) = bias.filter(|bias| bias.dtype() != x.dtype() && !self.bias_cast.replace(true)) {
            bias.set_data(&full_like(bias, x.dtype()));
        }
        let [outputs, inputs] = self.parts.sizes;
        let node = NodeBuilder::new("MatMul8bitLtBackward", [x]);
        let needs = node.needs(0);
        let grad_shape = *x.sizes();
        let (a, output) = {
            let _no_grad = x.context().set_grad_enabled(false);
            let a = x.reshape(&[x.numel() / inputs, inputs]);
            let output = self.parts.multiply(&a);
            (needs.then_some(a), output.view(&grad_shape.with(grad_shape.len() - 1, outputs)))
        };
        let parts = Rc::clone(&self.parts);
        let dtype = x.dtype();
        node.finish(output, move |grad| {
            // What `ctx.tensors` holds.
            let _a = &a;
            gradients![parts.input_gradient(grad, dtype).view(&grad_shape)]
        })
    }
}

impl Parts {
    fn multiply(&self, a: &Tensor) -> Tensor {
        let [outputs, inputs] = self.sizes;
        let _quantized = {
            let half = a.to(DType::Float16);
            int8_vectorwise_quant(&half)
        };
        let sizes = Shape::new(&[a.size(0), outputs]);
        let product = Tensor::empty(a.context(), "int8_linear_matmul.default", sizes, DType::Int32);
        count_product(a.numel(), inputs, &self.weight, &product);
        let dequantized = product.map("int8_mm_dequant.default", DType::Float16);
        dequantized.to(a.dtype())
    }

    /// `matmul(grad_output.to(dtype), CB.to(dtype, copy=True).mul_(SCB.unsqueeze(1).mul(1.0 / 127.0)))`
    fn input_gradient(&self, grad_output: &Tensor, dtype: DType) -> Tensor {
        let outputs = self.sizes[0];
        let grad_output = grad_output.reshape(&[grad_output.numel() / outputs, outputs]).contiguous();
        let cb = full(self.weight.context(), "_to_copy.default", &self.sizes, dtype);
        self.scb.map("mul.Tensor", DType::Float32);
        grad_output.to(dtype).matmul(&cb)
    }
}

/// The rows' scales and the rows in int8; whether any activation is an outlier is looked up on the way, and the columns of those that are
/// set to 0.
fn int8_vectorwise_quant(a: &Tensor) -> [Tensor; 2] {
    let row_stats = Tensor::empty(a.context(), "empty.memory_format", Shape::new(&[a.size(0)]), DType::Float32);
    let out_row = Tensor::empty(a.context(), "empty.memory_format", *a.sizes(), DType::Int8);
    let outliers = {
        let magnitudes = a.unary("abs.default", a.dtype());
        magnitudes.map("ge.Scalar", DType::Bool)
    };
    outliers.reduce_all("any.default", ReduceKind::Any, DType::Bool);
    if a.size(0) > 1 {
        full(a.context(), "index_put_.default", &[], DType::Int8);
    }
    [row_stats, out_row]
}
