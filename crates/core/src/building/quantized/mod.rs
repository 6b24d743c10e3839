//! Linear layers whose weights bitsandbytes quantizes (0.50, nn/modules.py, autograd/_functions.py, backends/cuda/ops.py) or a
//! checkpoint has packed, as transformers puts them in place of `nn.Linear` and `Conv1D`, and peft's adapters on them.

mod awq;
mod choice;
mod experts;
mod four_bit;
mod fused_lora;
mod gptq;
mod gptqmodel;
mod int8;
mod packed;

use crate::dtype::DType;
use crate::tensor::{Product, Tensor, is_autocast};
use crate::trace::Category;

use super::builder::Builder;
use super::quantization::Quantization;

use awq::AwqWeight;
pub(crate) use experts::ExpertStack;
use four_bit::FourBitWeight;
pub(crate) use fused_lora::{Adapted, multiply_fused};
use gptq::GptqWeight;
use gptqmodel::GptqModelWeight;
use int8::Int8Weight;

/// A quantized weight and what turns it back.
pub(crate) enum Quantized {
    Int8(Int8Weight),
    FourBit(FourBitWeight),
    Gptq(GptqWeight),
    GptqModel(Box<GptqModelWeight>),
    Awq(AwqWeight),
}

impl Quantized {
    /// The weight of the layer at `at`, if the model's layers are quantized; `transposed` where the checkpoint has it
    /// [inputs, outputs].
    pub(crate) fn load(at: &Builder, sizes: [u64; 2], transposed: bool) -> Option<Self> {
        let quantized = match at.quantization()? {
            // transformers leaves `Conv1D` whole (integrations/awq.py).
            Quantization::Awq { .. } if transposed => return None,
            Quantization::Awq { group } => Self::Awq(AwqWeight::load(at, sizes, group)),
            Quantization::Gptq { group } => Self::Gptq(GptqWeight::load(at, sizes, group)),
            Quantization::GptqModel { bits, group } => {
                Self::GptqModel(Box::new(GptqModelWeight::load(at, sizes, (bits, group))))
            }
            Quantization::Int8 => quantize(at, sizes, || Self::Int8(Int8Weight::quantize(at, sizes))),
            Quantization::FourBit(form) => {
                quantize(at, sizes, || Self::FourBit(FourBitWeight::quantize(at, sizes, form, transposed)))
            }
        };
        at.count_quantized(quantized.weight(), sizes[0] * sizes[1]);
        Some(quantized)
    }

    /// What the layer holds as its weight.
    pub(crate) fn weight(&self) -> &Tensor {
        match self {
            Self::Int8(weight) => weight.weight(),
            Self::FourBit(weight) => weight.weight(),
            Self::Gptq(weight) => weight.weight(),
            Self::GptqModel(weight) => weight.weight(),
            Self::Awq(weight) => weight.weight(),
        }
    }

    /// The layer's `forward`.
    pub(crate) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self {
            Self::Int8(weight) => weight.forward(x, bias),
            Self::FourBit(weight) => weight.forward(x, bias),
            Self::Gptq(weight) => weight.forward(x, bias),
            Self::GptqModel(weight) => weight.forward(x, bias),
            Self::Awq(weight) => weight.forward(x, bias),
        }
    }

    /// Whether peft's layer with an adapter is as on a weight that is whole (peft 0.21, tuners/lora/gptq.py).
    pub(crate) const fn is_adapted_as_whole(&self) -> bool {
        matches!(self, Self::Gptq(_) | Self::GptqModel(_))
    }

    /// What an adapter, whose weights are in `dtype`, adds to the layer's result (peft 0.21, tuners/lora/bnb.py and awq.py): `project`
    /// is its product before it is scaled. In 4 bits of bitsandbytes' peft copies the result first; of AWQ's it scales last.
    pub(crate) fn add_adapter(
        &self,
        mut result: Tensor,
        x: &Tensor,
        (dtype, scaling): (DType, f64),
        project: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        if let Self::FourBit(_) = self {
            result = result.clone_contiguous();
        }
        let requires_conversion = !is_autocast(x);
        let x = if requires_conversion { x.to(dtype) } else { x.clone() };
        let mut output = project(&x);
        let scales_last = matches!(self, Self::Awq(_));
        if !scales_last {
            output = output.mul_scalar(scaling);
        }
        if requires_conversion {
            output = output.to(result.dtype());
        }
        if scales_last {
            output = output.mul_scalar(scaling);
        }
        &result + &output
    }
}

/// What `pack` makes of a weight while one of them is on the device as it was stored.
fn quantize(at: &Builder, sizes: [u64; 2], pack: impl FnOnce() -> Quantized) -> Quantized {
    at.begin_quantized_load("weight");
    let value = at.load(&sizes, at.dtype(), Category::Temporary);
    let quantized = pack();
    drop(value);
    quantized
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
