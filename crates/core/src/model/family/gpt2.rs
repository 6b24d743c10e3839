//! GPT-2 (transformers/models/gpt2/modeling_gpt2.py).

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{Attention, FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionConfig, AttentionOutput, Conv1d, Embedding, HeadOutput, KvCache, LayerNorm, Linear, LmHead,
    MaskInputs, create_causal_mask, sdpa_attention_forward,
};
use crate::op::{empty, filled};
use crate::tensor::{Tensor, checkpoint};

use super::bounds::{bound_weights, check_divides};
use super::decoder::initializer_range;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["gpt2"], build: Gpt2LmHeadModel::build };

/// `GPT2Config`
#[derive(Clone, Copy)]
pub(super) struct Config {
    pub(super) vocab_size: u64,
    pub(super) n_positions: u64,
    pub(super) n_embd: u64,
    pub(super) n_layer: u64,
    pub(super) n_head: u64,
    pub(super) n_inner: u64,
    pub(super) activation: Activation,
    pub(super) resid_pdrop: f64,
    pub(super) embd_pdrop: f64,
    pub(super) attn_pdrop: f64,
    pub(super) tie_word_embeddings: bool,
    pub(super) reorder_and_upcast_attn: bool,
    pub(super) scale_attn_weights: bool,
    pub(super) scale_attn_by_inverse_layer_idx: bool,
    pub(super) layer_norm_epsilon: f64,
    /// The deviation that weights begin with.
    pub(super) initializer_range: f64,
}

impl Config {
    /// With the activation that the class has where a config says nothing.
    pub(super) fn read(fields: &Fields, activation: &str) -> Result<Self, FieldError> {
        fields.refuse_on("add_cross_attention", "a block's second attention, over an encoder, is not simulated")?;
        let n_embd = fields.size("n_embd", 768)?;
        let config = Self {
            vocab_size: fields.size("vocab_size", 50257)?,
            n_positions: fields.size("n_positions", 1024)?,
            n_embd,
            n_layer: fields.layers("n_layer", 12)?,
            n_head: fields.size("n_head", 12)?,
            n_inner: fields.size("n_inner", 4 * n_embd)?,
            activation: Activation::from_name("activation_function", fields.text("activation_function", activation)?)?,
            resid_pdrop: fields.probability("resid_pdrop", 0.1)?,
            embd_pdrop: fields.probability("embd_pdrop", 0.1)?,
            attn_pdrop: fields.probability("attn_pdrop", 0.1)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            reorder_and_upcast_attn: fields.flag("reorder_and_upcast_attn", false)?,
            scale_attn_weights: fields.flag("scale_attn_weights", true)?,
            scale_attn_by_inverse_layer_idx: fields.flag("scale_attn_by_inverse_layer_idx", false)?,
            layer_norm_epsilon: fields.number("layer_norm_epsilon", 1e-5)?,
            initializer_range: initializer_range(fields)?,
        };
        check_divides("n_head", config.n_head, "n_embd", config.n_embd)?;
        bound_weights(&[
            ("vocab_size", [config.vocab_size, config.n_embd], 2),
            ("n_positions", [config.n_positions, config.n_embd], 1),
            ("n_inner", [config.n_inner, config.n_embd], 2 * config.n_layer),
            ("n_embd", [config.n_embd, config.n_embd], 4 * config.n_layer),
        ])?;
        Ok(config)
    }

    /// What a layer multiplies its scores by.
    pub(super) fn scaling(&self, layer: usize) -> f64 {
        let scaling = if self.scale_attn_weights { ((self.n_embd / self.n_head) as f64).powf(-0.5) } else { 1.0 };
        if self.scale_attn_by_inverse_layer_idx { scaling / (layer + 1) as f64 } else { scaling }
    }

    /// The builder of a projection back to the residual stream: two a block, and what begins smaller the deeper the model.
    pub(super) fn residual(&self, at: &Builder) -> Builder {
        at.deviating(self.initializer_range / ((2 * self.n_layer) as f64).sqrt())
    }
}

