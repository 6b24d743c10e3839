//! Weights in 4 bits and what turns them back (bitsandbytes 0.50, functional.py, `quantize_4bit` and `dequantize_4bit`).

use crate::building::builder::Builder;
use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

/// Weights that share an absmax (`quantize_4bit`, CUDA's default).
pub(super) const BLOCK: u64 = 64;
/// Values of absmax that share one of their own (`state2.blocksize`).
const NESTED_BLOCK: u64 = 256;
/// Values of the table that absmax is quantized by (`create_dynamic_map`).
const CODES: u64 = 256;

/// A packed weight and its `QuantState`.
pub(crate) struct Packed {
    pub(super) weight: Tensor,
    /// As it was before.
    pub(super) sizes: Shape,
    /// `quant_state.dtype`, what the weight was quantized from.
    pub(super) dtype: DType,
    pub(super) absmax: Tensor,
    /// `state2` and the offset, where absmax is quantized.
    nested: Option<[Tensor; 3]>,
    _code: Tensor,
}

impl Packed {
    /// `quantize_4bit`: absmax, the packed weight, the table of the 16 values, and absmax quantized in its turn.
    pub(super) fn quantize(at: &Builder, sizes: &[u64], double: bool, transposed: bool) -> Self {
        let count = sizes.iter().product::<u64>();
        let _contiguous = transposed.then(|| at.load(sizes, at.dtype(), Category::Temporary));
        let mut absmax = at.load(&[count.div_ceil(BLOCK)], DType::Float32, Category::Parameter);
        let weight = at.load(&[count.div_ceil(2), 1], DType::Uint8, Category::Parameter);
        let weight = at.shard_packed(weight, count.div_ceil(2 * at.dtype().size()));
        let code = at.load(&[16], DType::Float32, Category::Parameter);
        {
            let magnitudes = code.unary("abs.default", DType::Float32);
            magnitudes.reduce_all("max.default", ReduceKind::WholeMax, DType::Float32);
        }
        let nested = double.then(|| {
            let (quantized, nested) = quantize_absmax(at, &absmax);
            absmax = quantized;
            nested
        });
        Self { weight, sizes: Shape::new(sizes), dtype: at.dtype(), absmax, nested, _code: code }
    }

    /// `dequantize_4bit`
    pub(super) fn dequantize(&self) -> Tensor {
        let absmax = self.unpacked_absmax("dequantize_blockwise.default");
        let weight = self.unpacked(self.dtype);
        drop(absmax);
        weight
    }

    /// absmax in fp32, where it is quantized itself.
    pub(super) fn unpacked_absmax(&self, op: &'static str) -> Option<Tensor> {
        self.nested.as_ref()?;
        Some(full(self.absmax.context(), op, self.absmax.sizes(), DType::Float32))
    }

    pub(super) fn unpacked(&self, dtype: DType) -> Tensor {
        Tensor::empty(self.weight.context(), "dequantize_4bit.default", self.sizes, dtype)
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

pub(super) fn full_like(tensor: &Tensor, dtype: DType) -> Tensor {
    full(tensor.context(), "_to_copy.default", tensor.sizes(), dtype)
}
