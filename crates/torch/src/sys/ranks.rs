//! Ranks that train together: the caller's transport as C++ calls it, and PyTorch's process group, reducer and store.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::Library;

use super::functions::RanksFunctions;
use super::{Handle, error_of_kind, open};
use crate::error::TorchError;
use crate::ranks::Transport;

/// `Transport` of shim/ranks.cpp.
#[repr(C)]
pub(super) struct CTransport {
    state: *mut c_void,
    all_reduce: extern "C" fn(*mut c_void, *mut c_void, i64, i64, i32) -> i32,
    broadcast: extern "C" fn(*mut c_void, *mut c_void, i64, i32) -> i32,
    all_gather: extern "C" fn(*mut c_void, *const c_void, i64, *mut c_void) -> i32,
    error: extern "C" fn(*mut c_void) -> *const c_char,
}

/// `NcclId` of shim/nccl.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NcclId(pub(crate) [u8; 128]);

/// `ReducerOptions` of shim/ranks.cpp.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReducerOptions {
    pub(crate) bucket_cap: i64,
    pub(crate) first_bucket_cap: i64,
    pub(crate) gradient_as_bucket_view: i32,
}

/// The functions of `ranks.cpp`, loaded.
pub(crate) struct RanksLibrary {
    functions: RanksFunctions,
    _library: Library,
}

static LOADED: OnceLock<RanksLibrary> = OnceLock::new();

/// What the process group calls.
struct State {
    ranks: usize,
    transport: Box<dyn Transport>,
    library: &'static RanksLibrary,
    error: Mutex<CString>,
}

impl RanksLibrary {
    /// Loads it; libtorch is loaded already.
    pub(crate) fn load(path: &Path) -> Result<&'static Self, TorchError> {
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let library = open(path)?;
        let functions = RanksFunctions::of(&library)?;
        Ok(LOADED.get_or_init(|| Self { functions, _library: library }))
    }

    fn error(&self) -> TorchError {
        let mut kind = 0;
        // SAFETY: the text is this thread's own and lives until its next error; it is copied before that.
        let text = unsafe { CStr::from_ptr((self.functions.tonnage_ranks_error)(&raw mut kind)) };
        error_of_kind(kind, text.to_string_lossy().into_owned())
    }

    fn check(&self, code: i32) -> Result<(), TorchError> {
        if code < 0 { Err(self.error()) } else { Ok(()) }
    }

    fn handle(&self, handle: i64) -> Result<i64, TorchError> {
        if handle == 0 { Err(self.error()) } else { Ok(handle) }
    }

    /// A name for a communicator of NCCL.
    pub(crate) fn nccl_id(&self) -> Result<NcclId, TorchError> {
        let mut id = NcclId([0; 128]);
        // SAFETY: as many bytes are written.
        self.check(unsafe { (self.functions.tonnage_nccl_id)(&raw mut id) })?;
        Ok(id)
    }
}

extern "C" fn all_reduce(state: *mut c_void, numbers: *mut c_void, elements: i64, size: i64, scalar_type: i32) -> i32 {
    // SAFETY: the state that `Group::new` leaked.
    let state = unsafe { &*state.cast::<State>() };
    let (elements, size) = (usize::try_from(elements).unwrap_or(0), usize::try_from(size).unwrap_or(1));
    // SAFETY: the memory of a contiguous tensor on the CPU, which nothing else touches during the call.
    let bytes = unsafe { std::slice::from_raw_parts_mut(numbers.cast::<u8>(), elements * size) };
    let add = |to: &mut [u8], more: &[u8]| {
        let count = to.len().min(more.len()) / size;
        // SAFETY: both hold `count` numbers.
        let code = unsafe {
            (state.library.functions.tonnage_add)(
                to.as_mut_ptr().cast(),
                more.as_ptr().cast(),
                count as i64,
                scalar_type,
            )
        };
        state.library.check(code).map_err(|error| error.text)
    };
    state.told(|| state.transport.all_reduce(bytes, size, &add))
}

