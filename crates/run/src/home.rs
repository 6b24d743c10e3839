//! Where everything lies that is kept of runs.

use std::path::PathBuf;

/// Where runs are kept if nobody says: `$TONNAGE_HOME`, or the user's folder for state.
pub fn default_root() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = if cfg!(windows) {
        set("LOCALAPPDATA").map(|local| local.join("tonnage"))
    } else {
        set("XDG_STATE_HOME")
            .map(|state| state.join("tonnage"))
            .or_else(|| set("HOME").map(|home| home.join(".local/state/tonnage")))
    };
    set("TONNAGE_HOME").or(state).unwrap_or_else(|| PathBuf::from(".tonnage"))
}
