//! Zamba2 (transformers/models/zamba2/modeling_zamba2.py): state spaces, some of which hidden states of a transformer's block are added
//! before; blocks take turns and have weights in common, each use of one has low-rank projections of its own.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module, SharedParameters};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, LayerRotary, Linear, RmsNorm, RotaryCall};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, attend};
use super::bounds::{bound_weights, check_divides};
use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_LINEAR};
use super::hybrid::expanded_width;
use super::layer::{DecoderLayer, LayerCall, call_region};
use super::llama::DecoderForCausalLm;
use super::mamba2_mixer::{MAX_CHUNK, Mamba2Mixer, MixerConfig, MixerNorm};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["zamba2"], build };

/// What `Zamba2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    hidden_size: 2560,
    num_hidden_layers: 54,
    activation: "gelu",
    tie_word_embeddings: true,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 4096,
    norm_eps: 1e-5,
    pad_token_id: Some(0),
    ..DecoderDefaults::LLAMA
};

const BLOCKS: &str = "layers_block_type";
/// Layers with a transformer's block where a config lists none.
const HYBRID_LAYERS: [u64; 9] = [6, 12, 18, 24, 30, 36, 42, 47, 51];

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    // Sizes that are impossible are named before blocks.
    let decoder = read_decoder(fields)?;
    let is_hybrid = read_blocks(fields, decoder.num_hidden_layers)?;
    let uses = is_hybrid.iter().filter(|is_hybrid| **is_hybrid).count();
    let config = Config::read(fields, &decoder, uses as u64)?;
    let blocks: Vec<_> = (0..config.blocks.min(uses)).map(|_| SharedParameters::default()).collect();
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        if is_hybrid.get(layer) != Some(&true) {
            return Box::new(MambaDecoderLayer::new(at, layer, decoder, &config));
        }
        let nth = is_hybrid.iter().take(layer).filter(|is_hybrid| **is_hybrid).count();
        let (linear_at, mamba_at) = (at.at("linear"), at.at("mamba_decoder"));
        // transformers ties nothing where embedding and head are apart.
        let shared_at = match blocks.get(nth % config.blocks) {
            Some(shared) if decoder.tie_word_embeddings => at.at("shared_transformer").sharing(shared),
            _ => at.at("shared_transformer"),
        };
        Box::new(HybridLayer {
            module: at.module(),
            linear: Linear::new(&linear_at, decoder.hidden_size, decoder.hidden_size, false),
            mamba_decoder: Rc::new(MambaDecoderLayer::new(&mamba_at, layer, decoder, &config)),
            shared_transformer: AttentionDecoderLayer::new(&shared_at, (layer, nth), decoder, &config, options),
            options: options.clone(),
        })
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

/// Whether each layer has a transformer's block; the class has a list of its own.
fn read_blocks(fields: &Fields, layers: u64) -> Result<Vec<bool>, FieldError> {
    let blocks = match fields.texts(BLOCKS)? {
        Some(names) => names.into_iter().map(parse_block).collect::<Result<Vec<_>, _>>()?,
        None => (0..DEFAULTS.num_hidden_layers).map(|layer| HYBRID_LAYERS.contains(&layer)).collect(),
    };
    if blocks.len() as u64 != layers {
        let problem = format!("lists {} layers, num_hidden_layers is {layers}", blocks.len());
        return Err(FieldError::new(BLOCKS, problem));
    }
    Ok(blocks)
}

fn parse_block(name: &str) -> Result<bool, FieldError> {
    match name {
        "hybrid" => Ok(true),
        "mamba" | "linear_attention" => Ok(false),
        other => Err(FieldError::new(BLOCKS, format!("`{other}` is not linear_attention or hybrid"))),
    }
}

