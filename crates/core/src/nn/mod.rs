//! Modules that every model family is made of: linear layers, norms, embeddings, attention, the language-model head.

mod attention;
mod builder;
mod cache;
mod cache_layers;
mod head;
mod layer_call;
mod layer_copies;
mod layers;
mod mask_inputs;
mod mask_versions;
mod masks;
mod mode;
mod module;
mod positions;
mod quantization;
mod quantized;
mod rotary_versions;

pub(crate) use attention::{AttentionConfig, AttentionOutput, attention_forward, repeat_kv, sdpa_attention_forward};
pub(crate) use builder::{BuildError, Builder, Placed, PlacedKind, Sharding};
pub(crate) use cache::KvCache;
pub(crate) use head::{HeadCall, HeadOutput, LmHead, masked_lm_loss};
pub(crate) use layer_call::call_layer;
pub(crate) use layers::{Activation, Conv1d, Embedding, LayerNorm, Linear, RmsNorm};
pub(crate) use mask_inputs::MaskInputs;
pub(crate) use masks::{LayerMasks, LayerType, create_bidirectional_mask, create_causal_mask};
pub(crate) use mode::{LigerKernels, Mode};
pub(crate) use module::{ForwardHooks, Module, ModuleHooks};
pub(crate) use positions::{
    RopeType, RotaryEmbedding, apply_partial_rotary_pos_emb, apply_rotary_pos_emb, position_ids, rotate,
};
pub(crate) use quantization::Quantization;
pub(crate) use rotary_versions::{LayerRotary, RotaryCall};
