//! OPT (transformers/models/opt/modeling_opt.py): GPT-2's layout with layer norms before or, in one size, behind the branches, and
//! positions that are counted from the attention mask.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionOutput, Embedding, HeadOutput, LayerNorm, Linear, LmHead, MaskInputs, create_causal_mask,
};
use crate::op::ones;
use crate::tensor::Tensor;

use super::attention::{SelfAttention, attend, join_heads};
use super::bounds::{bound_weights, check_divides};
use super::decoder::padding_row;
use super::layer::{DecoderLayer, LayerCall, call_layer};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["opt"], build: OptForCausalLm::build };

/// Rows of the position table before the first token's (`OPTLearnedPositionalEmbedding.offset`).
const OFFSET: u64 = 2;
/// Its config names none, so that `nn.LayerNorm` has its own.
const EPS: f64 = 1e-5;

/// `OPTConfig`
#[derive(Clone)]
struct Config {
    vocab_size: u64,
    hidden_size: u64,
    num_hidden_layers: u64,
    ffn_dim: u64,
    positions: u64,
    do_layer_norm_before: bool,
    has_final_norm: bool,
    word_embed_proj_dim: u64,
    dropout: f64,
    attention_dropout: f64,
    num_attention_heads: u64,
    activation: Activation,
    init_std: f64,
    pad_token_id: Option<u64>,
    enable_bias: bool,
    tie_word_embeddings: bool,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        refuse_unsimulated(fields)?;
        let hidden_size = fields.size("hidden_size", 768)?;
        let vocab_size = fields.size("vocab_size", 50272)?;
        let do_layer_norm_before = fields.flag("do_layer_norm_before", true)?;
        let activation = fields.text("activation_function", "relu")?;
        let config = Self {
            vocab_size,
            hidden_size,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            ffn_dim: fields.size("ffn_dim", 3072)?,
            positions: fields.size("max_position_embeddings", 2048)?,
            do_layer_norm_before,
            has_final_norm: do_layer_norm_before && !fields.flag("_remove_final_layer_norm", false)?,
            word_embed_proj_dim: fields.optional_size("word_embed_proj_dim")?.unwrap_or(hidden_size),
            dropout: fields.probability("dropout", 0.1)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            activation: Activation::from_name("activation_function", activation)?,
            init_std: fields.number("init_std", 0.02)?,
            pad_token_id: padding_row(fields, Some(1), vocab_size),
            enable_bias: fields.flag("enable_bias", true)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            options: options.clone(),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), FieldError> {
        check_divides("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)?;
        bound_weights(&[
            ("vocab_size", [self.vocab_size, self.word_embed_proj_dim], 2),
            ("word_embed_proj_dim", [self.word_embed_proj_dim, self.hidden_size], 2),
            ("max_position_embeddings", [self.positions, self.hidden_size], 1),
            ("ffn_dim", [self.ffn_dim, self.hidden_size], 2 * self.num_hidden_layers),
            ("hidden_size", [self.hidden_size, self.hidden_size], 4 * self.num_hidden_layers),
        ])
    }

    fn dropped(&self, hidden_states: &Tensor) -> Tensor {
        hidden_states.dropout(self.options.active_call(self.dropout), true)
    }
}

fn refuse_unsimulated(fields: &Fields) -> Result<(), FieldError> {
    if !fields.flag("layer_norm_elementwise_affine", true)? {
        let problem = "only layer norms with weights are simulated for opt";
        return Err(FieldError::unsimulated("layer_norm_elementwise_affine", problem));
    }
    if fields.probability("layerdrop", 0.0)? > 0.0 {
        return Err(FieldError::unsimulated("layerdrop", "layers that are left out by chance are not simulated"));
    }
    Ok(())
}

struct OptAttention {
    module: Module,
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    config: Config,
}

impl OptAttention {
    fn new(at: &Builder, config: &Config) -> Self {
        let linear = |name| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, config.enable_bias);
        Self {
            module: at.module(),
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            q_proj: linear("q_proj"),
            out_proj: linear("out_proj"),
            config: config.clone(),
        }
    }
}

impl SelfAttention for OptAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, heads) = (hidden_states.size(0), self.config.num_attention_heads);
        let head_dim = self.config.hidden_size / heads;
        let split = |states: &Tensor| states.view(&[rows, states.size(1), heads, head_dim]).transpose(1, 2);
        let mut query_states = self.q_proj.forward(hidden_states).mul_scalar((head_dim as f64).powf(-0.5));
        query_states = split(&query_states);
        let mut key_states = self.k_proj.forward(hidden_states);
        let mut value_states = self.v_proj.forward(hidden_states);
        key_states = split(&key_states);
        value_states = split(&value_states);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let scores = (self.config.attention_dropout, 1.0);
        let (mut attn_output, attn_weights) = attend(states, call, scores, &self.config.options);
        attn_output = join_heads(&attn_output);
        (self.out_proj.forward(&attn_output), attn_weights)
    }
}

struct OptDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: OptAttention,
    activation_fn: Module,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    config: Config,
}

impl OptDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Config) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.ffn_dim, config.enable_bias);
        Self {
            module: at.module(),
            layer,
            self_attn: OptAttention::new(&at.at("self_attn"), config),
            activation_fn: at.at("activation_fn").module(),
            self_attn_layer_norm: LayerNorm::new(&at.at("self_attn_layer_norm"), hidden, EPS),
            fc1: Linear::new(&at.at("fc1"), hidden, inner, bias),
            fc2: Linear::new(&at.at("fc2"), inner, hidden, bias),
            final_layer_norm: LayerNorm::new(&at.at("final_layer_norm"), hidden, EPS),
            config: config.clone(),
        }
    }

    /// A norm where it stands before the branches, or behind them.
    fn norm(&self, is_before: bool, norm: &LayerNorm, hidden_states: Tensor) -> Tensor {
        if self.config.do_layer_norm_before == is_before { norm.forward(&hidden_states) } else { hidden_states }
    }
}

