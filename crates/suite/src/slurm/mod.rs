//! A suite on SLURM: [`submit`] sends what is missing as arrays, [`follow`] says where every run is, `harvest` writes down
//! how it ended. Only a run's own mark says that it is done; only a controller that answers says that a job is gone.
//!
//! A submission is a batch with a name of its own, which its jobs bear: a job is ours where number and name agree, so that numbers
//! that a controller gives out a second time are nobody's mistake.

mod accounts;
pub mod cancel;
mod client;
pub mod evidence;
pub mod follow;
pub(crate) mod harvest;
mod indexes;
mod number;
mod poll;
mod queue;
pub mod records;
mod state;
pub mod submit;

pub use client::{Answer, Client};
pub use follow::{Standing, View};
pub use poll::{POLL_SECONDS, Poll};
pub use state::JobState;

/// The job name of a batch's link; links count from 1.
pub fn job_name(suite: &str, batch: &str, link: u32) -> String {
    match link {
        0 | 1 => format!("{suite}.{batch}"),
        link => format!("{suite}.{batch}.{link}"),
    }
}

/// The name of the log of an array's task, as `--output=%x-%A_%a.log` makes it.
pub fn log_name(job_name: &str, job: u64, task: u64) -> String {
    format!("{job_name}-{job}_{task}.log")
}
