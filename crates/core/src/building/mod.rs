//! What building a model is where tensors have no numbers: what is allocated as it comes to the device, switches and hooks of its
//! modules, and weights that are quantized. `crates/train` has a module of this name that
//! does the same where tensors have numbers.

mod builder;
mod init;
mod mode;
mod module;
mod older_masks;
mod quantization;
mod quantized;
mod split;

pub(crate) use builder::{BuildError, Builder, Ends, Parts, Placed, PlacedKind, Sharding, SharedParameters};
pub(crate) use init::Init;
pub(crate) use mode::{LigerKernels, Mode};
pub(crate) use module::{EveryModule, ForwardHooks, Module, ModuleHooks, ModuleKey, Part};
pub(crate) use older_masks::{OlderMask, counted_positions, tabled_mask, update_causal_mask};
pub(crate) use quantization::{FourBit, Quantization};
pub(crate) use quantized::{Adapted, ExpertStack, Quantized, multiply_fused};
