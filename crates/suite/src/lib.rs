//! From one job to an experiment: a suite file becomes runs ([`expand`]), runs a plan ([`plan`]), and a plan is carried out here
//! (`runner`) or written out for those who run it elsewhere ([`render`]).
//!
//! Reading, expanding, scaling, packing and planning know no folder, no clock and no process; only `code`, `export`, `folder`,
//! `journal`, `measured`, `records`, `runner` and `system` do.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]

pub mod code;
pub mod expand;
#[cfg(unix)]
pub mod export;
pub mod file;
#[cfg(unix)]
pub mod folder;
pub mod identity;
#[cfg(unix)]
pub mod journal;
#[cfg(unix)]
pub mod measured;
pub mod pack;
pub mod patterns;
#[cfg(unix)]
pub mod peaks;
pub mod plan;
#[cfg(unix)]
mod records;
pub mod render;
#[cfg(unix)]
pub mod runner;
pub mod scaling;
#[cfg(unix)]
pub mod slurm;
#[cfg(unix)]
pub mod status;
#[cfg(unix)]
pub mod system;
pub mod text;
