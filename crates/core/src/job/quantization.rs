//! [`QuantizationSpec`]: how the frozen base is stored that adapters are trained on.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// `BitsAndBytesConfig`, as far as memory goes, and what peft does to the model then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizationSpec {
    /// How linear layers are stored.
    pub weights: QuantizedWeights,
    /// `bnb_4bit_use_double_quant`: in 4 bits, the scales are quantized too.
    pub double: bool,
    /// `bnb_4bit_compute_dtype`: in 4 bits, what the layers compute in.
    pub compute: ComputeDtype,
    /// Whether `prepare_model_for_kbit_training` casts what is not quantized to fp32.
    pub prepared: bool,
    /// Whether TRL casts embeddings and head back to bf16 then (`peft_module_casting_to_bf16`).
    pub recast: bool,
    /// Inputs of a layer that its checkpoint has packed which share a scale; 0 where all do.
    pub group_size: u64,
    /// Of a weight in a checkpoint of GPTQ's.
    pub bits: u64,
    /// Whether stacks of experts are quantized too, as Axolotl's `quantize_moe_experts` does it.
    pub experts: bool,
}

/// How the linear layers of a quantized model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantizedWeights {
    /// 4 bits, the values of a normal distribution.
    Nf4,
    /// 4 bits, floating point.
    Fp4,
    /// 8 bits, `LLM.int8()`.
    Int8,
    /// 4 bits in groups of inputs, as GPTQ's checkpoints have them, unpacked by a Triton kernel for each product.
    Gptq,
    /// The same as gptqmodel holds it, which transformers 5 loads it by: a product keeps the unpacked weight.
    #[serde(rename = "gptqmodel")]
    GptqModel,
    /// 4 bits in groups of inputs, as AWQ's checkpoints have them, by gptqmodel's CUDA kernels.
    Awq,
}

impl QuantizedWeights {
    /// The word of the key's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nf4 => "nf4",
            Self::Fp4 => "fp4",
            Self::Int8 => "int8",
            Self::Gptq => "gptq",
            Self::GptqModel => "gptqmodel",
            Self::Awq => "awq",
        }
    }

    /// Whether a weight is stored in tensors that FSDP can shard.
    pub const fn is_shardable(self) -> bool {
        matches!(self, Self::Nf4 | Self::Fp4 | Self::Gptq)
    }

    /// Whether its checkpoint has it packed, in groups of inputs that share a scale.
    pub const fn is_stored_packed(self) -> bool {
        matches!(self, Self::Gptq | Self::GptqModel | Self::Awq)
    }

    /// Whether `from_pretrained` brings it to the device, in the order of the checkpoint's names.
    pub(crate) const fn comes_by_name(self) -> bool {
        !matches!(self, Self::Gptq)
    }

    /// Whether peft's `prepare_model_for_kbit_training` casts what is not quantized (peft 0.21, utils/other.py).
    pub(crate) const fn is_cast_by_peft(self) -> bool {
        !matches!(self, Self::Gptq | Self::GptqModel)
    }

    /// Whether it is held by gptqmodel, which came to transformers with 5.
    pub(crate) const fn is_gptqmodels(self) -> bool {
        matches!(self, Self::GptqModel | Self::Awq)
    }

    /// Whether bitsandbytes packs a weight into half a byte.
    pub const fn is_four_bit(self) -> bool {
        matches!(self, Self::Nf4 | Self::Fp4)
    }
}

/// What layers in 4 bits compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeDtype {
    /// `torch.float32`
    Fp32,
    /// `torch.bfloat16`
    Bf16,
    /// `torch.float16`
    Fp16,
}

impl ComputeDtype {
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Fp32 => DType::Float32,
            Self::Bf16 => DType::Bfloat16,
            Self::Fp16 => DType::Float16,
        }
    }
}
