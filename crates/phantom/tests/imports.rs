//! The built library answers what PyTorch imports from NVIDIA's libraries; `testdata/rehearse/imports.txt` lists that for
//! every version of docs/phantom-versions.md, and `testdata/rehearse/imports.py` says what is left to the real libraries.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

/// Beginnings of names that are left to the real library, as `LEFT` in `imports.py` has them with reasons.
const LEFT: &[&str] = &[
    "nvrtc",
    "nvJitLink",
    "nvtx",
    "nvshmem",
    "cudnnGetVersion",
    "cudnnGetCudartVersion",
    "cudnnGetProperty",
    "cudnnGetErrorString",
    "cudnnGetLastErrorString",
    "cudnnGetMaxDeviceVersion",
    "cublasLtGetVersion",
    "cublasLtGetCudartVersion",
    "cublasGetStatus",
    "cublasGetVersion",
    "cublasGetProperty",
    "cusparseGetErrorName",
    "ncclGetVersion",
];

/// Beside the test programs lies the library that they were built with.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let beside = folder.join("libtonnage_phantom.so");
    if beside.exists() { beside } else { folder.parent().unwrap().join("libtonnage_phantom.so") }
}

#[test]
#[cfg(target_os = "linux")]
fn what_pytorch_imports_is_answered() {
    // SAFETY: this program has one test, and nothing else reads the environment meanwhile.
    unsafe {
        std::env::set_var("TONNAGE_PHANTOM_QUIET", "1");
        std::env::set_var("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    }
    let path = CString::new(library().to_str().unwrap()).unwrap();
    // SAFETY: the library's code at load reads its settings and nothing else.
    let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    assert!(!handle.is_null(), "{} cannot be loaded", path.to_string_lossy());
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/rehearse/imports.txt");
    let list = std::fs::read_to_string(list).unwrap();
    let unanswered: Vec<&str> = list
        .lines()
        .filter(|name| !LEFT.iter().any(|left| name.starts_with(left)))
        .filter(|name| {
            let name = CString::new(*name).unwrap();
            // SAFETY: a lookup by name in an open library.
            unsafe { dlsym(handle, name.as_ptr()) }.is_null()
        })
        .collect();
    assert!(list.lines().count() > 700);
    assert_eq!(unanswered, [""; 0]);
}