fn read_decoder(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let heads = fields.size("num_attention_heads", DEFAULTS.num_attention_heads)?;
    let hidden_size = fields.size("hidden_size", DEFAULTS.hidden_size)?;
    check_divides("num_attention_heads", heads, "2 * hidden_size", hidden_size.saturating_mul(2))?;
    let head_dim = (hidden_size.saturating_mul(2) / heads).max(1);
    for (key, derived) in [("attention_hidden_size", hidden_size.saturating_mul(2)), ("attention_head_dim", head_dim)] {
        if fields.optional_size(key)?.is_some_and(|given| given != derived) {
            return Err(FieldError::unsimulated(key, "other than twice the hidden size is not simulated"));
        }
    }
    let mut fields = fields.clone();
    fields.0.insert("head_dim".to_owned(), head_dim.into());
    if fields.get("intermediate_size").is_none_or(|size| size.as_u64() == Some(0)) {
        fields.0.insert("intermediate_size".to_owned(), hidden_size.saturating_mul(4).into());
    }
    let mut decoder = DecoderConfig::read(&fields, &DEFAULTS)?;
    decoder.mask_types = FULL_AND_LINEAR;
    decoder.mlp_bias = fields.flag("add_bias_linear", false)?;
    decoder.attention_multiplier = Some((decoder.head_dim as f64 / 2.0).powf(-0.5));
    decoder.last_norm = ("final_layernorm", false);
    decoder.keeps_embeddings = true;
    if !fields.flag("use_mem_rope", false)? {
        decoder.rotary_dim = 0;
    }
    Ok(decoder)
}

/// What its layers are made of.
struct Config {
    mixer: MixerConfig,
    /// How many blocks take turns (`num_mem_blocks`).
    blocks: usize,
    /// Layers that have one of them.
    uses: u64,
    adapter_rank: u64,
    adapts_attention: bool,
}

impl Config {
    fn read(fields: &Fields, decoder: &DecoderConfig, uses: u64) -> Result<Self, FieldError> {
        let adapts_attention = fields.flag("use_shared_attention_adapter", false)?;
        let (width, key_width) = (2 * decoder.hidden_size, decoder.num_key_value_heads * decoder.head_dim);
        if adapts_attention && key_width != width {
            let problem = format!("its adapters are {width} wide, keys are {key_width}");
            return Err(FieldError::new("use_shared_attention_adapter", problem));
        }
        if fields.get("num_logits_to_keep").is_some_and(|kept| kept.as_u64() != Some(1)) {
            return Err(FieldError::unsimulated("num_logits_to_keep", "other numbers than 1 are not simulated"));
        }
        let config = Self {
            mixer: read_mixer(fields, decoder)?,
            blocks: usize::try_from(fields.size("num_mem_blocks", 1)?).unwrap_or(usize::MAX),
            uses,
            adapter_rank: fields.size("adapter_rank", 128)?,
            adapts_attention,
        };
        let inner = decoder.intermediate_size;
        bound_weights(&[
            ("adapter_rank", [config.adapter_rank, 6 * width], uses),
            ("adapter_rank", [config.adapter_rank, inner], 3 * uses),
        ])?;
        Ok(config)
    }

    /// Whether the block of one use has projections for another.
    fn serves(&self, nth: usize, other: u64) -> bool {
        other % self.blocks as u64 == (nth % self.blocks) as u64
    }

    /// Two layers for each use of the block that the `nth` use has, none for uses of others.
    fn new_adapters(&self, at: &Builder, nth: usize, [inputs, outputs]: [u64; 2]) -> Vec<Option<[Linear; 2]>> {
        let new_adapter = |other: u64| {
            let (at, rank) = (at.at(&other.to_string()), self.adapter_rank);
            [Linear::new(&at.at("0"), inputs, rank, false), Linear::new(&at.at("1"), rank, outputs, false)]
        };
        (0..self.uses).map(|other| self.serves(nth, other).then(|| new_adapter(other))).collect()
    }
}

