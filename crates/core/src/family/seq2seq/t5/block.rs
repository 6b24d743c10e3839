//! A layer of T5's encoder or decoder: attention to its own tokens, the decoder's to the encoder's, and what each token goes through.

use std::rc::Rc;

use super::Config;
use super::attention::{Attended, Call, Place, T5Attention};
use crate::building::{Builder, Init, Module, Part};
use crate::dtype::DType;
use crate::model::nn::{KvCache, Linear};
use crate::op::{ReduceKind, full};
use crate::tensor::Tensor;

/// `T5LayerNorm`: fp32 within, without mean and bias.
pub(super) struct T5LayerNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
}

impl T5LayerNorm {
    pub(super) fn new(at: &Builder, config: &Config) -> Self {
        let weight = at.parameter("weight", &[config.d_model], Init::Filled(config.initializer_factor));
        Self { module: at.module(), weight, eps: config.layer_norm_epsilon }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let input = self.module.hook_input(Part::Itself, hidden_states);
        let variance = {
            let squares = input.to(DType::Float32).pow_scalar(2.0);
            squares.mean_last()
        };
        let mut hidden_states = {
            let inverse = variance.add_scalar(self.eps).rsqrt();
            &input * &inverse
        };
        if self.weight.dtype().is_half() {
            hidden_states = hidden_states.to(self.weight.dtype());
        }
        &self.weight * &hidden_states
    }
}

/// A dropout of the config's probability.
struct Dropout {
    module: Module,
    config: Rc<Config>,
}

impl Dropout {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        Self { module: at.at("dropout").module(), config: Rc::clone(config) }
    }

    fn forward(&self, states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        states.dropout(self.config.dropout_rate, self.config.options.drops_out())
    }
}

/// `T5LayerSelfAttention` or `T5LayerCrossAttention`
struct AttentionLayer {
    module: Module,
    attention: T5Attention,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
}

impl AttentionLayer {
    fn new(at: &Builder, config: &Rc<Config>, place: Place) -> Self {
        let name = if place.is_cross { "EncDecAttention" } else { "SelfAttention" };
        Self {
            module: at.module(),
            attention: T5Attention::new(&at.at(name), config, place),
            layer_norm: T5LayerNorm::new(&at.at("layer_norm"), config),
            dropout: Dropout::new(at, config),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &Call) -> Attended {
        let _module = self.module.enter();
        let normed_hidden_states = self.layer_norm.forward(hidden_states);
        let attended = self.attention.forward(&normed_hidden_states, call);
        let output = {
            let dropped = self.dropout.forward(&attended.output);
            hidden_states + &dropped
        };
        Attended { output, ..attended }
    }
}

/// `T5LayerFF` with its `T5DenseActDense` or `T5DenseGatedActDense`
struct FeedForwardLayer {
    module: Module,
    dense: Module,
    gate: Linear,
    up: Option<Linear>,
    wo: Linear,
    inner_dropout: Dropout,
    act: Module,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
}

impl FeedForwardLayer {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let dense = at.at("DenseReluDense");
        let inner = |name| Linear::new(&dense.at(name), config.d_model, config.d_ff, false);
        let (gate, up) = if config.is_gated_act { (inner("wi_0"), Some(inner("wi_1"))) } else { (inner("wi"), None) };
        Self {
            module: at.module(),
            dense: dense.module(),
            gate,
            up,
            wo: Linear::new(&dense.at("wo"), config.d_ff, config.d_model, false),
            inner_dropout: Dropout::new(&dense, config),
            act: dense.at("act").module(),
            layer_norm: T5LayerNorm::new(&at.at("layer_norm"), config),
            dropout: Dropout::new(at, config),
        }
    }

    fn activate(&self, states: &Tensor) -> Tensor {
        let _act = self.act.enter();
        self.inner_dropout.config.activation.forward(states)
    }

