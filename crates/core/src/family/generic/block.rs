//! The generic decoder's norms, MLPs and layers.

use crate::building::{Builder, Module};
use crate::model::family::RunOptions;
use crate::model::family::gemma2::GemmaRmsNorm;
use crate::model::family::layer::{DecoderLayer, LayerCall};
use crate::model::nn::{LayerNorm, Linear, RmsNorm};
use crate::op::UNTOLD;
use crate::tensor::Tensor;

use super::attention::GenericAttention;
use super::config::{GenericConfig, MlpActivation};
use super::shape::{MlpKind, NormKind, Order};

/// In place of each type's own: the generic decoder is simulated only.
const EPS: f64 = 1e-6;

/// A norm of any kind.
pub(super) enum Norm {
    Rms(RmsNorm),
    RmsCentred(GemmaRmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    pub(super) fn new(at: &Builder, config: &GenericConfig) -> Self {
        Self::of_width(at, config.shape.norm, config.hidden_size)
    }

    /// On queries or keys.
    pub(super) fn of_heads(at: &Builder, config: &GenericConfig) -> Self {
        Self::of_width(at, config.shape.norm, config.head_dim)
    }

    fn of_width(at: &Builder, kind: NormKind, width: u64) -> Self {
        match kind {
            NormKind::Rms => Self::Rms(RmsNorm::new(at, width, EPS)),
            NormKind::RmsCentred => Self::RmsCentred(GemmaRmsNorm::new(at, width, EPS)),
            NormKind::Layer => Self::Layer(LayerNorm::new(at, width, EPS)),
        }
    }

    pub(super) fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Rms(norm) => norm.forward(x),
            Self::RmsCentred(norm) => norm.forward(x),
            Self::Layer(norm) => norm.forward(x),
        }
    }
}

struct GenericMlp {
    module: Module,
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    kind: MlpKind,
    activation: MlpActivation,
}

impl GenericMlp {
    fn new(at: &Builder, config: &GenericConfig) -> Self {
        let (hidden, inner, shape) = (config.hidden_size, config.intermediate_size, &config.shape);
        let linear = |name: &str, inputs, outputs| Linear::new(&at.at(name), inputs, outputs, shape.mlp_bias);
        Self {
            module: at.module(),
            gate: (shape.mlp == MlpKind::Gated).then(|| linear("gate_proj", hidden, inner)),
            up: match shape.mlp {
                MlpKind::GatedFused => linear("gate_up_proj", hidden, 2 * inner),
                MlpKind::Gated | MlpKind::Plain => linear(shape.names.up, hidden, inner),
            },
            down: linear(shape.names.down, inner, hidden),
            kind: shape.mlp,
            activation: config.activation,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let inner = match (&self.gate, self.kind) {
            (Some(gate), _) => {
                let activated = self.activate(&gate.forward(x));
                &activated * &self.up.forward(x)
            }
            (None, MlpKind::GatedFused) => {
                let [gate, up] = self.up.forward(x).split_last();
                &up * &self.activate(&gate)
            }
            (None, _) => self.activate(&self.up.forward(x)),
        };
        self.down.forward(&inner)
    }

    fn activate(&self, x: &Tensor) -> Tensor {
        match self.activation {
            MlpActivation::Known(activation) => activation.forward(x),
            MlpActivation::Relu2 => x.relu().pow_scalar(UNTOLD),
        }
    }
}

pub(super) struct GenericLayer {
    module: Module,
    layer: usize,
    attention: GenericAttention,
    mlp: GenericMlp,
    norms: Vec<Norm>,
    config: GenericConfig,
    options: RunOptions,
}

impl GenericLayer {
    pub(super) fn new(at: &Builder, layer: usize, config: &GenericConfig, options: &RunOptions) -> Self {
        let names: &[&str] = match config.shape.order {
            Order::Parallel => &["input_layernorm"],
            Order::PreNorm | Order::ParallelTwoNorms => &["input_layernorm", "post_attention_layernorm"],
            Order::PostNorm => &["post_attention_layernorm", "post_feedforward_layernorm"],
            Order::Sandwich => {
                &["input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"]
            }
        };
        Self {
            module: at.module(),
            layer,
            attention: GenericAttention::new(&at.at("self_attn"), config, options),
            mlp: GenericMlp::new(&at.at("mlp"), config),
            norms: names.iter().map(|name| Norm::new(&at.at(name), config)).collect(),
            config: config.clone(),
            options: options.clone(),
        }
    }

    fn attend(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let (output, _weights) = self.attention.forward(x, call, self.layer);
        self.branch(&output)
    }

    fn feed(&self, x: &Tensor) -> Tensor {
        self.branch(&self.mlp.forward(x))
    }

    /// What is done to a branch before it is added.
    fn branch(&self, output: &Tensor) -> Tensor {
        output.dropout(self.config.residual_dropout, self.options.drops_out())
    }
}

impl DecoderLayer for GenericLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let norm = |at: usize, x: &Tensor| self.norms[at].forward(x);
        match self.config.shape.order {
            Order::PreNorm => {
                let mut hidden_states = norm(0, residual);
                hidden_states = self.attend(&hidden_states, call);
                hidden_states = residual + &hidden_states;
                let residual = hidden_states.clone();
                hidden_states = norm(1, &hidden_states);
                hidden_states = self.feed(&hidden_states);
                &residual + &hidden_states
            }
            Order::Parallel => {
                let hidden_states = norm(0, residual);
                let attended = self.attend(&hidden_states, call);
                let fed = self.feed(&hidden_states);
                &(&attended + &fed) + residual
            }
            Order::ParallelTwoNorms => {
                let attended = self.attend(&norm(0, residual), call);
                let fed = self.feed(&norm(1, residual));
                &(&fed + &attended) + residual
            }
            Order::PostNorm => {
                let mut hidden_states = self.attend(residual, call);
                hidden_states = norm(0, &hidden_states);
                hidden_states = residual + &hidden_states;
                let residual = hidden_states.clone();
                hidden_states = self.feed(&hidden_states);
                hidden_states = norm(1, &hidden_states);
                &residual + &hidden_states
            }
            Order::Sandwich => {
                let mut hidden_states = norm(0, residual);
                hidden_states = self.attend(&hidden_states, call);
                hidden_states = norm(1, &hidden_states);
                hidden_states = residual + &hidden_states;
                let residual = hidden_states.clone();
                hidden_states = norm(2, &hidden_states);
                hidden_states = self.feed(&hidden_states);
                hidden_states = norm(3, &hidden_states);
                &residual + &hidden_states
            }
        }
    }
}
