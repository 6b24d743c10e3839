//! PyTorch's memory history: every allocation and free of the caching allocator, as `torch.cuda.memory._record_memory_history` keeps
//! and `_dump_snapshot` writes them; `tonnage trace` reads the file.
#![allow(unsafe_code)] // A second library of the shim's, loaded only where a history is wanted: it needs libtorch_cuda.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::os::unix::{Library, Symbol};

use crate::error::TorchError;
use crate::sys::Torch;

/// A history that is being recorded; it stops when this is dropped.
pub struct History {
    record: Symbol<unsafe extern "C" fn(i32, i64) -> i32>,
    write: Symbol<unsafe extern "C" fn(*const c_char) -> i32>,
    error: Symbol<unsafe extern "C" fn() -> *const c_char>,
    _library: Library,
}

impl Torch {
    /// Records up to `most` events from here on.
    ///
    /// # Errors
    /// When this libtorch has no CUDA part.
    pub fn record_history(&self, most: u32) -> Result<History, TorchError> {
        let path = self
            .history_library()
            .ok_or_else(|| TorchError::setup("this PyTorch has no CUDA part, so no memory history"))?;
        let missing = |error: libloading::Error| TorchError::setup(format!("{}: {error}", path.display()));
        // SAFETY: compiled from shim/history.cpp; it has no initialisers of its own.
        let library = unsafe { Library::new(path) }.map_err(missing)?;
        // SAFETY: the three functions have these types in shim/history.cpp.
        let (record, write, error) = unsafe {
            (
                library.get(b"tonnage_record_history\0").map_err(missing)?,
                library.get(b"tonnage_write_snapshot\0").map_err(missing)?,
                library.get(b"tonnage_history_error\0").map_err(missing)?,
            )
        };
        let history = History { record, write, error, _library: library };
        history.switch(true, i64::from(most))?;
        Ok(history)
    }
}

impl History {
    fn switch(&self, on: bool, most: i64) -> Result<(), TorchError> {
        // SAFETY: numbers.
        self.check(unsafe { (self.record)(i32::from(on), most) })
    }

    fn check(&self, code: i32) -> Result<(), TorchError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a text of this thread, copied at once.
        let text = unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned();
        Err(TorchError::setup(text))
    }

    /// Writes what `torch.cuda.memory._dump_snapshot(path)` writes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_snapshot(&self, path: &Path) -> Result<(), TorchError> {
        let path =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| TorchError::setup("a path with a zero byte"))?;
        // SAFETY: a C string that outlives the call.
        self.check(unsafe { (self.write)(path.as_ptr()) })
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // Nobody is left to hear that it could not be stopped.
        let _ = self.switch(false, 1);
    }
}