fn read_mixer(fields: &Fields, decoder: &DecoderConfig) -> Result<MixerConfig, FieldError> {
    let num_heads = fields.size("n_mamba_heads", 8)?;
    let intermediate_size = expanded_width(fields, decoder)?;
    let mixer = MixerConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size,
        num_heads,
        head_dim: intermediate_size / num_heads,
        n_groups: fields.size("mamba_ngroups", 1)?,
        state_size: fields.size("mamba_d_state", 64)?,
        conv_kernel: fields.size("mamba_d_conv", 4)?,
        chunk_size: fields.bounded("chunk_size", 256, MAX_CHUNK)?,
        conv_bias: true,
        proj_biases: [decoder.mlp_bias; 2],
        activation: Activation::from_name("hidden_act", "silu")?,
        norm: MixerNorm::EachGroup,
        norm_eps: 1e-5,
        multipliers: None,
        adapts_out: true,
    };
    mixer.check("n_mamba_heads", decoder.num_hidden_layers)?;
    Ok(mixer)
}

/// `projected + adapter(hidden_states)` of two layers, one after the other.
fn add_adapter(projected: Tensor, adapters: &[Option<[Linear; 2]>], nth: usize, hidden_states: &Tensor) -> Tensor {
    let Some(Some([down, up])) = adapters.get(nth) else { return projected };
    let added = up.forward(&down.forward(hidden_states));
    &projected + &added
}

/// `Zamba2Attention`, of twice the model's width.
struct SharedAttention {
    module: Module,
    projections: Projections,
    /// Of queries, keys and values.
    adapters: Option<[Vec<Option<[Linear; 2]>>; 3]>,
    rotary_emb: LayerRotary,
    config: DecoderConfig,
    options: RunOptions,
}

impl SharedAttention {
    fn new(at: &Builder, nth: usize, decoder: &DecoderConfig, config: &Config, options: &RunOptions) -> Self {
        let width = 2 * decoder.hidden_size;
        let projections = Projections::of_width(at, decoder, "o_proj", width);
        let adapters = config.adapts_attention.then(|| {
            ["q", "k", "v"].map(|of| config.new_adapters(&at.at(&format!("linear_{of}_adapter_list")), nth, [width; 2]))
        });
        let rotary_emb = LayerRotary::new(at, decoder.file, decoder.rotary_dim, decoder.positions, &decoder.rope);
        let (module, config, options) = (at.module(), decoder.clone(), options.clone());
        Self { module, projections, adapters, rotary_emb, config, options }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, (layer, nth): (usize, usize)) -> Tensor {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.project(hidden_states);
        if let Some([queries, keys, values]) = &self.adapters {
            query_states = add_adapter(query_states, queries, nth, hidden_states);
            key_states = add_adapter(key_states, keys, nth, hidden_states);
            value_states = add_adapter(value_states, values, nth, hidden_states);
        }
        [query_states, key_states, value_states] = [query_states, key_states, value_states]
            .map(|projected| self.projections.split_heads(&projected).transpose(1, 2));
        if self.config.rotary_dim > 0 {
            let rotary = RotaryCall { cos: &call.cos, sin: &call.sin, position_ids: &call.position_ids };
            (query_states, key_states) = self.rotary_emb.turn(&query_states, &key_states, &value_states, &rotary);
        }
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, _weights) = attend(states, call, self.config.scores(), &self.options);
        self.projections.merge_heads(attn_output)
    }
}

/// The MLP of a block, with an adapter of its gate and its other half for each use (`Zamba2MLP`).
struct SharedMlp {
    module: Module,
    gate_up_proj: Linear,
    down_proj: Linear,
    adapters: Vec<Option<[Linear; 2]>>,
    activation: Activation,
}

impl SharedMlp {
    fn new(at: &Builder, nth: usize, decoder: &DecoderConfig, config: &Config) -> Self {
        let (hidden, inner, bias) = (decoder.hidden_size, decoder.intermediate_size, decoder.mlp_bias);
        Self {
            module: at.module(),
            gate_up_proj: Linear::new(&at.at("gate_up_proj"), hidden, 2 * inner, bias),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, bias),
            adapters: config.new_adapters(&at.at("gate_up_proj_adapter_list"), nth, [hidden, 2 * inner]),
            activation: decoder.activation,
        }
    }

    fn forward(&self, hidden_state: &Tensor, nth: usize) -> Tensor {
        let _module = self.module.enter();
        let mut gate_up_state = self.gate_up_proj.forward(hidden_state);
        gate_up_state = add_adapter(gate_up_state, &self.adapters, nth, hidden_state);
        let [gate, up] = gate_up_state.split_last::<2>();
        drop(gate_up_state);
        let hidden_state = {
            let activated = self.activation.forward(&gate);
            &activated * &up
        };
        self.down_proj.forward(&hidden_state)
    }
}

