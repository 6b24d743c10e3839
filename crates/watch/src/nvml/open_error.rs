//! [`OpenError`]: why there is no NVML.

use std::ffi::OsStr;

use crate::absent::Absent;

/// Why there is no NVML.
#[derive(Debug)]
pub enum OpenError {
    /// The file cannot be loaded.
    NotLoaded {
        /// What was looked for.
        name: String,
        /// What the loader says.
        problem: String,
    },
    /// It is there and does not start.
    NotStarted(Absent),
}

impl OpenError {
    /// The loader's words begin with the name, which is said already.
    pub(super) fn not_loaded(name: &OsStr, error: &libloading::Error) -> Self {
        let (name, text) = (name.to_string_lossy().into_owned(), error.to_string());
        let problem = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text).to_owned();
        Self::NotLoaded { name, problem }
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLoaded { name, problem } => write!(f, "NVML cannot be loaded from `{name}`: {problem}"),
            Self::NotStarted(why) => write!(f, "NVML does not start: {}", why.reason()),
        }
    }
}

impl std::error::Error for OpenError {}
