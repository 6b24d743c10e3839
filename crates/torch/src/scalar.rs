//! Element types by PyTorch's numbers (c10/core/ScalarType.h).

/// A tensor's element type. The numbers are `c10::ScalarType`'s, which its headers promise never to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
#[allow(missing_docs)] // Their names say it.
pub enum ScalarType {
    Uint8 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    Float16 = 5,
    Float32 = 6,
    Float64 = 7,
    Bool = 11,
    Bfloat16 = 15,
}

impl ScalarType {
    const ALL: [Self; 10] = [
        Self::Uint8,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Float16,
        Self::Float32,
        Self::Float64,
        Self::Bool,
        Self::Bfloat16,
    ];

    /// PyTorch's number of it, as operators take it for `dtype`.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Uint8 | Self::Int8 | Self::Bool => 1,
            Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
        }
    }

    pub(crate) fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as i32 == number)
    }
}

/// A Rust number that is an element of a tensor, byte for byte.
pub trait Element: Copy {
    /// Its type in PyTorch.
    const TYPE: ScalarType;

    /// Bytes in this machine's order.
    fn to_bytes(values: &[Self]) -> Vec<u8>;

    /// `bytes` holds whole elements.
    fn of_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($rust:ty, $torch:ident) => {
        impl Element for $rust {
            const TYPE: ScalarType = ScalarType::$torch;

            fn to_bytes(values: &[Self]) -> Vec<u8> {
                values.iter().flat_map(|value| value.to_ne_bytes()).collect()
            }

            fn of_bytes(bytes: &[u8]) -> Vec<Self> {
                let (elements, _) = bytes.as_chunks();
                elements.iter().map(|element| Self::from_ne_bytes(*element)).collect()
            }
        }
    };
}

element!(u8, Uint8);
element!(i8, Int8);
element!(i16, Int16);
element!(i32, Int32);
element!(i64, Int64);
element!(f32, Float32);
element!(f64, Float64);

impl Element for bool {
    const TYPE: ScalarType = ScalarType::Bool;

    fn to_bytes(values: &[Self]) -> Vec<u8> {
        values.iter().map(|value| u8::from(*value)).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_agree() {
        for one in ScalarType::ALL {
            assert_eq!(ScalarType::of_number(one as i32), Some(one));
            assert!([1, 2, 4, 8].contains(&one.bytes()));
        }
        assert_eq!(ScalarType::of_number(8), None, "complex half is not modelled");
    }

    #[test]
    fn elements_survive_their_bytes() {
        assert_eq!(f32::of_bytes(&f32::to_bytes(&[1.5, -0.0])), [1.5, -0.0]);
        assert_eq!(i64::of_bytes(&i64::to_bytes(&[i64::MIN, 7])), [i64::MIN, 7]);
        assert_eq!(bool::of_bytes(&bool::to_bytes(&[true, false])), [true, false]);
    }
}
