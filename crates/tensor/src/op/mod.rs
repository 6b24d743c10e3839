//! PyTorch's operators, a file for each kind: what an op returns, what it saves for backward, what it allocates while
//! it runs, and what its backward allocates. Semantics are those of PyTorch 2.11 on CUDA, default stream.
//!
//! A backward formula computes its gradients in the order of its generated code: by input name, alphabetically.

mod activation;
mod attention;
mod bound;
mod cast;
mod chunk_scan;
mod chunked_log_prob;
mod collective;
mod complex;
mod condition;
mod convolution;
mod create;
mod delta_rule;
mod depthwise;
mod disentangled;
mod division;
mod dropout;
mod eigen;
mod elementwise;
mod embedding;
mod foak;
mod foak_liger;
mod foreach;
mod group_norm;
mod grouped;
mod in_place;
mod indexing;
mod join;
mod known_reductions;
mod liger;
mod liger_layers;
mod linear;
mod loss;
mod matmul;
mod norm;
mod pooling;
mod reduce;
mod routing;
mod sample;
pub mod scratch;
mod selected_log_prob;
mod selective_scan;
mod softmax;
mod statistics;
mod svd;
mod tensordot;
mod undifferentiated;
mod unit_length;
mod upsample;
mod view;
mod zero_linear;

pub use activation::Gelu;
pub use attention::{AttentionCall, flash_attn_func, package_flash_attn_func, scaled_dot_product_attention};
pub use chunk_scan::{ScanInputs, chunk_scan, update_state};
pub use chunked_log_prob::{TokenOutputs, chunked_log_probs};
pub use convolution::CONVOLUTION;
pub use create::{
    arange, arange_floats, arange_from, empty, eye, filled, full, index, number_from_host, ones, rand, true_scalar,
    where_number, where_self, zeros,
};
pub use delta_rule::chunk_gated_delta_rule;
pub use eigen::EIGH;
pub use elementwise::UNTOLD;
pub use foak::fast_rope_embedding;
pub use foak_liger::upcast_linear_cross_entropy;
pub use foreach::{foreach_norm, foreach_sqrt, group_by_dtype};
pub use join::{cat, copied_beside, stack, stack_last, stack_scalars};
pub use liger::fused_linear_cross_entropy;
pub use liger_layers::liger_rope;
pub use loss::Reduction;
pub use scratch::reduce::ReduceKind;
pub use selected_log_prob::selective_log_softmax;
pub use selective_scan::{SelectiveInputs, selective_scan, update_selective_state};
pub use svd::{SVD, largest_of_svd};
