//! The aten ops as the simulator sees them.

pub mod scratch;