extern "C" fn broadcast(state: *mut c_void, bytes: *mut c_void, count: i64, root: i32) -> i32 {
    // SAFETY: the state that `Group::new` leaked.
    let state = unsafe { &*state.cast::<State>() };
    // SAFETY: the memory of a contiguous tensor on the CPU, which nothing else touches during the call.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), usize::try_from(count).unwrap_or(0)) };
    state.told(|| state.transport.broadcast(bytes, usize::try_from(root).unwrap_or(0)))
}

extern "C" fn all_gather(state: *mut c_void, own: *const c_void, count: i64, all: *mut c_void) -> i32 {
    // SAFETY: the state that `Group::new` leaked.
    let state = unsafe { &*state.cast::<State>() };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the memory of two contiguous tensors on the CPU that share none; the shim has checked that there is room for all ranks.
    let (own, all) = unsafe {
        (
            std::slice::from_raw_parts(own.cast::<u8>(), count),
            std::slice::from_raw_parts_mut(all.cast::<u8>(), count * state.ranks),
        )
    };
    state.told(|| state.transport.all_gather(own, all))
}

extern "C" fn error(state: *mut c_void) -> *const c_char {
    // SAFETY: the state that `Group::new` leaked.
    let state = unsafe { &*state.cast::<State>() };
    state.error.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}

impl State {
    /// Keeps what went wrong; a panic must not reach C++.
    fn told(&self, call: impl FnOnce() -> Result<(), String>) -> i32 {
        let done = panic::catch_unwind(AssertUnwindSafe(call));
        let Err(text) = done.unwrap_or_else(|_| Err("the transport between ranks panicked".to_owned())) else {
            return 0;
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = text;
        -1
    }
}

/// A process group.
pub(crate) struct Group {
    library: &'static RanksLibrary,
    handle: i64,
}

impl Group {
    pub(crate) fn new(
        library: &'static RanksLibrary,
        transport: Box<dyn Transport>,
        rank: i32,
        ranks: i32,
    ) -> Result<Self, TorchError> {
        // Never freed: reducers and what they started may outlive the group.
        let ranks_here = usize::try_from(ranks).unwrap_or(1);
        let state: &'static State =
            Box::leak(Box::new(State { ranks: ranks_here, transport, library, error: Mutex::default() }));
        let state = std::ptr::from_ref(state).cast_mut().cast();
        let transport = CTransport { state, all_reduce, broadcast, all_gather, error };
        // SAFETY: the struct is copied; its state lives as long as the process.
        let handle = unsafe { (library.functions.tonnage_group)(&raw const transport, rank, ranks) };
        Ok(Self { library, handle: library.handle(handle)? })
    }

    pub(crate) fn library(&self) -> &'static RanksLibrary {
        self.library
    }

    pub(crate) fn use_nccl(&self, id: &NcclId, device: i32) -> Result<(), TorchError> {
        // SAFETY: a live group.
        self.library.check(unsafe { (self.library.functions.tonnage_group_use_nccl)(self.handle, id, device) })
    }

    pub(crate) fn broadcast(&self, tensors: &[Handle], buffer_bytes: i64) -> Result<(), TorchError> {
        let count = tensors.len() as i64;
        // SAFETY: a live group and live handles, which are transparent over the shim's int64_t.
        let code = unsafe {
            (self.library.functions.tonnage_group_broadcast)(self.handle, tensors.as_ptr().cast(), count, buffer_bytes)
        };
        self.library.check(code)
    }

    pub(crate) fn broadcast_each(&self, tensors: &[Handle]) -> Result<(), TorchError> {
        let count = tensors.len() as i64;
        // SAFETY: a live group and live handles, which are transparent over the shim's int64_t.
        let code = unsafe {
            (self.library.functions.tonnage_group_broadcast_each)(self.handle, tensors.as_ptr().cast(), count)
        };
        self.library.check(code)
    }

