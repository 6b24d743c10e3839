//! From one job to an experiment: a suite file becomes runs ([`expand`]), runs a plan ([`plan`]), and a plan is carried out here
//! ([`runner`]) or written out for those who run it elsewhere ([`render`]).
//!
//! [`file`] and [`expand`] know no folder, no clock and no process; only [`code`], [`journal`] and [`runner`] do.

pub mod code;
pub mod expand;
pub mod file;
pub mod identity;
pub mod pack;
pub mod plan;
pub mod scaling;
pub mod text;