struct Gpt2Attention {
    module: Module,
    layer: usize,
    c_attn: Conv1d,
    c_proj: Conv1d,
    /// `bias`, which positions see which, and `masked_bias` (before transformers 5).
    mask_buffers: Option<(Tensor, Tensor)>,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl Gpt2Attention {
    fn new(at: &Builder, layer: usize, config: Config, options: &RunOptions) -> Self {
        let (module, positions) = (at.module(), config.n_positions);
        let c_attn = Conv1d::new(&at.at("c_attn"), config.n_embd, 3 * config.n_embd);
        let c_proj = Conv1d::new(&config.residual(&at.at("c_proj")), config.n_embd, config.n_embd);
        let mask_buffers = at.context().transformers().has_mask_buffers_of_gpt2().then(|| {
            let lower = || (0..positions).flat_map(|row| (0..positions).map(move |column| f64::from(column <= row)));
            let bias = at.buffer(&[1, 1, positions, positions], DType::Bool, || lower().collect());
            (bias, at.buffer(&[], DType::Float32, || vec![-1e4]))
        });
        Self {
            module,
            layer,
            c_attn,
            c_proj,
            mask_buffers,
            dropout: at.at("resid_dropout").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, cache: Option<&KvCache>) -> AttentionOutput {
        let _module = self.module.enter();
        let [query, key, value] = self.c_attn.forward(hidden_states).split_last();
        let (batch, tokens, heads) = (query.size(0), query.size(1), self.config.n_head);
        let shape = [batch, tokens, heads, self.config.n_embd / heads];
        let [mut key, mut value, query] = [key, value, query].map(|part| part.view(&shape).transpose(1, 2));
        if let Some(cache) = cache {
            (key, value) = cache.update(self.layer, &key, &value);
        }
        let (mut attn_output, attn_weights) = self.attend(&query, &key, &value, mask);
        attn_output = attn_output.reshape(&[batch, tokens, self.config.n_embd]).contiguous();
        attn_output = self.c_proj.forward(&attn_output);
        let _dropout = self.dropout.enter();
        (attn_output.dropout(self.config.resid_pdrop, self.options.drops_out()), attn_weights)
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        if self.options.attention == Attention::Eager {
            if self.config.reorder_and_upcast_attn {
                return self.upcast_and_reordered_attn(query, key, value, mask);
            }
            let mut attn_weights = query.matmul(&key.transpose(2, 3)).mul_scalar(self.config.scaling(self.layer));
            if let Some((bias, _)) = &self.mask_buffers {
                let keys = key.size(2);
                let causal_mask = bias.narrow(2, keys - query.size(2)..keys).narrow(3, 0..keys);
                let dtype = attn_weights.dtype();
                let mask_value = filled(query.context(), &[], dtype.lowest(), dtype);
                attn_weights = causal_mask.choose(&attn_weights, &mask_value);
            }
            if let Some(mask) = mask {
                attn_weights = &attn_weights + mask;
            }
            return self.weighted_values(attn_weights, value);
        }
        let config = AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: 1,
            dropout: self.options.active(self.config.attn_pdrop),
            is_causal: true,
            scale: self.config.scaling(self.layer),
        };
        (sdpa_attention_forward(query, key, value, mask, config), None)
    }

    /// `_upcast_and_reordered_attn`: scores in fp32.
    fn upcast_and_reordered_attn(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
    ) -> AttentionOutput {
        let context = query.context();
        let (batch, heads, tokens, keys) = (query.size(0), query.size(1), query.size(2), key.size(2));
        let preallocated = empty(context, &[batch * heads, tokens, keys], DType::Float32);
        // Blocks and drops are Python's: `q`, `k` and the preallocated scores go where its variables do.
        let (mut attn_weights, q, k) = {
            let _no_autocast = context.disable_autocast();
            let q = query.reshape(&[batch * heads, tokens, query.size(3)]);
            let k = key.transpose(2, 3).reshape(&[batch * heads, query.size(3), keys]);
            let scores = preallocated.baddbmm(&q.float(), &k.float(), self.config.scaling(self.layer));
            drop(preallocated);
            (scores.reshape(&[batch, heads, tokens, keys]), q, k)
        };
        if let Some(mask) = mask {
            attn_weights = &attn_weights + mask;
        }
        let output = self.weighted_values(attn_weights, value);
        drop((q, k));
        output
    }

    fn weighted_values(&self, scores: Tensor, value: &Tensor) -> AttentionOutput {
        let mut attn_weights = scores;
        attn_weights = attn_weights.softmax(None);
        attn_weights = attn_weights.to(value.dtype());
        attn_weights = attn_weights.dropout(self.config.attn_pdrop, self.options.drops_out());
        (attn_weights.matmul(value).transpose(1, 2), Some(attn_weights))
    }
}

struct Gpt2Mlp {
    module: Module,
    c_fc: Conv1d,
    c_proj: Conv1d,
    act: Module,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl Gpt2Mlp {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            c_fc: Conv1d::new(&at.at("c_fc"), config.n_embd, config.n_inner),
            c_proj: Conv1d::new(&config.residual(&at.at("c_proj")), config.n_inner, config.n_embd),
            act: at.at("act").module(),
            dropout: at.at("dropout").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.c_fc.forward(input);
        hidden_states = {
            let _act = self.act.enter();
            self.config.activation.forward(&hidden_states)
        };
        hidden_states = self.c_proj.forward(&hidden_states);
        let _dropout = self.dropout.enter();
        hidden_states.dropout(self.config.resid_pdrop, self.options.drops_out())
    }
}

struct Gpt2Block {
    module: Module,
    ln_1: LayerNorm,
    attn: Gpt2Attention,
    ln_2: LayerNorm,
    mlp: Gpt2Mlp,
}

impl Gpt2Block {
    fn new(at: &Builder, layer: usize, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            ln_1: LayerNorm::new(&at.at("ln_1"), config.n_embd, config.layer_norm_epsilon),
            attn: Gpt2Attention::new(&at.at("attn"), layer, config, options),
            ln_2: LayerNorm::new(&at.at("ln_2"), config.n_embd, config.layer_norm_epsilon),
            mlp: Gpt2Mlp::new(&at.at("mlp"), config, options),
        }
    }

