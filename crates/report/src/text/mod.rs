//! Text for terminals. Colours are always written; whoever prints strips them where they do not belong.

mod catalog;
mod compare;
mod deployment;
mod estimate;
mod explain;
mod fit;
mod judgement;
mod legacy;
mod paint;
mod plan;
mod rehearsal;
mod table;
mod tensors;
mod traces;

pub(crate) use paint::paint;

pub use catalog::{GpuRow, ModelRow, gpus, keys, models};
pub use compare::compare;
pub use estimate::{estimate, next};
pub use explain::explain;
pub use fit::fit_table;
pub use legacy::legacy;
pub use plan::plan;
pub use rehearsal::{against, rehearsal};
pub use tensors::{largest, modules};
pub use traces::{ReplayView, comparison, replayed};
