//! The commands, a file each: its arguments and `run`.

#[cfg(unix)]
mod attach;
mod axes;
mod check;
mod colours;
mod compare;
mod completions;
pub mod cost;
pub mod doctor;
#[cfg(not(unix))]
mod elsewhere;
pub mod estimate;
pub mod fit;
#[cfg(unix)]
mod generate;
pub mod gpus;
#[cfg(unix)]
mod keep;
mod keys;
pub mod line;
#[cfg(unix)]
mod list;
#[cfg(unix)]
mod logs;
mod man;
pub mod models;
pub mod plan;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod rehearse;
#[cfg(unix)]
mod remove;
mod report;
#[cfg(unix)]
mod run;
mod schema;
#[cfg(unix)]
mod show;
mod solve;
#[cfg(unix)]
mod status;
#[cfg(unix)]
mod stop;
mod suite;
#[cfg(unix)]
mod supervise;
pub mod trace;
#[cfg(unix)]
mod train;
mod watch;

use crate::failure::Failure;

/// A document as text.
pub fn json(view: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(view).map_err(|error| Failure::bad_input(error.to_string()))?;
    Ok(text + "\n")
}
