//! A GPU that isn't there: preloaded into a process, this library stands in for CUDA and its companions.

pub mod nvml;
