//! `Linear4bit`.

use std::cell::Cell;
use std::rc::Rc;

use crate::building::builder::Builder;
use crate::building::quantization::FourBit;
use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};
use crate::trace::Category;

use super::choice::Gemm;
use super::count_product;

/// Weights that share an absmax (`quantize_4bit`, CUDA's default).
const BLOCK: u64 = 64;
/// Values of absmax that share one of their own (`state2.blocksize`).
const NESTED_BLOCK: u64 = 256;
/// Values of the table that absmax is quantized by (`create_dynamic_map`).
const CODES: u64 = 256;

/// A packed weight and its `QuantState`.
pub(crate) struct FourBitWeight {
    packed: Rc<Packed>,
    compute: DType,
    /// Whether the bias has been cast, as the first call does for good.
    bias_cast: Cell<bool>,
}

struct Packed {
    weight: Tensor,
    /// [outputs, inputs]
    sizes: [u64; 2],
    /// `quant_state.dtype`, what the weight was quantized from.
    dtype: DType,
    absmax: Tensor,
    /// `state2` and the offset, where absmax is quantized.
    nested: Option<[Tensor; 3]>,
    _code: Tensor,
}

impl FourBitWeight {
    /// `Params4bit._quantize`: absmax, the packed weight, the table of the 16 values, and absmax quantized in its turn.
    pub(super) fn quantize(at: &Builder, sizes: [u64; 2], form: FourBit, transposed: bool) -> Self {
        let count = sizes[0] * sizes[1];
        let _contiguous = transposed.then(|| at.load(&sizes, at.dtype(), Category::Temporary));
        let mut absmax = at.load(&[count.div_ceil(BLOCK)], DType::Float32, Category::Parameter);
        let weight = at.load(&[count.div_ceil(2), 1], DType::Uint8, Category::Parameter);
        let code = at.load(&[16], DType::Float32, Category::Parameter);
        {
            let magnitudes = code.unary("abs.default", DType::Float32);
            magnitudes.reduce_all("max.default", ReduceKind::WholeMax, DType::Float32);
        }
        let nested = form.double.then(|| {
            let (quantized, nested) = quantize_absmax(at, &absmax);
            absmax = quantized;
            nested
        });
        let packed = Packed { weight, sizes, dtype: at.dtype(), absmax, nested, _code: code };
        Self { packed: Rc::new(packed), compute: form.compute, bias_cast: Cell::new(false) }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.packed.weight
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
        let [outputs, inputs] = self.sizes;
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
        let weight = {
            let absmax = self.unpacked_absmax("dequantize_blockwise.default");
            let weight = self.unpacked(self.dtype);
            drop(absmax);
            weight.to(grad_output.dtype())
        };
        grad_output.matmul(&weight)
    }

    /// absmax in fp32, where it is quantized itself.
    fn unpacked_absmax(&self, op: &'static str) -> Option<Tensor> {
        self.nested.as_ref()?;
        Some(full(self.absmax.context(), op, self.absmax.sizes(), DType::Float32))
    }

    fn unpacked(&self, dtype: DType) -> Tensor {
        Tensor::empty(self.weight.context(), "dequantize_4bit.default", Shape::new(&self.sizes), dtype)
    }
}

/// `quantize_blockwise(absmax - offset, blocksize=256)`: the codes, and offset, their absmax and the table. The first of a process brings
/// the table to the device for all.
fn quantize_absmax(at: &Builder, absmax: &Tensor) -> (Tensor, [Tensor; 3]) {
    let load = |sizes: &[u64], dtype| at.load(sizes, dtype, Category::Parameter);
    let offset = load(&[], DType::Float32);
    let _centred = full_like(absmax, DType::Float32);
    at.keep_table(|| load(&[CODES], DType::Float32));
    let nested_absmax = load(&[absmax.numel().div_ceil(NESTED_BLOCK)], DType::Float32);
    let codes = load(&[absmax.numel()], DType::Uint8);
    let table = load(&[CODES], DType::Float32);
    (codes, [offset, nested_absmax, table])
}

fn full_like(tensor: &Tensor, dtype: DType) -> Tensor {
    full(tensor.context(), "_to_copy.default", tensor.sizes(), dtype)
}
