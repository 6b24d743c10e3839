//! The scripted NVML, loaded as the driver's: each test has a copy of its own, since the library's state is the process's.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use tonnage_watch::host::Kernel;
use tonnage_watch::nvml::{Library, NvmlSampler, OpenError};

/// A copy of the library that plays a script.
pub struct Scripted {
    path: PathBuf,
    library: libloading::Library,
}

/// The shared library that cargo builds of the phantom, beside the test itself.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libtonnage_phantom.so")
}

/// The phantom says that it is there, and refuses to be beside a real driver: neither matters to a script.
fn quiet() {
    static ONCE: Once = Once::new();
    // SAFETY: the tests read no variable of the environment themselves, and the library does so after this.
    ONCE.call_once(|| unsafe {
        std::env::set_var("TONNAGE_PHANTOM_QUIET", "1");
        std::env::set_var("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    });
}

impl Scripted {
    pub fn new(script: &str) -> Self {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}-{number}.so", std::process::id()));
        std::fs::copy(built(), &path).expect("the phantom's library is built with the tests");
        quiet();
        // SAFETY: the library is ours; when loaded it reads its settings.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        let scripted = Self { path, library };
        scripted.play(script);
        scripted
    }

    /// Plays another script, from its beginning.
    pub fn play(&self, script: &str) {
        type Script = unsafe extern "C" fn(*const u8, usize) -> bool;
        // SAFETY: the symbol has this type, and pointer and length are of one text.
        let read =
            unsafe { self.library.get::<Script>(b"tonnage_nvml_script\0").unwrap()(script.as_ptr(), script.len()) };
        assert!(read, "a script that can be read: {script}");
    }

    /// Sets the time of the script; not every test does.
    #[allow(dead_code)]
    pub fn at(&self, seconds: f64) {
        type Time = extern "C" fn(f64);
        // SAFETY: the symbol has this type.
        unsafe { self.library.get::<Time>(b"tonnage_nvml_time\0") }.unwrap()(seconds);
    }

    /// The library, opened as a driver's.
    pub fn open(&self) -> Result<Library, OpenError> {
        Library::open(Some(&self.path))
    }

    /// A reader of it that sees no processes of this machine.
    pub fn sampler(&self) -> NvmlSampler {
        let nowhere = Path::new("/nonexistent");
        NvmlSampler::new(self.open().unwrap(), Kernel::at(nowhere, nowhere))
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}
