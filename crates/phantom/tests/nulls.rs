//! Every function that the library exports, called with nothing but zeros: each must return, and those that need an argument
//! must refuse with an error that their library documents. A call has a process of its own, because a wrong one kills it.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn _exit(code: c_int) -> !;
}

const RTLD_NOW: c_int = 2;
/// As many parameters as any function of CUDA's libraries has (`cusolverDnXgesvdr_bufferSize`).
#[rustfmt::skip]
type Function = extern "C" fn(
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
) -> c_int;

/// Beginnings of the names of functions for which zeros are right: nothing is asked for, nothing is to be copied or freed, or
/// zero is device 0, the default stream, or the current context.
const MAY_SUCCEED: &[&str] = &[
    "__cudaPushCallConfiguration",
    "cuCtx",
    "cuDevicePrimaryCtx",
    "cuInit",
    "cuMemcpy",
    "cuMemset",
    "cuMemFree",
    "cuMemSetAccess",
    "cuProfiler",
    "cuStream",
    "cublasGetMatrix",
    "cublasGetVector",
    "cublasSetMatrix",
    "cublasSetVector",
    "cublasLtHeuristicsCacheSetCapacity",
    "cudaCtxReset",
    "cudaDevice",
    "cudaFree",
    "cudaGetLastError",
    "cudaInitDevice",
    "cudaMemcpy",
    "cudaMemset",
    "cudaPeekAtLastError",
    "cudaProfiler",
    "cudaSet",
    "cudaStream",
    "ncclGroup",
    "ncclMemFree",
    "ncclRecv",
    "ncclRedOpDestroy",
    "ncclSend",
    "nvmlInit",
    "tonnagePhantomAnswer",
];

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Returned { succeeded: bool },
    Killed(c_int),
}

/// Beside the test programs lies the library that they were built with.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let beside = folder.join("libtonnage_phantom.so");
    if beside.exists() { beside } else { folder.parent().unwrap().join("libtonnage_phantom.so") }
}

fn number(bytes: &[u8], at: usize, width: usize) -> usize {
    bytes[at..at + width].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// The functions in the table of dynamic symbols of a 64-bit little-endian ELF file.
fn exports(file: &[u8]) -> Vec<String> {
    const DYNAMIC_SYMBOLS: usize = 11;
    const FUNCTION: u8 = 2;
    let (sections, size, count) = (number(file, 0x28, 8), number(file, 0x3a, 2), number(file, 0x3c, 2));
    let header = |index: usize| sections + index * size;
    let symbols = (0..count).map(header).find(|&at| number(file, at + 4, 4) == DYNAMIC_SYMBOLS).unwrap();
    let texts = number(file, header(number(file, symbols + 0x28, 4)) + 0x18, 8);
    let (from, bytes) = (number(file, symbols + 0x18, 8), number(file, symbols + 0x20, 8));
    let defined =
        file[from..from + bytes].chunks(24).filter(|symbol| symbol[4] & 15 == FUNCTION && number(symbol, 6, 2) != 0);
    let name = |symbol: &[u8]| {
        let text = &file[texts + number(symbol, 0, 4)..];
        String::from_utf8(text[..text.iter().position(|byte| *byte == 0).unwrap()].to_vec()).unwrap()
    };
    defined.map(name).collect()
}

fn called_with_zeros(function: *mut c_void) -> End {
    // SAFETY: the child calls the function and ends; on this platform a caller may pass more arguments than are taken.
    unsafe {
        let child = fork();
        if child == 0 {
            alarm(10);
            let function: Function = std::mem::transmute(function);
            let code = function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            _exit(c_int::from(code != 0));
        }
        let mut status = 0;
        assert_eq!(waitpid(child, &raw mut status, 0), child);
        match status & 0x7f {
            0 => End::Returned { succeeded: status >> 8 == 0 },
            signal => End::Killed(signal),
        }
    }
}

#[test]
fn nulls_are_survived_and_refused() {
    // SAFETY: this program has one test, and nothing else reads the environment meanwhile.
    unsafe {
        std::env::set_var("TONNAGE_PHANTOM_QUIET", "1");
        std::env::set_var("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    }
    let path = library();
    let names = exports(&std::fs::read(&path).unwrap());
    assert!(names.len() > 2000, "{} exports", names.len());
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the library's code at load reads its settings and nothing else.
    let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    assert!(!handle.is_null());
    let ends: BTreeMap<&str, End> = names
        .iter()
        .map(|name| {
            let symbol = CString::new(name.as_str()).unwrap();
            // SAFETY: a lookup by name in an open library.
            (name.as_str(), called_with_zeros(unsafe { dlsym(handle, symbol.as_ptr()) }))
        })
        .collect();
    let killed: Vec<_> = ends.iter().filter(|(_, end)| matches!(end, End::Killed(_))).collect();
    assert!(killed.is_empty(), "{killed:?}");
    let succeeded = ends.iter().filter(|(_, end)| **end == End::Returned { succeeded: true }).map(|(name, _)| *name);
    let wrong: Vec<&str> = succeeded.filter(|name| !MAY_SUCCEED.iter().any(|start| name.starts_with(start))).collect();
    assert!(wrong.is_empty(), "zeros were accepted by {wrong:?}");
}
