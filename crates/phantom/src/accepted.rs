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

/// Exports functions that succeed unless their first argument, a handle or an object, is null: then they fail with the
/// library's status for that.
macro_rules! handled {
    ($null:expr; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(object: usize) -> std::ffi::c_int {
            if object == 0 { $null } else { 0 }
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
                    place.put($crate::state::lock_streams().handle());
                    0
                }
                Err(_) => $null,
            }
        }
    )*};
}

/// Exports functions that fail with a library's status for what is not supported, whatever they are given.
macro_rules! refused {
    ($status:expr; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> std::ffi::c_int {
            $status
        }
    )*};
}

/// Exports functions that say how much memory a computation needs: none, because what the real library needs is not
/// documented. The last parameter, after the named ones, is the place for it.
macro_rules! needs_nothing {
    ($null:expr; $type:ty; $($name:ident($($parameter:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the library's signature")]
        unsafe extern "C" fn $name($($parameter: usize,)* size: *mut $type) -> std::ffi::c_int {
            // SAFETY: a place for the size by the API's contract.
            match unsafe { $crate::boundary::Slot::new(size) } {
                Ok(place) => {
                    place.put(0);
                    0
                }
                Err(_) => $null,
            }
        }
    )*};
}

pub(crate) use {accepted, creates, handled, needs_nothing, refused};
