//! Linear layers whose weights bitsandbytes quantizes (0.50, nn/modules.py, autograd/_functions.py, backends/cuda/ops.py), as
//! transformers puts them in place of `nn.Linear` and `Conv1D`, and peft's adapters on them.

mod choice;
mod experts;
mod four_bit;
mod fused_lora;
mod gptq;
mod int8;
mod packed;

use crate::dtype::DType;
use crate::tensor::{Product, Tensor, is_autocast};
use crate::trace::Category;

use super::builder::Builder;
use super::quantization::Quantization;

pub(crate) use experts::ExpertStack;
use four_bit::FourBitWeight;
pub(crate) use fused_lora::{Adapted, multiply_fused};
use gptq::GptqWeight;
use int8::Int8Weight;

/// A quantized weight and what turns it back.
pub(crate) enum Quantized {
    Int8(Int8Weight),
    FourBit(FourBitWeight),
    Gptq(GptqWeight),
}

impl Quantized {
    /// The weight of the layer at `at`, if the model's layers are quantized; `transposed` where the checkpoint has it
    /// [inputs, outputs]. One weight at a time is on the device as it was stored.
    pub(crate) fn load(at: &Builder, sizes: [u64; 2], transposed: bool) -> Option<Self> {
        let quantization = at.quantization()?;
        if let Quantization::Gptq { group } = quantization {
            let weight = GptqWeight::load(at, sizes, group);
            at.count_quantized(weight.weight(), sizes[0] * sizes[1]);
            return Some(Self::Gptq(weight));
        }
        at.begin_quantized_load("weight");
        let value = at.load(&sizes, at.dtype(), Category::Temporary);
        let quantized = match quantization {
            Quantization::Int8 | Quantization::Gptq { .. } => Self::Int8(Int8Weight::quantize(at, sizes)),
            Quantization::FourBit(form) => Self::FourBit(FourBitWeight::quantize(at, sizes, form, transposed)),
        };
        drop(value);
        at.count_quantized(quantized.weight(), sizes[0] * sizes[1]);
        Some(quantized)
    }

    /// What the layer holds as its weight.
    pub(crate) fn weight(&self) -> &Tensor {
        match self {
            Self::Int8(weight) => weight.weight(),
            Self::FourBit(weight) => weight.weight(),
            Self::Gptq(weight) => weight.weight(),
        }
    }

    /// The layer's `forward`.
    pub(crate) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self {
            Self::Int8(weight) => weight.forward(x, bias),
            Self::FourBit(weight) => weight.forward(x, bias),
            Self::Gptq(weight) => weight.forward(x, bias),
        }
    }

    /// Whether peft's layer with an adapter is as on a weight that is whole (peft 0.21, tuners/lora/gptq.py).
    pub(crate) const fn is_adapted_as_whole(&self) -> bool {
        matches!(self, Self::Gptq(_))
    }

    /// What an adapter, whose weights are in `dtype`, adds to the layer's result (peft 0.21, tuners/lora/bnb.py): `update` is
    /// its scaled product. In 4 bits peft copies the result first.
    pub(crate) fn add_adapter(
        &self,
        mut result: Tensor,
        x: &Tensor,
        dtype: DType,
        update: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        if let Self::FourBit(_) = self {
            result = result.clone_contiguous();
        }
        let requires_conversion = !is_autocast(x);
        let x = if requires_conversion { x.to(dtype) } else { x.clone() };
        let mut output = update(&x);
        if requires_conversion {
            output = output.to(result.dtype());
        }
        &result + &output
    }
}

/// Counts a kernel that multiplies by the weight as it is stored. Its operations count as half precision's: int8's tensor cores are at
/// most twice as fast.
fn count_product(read: u64, inputs: u64, weight: &Tensor, product: &Tensor) {
    product.context().count_product(&Product {
        dtype: DType::Bfloat16,
        flops: product.numel().saturating_mul(inputs).saturating_mul(2),
        skipped: 0,
        read: read.saturating_add(weight.bytes()),
        written: product.bytes(),
    });
}
