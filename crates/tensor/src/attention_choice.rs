//! The attention implementation that a model asks for.

use serde::{Deserialize, Serialize};

/// The attention implementation; all but `Eager` and `FlashAttention2` go through `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// The kernel PyTorch chooses for the device, dtype and mask (cuDNN's last: `TORCH_CUDNN_SDPA_DEPRIORITIZED=1`).
    Sdpa,
    /// SDPA restricted to the flash kernel.
    Flash,
    /// SDPA restricted to the mem-efficient kernel.
    MemEfficient,
    /// SDPA restricted to the math fallback.
    Math,
    /// SDPA restricted to the cuDNN kernel (its workspace is not known: caveat).
    Cudnn,
    /// The modeling file's own matmul and softmax.
    Eager,
    /// The flash-attn package (2.x), as transformers calls it.
    #[serde(rename = "flash_attention_2")]
    FlashAttention2,
}
