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

pub(crate) use paint::paint_text;

pub use bill::{dollars_text, grouped_number, plain_number, watt_hours};
pub use catalog::{GpuRow, ModelRow, gpu_table, key_table, model_table};
pub use compare::compare_table;
pub use config::{config_keys, config_lines};
pub use doctor::doctor_screen;
pub use estimate::{estimate_screen, next, way_out};
pub use explain::explain_screen;
pub use fit::fit_table;
pub use legacy::legacy_lines;
pub use paint::wrap_text;
pub use plan::plan_screen;
pub use rehearsal::{estimate_lines, rehearsal_screen};
pub use run::{run_screen, run_table};
pub use search::{left_out, search_screen};
pub use solve::solve_screen;
pub use suite::suite_screen;
pub use table::{Align, Cell, Table};
pub use tensors::{largest_tensors, module_table};
pub use traces::{ReplayView, comparison_screen, replay_screen};
