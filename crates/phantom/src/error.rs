//! CUDA's error codes. The runtime's and the driver's have been the same numbers since CUDA 10.1, so one type serves both.

use std::ffi::CStr;

use crate::error_table::ERRORS;

/// A CUDA error other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);

impl Error {
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const INVALID_PITCH: Self = Self(12);
    pub const INVALID_SYMBOL: Self = Self(13);
    pub const INVALID_COPY_DIRECTION: Self = Self(21);
    pub const INVALID_DEVICE_FUNCTION: Self = Self(98);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    pub const INVALID_CONTEXT: Self = Self(201);
    pub const INVALID_HANDLE: Self = Self(400);
    pub const ILLEGAL_STATE: Self = Self(401);
    pub const NOT_FOUND: Self = Self(500);
    pub const PEER_ALREADY_ENABLED: Self = Self(704);
    pub const PEER_NOT_ENABLED: Self = Self(705);
    pub const HOST_ALREADY_REGISTERED: Self = Self(712);
    pub const HOST_NOT_REGISTERED: Self = Self(713);
    pub const NOT_SUPPORTED: Self = Self(801);
    pub const CAPTURE_UNSUPPORTED: Self = Self(900);
    pub const CAPTURE_UNMATCHED: Self = Self(903);
}

/// What every fallible part of this library returns.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// The name and the text of a code, as the runtime gives them.
pub fn describe_error(code: i32) -> Option<(&'static CStr, &'static CStr)> {
    let at = ERRORS.binary_search_by_key(&code, |&(code, _, _)| code).ok()?;
    Some((ERRORS[at].1, ERRORS[at].2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_runtimes() {
        assert_eq!(describe_error(2), Some((c"cudaErrorMemoryAllocation", c"out of memory")));
        assert_eq!(describe_error(101), Some((c"cudaErrorInvalidDevice", c"invalid device ordinal")));
        assert_eq!(describe_error(12345), None);
        assert!(ERRORS.is_sorted_by_key(|&(code, _, _)| code));
    }
}