impl DecoderLayer for OptDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.norm(true, &self.self_attn_layer_norm, residual.clone());
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = self.config.dropped(&hidden_states);
        hidden_states = residual + &hidden_states;
        hidden_states = self.norm(false, &self.self_attn_layer_norm, hidden_states);
        let sizes = *hidden_states.sizes();
        hidden_states =
            hidden_states.reshape(&[hidden_states.numel() / hidden_states.size(-1), hidden_states.size(-1)]);
        let residual = hidden_states.clone();
        hidden_states = self.norm(true, &self.final_layer_norm, hidden_states);
        hidden_states = self.fc1.forward(&hidden_states);
        hidden_states = {
            let _activation_fn = self.activation_fn.enter();
            self.config.activation.forward(&hidden_states)
        };
        hidden_states = self.fc2.forward(&hidden_states);
        hidden_states = self.config.dropped(&hidden_states);
        hidden_states = (&residual + &hidden_states).view(&sizes);
        self.norm(false, &self.final_layer_norm, hidden_states)
    }
}

struct OptDecoder {
    module: Module,
    embed_tokens: Embedding,
    embed_positions: Embedding,
    project_out: Option<Linear>,
    project_in: Option<Linear>,
    final_layer_norm: Option<LayerNorm>,
    layers: Vec<Rc<OptDecoderLayer>>,
    config: Config,
}

impl OptDecoder {
    fn new(at: &Builder, config: Config) -> Self {
        let (hidden, width) = (config.hidden_size, config.word_embed_proj_dim);
        let project =
            |name, inputs, outputs| (width != hidden).then(|| Linear::new(&at.at(name), inputs, outputs, false));
        let layer =
            |layer: u64| Rc::new(OptDecoderLayer::new(&at.at("layers").element(layer), layer as usize, &config));
        let tied = config.tie_word_embeddings;
        Self {
            module: at.module(),
            embed_tokens: Embedding::of_head(
                &at.at("embed_tokens"),
                [config.vocab_size, width],
                config.pad_token_id,
                tied,
            ),
            embed_positions: Embedding::new(&at.at("embed_positions"), config.positions + OFFSET, hidden, None),
            project_out: project("project_out", hidden, width),
            project_in: project("project_in", width, hidden),
            final_layer_norm: config.has_final_norm.then(|| LayerNorm::new(&at.at("final_layer_norm"), hidden, EPS)),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            config,
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let options = &self.config.options;
        let mut inputs_embeds = options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let (rows, tokens) = (inputs_embeds.size(0), inputs_embeds.size(1));
        let seen = call.cache.as_ref().map_or(0, |cache| cache.seq_length());
        let attention_mask = match call.attention_mask {
            Some(mask) => mask.clone(),
            None => ones(inputs_embeds.context(), &[rows, seen + tokens], DType::Float32),
        };
        let position_ids = match call.position_ids {
            Some(position_ids) => position_ids.clone(),
            None => count_positions(&attention_mask).narrow(1, seen..seen + tokens),
        };
        let inputs = call.mask_inputs(options.attention, &inputs_embeds, &position_ids);
        let mask =
            create_causal_mask(MaskInputs { attention_mask: Some(&attention_mask), position_ids: None, ..inputs });
        let pos_embeds = self.embed_positions.forward(&position_ids.add_int(OFFSET));
        if let Some(project_in) = &self.project_in {
            inputs_embeds = project_in.forward(&inputs_embeds);
        }
        let mut hidden_states = &inputs_embeds + &pos_embeds;
        // No layer has rotary embeddings.
        let (cos, sin) = (position_ids.clone(), position_ids.clone());
        let (cache, decodes) = (call.cache.clone(), call.decodes());
        let layer_call = LayerCall { cos, sin, position_ids, mask, linear_mask: None, embedded: None, cache, decodes };
        for layer in &self.layers {
            hidden_states = call_layer(layer, &hidden_states, layer_call.clone(), options);
        }
        if let Some(final_layer_norm) = &self.final_layer_norm {
            hidden_states = final_layer_norm.forward(&hidden_states);
        }
        match &self.project_out {
            Some(project_out) => project_out.forward(&hidden_states),
            None => hidden_states,
        }
    }
}

/// `(cumsum(attention_mask, dim=1) * attention_mask - 1).long()`
fn count_positions(attention_mask: &Tensor) -> Tensor {
    let mut position_ids = attention_mask.cumsum();
    // Inner blocks are Python's temporaries.
    position_ids = {
        let counted = {
            let product = &position_ids * attention_mask;
            product.sub_scalar(1.0)
        };
        counted.to(DType::Int64)
    };
    position_ids
}

struct OptForCausalLm {
    module: Module,
    model: Module,
    decoder: OptDecoder,
    lm_head: LmHead,
}

impl OptForCausalLm {
    fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
        let config = Config::read(&model.config, options)?;
        let module = at.module();
        let at = &at.deviating(config.init_std);
        let (width, vocab_size, is_tied) = (config.word_embed_proj_dim, config.vocab_size, config.tie_word_embeddings);
        let model = at.at("model");
        let decoder = OptDecoder::new(&model.at("decoder"), config);
        let lm_head = LmHead::new(&at.at("lm_head"), width, vocab_size, is_tied.then_some(&decoder.embed_tokens));
        Ok(Box::new(Self { module, model: model.module(), decoder, lm_head: lm_head.of_file(ModelingFile::Later) }))
    }
}

impl Model for OptForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.decoder.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        let _model = self.model.enter();
        self.decoder.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }
}
