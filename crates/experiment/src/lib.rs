//! What an experiment says, and what it does not.

pub mod statistics;
