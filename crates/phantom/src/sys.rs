//! The few functions of the C library that Rust's standard library does not offer, declared by hand: this crate has no
//! dependencies.

use std::ffi::{c_char, c_int, c_void};

pub const PROT_NONE: c_int = 0;
pub const PROT_READ_WRITE: c_int = 3;
pub const MAP_PRIVATE_ANONYMOUS_NORESERVE: c_int = 0x02 | 0x20 | 0x4000;
pub const MADV_DONTNEED: c_int = 4;
pub const MADV_DONTDUMP: c_int = 16;
pub const LOCK_EX: c_int = 2;
pub const LOCK_UN: c_int = 8;
pub const RTLD_LAZY: c_int = 1;
pub const RTLD_NOLOAD: c_int = 4;

/// `mmap`'s answer when it fails.
pub const MAP_FAILED: usize = usize::MAX;
/// The pseudo-handle of `dlsym` for libraries after the caller's.
pub const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
/// The pseudo-handle of `dlsym` for the order in which the loader itself looks.
pub const RTLD_DEFAULT: *mut c_void = std::ptr::null_mut();

unsafe extern "C" {
    pub fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        at: i64,
    ) -> *mut c_void;
    pub fn munmap(address: *mut c_void, length: usize) -> c_int;
    pub fn mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int;
    pub fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    pub fn mincore(address: *mut c_void, length: usize, resident: *mut u8) -> c_int;
    pub fn flock(file: c_int, operation: c_int) -> c_int;
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    pub fn _exit(status: c_int) -> !;
}
