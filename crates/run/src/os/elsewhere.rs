//! Other systems: no process adopts orphans or dies with its parent, so no run is kept here (see `check`, which comes first).

/// The program by its name.
pub(crate) const OWN_PROGRAM: &str = "tonnage";

/// Nothing.
pub(crate) fn adopt_orphans() {}

/// Nothing.
pub(crate) fn die_with_parent() {}

/// Nothing.
pub(crate) fn set_name(_name: &str) {}
