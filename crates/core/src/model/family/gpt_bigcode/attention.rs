//! Attention whose heads share one key and one value, and the classes that it had before transformers 4.54.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::{Attention, ModelingFile};
use crate::model::nn::{AttentionConfig, AttentionOutput, KvCache, Linear, attention_forward};
use crate::op::{AttentionCall, package_flash_attn_func, scaled_dot_product_attention};
use crate::tensor::Tensor;

use super::super::RunOptions;
use super::super::attention::{eager_attention_forward, join_heads};
use super::super::gpt2;
use super::config::Config;

pub(super) struct GptBigCodeAttention {
    module: Module,
    layer: usize,
    c_attn: Linear,
    c_proj: Linear,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl GptBigCodeAttention {
    pub(super) fn new(at: &Builder, layer: usize, config: Config, options: &RunOptions) -> Self {
        let width = config.base.n_embd;
        Self {
            module: at.module(),
            layer,
            c_attn: Linear::new(&at.at("c_attn"), width, width + 2 * config.kv_dim(), true),
            c_proj: Linear::new(&config.base.residual(&at.at("c_proj")), width, width, true),
            dropout: at.at("resid_dropout").module(),
            config,
            options: options.clone(),
        }
    }

    pub(super) fn forward(
        &self,
        hidden_states: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&KvCache>,
    ) -> AttentionOutput {
        let _module = self.module.enter();
        // Query, key and value are views of it, and variables to the end.
        let projected = self.c_attn.forward(hidden_states);
        let (mut attn_output, attn_weights) = if has_attention_classes(hidden_states) {
            (self.attend_in_class(&projected, mask, cache), None)
        } else {
            self.attend(&projected, mask, cache)
        };
        attn_output = self.c_proj.forward(&attn_output);
        let _dropout = self.dropout.enter();
        (attn_output.dropout(self.config.base.resid_pdrop, self.options.drops_out()), attn_weights)
    }

    /// Query, key and value, [batch, heads, tokens, head_dim] each.
    fn split_heads(&self, projected: &Tensor) -> [Tensor; 3] {
        let Config { base: gpt2::Config { n_embd, n_head, .. }, multi_query } = self.config;
        let (rows, tokens, head_dim) = (projected.size(0), projected.size(1), self.config.head_dim());
        if multi_query {
            let [query, key, value] = projected.unsqueeze(1).split_widths([n_embd, head_dim, head_dim]);
            return [query.view(&[rows, tokens, n_head, head_dim]).transpose(1, 2), key, value];
        }
        projected.view(&[rows, tokens, n_head, 3 * head_dim]).transpose(1, 2).split_last()
    }

    /// The same of the classes: query, then key and value together, then these two.
    fn split_pair(&self, projected: &Tensor) -> [Tensor; 3] {
        let Config { base: gpt2::Config { n_embd, n_head, .. }, multi_query } = self.config;
        let (rows, tokens, head_dim) = (projected.size(0), projected.size(1), self.config.head_dim());
        if multi_query {
            let [query, key_value] = projected.split_widths([n_embd, 2 * head_dim]);
            let [key, value] = key_value.split_last();
            let query = query.view(&[rows, tokens, n_head, head_dim]).transpose(1, 2);
            return [query, key.unsqueeze(1), value.unsqueeze(1)];
        }
        let heads = projected.view(&[rows, tokens, n_head, 3 * head_dim]).transpose(1, 2);
        let [query, key_value] = heads.split_widths([head_dim, 2 * head_dim]);
        let [key, value] = key_value.split_last();
        [query, key, value]
    }

    fn attention_config(&self) -> AttentionConfig {
        AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: if self.config.multi_query { self.config.base.n_head } else { 1 },
            dropout: self.options.active_call(self.config.base.attn_pdrop),
            is_causal: true,
            scale: self.config.base.scaling(self.layer),
        }
    }

    fn attend(&self, projected: &Tensor, mask: Option<&Tensor>, cache: Option<&KvCache>) -> AttentionOutput {
        let [query, mut key, mut value] = self.split_heads(projected);
        if let Some(cache) = cache {
            (key, value) = cache.update(self.layer, &key, &value);
        }
        let config = self.attention_config();
        let (attn_output, attn_weights) = match self.options.attention {
            Attention::Eager => eager_attention_forward(&query, &key, &value, mask, config),
            _ => (attention_forward(&query, &key, &value, (mask, None), config), None),
        };
        (join_heads(&attn_output), attn_weights)
    }

    /// `GPTBigCodeSdpaAttention` and `GPTBigCodeFlashAttention2`: heads share their key by `expand`, without a copy.
    fn attend_in_class(&self, projected: &Tensor, mask: Option<&Tensor>, presents: Option<&KvCache>) -> Tensor {
        let AttentionConfig { dropout, scale, implementation: backend, .. } = self.attention_config();
        let states = self.split_pair(projected);
        if let Some(presents) = presents {
            presents.update(self.layer, &states[1], &states[2]);
        }
        let (rows, tokens, width) = (projected.size(0), projected.size(1), self.config.base.n_embd);
        if backend == Attention::FlashAttention2 {
            let target = projected.context().autocast_dtype().filter(|_| projected.dtype() == DType::Float32);
            let states = states.map(|states| states.transpose(1, 2));
            let [query, key, value] = match target {
                Some(dtype) => states.map(|states| states.to(dtype)),
                None => states,
            };
            return package_flash_attn_func(&query, &key, &value, dropout, true).reshape(&[rows, tokens, width]);
        }
        let [query, key, value] = states;
        let is_copied = !self.config.multi_query && mask.is_some();
        let [query, key, value] = if is_copied {
            [query, key, value].map(|states| states.contiguous())
        } else {
            let sizes = *query.sizes();
            [query, key.expand(&sizes), value.expand(&sizes)]
        };
        let is_causal = mask.is_none() && tokens > 1;
        let call = AttentionCall { mask, dropout, is_causal, scale, enable_gqa: false, backend };
        let sdpa_result = scaled_dot_product_attention(&query, &key, &value, call);
        sdpa_result.transpose(1, 2).reshape(&[rows, tokens, width])
    }
}

/// Whether each kind of attention has a class of its own, beside a table of which positions see which.
pub(super) fn has_attention_classes(states: &Tensor) -> bool {
    !states.context().transformers().has_masking_utils(ModelingFile::GptBigCode)
}
