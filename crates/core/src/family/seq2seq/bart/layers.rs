//! Layers of BART, of its kin and of Whisper: attention, what each token goes through, and norms before or behind both.

use std::rc::Rc;

use super::config::{Config, Half};
use crate::building::{Builder, Module};
use crate::family::seq2seq::attention::attend_eagerly;
use crate::job::Attention;
use crate::model::family::layer::call_region;
use crate::model::nn::{AttentionConfig, KvCache, LayerNorm, Linear, sdpa_attention_forward};
use crate::tensor::Tensor;

/// `BartAttention` and its kin.
struct BartAttention {
    module: Module,
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    heads: u64,
    is_causal: bool,
    config: Rc<Config>,
}

impl BartAttention {
    fn new(at: &Builder, config: &Rc<Config>, heads: u64, is_causal: bool) -> Self {
        let width = config.d_model;
        let project = |name, bias| Linear::new(&at.at(name), width, width, bias);
        Self {
            module: at.module(),
            k_proj: project("k_proj", !config.is_whisper),
            v_proj: project("v_proj", true),
            q_proj: project("q_proj", true),
            out_proj: project("out_proj", true),
            heads,
            is_causal,
            config: Rc::clone(config),
        }
    }

    fn scale(&self) -> f64 {
        ((self.config.d_model / self.heads) as f64).powf(-0.5)
    }

    /// `.view(hidden_shape).transpose(1, 2)`, which Whisper copies.
    fn split_heads(&self, projected: &Tensor) -> Tensor {
        let sizes = [projected.size(0), projected.size(1), self.heads, self.config.d_model / self.heads];
        let split = projected.view(&sizes).transpose(1, 2);
        if self.config.is_whisper { split.contiguous() } else { split }
    }

    /// Queries, keys and values.
    fn project(&self, hidden_states: &Tensor, current_states: &Tensor) -> [Tensor; 3] {
        if !self.config.is_whisper {
            let query_states = self.split_heads(&self.q_proj.forward(hidden_states));
            let (key_states, value_states) = (self.k_proj.forward(current_states), self.v_proj.forward(current_states));
            return [query_states, self.split_heads(&key_states), self.split_heads(&value_states)];
        }
        let query_states = {
            let scaled = self.q_proj.forward(hidden_states).mul_scalar(self.scale());
            self.split_heads(&scaled)
        };
        let of_states = |projection: &Linear| {
            let projected = projection.forward(current_states);
            self.split_heads(&projected)
        };
        [query_states, of_states(&self.k_proj), of_states(&self.v_proj)]
    }

    /// The output, and the weights that only the eager form has.
    fn forward(
        &self,
        hidden_states: &Tensor,
        key_value_states: Option<&Tensor>,
        (mask, cache): (Option<&Tensor>, Option<CachePlace>),
    ) -> (Tensor, Option<Tensor>) {
        let _module = self.module.enter();
        let mut states = self.project(hidden_states, key_value_states.unwrap_or(hidden_states));
        if let Some((cache, at)) = cache {
            let [query, key, value] = states;
            let (key, value) = cache.update(at, &key, &value);
            states = [query, key, value];
        }
        let states = states.each_ref();
        let scale = if self.config.is_whisper { 1.0 } else { self.scale() };
        let options = &self.config.options;
        let dropout = options.active_call(self.config.attention_dropout);
        let (attn_output, weights) = if options.attention == Attention::Eager {
            attend_eagerly(states, [mask, None], (dropout, scale))
        } else {
            let [query, key, value] = states;
            let (implementation, is_causal) = (options.attention, self.is_causal);
            let call = AttentionConfig { implementation, num_key_value_groups: 1, dropout, is_causal, scale };
            (sdpa_attention_forward(query, key, value, mask, call), None)
        };
        let attn_output = attn_output.reshape(hidden_states.sizes());
        (self.out_proj.forward(&attn_output), weights)
    }
}

/// An attention with its norm.
struct Attending {
    attention: BartAttention,
    norm: LayerNorm,
}

impl Attending {
    fn new(at: &Builder, config: &Rc<Config>, name: &str, heads: u64, is_causal: bool) -> Self {
        Self {
            attention: BartAttention::new(&at.at(name), config, heads, is_causal),
            norm: norm(&at.at(&format!("{name}_layer_norm")), config),
        }
    }

