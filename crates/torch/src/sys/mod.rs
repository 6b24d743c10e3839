//! The shim's C interface, and the only place that calls it: its functions by what they are about, a file each.

mod calls;
mod checkpoints;
mod cuda;
mod devices;
mod functions;
mod ranks;
mod tensors;

use std::ffi::CStr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use self::functions::{CudaFunctions, Functions};
pub(crate) use self::ranks::{Group, NcclId, RanksLibrary, Reducer, ReducerOptions, Store};
pub(crate) use self::tensors::AutocastState;
use crate::error::{ErrorKind, TorchError};
use crate::find::Found;
use crate::shim::Shim;

/// `ErrorKind` of shim/error.h.
const OUT_OF_MEMORY: i32 = 2;
const STOPPED: i32 = 3;
const RECOMPUTATION: i32 = 4;

/// A tensor's handle: the shim owns the tensor until `free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(i64);

/// An operator's handle; operators live as long as the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorHandle(usize);

/// A loaded libtorch. There is one a process: a second `load` gives the first.
pub struct Torch {
    functions: Functions,
    version: String,
    cuda: Option<CudaFunctions>,
    // Never unloaded: its threads and thread-local values live as long as the process.
    _libraries: Vec<Library>,
}

static LOADED: OnceLock<Torch> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

fn open(path: &Path) -> Result<Library, TorchError> {
    // SAFETY: libtorch's own initialisers run, as they do when Python imports torch.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    opened.map_err(|error| {
        TorchError::setup(format!("{} does not load: {error}", path.display()))
            .hinted("a library that it needs is missing or of another version; `pip install --force-reinstall torch` puts them right")
    })
}

impl Torch {
    /// Loads libtorch and the shim that was compiled for it; `with_cuda` also what it has for CUDA devices.
    ///
    /// # Errors
    /// When a library is missing or of another version.
    pub fn load(found: &Found, shim: &Shim, with_cuda: bool) -> Result<&'static Self, TorchError> {
        let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let folder = found.libraries();
        let mut names = vec!["libc10", "libtorch_cpu"];
        if with_cuda && found.has_cuda() {
            names.push("libtorch_cuda");
        }
        let ending = if cfg!(target_os = "macos") { "dylib" } else { "so" };
        let mut libraries = Vec::new();
        for name in names {
            libraries.push(open(&folder.join(format!("{name}.{ending}")))?);
        }
        let library = open(shim.path())?;
        let functions = Functions::of(&library)?;
        // SAFETY: a static text of the shim.
        let version = unsafe { CStr::from_ptr((functions.tonnage_version)()) }.to_string_lossy().into_owned();
        if !found.full_version.starts_with(&version) {
            return Err(TorchError::setup(format!(
                "the shim was compiled for PyTorch {version}, not {}",
                found.full_version
            ))
            .hinted(format!("remove {} and start again", shim.path().display())));
        }
        libraries.push(library);
        let mut cuda = None;
        if let Some(path) = shim.cuda().filter(|_| with_cuda) {
            let library = open(path)?;
            cuda = Some(CudaFunctions::of(&library)?);
            libraries.push(library);
        }
        // SAFETY: no checkpoint runs yet, and no backward.
        unsafe { (functions.tonnage_use_checkpoints)() };
        let torch = Self { functions, cuda, version, _libraries: libraries };
        Ok(LOADED.get_or_init(|| torch))
    }

    /// Its version, as libtorch says it itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn error(&self) -> TorchError {
        let mut kind = 0;
        // SAFETY: the text is this thread's own and lives until its next error; it is copied before that.
        let text =
            unsafe { CStr::from_ptr((self.functions.tonnage_error)(&raw mut kind)) }.to_string_lossy().into_owned();
        error_of_kind(kind, text)
    }

    fn check(&self, code: i32) -> Result<(), TorchError> {
        if code < 0 { Err(self.error()) } else { Ok(()) }
    }

    fn handle(&self, handle: i64) -> Result<Handle, TorchError> {
        if handle == 0 { Err(self.error()) } else { Ok(Handle(handle)) }
    }
}

fn error_of_kind(kind: i32, text: String) -> TorchError {
    match kind {
        OUT_OF_MEMORY => TorchError::new(ErrorKind::OutOfMemory, text),
        STOPPED => TorchError::new(ErrorKind::Stopped, text),
        RECOMPUTATION => checkpoints::take_error().unwrap_or_else(|| TorchError::new(ErrorKind::Operator, text)),
        _ => TorchError::new(ErrorKind::Operator, text),
    }
}

impl Handle {
    /// The shim's word for no tensor, in lists of optional tensors.
    pub(crate) const NONE: Self = Self(0);
}
