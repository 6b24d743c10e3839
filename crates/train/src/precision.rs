//! Dtypes as jobs name them and as PyTorch does.

use tonnage_torch::ScalarType;

use crate::dtype::DType;

/// PyTorch's own of a dtype.
pub const fn scalar_type(dtype: DType) -> ScalarType {
    match dtype {
        DType::Uint8 => ScalarType::Uint8,
        DType::Int8 => ScalarType::Int8,
        DType::Int32 => ScalarType::Int32,
        DType::Int64 => ScalarType::Int64,
        DType::Float16 => ScalarType::Float16,
        DType::Bfloat16 => ScalarType::Bfloat16,
        DType::Float32 => ScalarType::Float32,
        DType::Float64 => ScalarType::Float64,
        DType::Bool => ScalarType::Bool,
    }
}

/// The dtype of PyTorch's; nothing here makes int16, which is taken as the integers that hold it.
pub(crate) const fn dtype_of(scalar_type: ScalarType) -> DType {
    match scalar_type {
        ScalarType::Uint8 => DType::Uint8,
        ScalarType::Int8 => DType::Int8,
        ScalarType::Int64 => DType::Int64,
        ScalarType::Float16 => DType::Float16,
        ScalarType::Bfloat16 => DType::Bfloat16,
        ScalarType::Float32 => DType::Float32,
        ScalarType::Float64 => DType::Float64,
        ScalarType::Bool => DType::Bool,
        _ => DType::Int32,
    }
}
