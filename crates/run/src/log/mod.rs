//! The logs of an attempt: written whole, with an end; their tails; followed as they grow; how far a training is by them.

mod file;
mod follower;
mod progress;
mod tail;

pub(crate) use file::Log;
pub use follower::Follower;
pub use progress::latest_progress;
pub use tail::{LogTail, log_end};
