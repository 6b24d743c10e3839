//! [`LeftOpen`]: what a trainer's own config says that no key of a job says, and what an answer then allows for.

use serde::{Deserialize, Serialize};

/// Something of a job that its keys cannot say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOpen {
    /// What it is, with its place, as a sentence without a full stop.
    pub text: String,
    /// By how much it may change the figures.
    pub allowance: Allowance,
}

/// By how much something that no key says may change the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allowance {
    /// Not at all.
    None,
    /// The job takes no more than the figures, and perhaps much less.
    Less,
    /// A fifth of the peak, more or less: simulated in kind and never measured.
    Fifth,
    /// A fiftieth of the peak, more or less: measured in some settings, and off by less than that.
    Fiftieth,
    /// Nobody knows: the job surely fits nowhere.
    Unknown,
    /// Weights and the optimizer's states are there; beside them nobody knows, more or less: the job surely fits nowhere.
    AllButStates,
}
