//! cuFFT: plans are numbers, and need no work area, because NVIDIA does not document what they need.
#![allow(non_snake_case)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::accepted::{handled, needs_nothing};
use crate::boundary::Slot;

/// `CUFFT_INVALID_PLAN` and `CUFFT_INVALID_VALUE`.
const INVALID_PLAN: c_int = 1;
const INVALID_VALUE: c_int = 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn cufftCreate(plan: *mut c_int) -> c_int {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    // SAFETY: a place for the plan by the API's contract.
    unsafe { Slot::new(plan) }.map_or(INVALID_VALUE, |place| {
        place.put(NEXT.fetch_add(1, Ordering::Relaxed));
        0
    })
}

needs_nothing! {
    INVALID_VALUE; usize;
    cufftXtMakePlanMany(_a _b _c _d _e _f _g _h _i _j _k _l)
    cufftMakePlanMany64(_a _b _c _d _e _f _g _h _i _j _k)
    cufftMakePlanMany(_a _b _c _d _e _f _g _h _i _j _k)
    cufftMakePlan1d(_a _b _c _d)
    cufftMakePlan2d(_a _b _c _d)
    cufftMakePlan3d(_a _b _c _d _e)
    cufftGetSize(_a)
}

handled! {
    INVALID_PLAN;
    cufftDestroy cufftSetAutoAllocation cufftSetStream cufftSetWorkArea cufftXtExec cufftExecC2C cufftExecR2C cufftExecC2R
    cufftExecZ2Z cufftExecD2Z cufftExecZ2D
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn plans_differ_and_null_is_refused() {
        let (mut first, mut second, mut bytes) = (0, 0, 9);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cufftCreate(null_mut()), INVALID_VALUE);
            assert_eq!((cufftCreate(&raw mut first), cufftCreate(&raw mut second)), (0, 0));
            assert_eq!((cufftGetSize(0, &raw mut bytes), bytes), (0, 0));
            assert_eq!(cufftGetSize(0, null_mut()), INVALID_VALUE);
        }
        assert_ne!(first, second);
    }
}