    fn forward(
        &self,
        residual: &Tensor,
        key_value_states: Option<&Tensor>,
        place: (Option<&Tensor>, Option<CachePlace>),
    ) -> (Tensor, Option<Tensor>) {
        let config = &self.attention.config;
        let mut hidden_states = residual.clone();
        if config.is_pre_norm {
            hidden_states = self.norm.forward(&hidden_states);
        }
        let weights;
        (hidden_states, weights) = self.attention.forward(&hidden_states, key_value_states, place);
        hidden_states = config.drop_out(&hidden_states);
        hidden_states = residual + &hidden_states;
        if !config.is_pre_norm {
            hidden_states = self.norm.forward(&hidden_states);
        }
        (hidden_states, weights)
    }
}

pub(in crate::family::seq2seq) fn norm(at: &Builder, config: &Config) -> LayerNorm {
    LayerNorm::new(at, config.d_model, 1e-5)
}

/// A cache and the place in it.
type CachePlace<'a> = (&'a KvCache, usize);

/// What a layer is given beside the states.
#[derive(Clone, Default)]
pub(in crate::family::seq2seq) struct LayerCall {
    pub mask: Option<Tensor>,
    pub encoder_hidden_states: Option<Tensor>,
    pub encoder_mask: Option<Tensor>,
    /// Which has two places for each of the decoder's layers.
    pub cache: Option<Rc<KvCache>>,
}

/// A layer of the encoder or of the decoder.
pub(in crate::family::seq2seq) struct BartLayer {
    module: Module,
    self_attn: Attending,
    encoder_attn: Option<Attending>,
    activation_fn: Module,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    config: Rc<Config>,
}

impl BartLayer {
    fn new(at: &Builder, config: &Rc<Config>, half: Half, is_decoder: bool) -> Self {
        Self {
            module: at.module(),
            self_attn: Attending::new(at, config, "self_attn", half.heads, is_decoder),
            encoder_attn: is_decoder.then(|| Attending::new(at, config, "encoder_attn", half.heads, false)),
            activation_fn: at.at("activation_fn").module(),
            fc1: Linear::new(&at.at("fc1"), config.d_model, half.ffn_dim, true),
            fc2: Linear::new(&at.at("fc2"), half.ffn_dim, config.d_model, true),
            final_layer_norm: norm(&at.at("final_layer_norm"), config),
            config: Rc::clone(config),
        }
    }

    fn activate(&self, states: &Tensor) -> Tensor {
        let _activation = self.activation_fn.enter();
        self.config.activation.forward(states)
    }

    fn feed_forward(&self, residual: &Tensor) -> Tensor {
        let config = &self.config;
        let mut hidden_states = residual.clone();
        if config.is_pre_norm {
            hidden_states = self.final_layer_norm.forward(&hidden_states);
        }
        hidden_states = {
            let inner = self.fc1.forward(&hidden_states);
            self.activate(&inner)
        };
        hidden_states = hidden_states.dropout(config.options.active_call(config.activation_dropout), true);
        hidden_states = self.fc2.forward(&hidden_states);
        hidden_states = config.drop_out(&hidden_states);
        hidden_states = residual + &hidden_states;
        if config.is_pre_norm { hidden_states } else { self.final_layer_norm.forward(&hidden_states) }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, at: usize) -> Tensor {
        let _module = self.module.enter();
        let cache = |place| call.cache.as_deref().map(|cache| (cache, 2 * at + place));
        let own = (call.mask.as_ref(), cache(0));
        let (mut hidden_states, mut _weights) = self.self_attn.forward(hidden_states, None, own);
        if let Some(attention) = &self.encoder_attn {
            let (states, mask) = (call.encoder_hidden_states.as_ref(), call.encoder_mask.as_ref());
            (hidden_states, _weights) = attention.forward(&hidden_states, states, (mask, cache(1)));
        }
        self.feed_forward(&hidden_states)
    }
}

/// The layers of one half, in their list.
pub(in crate::family::seq2seq) fn layers(
    at: &Builder,
    config: &Rc<Config>,
    half: Half,
    is_decoder: bool,
) -> Vec<Rc<BartLayer>> {
    let list = at.at("layers");
    (0..half.layers).map(|layer| Rc::new(BartLayer::new(&list.element(layer), config, half, is_decoder))).collect()
}

/// The states after all layers, each checkpointed where the run says so.
pub(in crate::family::seq2seq) fn run_layers(
    layers: &[Rc<BartLayer>],
    mut hidden_states: Tensor,
    call: &LayerCall,
) -> Tensor {
    for (at, layer) in layers.iter().enumerate() {
        let options = layer.config.options.clone();
        let cache = call.cache.clone().filter(|_| !options.checkpoints_layers());
        let (layer, call) = (Rc::clone(layer), LayerCall { cache, ..call.clone() });
        hidden_states = call_region(&hidden_states, &options, move |hidden_states| {
            layer.module.call(hidden_states, |hidden_states| layer.forward(hidden_states, &call, at))
        });
    }
    hidden_states
}
