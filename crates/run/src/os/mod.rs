//! What of a kernel keeps a run's processes together. Linux has it; elsewhere what needs it refuses with [`check_supported`].

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod imp;

pub(crate) use imp::{
    OWN_PROGRAM, adopt_orphans, die_with_parent, is_child_running, set_name, wake_with_parents_death,
};

use crate::RunError;

/// Whether runs can be kept alive here.
///
/// # Errors
/// On systems other than Linux, with what to do there.
pub fn check_supported() -> Result<(), RunError> {
    if cfg!(target_os = "linux") { Ok(()) } else { Err(RunError::NotLinux) }
}
