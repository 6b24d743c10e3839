//! PyTorch's operators as models call them: the methods that core's tensors without numbers have too.

mod arithmetic;
mod attention;
mod complex;
mod create;
mod layers;
mod other_kernels;
mod routing;
mod undifferentiated;
mod view;

pub(crate) use arithmetic::Gelu;
pub(crate) use attention::{AttentionCall, flash_attn_func, scaled_dot_product_attention};
pub(crate) use create::{
    arange, arange_floats, arange_from, cat, copied_beside, empty, eye, filled, index, number_from_host, ones, rand,
    stack, stack_last, true_scalar, where_number, zeros,
};
pub(crate) use layers::Reduction;
pub(crate) use other_kernels::{
    ScanInputs, SelectiveInputs, chunk_gated_delta_rule, chunk_scan, fast_rope_embedding, fused_linear_cross_entropy,
    liger_rope, package_flash_attn_func, selective_scan, upcast_linear_cross_entropy, update_selective_state,
    update_state,
};
