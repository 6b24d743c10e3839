//! The convolution of each channel by itself that layers with a state begin with, as transformers computes it without the package
//! causal-conv1d (transformers/models/lfm2/modeling_lfm2.py, `causal_conv1d_fn` and `causal_conv1d_update`).

use crate::building::{Builder, Init};
use crate::model::nn::{Activation, KvCache};
use crate::op::cat;
use crate::tensor::Tensor;

/// `nn.Conv1d` with as many groups as channels, whose weight is read: it is never called, an adapter would not be either.
pub(crate) struct CausalConv {
    /// [channels, 1, width]
    weight: Tensor,
    bias: Option<Tensor>,
    activation: Option<Activation>,
}

/// The states of a model's layers, and which of them is meant.
pub(crate) type LayerState<'a> = (&'a KvCache, usize);

impl CausalConv {
    pub(crate) fn new(at: &Builder, [channels, width]: [u64; 2], bias: bool, activation: Option<Activation>) -> Self {
        drop(at.module());
        Self {
            weight: at.parameter("weight", &[channels, 1, width], Init::Normal),
            bias: bias.then(|| at.parameter("bias", &[channels], Init::Zeros)),
            activation,
        }
    }

    /// Of [rows, channels, tokens], behind those whose last ones the cache holds.
    pub(crate) fn forward(&self, mut hidden_states: Tensor, state: Option<LayerState>) -> Tensor {
        let Some((cache, layer)) = state else { return self.convolve(&hidden_states) };
        let tokens = hidden_states.size(2);
        match cache.conv_state(layer) {
            Some(conv_state) if tokens == 1 => self.update(&hidden_states, &conv_state),
            _ => {
                hidden_states = cache.update_conv_state(layer, &hidden_states, self.weight.size(2));
                hidden_states = self.convolve(&hidden_states);
                let seen = hidden_states.size(2);
                if seen == tokens { hidden_states.alias_all() } else { hidden_states.slice(2, seen - tokens..seen) }
            }
        }
    }

    /// `causal_conv1d_fn`
    fn convolve(&self, hidden_states: &Tensor) -> Tensor {
        let padding = self.weight.size(2) - 1;
        let out = hidden_states.to(self.weight.dtype()).depthwise_conv1d(&self.weight(), self.bias.as_ref(), padding);
        self.activate(&out.slice(2, 0..hidden_states.size(2))).to(hidden_states.dtype())
    }

    /// `causal_conv1d_update`
    fn update(&self, hidden_states: &Tensor, conv_state: &Tensor) -> Tensor {
        let hidden_states_new = cat(&[conv_state, hidden_states], 2).to(self.weight.dtype());
        let (seen, kept) = (hidden_states_new.size(2), conv_state.size(2));
        conv_state.copy_from(&hidden_states_new.narrow(2, seen - kept..seen));
        let out = hidden_states_new.depthwise_conv1d(&self.weight(), self.bias.as_ref(), 0);
        let last = out.size(2);
        self.activate(&out.slice(2, last - 1..last)).to(hidden_states.dtype())
    }

    /// `self.conv.weight.squeeze(1)`, and the channel's dimension back
    fn weight(&self) -> Tensor {
        self.weight.squeeze(1).unsqueeze(1)
    }

    fn activate(&self, out: &Tensor) -> Tensor {
        self.activation.map_or_else(|| out.clone(), |activation| activation.forward(out))
    }
}

pub(crate) fn apply_mask_to_padding_states(hidden_states: &Tensor, attention_mask: Option<&Tensor>) -> Tensor {
    match attention_mask {
        Some(mask) => (hidden_states * &mask.unsqueeze(2)).to(hidden_states.dtype()),
        None => hidden_states.clone(),
    }
}
