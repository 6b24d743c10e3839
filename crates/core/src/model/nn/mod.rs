//! What every model family is made of: linear layers, norms, embeddings, attention, the language-model head.

mod activation;
mod adapter;
mod attention;
mod cache;
mod experts;
mod group_router;
mod head;
mod layers;
mod mask_inputs;
mod masks;
mod patches;
mod positions;
mod rope;
mod rotary_versions;
mod rotations;
mod router_loss;

pub(crate) use activation::Activation;
pub(crate) use attention::{AttentionConfig, AttentionOutput, attention_forward, repeat_kv, sdpa_attention_forward};
pub(crate) use cache::{CacheLayer, KvCache};
pub(crate) use experts::{Experts, ExpertsConfig, ExpertsForm, ExpertsKind, Router, Routing, Scores, TopKRouter};
pub(crate) use group_router::{GroupRouter, GroupScores, float_linear, of_experts};
pub(crate) use head::{HeadCall, HeadOutput, LmHead, fixed_cross_entropy, float_masked_lm_loss, masked_lm_loss};
pub(crate) use layers::{Conv1d, Embedding, LayerNorm, Linear, Norm, RmsNorm, fused_products};
pub(crate) use mask_inputs::MaskInputs;
pub(crate) use masks::{
    LayerMasks, LayerType, create_bidirectional_mask, create_bidirectional_sliding_window_mask, create_causal_mask,
};
pub(crate) use patches::{Conv2d, ImageTokens, PatchEmbeddings};
pub(crate) use positions::{
    RotaryEmbedding, RotaryTables, apply_partial_rotary_pos_emb, apply_rotary_pos_emb, find_packed_sequence_indices,
    position_ids, rotate, rotate_half,
};
pub(crate) use rope::{Rope, RopeKind};
pub(crate) use rotary_versions::{LayerRotary, RotaryCall};
pub(crate) use rotations::{repeat_interleave, rotate_complex, rotate_halves, rotate_pairs, split_rotary};
pub(crate) use router_loss::RouterLoss;