    pub(crate) fn all_reduce(&self, tensor: Handle) -> Result<(), TorchError> {
        // SAFETY: a live group and a live handle.
        self.library.check(unsafe { (self.library.functions.tonnage_group_all_reduce)(self.handle, tensor.0) })
    }

    pub(crate) fn all_gather(&self, all: Handle, own: Handle) -> Result<(), TorchError> {
        // SAFETY: a live group and live handles.
        self.library.check(unsafe { (self.library.functions.tonnage_group_all_gather)(self.handle, all.0, own.0) })
    }

    pub(crate) fn reducer(&self, parameters: &[Handle], options: ReducerOptions) -> Result<Reducer, TorchError> {
        let count = parameters.len() as i64;
        // SAFETY: a live group and live handles, which are transparent over the shim's int64_t.
        let handle = unsafe {
            (self.library.functions.tonnage_reducer)(self.handle, parameters.as_ptr().cast(), count, &raw const options)
        };
        Ok(Reducer { library: self.library, handle: self.library.handle(handle)? })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: its owner gives it up; reducers hold it themselves.
        unsafe { (self.library.functions.tonnage_group_free)(self.handle) }
    }
}

/// `c10d::Reducer`.
pub(crate) struct Reducer {
    library: &'static RanksLibrary,
    handle: i64,
}

impl Reducer {
    pub(crate) fn before_forward(&self, reduces: bool) -> Result<(), TorchError> {
        // SAFETY: a live reducer.
        let code = unsafe { (self.library.functions.tonnage_reducer_before_forward)(self.handle, i32::from(reduces)) };
        self.library.check(code)
    }

    pub(crate) fn before_backward(&self) -> Result<(), TorchError> {
        // SAFETY: a live reducer.
        self.library.check(unsafe { (self.library.functions.tonnage_reducer_before_backward)(self.handle) })
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        // SAFETY: its owner gives it up; no backward runs.
        unsafe { (self.library.functions.tonnage_reducer_free)(self.handle) }
    }
}

/// `c10d::TCPStore`.
pub(crate) struct Store {
    library: &'static RanksLibrary,
    handle: i64,
}

fn c_text(text: &str) -> Result<CString, TorchError> {
    CString::new(text).map_err(|_| TorchError::setup("a name with a zero byte"))
}

impl Store {
    pub(crate) fn open(
        library: &'static RanksLibrary,
        host: &str,
        port: u16,
        serves: bool,
        listener: Option<i32>,
        milliseconds: i64,
    ) -> Result<Self, TorchError> {
        let host = c_text(host)?;
        let (port, listener) = (i32::from(port), listener.unwrap_or(-1));
        // SAFETY: a C string that outlives the call; a listener is the store's from here on.
        let handle = unsafe {
            (library.functions.tonnage_store)(host.as_ptr(), port, i32::from(serves), listener, milliseconds)
        };
        Ok(Self { library, handle: library.handle(handle)? })
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<(), TorchError> {
        let key = c_text(key)?;
        // SAFETY: a live store; key and value outlive the call.
        let code = unsafe {
            (self.library.functions.tonnage_store_set)(self.handle, key.as_ptr(), value.as_ptr(), value.len() as i64)
        };
        self.library.check(code)
    }

    pub(crate) fn get(&self, key: &str, room: usize) -> Result<Vec<u8>, TorchError> {
        let key = c_text(key)?;
        let mut value = vec![0; room];
        // SAFETY: a live store; no more than the given room is written.
        let length = unsafe {
            (self.library.functions.tonnage_store_get)(self.handle, key.as_ptr(), value.as_mut_ptr(), room as i64)
        };
        let length = usize::try_from(length).map_err(|_| self.library.error())?;
        if length > room {
            return Err(TorchError::setup(format!("the store's value of {length} bytes is none of this program's")));
        }
        value.truncate(length);
        Ok(value)
    }
}
