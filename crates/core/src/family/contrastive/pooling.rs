//! SigLIP's head, which makes one state of an image (`SiglipMultiheadAttentionPoolingHead`): a probe attends to its patches through
//! `nn.MultiheadAttention`, which returns weights too and so takes the long way (torch/nn/functional.py, `multi_head_attention_forward`).

use crate::building::{Builder, Init, Module};
use crate::family::vision::clip_layer::LayerConfig;
use crate::model::family::image_mlp::ImageMlp;
use crate::model::nn::{LayerNorm, Linear};
use crate::tensor::Tensor;

pub(super) struct PoolingHead {
    module: Module,
    probe: Tensor,
    attention: MultiheadAttention,
    layernorm: LayerNorm,
    mlp: ImageMlp,
}

impl PoolingHead {
    pub(super) fn new(at: &Builder, config: &LayerConfig) -> Self {
        let (module, slot) = (at.module(), at.next_slot());
        let attention = MultiheadAttention::new(&at.at("attention"), config);
        let layernorm = config.norm(&at.at("layernorm"));
        let mlp = config.mlp(&at.at("mlp"));
        let probe = at.parameter_listed_at(slot, "probe", &[1, 1, config.hidden_size], Init::Normal);
        Self { module, probe, attention, layernorm, mlp }
    }

    pub(super) fn forward(&self, hidden_state: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let probe = self.probe.repeat_first(hidden_state.size(0));
        let mut hidden_state = self.attention.forward(&probe, hidden_state);
        let residual = hidden_state.clone();
        hidden_state = self.layernorm.forward(&hidden_state);
        hidden_state = {
            let inner = self.mlp.forward(&hidden_state);
            &residual + &inner
        };
        hidden_state.select(1, 0)
    }
}

struct MultiheadAttention {
    module: Module,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor,
    /// Only its weights are used: an adapter on it, which peft makes for its name, does nothing.
    out_proj: Linear,
    heads: u64,
}

impl MultiheadAttention {
    fn new(at: &Builder, config: &LayerConfig) -> Self {
        let (module, slot, width) = (at.module(), at.next_slot(), config.hidden_size);
        let out_proj = Linear::new(&at.at("out_proj"), width, width, true);
        let in_proj_weight = at.parameter_listed_at(slot, "in_proj_weight", &[3 * width, width], Init::Normal);
        let in_proj_bias = at.parameter_listed_at(slot + 1, "in_proj_bias", &[3 * width], Init::Zeros);
        Self { module, in_proj_weight, in_proj_bias, out_proj, heads: config.num_attention_heads }
    }

    /// `_in_projection_packed` of one query and of keys that are their own values.
    fn project(&self, query: &Tensor, key: &Tensor) -> [Tensor; 3] {
        let (width, [tokens, rows]) = (query.size(2), [0, 1].map(|at| key.size(at)));
        let parts = [width, 2 * width];
        let weights = self.in_proj_weight.split_lengths(0, &parts);
        let biases = self.in_proj_bias.split_lengths(0, &parts);
        let q_proj = query.linear(&weights[0], biases.first());
        let mut kv_proj = key.linear(&weights[1], biases.get(1));
        kv_proj = kv_proj.view(&[tokens, rows, 2, width]).permute([2, 0, 1, 3]).contiguous();
        [q_proj, kv_proj.select(0, 0), kv_proj.select(0, 1)]
    }

    /// `self.attention(probe, hidden_state, hidden_state)[0]`
    fn forward(&self, query: &Tensor, key: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (query, key) = (query.transpose(1, 0), key.transpose(1, 0));
        let (width, [tokens, rows]) = (query.size(2), [0, 1].map(|at| key.size(at)));
        let heads = rows * self.heads;
        let [q, k, v] = self.project(&query, &key);
        let q = q.view(&[1, heads, width / self.heads]).transpose(0, 1);
        let [k, v] = [k, v].map(|states| states.view(&[tokens, heads, width / self.heads]).transpose(0, 1));
        let q_scaled = q.mul_scalar(((width / self.heads) as f64).sqrt().recip());
        let mut attn_output_weights = q_scaled.bmm(&k.transpose(1, 2));
        attn_output_weights = attn_output_weights.softmax(None);
        let mut attn_output = attn_output_weights.bmm(&v);
        attn_output = attn_output.transpose(0, 1).contiguous().view(&[rows, width]);
        attn_output = attn_output.linear(self.out_proj.weight(), self.out_proj.bias());
        attn_output = attn_output.view(&[1, rows, width]);
        attn_output_weights = attn_output_weights.view(&[rows, self.heads, 1, tokens]);
        let _average = attn_output_weights.mean_without(1);
        attn_output.transpose(1, 0)
    }
}
