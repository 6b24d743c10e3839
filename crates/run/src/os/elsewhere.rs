//! Other systems: no process adopts orphans or dies with its parent, so no run is kept here (see `check`, which comes first).

use std::process::Command;

/// The program by its name.
pub(crate) const OWN_PROGRAM: &str = "tonnage";

pub(crate) fn adopt_orphans() {}

pub(crate) fn die_with_parent(_command: &mut Command) {}

pub(crate) fn wake_with_parents_death(_command: &mut Command) {}

pub(crate) fn set_name(_name: &str) {}

pub(crate) fn is_child_running(_child: i32) -> bool {
    false
}
