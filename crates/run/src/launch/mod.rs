//! Processes: how they are started, watched and ended so that none is left.
//!
//! The supervisor starts a [`guardian`] for each command, that a [`keeper`], and that the command. Each is the parent of all
//! that those below it leave behind: whichever of them die, the highest that lives ends the rest.

mod evidence;
pub mod guardian;
pub mod keeper;
mod orphans;
mod output;
mod process;
mod tree;
mod wait;

pub use evidence::{Evidence, left_evidence};
pub use orphans::{end_processes_of, processes_of, stopped_holders, wake};
pub use output::{Output, Screen};
pub use process::{Notice, Process, Start};
pub use tree::{Identity, descendants, end_tree, is_alive, tree_usage, wait_dead};
pub use wait::{catches_signal, waits_for};
