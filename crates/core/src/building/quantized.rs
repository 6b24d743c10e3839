//! Linear layers whose weights bitsandbytes quantizes (0.50, nn/modules.py, autograd/_functions.py, backends/cuda/ops.py),
//! as transformers puts them in place of `nn.Linear` and `Conv1D` in models that are not trained.

use crate::dtype::DType;
use crate::op::ReduceKind;
use crate::tensor::{Product, Shape, Tensor};
use crate::trace::Category;

use super::builder::Builder;
use super::quantization::Quantization;

/// Weights that share an absmax (`quantize_4bit`, CUDA's default).
const BLOCK: u64 = 64;
/// `_GEMM_4BIT_CUSTOM_FLOOR_M`: up to so many rows no GPU unpacks the weight. Above, up to 1536 rows, a table of GPUs and
/// shapes decides; that it is unpacked is the more that it can take.
const FUSED_ROWS: u64 = 4;
const COMPUTE_DTYPE: DType = DType::Bfloat16;

/// A quantized weight and what turns it back.
pub(crate) struct Quantized {
    weight: Tensor,
    /// [outputs, inputs]
    sizes: [u64; 2],
    statistics: Statistics,
}

enum Statistics {
    Int8 {
        #[expect(dead_code, reason = "the layer holds it")]
        scb: Tensor,
    },
    Nf4 {
        #[expect(dead_code, reason = "the layer holds them")]
        state: [Tensor; 2],
    },
}

impl Quantized {
    /// The weight of the layer at `at`, if the model's layers are quantized; `transposed` where the checkpoint has it
    /// [inputs, outputs]. One weight at a time is on the device as it was stored.
    pub(crate) fn load(at: &Builder, sizes: [u64; 2], transposed: bool) -> Option<Self> {
        let quantization = at.quantization()?;
        let value = at.load(&sizes, at.dtype(), Category::Temporary);
        let (weight, statistics) = match quantization {
            Quantization::Int8 => quantize_8bit(at, &sizes),
            Quantization::Nf4 => quantize_4bit(at, &sizes, transposed),
        };
        drop(value);
        at.count_quantized(&weight, sizes[0] * sizes[1]);
        Some(Self { weight, sizes, statistics })
    }

    /// What the layer holds as its weight.
    pub(crate) const fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The layer's `forward`.
    pub(crate) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self.statistics {
            Statistics::Int8 { .. } => self.matmul_8bit(x),
            Statistics::Nf4 { .. } => {
                let result = self.matmul_4bit(&x.to(COMPUTE_DTYPE), bias);
                result.to(x.dtype())
            }
        }
    }

    /// `MatMul8bitLt.forward`. No activation is taken to pass the threshold: columns that do are multiplied on their own,
    /// which takes less than the product in int32 has taken by then. A bias is added in place.
    fn matmul_8bit(&self, x: &Tensor) -> Tensor {
        let [outputs, inputs] = self.sizes;
        let a = x.reshape(&[x.numel() / inputs, inputs]);
        let _quantized = {
            let half = a.to(DType::Float16);
            int8_vectorwise_quant(&half)
        };
        let output = {
            let sizes = Shape::new(&[a.size(0), outputs]);
            let product = Tensor::empty(a.context(), "int8_linear_matmul.default", sizes, DType::Int32);
            self.count_product(a.numel(), &product);
            let dequantized = product.map("int8_mm_dequant.default", DType::Float16);
            dequantized.to(a.dtype())
        };
        output.view(&x.sizes().with(x.sizes().len() - 1, outputs))
    }

    /// `matmul_4bit`: fused for few rows, otherwise `linear` on the unpacked weight.
    fn matmul_4bit(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let [outputs, inputs] = self.sizes;
        if x.numel() / inputs > FUSED_ROWS || !inputs.is_multiple_of(BLOCK) {
            let op = "dequantize_4bit.default";
            let unpacked = Tensor::empty(self.weight.context(), op, Shape::new(&self.sizes), x.dtype());
            return x.linear(&unpacked, bias);
        }
        let x = x.contiguous();
        let sizes = x.sizes().with(x.sizes().len() - 1, outputs);
        let product = Tensor::empty(x.context(), "gemm_4bit.default", sizes, x.dtype());
        self.count_product(x.bytes(), &product);
        product
    }

    /// Counts a kernel that multiplies by the weight as it is stored. Its operations count as half precision's: int8's
    /// tensor cores are at most twice as fast.
    fn count_product(&self, read: u64, product: &Tensor) {
        product.context().count_product(&Product {
            dtype: COMPUTE_DTYPE,
            flops: product.numel().saturating_mul(self.sizes[1]).saturating_mul(2),
            skipped: 0,
            read: read.saturating_add(self.weight.bytes()),
            written: product.bytes(),
        });
    }
}

/// `Int8Params._quantize`: the weight in fp16, the scale of each row, then the weight in int8.
fn quantize_8bit(at: &Builder, sizes: &[u64; 2]) -> (Tensor, Statistics) {
    let _half = at.load(sizes, DType::Float16, Category::Temporary);
    let scb = at.load(&[sizes[0]], DType::Float32, Category::Parameter);
    let weight = at.load(sizes, DType::Int8, Category::Parameter);
    (weight, Statistics::Int8 { scb })
}

/// `Params4bit._quantize`: absmax, the packed weight, and the table of the 16 values.
fn quantize_4bit(at: &Builder, sizes: &[u64; 2], transposed: bool) -> (Tensor, Statistics) {
    let count = sizes[0] * sizes[1];
    let _contiguous = transposed.then(|| at.load(sizes, at.dtype(), Category::Temporary));
    let absmax = at.load(&[count.div_ceil(BLOCK)], DType::Float32, Category::Parameter);
    let weight = at.load(&[count.div_ceil(2), 1], DType::Uint8, Category::Parameter);
    let code = at.load(&[16], DType::Float32, Category::Parameter);
    {
        let magnitudes = code.unary("abs.default", DType::Float32);
        magnitudes.reduce_all("max.default", ReduceKind::WholeMax, DType::Float32);
    }
    (weight, Statistics::Nf4 { state: [absmax, code] })
}

/// The rows' scales and the rows in int8; whether any activation is an outlier is looked up on the way.
fn int8_vectorwise_quant(a: &Tensor) -> [Tensor; 2] {
    let row_stats = Tensor::empty(a.context(), "empty.memory_format", Shape::new(&[a.size(0)]), DType::Float32);
    let out_row = Tensor::empty(a.context(), "empty.memory_format", *a.sizes(), DType::Int8);
    let outliers = {
        let magnitudes = a.unary("abs.default", a.dtype());
        magnitudes.map("ge.Scalar", DType::Bool)
    };
    outliers.reduce_all("any.default", ReduceKind::Any, DType::Bool);
    [row_stats, out_row]
}