    fn dense(&self, states: &Tensor) -> Tensor {
        let _dense = self.dense.enter();
        let gated = {
            let gate = self.gate.forward(states);
            self.activate(&gate)
        };
        let linear = self.up.as_ref().map(|up| up.forward(states));
        let mut hidden_states = linear.as_ref().map_or_else(|| gated.clone(), |linear| &gated * linear);
        // Where nothing is gated its variable is the one that is dropped from.
        let _gelu = linear.is_some().then_some(gated);
        hidden_states = self.inner_dropout.forward(&hidden_states);
        hidden_states = hidden_states.to(self.wo.weight().dtype());
        self.wo.forward(&hidden_states)
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut forwarded_states = self.layer_norm.forward(hidden_states);
        forwarded_states = self.dense(&forwarded_states);
        let dropped = self.dropout.forward(&forwarded_states);
        hidden_states + &dropped
    }
}

/// What a block is given beside the states.
#[derive(Clone)]
pub(super) struct BlockCall {
    pub mask: Option<Tensor>,
    pub encoder_hidden_states: Option<Tensor>,
    pub encoder_mask: Option<Tensor>,
    pub biases: Biases,
    pub cache: Option<Rc<KvCache>>,
    /// Which of the stack's blocks it is.
    pub at: usize,
}

/// The first block's, which the others are given.
#[derive(Clone, Default)]
pub(super) struct Biases {
    own: Option<Tensor>,
    of_encoder: Option<Tensor>,
}

pub(super) struct T5Block {
    pub module: Module,
    self_attention: AttentionLayer,
    cross_attention: Option<AttentionLayer>,
    feed_forward: FeedForwardLayer,
}

impl T5Block {
    pub(super) fn new(at: &Builder, config: &Rc<Config>, is_decoder: bool, is_first: bool) -> Self {
        let layers = at.at("layer");
        let own = Place { is_decoder, is_cross: false, has_relative_attention_bias: is_first };
        let cross = Place { is_decoder, is_cross: true, has_relative_attention_bias: false };
        Self {
            module: at.module(),
            self_attention: AttentionLayer::new(&layers.at("0"), config, own),
            cross_attention: is_decoder.then(|| AttentionLayer::new(&layers.at("1"), config, cross)),
            feed_forward: FeedForwardLayer::new(&layers.at(if is_decoder { "2" } else { "1" }), config),
        }
    }

    /// The states, and the biases that the next block is given.
    pub(super) fn forward(&self, hidden_states: &Tensor, call: &BlockCall) -> (Tensor, Biases) {
        let _module = self.module.enter();
        let cache = |place| call.cache.as_deref().map(|cache| (cache, 2 * call.at + place));
        let own = self.self_attention.forward(
            hidden_states,
            &Call {
                mask: call.mask.as_ref(),
                key_value_states: None,
                position_bias: call.biases.own.as_ref(),
                cache: cache(0),
            },
        );
        let mut biases = Biases { own: Some(own.position_bias), of_encoder: None };
        // The eager form's weights live until the next attention's are there.
        let (mut hidden_states, mut _weights) = (clamp_half(own.output), own.weights);
        if let Some(attention) = &self.cross_attention {
            let crossed = attention.forward(
                &hidden_states,
                &Call {
                    mask: call.encoder_mask.as_ref(),
                    key_value_states: call.encoder_hidden_states.as_ref(),
                    position_bias: call.biases.of_encoder.as_ref(),
                    cache: cache(1),
                },
            );
            biases.of_encoder = Some(crossed.position_bias);
            (hidden_states, _weights) = (clamp_half(crossed.output), crossed.weights);
        }
        (clamp_half(self.feed_forward.forward(&hidden_states)), biases)
    }
}

/// What is infinite in fp16 is made finite.
fn clamp_half(hidden_states: Tensor) -> Tensor {
    let half = hidden_states.dtype();
    if half != DType::Float16 {
        return hidden_states;
    }
    let number = |op| full(hidden_states.context(), op, &[], DType::Float32);
    let clamp_value = {
        let any = {
            let is_infinite = {
                let distance = hidden_states.map("abs.default", half);
                distance.map("eq.Scalar", DType::Bool)
            };
            is_infinite.reduce_all("any.default", ReduceKind::Max, DType::Bool)
        };
        let numbers = [number("scalar_tensor.default"), number("scalar_tensor.default")];
        let clamp_value = number("where.self");
        drop((any, numbers));
        clamp_value
    };
    let least = number("neg.default");
    let clamped = hidden_states.map("clamp.Tensor", half);
    drop((least, clamp_value));
    clamped
}
