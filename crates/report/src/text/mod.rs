//! Text for terminals. Colours are always written; whoever prints strips them where they do not belong.

mod bill;
mod catalog;
mod compare;
mod config;
mod deployment;
mod doctor;
mod estimate;
mod explain;
mod fit;
mod fits_from;
mod legacy;
mod paint;
mod patch;
mod plan;
mod rehearsal;
mod run;
mod search;
mod solve;
mod suite;
mod table;
mod tensors;
mod traces;
mod verdict;

pub(crate) use paint::paint;

pub use bill::{dollars, grouped, plain, watt_hours};
pub use catalog::{GpuRow, ModelRow, gpus, keys, models};
pub use compare::compare;
pub use config::{config, config_keys};
pub use doctor::doctor;
pub use estimate::{estimate, next, way_out};
pub use explain::explain;
pub use fit::fit_table;
pub use legacy::legacy;
pub use paint::wrap;
pub use plan::plan;
pub use rehearsal::{against, rehearsal};
pub use run::{run, runs};
pub use search::{left_out, search};
pub use solve::solve;
pub use suite::suite;
pub use table::{Align, Cell, Table};
pub use tensors::{largest, modules};
pub use traces::{ReplayView, comparison, replayed};
