//! What is stored of a run: the only types that files hold, versioned, read by older and newer versions.
//!
//! A run is one [`RunRecord`], written once, and a journal of [`Entry`]s, only ever appended to. Everything else (is it
//! running, which attempt, how far) is read off the journal by [`RunState::of_journal`]. A field that a newer version adds is
//! passed over, one that an older version lacked has its default, an event of an unknown name stays as it was found.

mod attempt;
mod class;
mod event;
mod journal;
mod outcome;
mod run;
mod state;
mod suite;

pub use attempt::{AttemptRecord, BatchRecord, ChangeRecord, PredictionRecord};
pub use class::FailureClass;
pub use event::{Entry, Event, Sample};
pub use journal::{Journal, read_journal, write_entry};
pub use outcome::{
    CorrectionRecord, CostRecord, ExitRecord, FailureRecord, MemoryRecord, Outcome, PeaksRecord, ResultRecord,
};
pub use run::{JobRecord, NodeRecord, Policy, RunRecord, ValueRecord};
pub use state::{AttemptState, NodeState, Phase, RunState, of_node};
pub use suite::{SuiteRun, SuiteSummary};

/// The version that is written. It rises when an old reader would misunderstand, not when something is added.
pub const FORMAT: u32 = 1;
