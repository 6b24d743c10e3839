//! What systems do differently: files of one user, the lock of a history, signals.

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod imp;

pub(crate) use imp::{create_private_folder, lock_file, make_private, private_options, send_signal};

/// What the driver's library is called.
pub(crate) const NVML: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };

/// The signals that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// As Ctrl-C does.
    Interrupt,
    Terminate,
    /// End at once.
    Kill,
}

impl Signal {
    pub fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}
