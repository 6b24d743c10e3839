//! `GPTBigCodeConfig` (transformers 5.17): GPT-2's, and whether heads share their key and value.

use crate::job::{FieldError, Fields};

use super::super::bounds::bound_weights;
use super::super::gpt2;

#[derive(Clone, Copy)]
pub(super) struct Config {
    pub base: gpt2::Config,
    pub multi_query: bool,
}

impl Config {
    pub(super) fn read(fields: &Fields) -> Result<Self, FieldError> {
        let base = gpt2::Config::read(fields, "gelu_pytorch_tanh")?;
        // The table of which positions see which.
        bound_weights(&[("n_positions", [base.n_positions, base.n_positions], 1)])?;
        Ok(Self { base, multi_query: fields.flag("multi_query", true)? })
    }

    pub(super) fn head_dim(&self) -> u64 {
        self.base.n_embd / self.base.n_head
    }

    /// Numbers of a token's keys, and of its values.
    pub(super) fn kv_dim(&self) -> u64 {
        if self.multi_query { self.head_dim() } else { self.base.n_embd }
    }
}
