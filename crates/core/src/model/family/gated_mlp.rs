//! The gated MLP that Llama's relatives and some towers share.

use std::rc::Rc;

use crate::building::{Builder, LigerKernels, Mode, Module};
use crate::model::nn::{Activation, Linear};
use crate::tensor::Tensor;

use super::decoder::DecoderConfig;
use super::layer::{FeedForward, LayerCall};

/// What gates, what is gated and the projection back, as Llama calls them.
pub(crate) const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

pub(crate) struct DecoderMlp {
    module: Module,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Module,
    activation: Activation,
    mode: Rc<Mode>,
}

impl DecoderMlp {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig) -> Self {
        Self::named(at, config, NAMES)
    }

    /// With these names for what gates, what is gated and the projection back.
    pub(crate) fn named(at: &Builder, config: &DecoderConfig, [gate, up, down]: [&str; 3]) -> Self {
        let (sizes, bias) = ([config.hidden_size, config.intermediate_size], config.mlp_bias);
        Self::with_sizes(at, [gate, up, down], sizes, (bias, config.activation))
    }

    /// From `hidden` features to `inner` ones and back.
    pub(crate) fn with_sizes(
        at: &Builder,
        [gate, up, down]: [&str; 3],
        [hidden, inner]: [u64; 2],
        (bias, activation): (bool, Activation),
    ) -> Self {
        Self {
            module: at.module(),
            gate_proj: Linear::new(&at.at(gate), hidden, inner, bias),
            up_proj: Linear::new(&at.at(up), hidden, inner, bias),
            down_proj: Linear::new(&at.at(down), inner, hidden, bias),
            act_fn: at.at("act_fn").module(),
            activation,
            mode: at.mode(),
        }
    }

    /// The same without biases, where the projection back is registered before what is gated: names in that order.
    pub(crate) fn registered_gate_down_up(
        at: &Builder,
        [gate, down, up]: [&str; 3],
        [hidden, inner]: [u64; 2],
        activation: Activation,
    ) -> Self {
        let module = at.module();
        let gate_proj = Linear::new(&at.at(gate), hidden, inner, false);
        let down_proj = Linear::new(&at.at(down), inner, hidden, false);
        let up_proj = Linear::new(&at.at(up), hidden, inner, false);
        let act_fn = at.at("act_fn").module();
        Self { module, gate_proj, up_proj, down_proj, act_fn, activation, mode: at.mode() }
    }

    /// `down_proj(act_fn(gate_proj(x)) * up_proj(x))`
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        if self.mode.liger_kernels() == LigerKernels::Layers {
            let product = self.gate_proj.forward(x).liger_act_mul(&self.up_proj.forward(x));
            return self.down_proj.forward(&product);
        }
        // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
        let product = {
            let activated = {
                let gate = self.gate_proj.forward(x);
                let _act_fn = self.act_fn.enter();
                self.activation.forward(&gate)
            };
            let up = self.up_proj.forward(x);
            &activated * &up
        };
        self.down_proj.forward(&product)
    }
}

impl FeedForward for DecoderMlp {
    fn forward(&self, x: &Tensor, _call: &LayerCall) -> Tensor {
        Self::forward(self, x)
    }
}
