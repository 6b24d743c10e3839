//! Models and what they are made of: one source for tensors without numbers, here, and for tensors with numbers, in `crates/train`,
//! which compiles the same files. It names nothing of a crate but `tensor`, `op`, `building`, `job`, `dtype` and `trace`.

pub(crate) mod family;
pub(crate) mod hrm;
pub(crate) mod nn;
