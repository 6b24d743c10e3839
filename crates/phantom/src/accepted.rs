//! Library functions that compute and return nothing but a status: they succeed, whatever they are given. A function
//! without parameters may be called with any on the platforms that CUDA runs on, because the caller removes them.

/// Exports functions that succeed; what succeeds is zero in every NVIDIA library's statuses.
macro_rules! accepted {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> std::ffi::c_int {
            0
        }
    )*};
}

/// Exports functions that make an opaque object: its handle goes where the first parameter points.
macro_rules! creates {
    ($null:expr; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(object: *mut usize) -> std::ffi::c_int {
            // SAFETY: a place for the handle by the API's contract.
            match unsafe { $crate::boundary::Slot::new(object) } {
                Ok(place) => {
                    place.put($crate::state::streams().handle());
                    0
                }
                Err(_) => $null,
            }
        }
    )*};
}

pub(crate) use {accepted, creates};
