//! The shim's functions by name, with the types that its C++ gives them.

use std::ffi::{c_char, c_void};

use libloading::os::unix::Library;

use super::calls::Value;
use super::checkpoints::{Recompute, Release};
use super::ranks::{CTransport, NcclId, ReducerOptions};
use super::tensors::AutocastState;
use crate::error::TorchError;

macro_rules! functions {
    ($(#[$doc:meta])* $table:ident $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        pub(super) struct $table { $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl $table {
            pub(super) fn of(library: &Library) -> Result<Self, TorchError> {
                Ok(Self { $($name: {
                    // SAFETY: the shim was compiled from the sources in this crate, which define the function with this type.
                    let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    *symbol.map_err(|error| TorchError::setup(format!("the shim has no {}: {error}", stringify!($name))))?
                },)* })
            }
        }
    };
}

functions! {
    /// Of `shim.cpp`.
    Functions
    tonnage_error: fn(*mut i32) -> *const c_char;
    tonnage_operator: fn(*const c_char, *const c_char) -> *mut c_void;
    tonnage_call: fn(*mut c_void, *const Value, i64, *mut Value, i64) -> i64;
    tonnage_next_result: fn(*mut Value);
    tonnage_free: fn(i64);
    tonnage_clone: fn(i64) -> i64;
    tonnage_sizes: fn(i64, *mut i64, i64) -> i64;
    tonnage_scalar_type: fn(i64) -> i32;
    tonnage_device: fn(i64, *mut i32, *mut i32);
    tonnage_identity: fn(i64) -> i64;
    tonnage_from_host: fn(*const c_void, *const i64, i64, i32) -> i64;
    tonnage_to_host: fn(i64, *mut c_void, i64) -> i32;
    tonnage_overwrite: fn(i64, *const c_void, i64) -> i32;
    tonnage_set_requires_grad: fn(i64, i32) -> i32;
    tonnage_requires_grad: fn(i64) -> i32;
    tonnage_grad: fn(i64) -> i64;
    tonnage_set_grad: fn(i64, i64) -> i32;
    tonnage_backward: fn(*const i64, *const i64, i64, i32) -> i32;
    tonnage_grad_mode: fn() -> i32;
    tonnage_set_grad_mode: fn(i32);
    tonnage_enter_autocast: fn(i32, *const AutocastState, *mut AutocastState) -> i32;
    tonnage_leave_autocast: fn(i32, *const AutocastState);
    tonnage_use_checkpoints: fn();
    tonnage_begin_checkpoint: fn(Recompute, Release, *mut c_void, i32, i32) -> i32;
    tonnage_end_checkpoint: fn();
    tonnage_version: fn() -> *const c_char;
    tonnage_cuda_devices: fn() -> i32;
    tonnage_init_device: fn(i32) -> i32;
    tonnage_synchronize: fn(i32, i32) -> i32;
    tonnage_seed: fn(u64) -> i32;
    tonnage_random_state: fn(i32, i32) -> i64;
    tonnage_set_random_state: fn(i32, i32, i64) -> i32;
    tonnage_threads: fn() -> i32;
    tonnage_set_threads: fn(i32);
    tonnage_set_deterministic: fn(i32);
}

functions! {
    /// Of `cuda.cpp`, which needs libtorch_cuda.
    CudaFunctions
    tonnage_cuda_error: fn(*mut i32) -> *const c_char;
    tonnage_memory: fn(i32, *mut i64) -> i32;
    tonnage_reset_peak: fn(i32) -> i32;
    tonnage_empty_cache: fn() -> i32;
    tonnage_record_history: fn(i32, i64) -> i32;
    tonnage_write_snapshot: fn(*const c_char) -> i32;
}

functions! {
    /// Of `ranks.cpp`.
    RanksFunctions
    tonnage_ranks_error: fn(*mut i32) -> *const c_char;
    tonnage_group: fn(*const CTransport, i32, i32) -> i64;
    tonnage_nccl_id: fn(*mut NcclId) -> i32;
    tonnage_group_use_nccl: fn(i64, *const NcclId, i32) -> i32;
    tonnage_group_broadcast: fn(i64, *const i64, i64, i64) -> i32;
    tonnage_group_broadcast_each: fn(i64, *const i64, i64) -> i32;
    tonnage_group_all_reduce: fn(i64, i64) -> i32;
    tonnage_group_all_gather: fn(i64, i64, i64) -> i32;
    tonnage_group_free: fn(i64);
    tonnage_reducer: fn(i64, *const i64, i64, *const ReducerOptions) -> i64;
    tonnage_reducer_before_forward: fn(i64, i32) -> i32;
    tonnage_reducer_before_backward: fn(i64) -> i32;
    tonnage_reducer_free: fn(i64);
    tonnage_add: fn(*mut c_void, *const c_void, i64, i32) -> i32;
    tonnage_store: fn(*const c_char, i32, i32, i32, i64) -> i64;
    tonnage_store_set: fn(i64, *const c_char, *const u8, i64) -> i32;
    tonnage_store_get: fn(i64, *const c_char, *mut u8, i64) -> i64;
}
