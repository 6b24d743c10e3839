//! Convolutions through cuDNN's older API: one algorithm for each, without a workspace.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};

use super::NULL_POINTER;
use crate::accepted::{handled, needs_nothing};
use crate::boundary::Slot;

handled! {
    NULL_POINTER;
    cudnnConvolutionForward cudnnConvolutionBackwardData cudnnConvolutionBackwardFilter cudnnConvolutionBackwardBias
    cudnnConvolutionBiasActivationForward
}

needs_nothing! {
    NULL_POINTER; usize;
    cudnnGetConvolutionForwardWorkspaceSize(_a _b _c _d _e _f)
    cudnnGetConvolutionBackwardDataWorkspaceSize(_a _b _c _d _e _f)
    cudnnGetConvolutionBackwardFilterWorkspaceSize(_a _b _c _d _e _f)
}

/// `cudnnConvolution...AlgoPerf_t`, the same for all three.
#[repr(C)]
struct Performance {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    determinism: c_int,
    math_type: c_int,
    reserved: [c_int; 3],
}

/// Number one: implicit precomputed GEMM forward, the deterministic algorithm backward.
const ALGORITHM: Performance =
    Performance { algorithm: 1, status: 0, time: 1.0, memory: 0, determinism: 1, math_type: 1, reserved: [0; 3] };

/// Functions that list algorithms: after some parameters, how many are wanted, and places for their number and for them.
macro_rules! algorithms {
    ($($name:ident($($parameter:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the library's signature")]
        unsafe extern "C" fn $name(
            $($parameter: usize,)*
            wanted: c_int,
            returned: *mut c_int,
            results: *mut c_void,
        ) -> c_int {
            // SAFETY: places for results by the API's contract.
            let places = unsafe { (Slot::new(returned), Slot::new(results.cast::<Performance>())) };
            let (Ok(returned), Ok(result), 1..) = (places.0, places.1, wanted) else { return NULL_POINTER };
            returned.put(1);
            result.put(ALGORITHM);
            0
        }
    )*};
}

algorithms! {
    cudnnGetConvolutionForwardAlgorithm_v7(_a _b _c _d _e)
    cudnnGetConvolutionBackwardDataAlgorithm_v7(_a _b _c _d _e)
    cudnnGetConvolutionBackwardFilterAlgorithm_v7(_a _b _c _d _e)
    cudnnFindConvolutionForwardAlgorithmEx(_a _b _c _d _e _f _g _h)
    cudnnFindConvolutionBackwardDataAlgorithmEx(_a _b _c _d _e _f _g _h)
    cudnnFindConvolutionBackwardFilterAlgorithmEx(_a _b _c _d _e _f _g _h)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn one_algorithm_serves_and_null_is_refused() {
        let (mut returned, mut result) = (0, Performance { algorithm: 9, ..ALGORITHM });
        let place = (&raw mut result).cast();
        assert_eq!(size_of::<Performance>(), 48);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudnnGetConvolutionForwardAlgorithm_v7(0, 0, 0, 0, 0, 1, null_mut(), place), NULL_POINTER);
            assert_eq!(
                cudnnGetConvolutionForwardAlgorithm_v7(0, 0, 0, 0, 0, 0, &raw mut returned, place),
                NULL_POINTER
            );
            assert_eq!(cudnnGetConvolutionForwardAlgorithm_v7(0, 0, 0, 0, 0, 4, &raw mut returned, place), 0);
        }
        assert_eq!((returned, result.algorithm, result.memory), (1, 1, 0));
    }
}
