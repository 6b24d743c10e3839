//! Estimates become decisions: which batch fits which GPU, how many processes share one, what each remedy saves.
//!
//! Everything here is a change to a job, written as keys and values, and an estimate of the changed job: a plan never
//! states a size that was not estimated. Changed jobs come of the job's source ([`crate::job::JobSource`]).

pub mod appraisal;
pub mod batch;
pub mod fit;
pub mod fits_from;
pub mod framework;
pub mod largest;
pub mod proposal;
pub mod remedy;
mod replaying;
pub mod search;
pub mod solve;
pub mod spread;
pub mod suite;
pub mod table;
pub mod time;
pub mod verdict_table;

/// So many events are simulated for one question, be it a table, a search in it or remedies: seconds, whatever the job is. What would come after
/// that is said not to have been tried.
const MOST_EVENTS: u64 = 3 << 22;

/// A key and its new value.
pub type Change = (&'static str, String);