/// A block: attention over states and embeddings side by side, then an MLP (`Zamba2AttentionDecoderLayer`).
struct AttentionDecoderLayer {
    module: Module,
    /// The layer that it stands in, and how many others with a block are before that.
    place: (usize, usize),
    self_attn: SharedAttention,
    feed_forward: SharedMlp,
    input_layernorm: RmsNorm,
    pre_ff_layernorm: RmsNorm,
}

impl AttentionDecoderLayer {
    fn new(
        at: &Builder,
        place: (usize, usize),
        decoder: &DecoderConfig,
        config: &Config,
        options: &RunOptions,
    ) -> Self {
        let norm = |name: &str, width: u64| RmsNorm::new(&at.at(name), width, decoder.norm_eps);
        Self {
            module: at.module(),
            place,
            self_attn: SharedAttention::new(&at.at("self_attn"), place.1, decoder, config, options),
            feed_forward: SharedMlp::new(&at.at("feed_forward"), place.1, decoder, config),
            input_layernorm: norm("input_layernorm", 2 * decoder.hidden_size),
            pre_ff_layernorm: norm("pre_ff_layernorm", decoder.hidden_size),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let original_hidden_states = call.embedded.as_ref().unwrap_or(hidden_states);
        let mut hidden_states = cat(&[hidden_states, original_hidden_states], 2);
        hidden_states = self.input_layernorm.forward(&hidden_states);
        hidden_states = self.self_attn.forward(&hidden_states, call, self.place);
        hidden_states = self.pre_ff_layernorm.forward(&hidden_states);
        self.feed_forward.forward(&hidden_states, self.place.1)
    }
}

struct MambaDecoderLayer {
    module: Module,
    layer: usize,
    mamba: Mamba2Mixer,
    input_layernorm: RmsNorm,
}

impl MambaDecoderLayer {
    fn new(at: &Builder, layer: usize, decoder: &DecoderConfig, config: &Config) -> Self {
        let mamba = Mamba2Mixer::new(&at.at("mamba"), &config.mixer);
        let input_layernorm = RmsNorm::new(&at.at("input_layernorm"), decoder.hidden_size, decoder.norm_eps);
        Self { module: at.module(), layer, mamba, input_layernorm }
    }

    fn forward_added(&self, residual: &Tensor, added: Option<&Tensor>, call: &LayerCall) -> Tensor {
        let mut hidden_states = added.map_or_else(|| residual.clone(), |added| residual + added);
        hidden_states = self.input_layernorm.forward(&hidden_states);
        let state = call.cache.as_deref().map(|cache| (cache, self.layer));
        hidden_states = self.mamba.forward(&hidden_states, call.linear_mask.as_ref(), state);
        residual + &hidden_states
    }
}

impl DecoderLayer for MambaDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        self.forward_added(residual, None, call)
    }
}

struct HybridLayer {
    module: Module,
    linear: Linear,
    mamba_decoder: Rc<MambaDecoderLayer>,
    shared_transformer: AttentionDecoderLayer,
    options: RunOptions,
}

impl DecoderLayer for HybridLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut transformer_hidden_states = self.shared_transformer.forward(hidden_states, call);
        transformer_hidden_states = self.linear.forward(&transformer_hidden_states);
        // A layer in a layer, which is checkpointed within what is: it is given this by its name, so that its call keeps it.
        let (layer, call) = (Rc::clone(&self.mamba_decoder), call.clone());
        call_region(hidden_states, &self.options, move |hidden_states| {
            layer.module.call(hidden_states, |hidden_states| {
                let _module = layer.module.enter();
                layer.forward_added(hidden_states, Some(&transformer_hidden_states), &call)
            })
        })
    }
}
