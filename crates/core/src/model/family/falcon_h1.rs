//! Falcon-H1 (transformers/models/falcon_h1/modeling_falcon_h1.py): attention and a state space side by side in every layer, with numbers
//! of the config that multiply what each is given and makes.

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, Linear, RmsNorm, apply_rotary_pos_emb};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_LINEAR, Multipliers};
use super::hybrid::{AttentionForm, HybridAttention, expanded_width, read_mixer};
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::mamba2_mixer::{Mamba2Mixer, MixerConfig, MixerMultipliers, MixerNorm};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["falcon_h1"], build };

/// What `FalconH1Config` has where a config says nothing (transformers 5.17).
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 128_000,
    intermediate_size: 14336,
    num_key_value_heads: Some(8),
    file: ModelingFile::Later,
    positions: 8192,
    norm_eps: 1e-5,
    pad_token_id: Some(0),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
    decoder.mask_types = FULL_AND_LINEAR;
    decoder.last_norm = ("final_layernorm", false);
    decoder.logit_scale = Some(fields.number("lm_head_multiplier", 1.0)?);
    let embedding = fields.number("embedding_multiplier", 1.0)?;
    decoder.multipliers = Some(Multipliers { embedding, residual: 1.0, logits_scaling: 1.0 });
    let config = Config { mixer: read_falcon_mixer(fields, &decoder)?, numbers: Numbers::read(fields)? };
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        Box::new(FalconH1DecoderLayer::new(at, layer, decoder, &config, options))
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

fn read_falcon_mixer(fields: &Fields, decoder: &DecoderConfig) -> Result<MixerConfig, FieldError> {
    let width = match fields.0.get("mamba_d_ssm") {
        Some(serde_json::Value::Null) => expanded_width(fields, decoder)?,
        _ => fields.size("mamba_d_ssm", 1024)?,
    };
    let mut mixer = read_mixer(fields, decoder, width)?;
    mixer.proj_biases[1] = fields.flag("projectors_bias", false)?;
    mixer.norm = match fields.flag("mamba_rms_norm", false)? {
        true => MixerNorm::Groups { gates_first: !fields.flag("mamba_norm_before_gate", true)? },
        false => MixerNorm::Gate,
    };
    mixer.adapts_out = false;
    mixer.multipliers = Some(MixerMultipliers {
        hidden: fields.number("ssm_in_multiplier", 1.0)?,
        projected: numbers(fields, "ssm_multipliers")?,
    });
    mixer.check("mamba_n_heads", decoder.num_hidden_layers)?;
    Ok(mixer)
}

/// So many numbers of a list, or as many ones.
fn numbers<const N: usize>(fields: &Fields, key: &str) -> Result<[f64; N], FieldError> {
    let Some(value) = fields.get(key) else { return Ok([1.0; N]) };
    let listed: Option<Vec<f64>> =
        value.as_array().and_then(|list| list.iter().map(serde_json::Value::as_f64).collect());
    listed
        .and_then(|listed| listed.try_into().ok())
        .ok_or_else(|| FieldError::new(key, format!("must be a list of {N} numbers")))
}

struct Config {
    mixer: MixerConfig,
    numbers: Numbers,
}

/// What it multiplies by.
#[derive(Clone, Copy)]
struct Numbers {
    attention_in: f64,
    attention_out: f64,
    ssm_out: f64,
    key: f64,
    /// Of what gates the MLP, and of what it returns.
    mlp: [f64; 2],
}

impl Numbers {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        let number = |key| fields.number(key, 1.0);
        Ok(Self {
            attention_in: number("attention_in_multiplier")?,
            attention_out: number("attention_out_multiplier")?,
            ssm_out: number("ssm_out_multiplier")?,
            key: number("key_multiplier")?,
            mlp: numbers(fields, "mlp_multipliers")?,
        })
    }
}

struct FalconH1Mlp {
    module: Module,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    activation: Activation,
    numbers: [f64; 2],
}

impl FalconH1Mlp {
    fn new(at: &Builder, config: &DecoderConfig, numbers: [f64; 2]) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Self {
            module: at.module(),
            gate_proj: Linear::new(&at.at("gate_proj"), hidden, inner, bias),
            up_proj: Linear::new(&at.at("up_proj"), hidden, inner, bias),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, bias),
            activation: config.activation,
            numbers,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [gate_multiplier, down_multiplier] = self.numbers;
        let mut y = {
            let up = self.up_proj.forward(x);
            let activated = {
                let gate = self.gate_proj.forward(x).mul_scalar(gate_multiplier);
                self.activation.forward(&gate)
            };
            &up * &activated
        };
        y = self.down_proj.forward(&y).mul_scalar(down_multiplier);
        y
    }
}

struct FalconH1DecoderLayer {
    module: Module,
    layer: usize,
    feed_forward: FalconH1Mlp,
    mamba: Mamba2Mixer,
    self_attn: HybridAttention,
    input_layernorm: RmsNorm,
    pre_ff_layernorm: RmsNorm,
    numbers: Numbers,
}

impl FalconH1DecoderLayer {
    fn new(at: &Builder, layer: usize, decoder: &DecoderConfig, config: &Config, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        let form = AttentionForm { turn: apply_rotary_pos_emb, key_multiplier: Some(config.numbers.key) };
        Self {
            module: at.module(),
            layer,
            feed_forward: FalconH1Mlp::new(&at.at("feed_forward"), decoder, config.numbers.mlp),
            mamba: Mamba2Mixer::new(&at.at("mamba"), &config.mixer),
            self_attn: HybridAttention::new(&at.at("self_attn"), decoder, options, form),
            input_layernorm: norm("input_layernorm"),
            pre_ff_layernorm: norm("pre_ff_layernorm"),
            numbers: config.numbers,
        }
    }
}

impl DecoderLayer for FalconH1DecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let state = call.cache.as_deref().map(|cache| (cache, self.layer));
        let mut mamba_hidden_states = self.mamba.forward(&hidden_states, call.linear_mask.as_ref(), state);
        mamba_hidden_states = mamba_hidden_states.mul_scalar(self.numbers.ssm_out);
        let mut attention_hidden_states = {
            let given = hidden_states.mul_scalar(self.numbers.attention_in);
            self.self_attn.forward(&given, call, self.layer).0
        };
        attention_hidden_states = attention_hidden_states.mul_scalar(self.numbers.attention_out);
        hidden_states = &mamba_hidden_states + &attention_hidden_states;
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.pre_ff_layernorm.forward(&hidden_states);
        hidden_states = self.feed_forward.forward(&hidden_states);
        &residual + &hidden_states
    }
}