    fn forward(&self, residual: &Tensor, mask: Option<&Tensor>, cache: Option<&KvCache>) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.ln_1.forward(residual);
        let (attn_output, _weights) = self.attn.forward(&hidden_states, mask, cache);
        hidden_states = &attn_output + residual;
        let residual = hidden_states.clone();
        hidden_states = self.ln_2.forward(&hidden_states);
        let feed_forward_hidden_states = self.mlp.forward(&hidden_states);
        &residual + &feed_forward_hidden_states
    }
}

struct Gpt2Model {
    module: Module,
    wte: Embedding,
    wpe: Embedding,
    drop: Module,
    h: Vec<Rc<Gpt2Block>>,
    ln_f: LayerNorm,
    config: Config,
    options: RunOptions,
}

impl Gpt2Model {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let block = |layer: u64| Rc::new(Gpt2Block::new(&at.at("h").element(layer), layer as usize, config, options));
        Self {
            module: at.module(),
            wte: Embedding::new(&at.at("wte"), config.vocab_size, config.n_embd, None),
            wpe: Embedding::new(&at.at("wpe"), config.n_positions, config.n_embd, None),
            drop: at.at("drop").module(),
            h: (0..config.n_layer).map(block).collect(),
            ln_f: LayerNorm::new(&at.at("ln_f"), config.n_embd, config.layer_norm_epsilon),
            config,
            options: options.clone(),
        }
    }

    /// Before masking_utils.py, a mask of the padding only beside the layers' own tables; none where SDPA needs none.
    fn causal_mask(&self, inputs: MaskInputs) -> Option<Tensor> {
        let context = inputs.inputs_embeds.context();
        let has_tables = !context.transformers().has_masking_utils(ModelingFile::Gpt2);
        if !has_tables || inputs.attention != Attention::Eager {
            return create_causal_mask(inputs);
        }
        inputs.attention_mask.map(|mask| {
            let rows = mask.unsqueeze(1).unsqueeze(1).to(inputs.inputs_embeds.dtype());
            let hidden = rows.rsub_scalar(1.0);
            hidden.mul_scalar(rows.dtype().lowest())
        })
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.options.require_input_grads(self.wte.forward(call.input_ids));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let position_embeds = self.wpe.forward(&position_ids);
        let mut hidden_states = &inputs_embeds + &position_embeds;
        let inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        let causal_mask = self.causal_mask(MaskInputs { file: ModelingFile::Gpt2, ..inputs });
        hidden_states = {
            let _drop = self.drop.enter();
            hidden_states.dropout(self.config.embd_pdrop, self.options.drops_out())
        };
        for block in &self.h {
            hidden_states = if self.options.checkpoints_layers() {
                let (block, mask, position_ids) = (Rc::clone(block), causal_mask.clone(), position_ids.clone());
                checkpoint(&hidden_states, move |hidden_states| {
                    // A block is called with the position ids, so its checkpoint holds them.
                    let _position_ids = &position_ids;
                    block.module.call(hidden_states, |hidden_states| block.forward(hidden_states, mask.as_ref(), None))
                })
            } else {
                let (mask, cache) = (causal_mask.as_ref(), call.cache.as_deref());
                block.module.call(&hidden_states, |hidden_states| block.forward(hidden_states, mask, cache))
            };
        }
        self.ln_f.forward(&hidden_states)
    }
}

struct Gpt2LmHeadModel {
    module: Module,
    transformer: Gpt2Model,
    lm_head: LmHead,
}

impl Gpt2LmHeadModel {
    fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
        let config = Config::read(&model.config, "gelu_new")?;
        let module = at.module();
        let at = &at.deviating(config.initializer_range);
        let transformer = Gpt2Model::new(&at.at("transformer"), config, options);
        let tied = config.tie_word_embeddings.then_some(&transformer.wte);
        let lm_head =
            LmHead::new(&at.at("lm_head"), config.n_embd, config.vocab_size, tied).of_file(ModelingFile::Gpt2);
        Ok(Box::new(Self { module, transformer, lm_head }))
    }
}

impl Model for Gpt2LmHeadModel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.transformer.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.transformer.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }
}
