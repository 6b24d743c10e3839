//! Errors: `cudaGetLastError` and its relatives.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int};

use crate::boundary::{last_error, take_last_error};
use crate::error::describe_error;

/// What the runtime says of a number that is no error of its.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    take_last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    describe_error(code).map_or(UNRECOGNIZED, |(name, _)| name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    describe_error(code).map_or(UNRECOGNIZED, |(_, text)| text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::report_code;
    use crate::error::Error;

    #[test]
    fn the_last_error_is_taken_once() {
        assert_eq!(report_code(Err(Error::OUT_OF_MEMORY)), 2);
        assert_eq!((cudaPeekAtLastError(), cudaGetLastError(), cudaGetLastError()), (2, 2, 0));
        // SAFETY: both texts are static.
        let text = unsafe { CStr::from_ptr(cudaGetErrorString(2)) };
        assert_eq!(text, c"out of memory");
        // SAFETY: as above.
        assert_eq!(unsafe { CStr::from_ptr(cudaGetErrorName(-1)) }, UNRECOGNIZED);
    }
}
