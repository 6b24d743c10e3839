//! The element types that PyTorch tensors have here, under PyTorch's names.

use serde::{Deserialize, Serialize};

/// A tensor's element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// `torch.bool`
    Bool,
    /// `torch.uint8`
    Uint8,
    /// `torch.int8`
    Int8,
    /// `torch.int32`
    Int32,
    /// `torch.int64`
    Int64,
    /// `torch.float16`
    Float16,
    /// `torch.bfloat16`
    Bfloat16,
    /// `torch.float32`
    Float32,
    /// `torch.float64`
    Float64,
}

impl DType {
    /// Bytes per element.
    pub const fn size(self) -> u64 {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
        }
    }

    /// PyTorch's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Bool => "bool",
            Self::Uint8 => "uint8",
            Self::Int8 => "int8",
            Self::Float64 => "float64",
        }
    }

    /// Whether the type holds floating-point numbers; only these take part in autograd.
    pub const fn is_floating_point(self) -> bool {
        matches!(self, Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64)
    }

    /// `torch.finfo(self).min`
    pub const fn lowest(self) -> f64 {
        match self {
            Self::Float16 => -65504.0,
            Self::Bfloat16 => -3.389_531_389_251_535_5e38,
            Self::Float32 => f32::MIN as f64,
            _ => f64::MIN,
        }
    }

    /// Whether the type is one of the 16-bit floating-point types.
    pub const fn is_half(self) -> bool {
        matches!(self, Self::Float16 | Self::Bfloat16)
    }
}
