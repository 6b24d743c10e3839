//! `Linear4bit`.

use std::cell::Cell;
use std::rc::Rc;

use crate::building::builder::Builder;
use crate::building::quantization::FourBit;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

use super::choice::Gemm;
use super::count_product;
use super::packed::{BLOCK, Packed, full_like};

/// A layer's packed weight.
pub(crate) struct FourBitWeight {
    packed: Rc<Packed>,
    compute: DType,
    /// Whether the bias has been cast, as the first call does for good.
    bias_cast: Cell<bool>,
}

impl FourBitWeight {
    /// `Params4bit._quantize`
    pub(super) fn quantize(at: &Builder, sizes: [u64; 2], form: FourBit, transposed: bool) -> Self {
        let packed = Packed::quantize(at, &sizes, form.double, transposed);
        Self { packed: Rc::new(packed), compute: form.compute, bias_cast: Cell::new(false) }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.packed.weight
    }

    pub(super) fn packed(&self) -> Rc<Packed> {
        Rc::clone(&self.packed)
    }

    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let inp_dtype = x.dtype();
        let x = x.to(self.compute);
        if let Some(bias) = bias {
            self.cast_bias(bias);
        }
        let result = self.matmul(&x, bias);
        result.to(inp_dtype)
    }

    /// `self.bias.data = self.bias.data.to(x.dtype)`: a bias that was cast to fp32 after it was loaded is cast back, once.
    fn cast_bias(&self, bias: &Tensor) {
        if !self.bias_cast.replace(true) && bias.dtype() != self.compute {
            bias.set_data(&full_like(bias, self.compute));
        }
    }

    /// `MatMul4Bit`: nothing of the input is kept; backward unpacks the weight again.
    fn matmul(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let node = NodeBuilder::new("MatMul4BitBackward", [x]);
        let output = {
            let _no_grad = x.context().set_grad_enabled(false);
            self.packed.multiply(x, bias, self.compute)
        };
        let packed = Rc::clone(&self.packed);
        node.finish(output, move |grad| gradients![packed.input_gradient(grad)])
    }
}

impl Packed {
    /// `gemm_4bit`: fused where the table says so, otherwise `linear` on the unpacked weight.
    fn multiply(&self, x: &Tensor, bias: Option<&Tensor>, compute: DType) -> Tensor {
        let (outputs, inputs) = (self.sizes[0], self.sizes[1]);
        let gemm = Gemm { rows: x.numel() / inputs, outputs, inputs, dtype: x.dtype() };
        if !inputs.is_multiple_of(BLOCK) || !x.context().ask(|device| gemm.is_fused(device)) {
            return self.multiply_unpacked(x, bias, compute);
        }
        let x = x.contiguous();
        let sizes = x.sizes().with(x.sizes().len() - 1, outputs);
        let product = Tensor::empty(x.context(), "gemm_4bit.default", sizes, x.dtype());
        count_product(x.bytes(), inputs, &self.weight, &product);
        product
    }

    /// `_dequant_linear_fallback`
    fn multiply_unpacked(&self, x: &Tensor, bias: Option<&Tensor>, compute: DType) -> Tensor {
        let absmax_dq = self.unpacked_absmax("empty_like.default");
        let absmax = absmax_dq.as_ref().map(|absmax_dq| full_like(absmax_dq, DType::Float32));
        let b_dq = self.unpacked(x.dtype());
        // The cast bias as the product reads it.
        let bias = bias.map(|bias| Tensor::nowhere(bias.context(), *bias.sizes(), compute));
        let output = x.linear(&b_dq, bias.as_ref());
        drop((absmax, absmax_dq));
        output
    }

    /// `torch.matmul(grad_output, F.dequantize_4bit(B, ctx.state).to(grad_output.dtype))`
    fn input_gradient(&self, grad_output: &Tensor) -> Tensor {
        grad_output.matmul(&self.dequantize().to(grad_output.dtype()))
    }
}
