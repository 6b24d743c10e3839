//! Processes: how they are started, watched and ended so that none is left.
//!
//! The supervisor starts a [`keeper`] for each command, which is the parent of all that the command leaves behind. Either
//! sees the other's death: a keeper whose supervisor is gone ends everything, a supervisor whose keeper is gone does.

pub mod keeper;
mod output;
mod process;
mod tree;
mod wait;

pub use output::{Follower, LogTail, Output, Screen, log_end};
pub use process::{Notice, Process, Start};
pub use tree::{Identity, descendants, end_tree, is_alive, usage};
pub use wait::{catches, doing};
