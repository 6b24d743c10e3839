//! What building a model is where tensors have no numbers: what is allocated as it comes to the device, switches and hooks of its
//! modules, weights that are quantized, and layers that stand for one another. `crates/train` has a module of this name that
//! does the same where tensors have numbers.

mod builder;
mod cache_layers;
mod init;
mod layer_call;
mod layer_copies;
mod mode;
mod module;
mod older_masks;
mod quantization;
mod quantized;

pub(crate) use builder::{BuildError, Builder, Placed, PlacedKind, Sharding};
pub(crate) use cache_layers::{CacheLayer, CacheLayers};
pub(crate) use init::Init;
pub(crate) use layer_call::call_layer;
pub(crate) use layer_copies::LayerCopies;
pub(crate) use mode::{LigerKernels, Mode};
pub(crate) use module::{ForwardHooks, Module, ModuleHooks};
pub(crate) use older_masks::{OlderMask, update_causal_mask};
pub(crate) use quantization::{FourBit, Quantization};
pub(crate) use quantized::Quantized;
