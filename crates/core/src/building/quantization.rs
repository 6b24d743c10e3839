//! [`Quantization`]: what the linear layers of a model that is not trained itself may be loaded as.

use crate::dtype::DType;

/// How a model's linear layers are stored; embeddings, norms, biases and the output head stay in the model's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantization {
    /// `BitsAndBytesConfig(load_in_8bit=True)`: `Linear8bitLt` with a threshold of 6.
    Int8,
    /// `BitsAndBytesConfig(load_in_4bit=True)`: `Linear4bit`, whatever its table of 16 values.
    FourBit(FourBit),
    /// A checkpoint of GPTQ: `QuantLinear` in 4 bits of gptqmodel's `tritonv2` kernels, of which so many inputs share a scale; all, where
    /// it is 0.
    Gptq { group: u64 },
    /// A checkpoint of GPTQ as gptqmodel holds it: weights of so many bits.
    GptqModel { bits: u64, group: u64 },
    /// A checkpoint of AWQ in 4 bits as gptqmodel holds it.
    Awq { group: u64 },
}

/// How `Linear4bit` stores and computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FourBit {
    /// `bnb_4bit_use_double_quant`: absmax is quantized again.
    pub double: bool,
    /// `bnb_4bit_compute_dtype`
    pub compute: DType,
}
