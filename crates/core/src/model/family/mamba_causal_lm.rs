//! What Mamba's relatives share (transformers/models/mamba/modeling_mamba.py, `MambaForCausalLM`): blocks of a norm and a mixer, nothing
//! else, along hidden states that may be in fp32.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::model::nn::{
    Embedding, HeadCall, HeadOutput, KvCache, LayerMasks, LayerType, Linear, LmHead, MaskInputs, RmsNorm,
};
use crate::tensor::Tensor;

use super::bounds::bound_weights;
use super::causal_conv::LayerState;
use super::decoder::initializer_range;
use super::layer::call_region;
use super::{ForwardCall, Model, ModelOutput, RunOptions};

/// What a config class has where a config says nothing.
pub(crate) struct MambaDefaults {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    pub tie_word_embeddings: bool,
    pub makes_masks: bool,
}

/// What they read.
#[derive(Clone, Copy)]
pub(crate) struct MambaConfig {
    vocab_size: u64,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    pub norm_eps: f64,
    residual_in_fp32: bool,
    tie_word_embeddings: bool,
    initializer_range: f64,
    /// Whether masks are made of what the model is given; its mixers read that itself otherwise.
    makes_masks: bool,
}

impl MambaConfig {
    pub(crate) fn read(fields: &Fields, defaults: &MambaDefaults) -> Result<Self, FieldError> {
        let config = Self {
            vocab_size: fields.size("vocab_size", defaults.vocab_size)?,
            hidden_size: fields.size("hidden_size", defaults.hidden_size)?,
            num_hidden_layers: fields.layers("num_hidden_layers", defaults.num_hidden_layers)?,
            norm_eps: fields.number("layer_norm_epsilon", 1e-5)?,
            residual_in_fp32: fields.flag("residual_in_fp32", true)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", defaults.tie_word_embeddings)?,
            initializer_range: initializer_range(fields)?,
            makes_masks: defaults.makes_masks,
        };
        bound_weights(&[("vocab_size", [config.vocab_size, config.hidden_size], 2)])?;
        Ok(config)
    }
}

/// What stands in a block.
pub(crate) trait Mixer: 'static {
    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, state: Option<LayerState>) -> Tensor;
}

struct MambaBlock {
    module: Module,
    norm: RmsNorm,
    mixer: Box<dyn Mixer>,
    /// The dtype of the norm's weight.
    dtype: DType,
    residual_in_fp32: bool,
}

impl MambaBlock {
    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, state: Option<LayerState>) -> Tensor {
        let _module = self.module.enter();
        let mut residual = hidden_states.clone();
        let mut hidden_states = self.norm.forward(&hidden_states.to(self.dtype));
        if self.residual_in_fp32 {
            residual = residual.float();
        }
        hidden_states = self.mixer.forward(&hidden_states, mask, state);
        &residual + &hidden_states
    }
}

pub(crate) struct MambaForCausalLm {
    module: Module,
    backbone: Module,
    embeddings: Embedding,
    layers: Vec<Rc<MambaBlock>>,
    norm_f: RmsNorm,
    lm_head: LmHead,
    makes_masks: bool,
    options: RunOptions,
}

impl MambaForCausalLm {
    pub(crate) fn new(
        at: &Builder,
        config: &MambaConfig,
        options: &RunOptions,
        new_mixer: impl Fn(&Builder) -> Box<dyn Mixer>,
    ) -> Self {
        let module = at.module();
        let at = &at.deviating(config.initializer_range);
        let place = at.at("backbone");
        let tied = config.tie_word_embeddings;
        let embeddings =
            Embedding::of_head(&place.at("embeddings"), [config.vocab_size, config.hidden_size], None, tied);
        let new_block = |layer: u64| {
            let at = place.at("layers").element(layer);
            Rc::new(MambaBlock {
                module: at.module(),
                norm: RmsNorm::new(&at.at("norm"), config.hidden_size, config.norm_eps),
                mixer: new_mixer(&at.at("mixer")),
                dtype: at.dtype(),
                residual_in_fp32: config.residual_in_fp32,
            })
        };
        let layers = (0..config.num_hidden_layers).map(new_block).collect();
        let norm_f = RmsNorm::new(&place.at("norm_f"), config.hidden_size, config.norm_eps);
        let lm_head =
            LmHead::new(&at.at("lm_head"), config.hidden_size, config.vocab_size, tied.then_some(&embeddings));
        Self {
            module,
            backbone: place.module(),
            embeddings,
            layers,
            norm_f,
            lm_head,
            makes_masks: config.makes_masks,
            options: options.clone(),
        }
    }

    /// What padding is masked by. Behind the prompt `generate` hands on none.
    fn layer_mask(&self, call: &ForwardCall, inputs_embeds: &Tensor) -> Option<Tensor> {
        if !self.makes_masks {
            let is_prompt = call.cache.as_ref().is_none_or(|cache| cache.states().is_empty());
            return call.attention_mask.filter(|_| is_prompt).cloned();
        }
        let inputs = MaskInputs {
            position_ids: None,
            ..call.mask_inputs(self.options.attention, inputs_embeds, call.input_ids)
        };
        LayerMasks::create(inputs, &[LayerType::LinearAttention], 0).of(LayerType::LinearAttention).cloned()
    }

    fn base_model(&self, call: &ForwardCall) -> Tensor {
        let _module = self.backbone.enter();
        let inputs_embeds = self.options.require_input_grads(self.embeddings.forward(call.input_ids));
        let mask = self.layer_mask(call, &inputs_embeds);
        let mut hidden_states = inputs_embeds.clone();
        for (at, layer) in self.layers.iter().enumerate() {
            let layer = Rc::clone(layer);
            let mask = mask.clone();
            let cache = call.cache.clone().filter(|_| !self.options.checkpoints_layers());
            hidden_states = call_region(&hidden_states, &self.options, move |hidden_states| {
                layer.module.call(hidden_states, |hidden_states| {
                    layer.forward(hidden_states, mask.as_ref(), cache.as_deref().map(|cache| (cache, at)))
                })
            });
        }
        self.norm_f.forward(&hidden_states)
    }
}

impl Model for MambaForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.base_model(call);
        let tokens = hidden_states.size(1);
        let kept = match call.logits_to_keep.filter(|keep| *keep < tokens) {
            Some(keep) => hidden_states.slice(1, tokens - keep..tokens),
            None => hidden_states.clone(),
        };
        let head = HeadCall { logits_to_keep: None, ..call.head() };
        let weight = self.lm_head.linear().weight().dtype();
        let HeadOutput { loss, logits } = self.lm_head.forward(&kept.to(weight), &head, |logits| logits.float());
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.base_model(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        Rc::new(KvCache::of_states())
    }
}
