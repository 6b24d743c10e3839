//! `tonnage._native`: what the Python module `tonnage` asks the program's own code. Values cross as plain Python objects; whatever takes
//! time runs without the interpreter's lock.

mod asked;
mod errors;
mod estimated;
mod kept;
mod value;

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::estimated::{Estimated, estimate, estimates};
    #[pymodule_export]
    use super::kept::{Kept, ask, doctor};
    #[pymodule_export]
    use super::version;
}

/// The version of the program and the module.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
