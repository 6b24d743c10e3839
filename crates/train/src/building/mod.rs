//! What building a model is where tensors have numbers: named weights on the device, LoRA's adapters beside them, and the switches
//! of its modules. Core has a module of this name that does the same where tensors have none.

mod builder;
mod init;
mod mode;
mod module;
mod older_masks;
mod quantized;

pub use builder::BuildError;
pub(crate) use builder::{Builder, NewParameter, SharedParameters};
pub(crate) use init::Init;
pub(crate) use mode::{LigerKernels, Mode};
pub(crate) use module::{Module, Part};
pub(crate) use older_masks::{OlderMask, counted_positions, tabled_mask, update_causal_mask};
pub(crate) use quantized::{Adapted, ExpertStack, Quantized, multiply_fused};
