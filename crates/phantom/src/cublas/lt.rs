//! cuBLASLt: descriptors are handles, and one algorithm serves every product, with no workspace of its own: PyTorch
//! allocates its workspace before it asks.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};

use super::INVALID_VALUE;
use crate::accepted::{accepted, creates, handled};
use crate::boundary::Slot;

creates! {
    INVALID_VALUE;
    cublasLtCreate cublasLtMatmulDescCreate cublasLtMatrixLayoutCreate cublasLtMatmulPreferenceCreate
    cublasLtMatrixTransformDescCreate cublasLtEmulationDescCreate
}

handled! {
    INVALID_VALUE;
    cublasLtDestroy cublasLtMatmul cublasLtMatrixTransform
    cublasLtMatmulDescInit_internal cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
    cublasLtMatrixLayoutInit_internal cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute
    cublasLtMatmulPreferenceInit_internal cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
    cublasLtMatrixTransformDescInit_internal cublasLtMatrixTransformDescDestroy cublasLtMatrixTransformDescSetAttribute
    cublasLtEmulationDescInit_internal cublasLtEmulationDescDestroy cublasLtEmulationDescSetAttribute
    cublasLtMatmulAlgoInit cublasLtMatmulAlgoConfigSetAttribute
}

accepted! { cublasLtHeuristicsCacheSetCapacity }

/// Attributes cannot be read back: no program that we know does.
macro_rules! unreadable {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            INVALID_VALUE
        }
    )*};
}

unreadable! {
    cublasLtMatmulDescGetAttribute cublasLtMatrixLayoutGetAttribute cublasLtMatmulPreferenceGetAttribute
    cublasLtMatrixTransformDescGetAttribute cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoCapGetAttribute
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct HeuristicResult {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const ALGORITHM: HeuristicResult =
    HeuristicResult { algorithm: [0; 8], workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] };

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _preference: usize,
    requested: c_int,
    results: *mut c_void,
    returned: *mut c_int,
) -> c_int {
    // SAFETY: places for the results and their count by the API's contract.
    let places = unsafe { (Slot::new(results.cast::<HeuristicResult>()), Slot::new(returned)) };
    let (Ok(result), Ok(count), 1..) = (places.0, places.1, requested) else { return INVALID_VALUE };
    result.put(ALGORITHM);
    count.put(1);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _algorithm: usize,
    result: *mut c_void,
) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(result.cast::<HeuristicResult>()) };
    match place {
        Ok(place) if handle != 0 => {
            place.put(ALGORITHM);
            0
        }
        _ => INVALID_VALUE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn one_algorithm_serves_and_null_is_refused() {
        let mut result = HeuristicResult { waves: 0.0, ..ALGORITHM };
        let (mut returned, mut handle) = (0, 0);
        let place = (&raw mut result).cast();
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cublasLtCreate(null_mut()), INVALID_VALUE);
            assert_eq!(cublasLtCreate(&raw mut handle), 0);
            assert_eq!(cublasLtMatmulAlgoGetHeuristic(handle, 0, 0, 0, 0, 0, 0, 1, null_mut(), null_mut()), 7);
            assert_eq!(cublasLtMatmulAlgoGetHeuristic(handle, 0, 0, 0, 0, 0, 0, 0, place, &raw mut returned), 7);
            assert_eq!(cublasLtMatmulAlgoGetHeuristic(handle, 0, 0, 0, 0, 0, 0, 1, place, &raw mut returned), 0);
        }
        assert_eq!((returned, result.waves), (1, 1.0));
    }
}
