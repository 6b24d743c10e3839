//! Llama (transformers/models/llama/modeling_llama.py), and the decoder that Mistral, Qwen2 and Qwen3 share with it.

use std::rc::Rc;

use crate::building::{BuildError, Builder, LigerKernels, Module};
use crate::dtype::DType;
use crate::job::{Attention, Kernel, ModelSpec, RotaryPlace, SdpaForm};
use crate::model::nn::{
    AttentionOutput, Embedding, HeadOutput, KvCache, LayerMasks, LayerRotary, LayerType, Linear, LmHead, Norm, RmsNorm,
    Rope, RotaryCall, RotaryEmbedding, RouterLoss, repeat_kv,
};
use crate::op::{arange, fast_rope_embedding, liger_rope};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, LayerCall, call_layer};
pub(crate) use super::llama_layer::LlamaDecoderLayer;
use super::{Family, ForwardCall, Front, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["llama"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = DecoderConfig::read(&model.config, &DecoderDefaults::LLAMA)?;
    Ok(Box::new(DecoderForCausalLm::new(at, config, options)))
}

pub(crate) struct DecoderAttention {
    module: Module,
    projections: Projections,
    norms: Option<(RmsNorm, RmsNorm)>,
    rotary_emb: LayerRotary,
    config: DecoderConfig,
    options: RunOptions,
}

impl DecoderAttention {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self::named(at, config, ["o_proj", "q_norm", "k_norm"], options)
    }

    /// With these names for the projection back and for the norms of queries and keys.
    pub(crate) fn named(
        at: &Builder,
        config: &DecoderConfig,
        [o_proj, q_norm, k_norm]: [&str; 3],
        options: &RunOptions,
    ) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, o_proj),
            norms: config.qk_norm.then(|| {
                let norm = |name| RmsNorm::new(&at.at(name), config.head_dim, config.norm_eps);
                (norm(q_norm), norm(k_norm))
            }),
            rotary_emb: LayerRotary::new(at, config.file, config.rotary_dim, config.positions, &config.rope),
            config: config.clone(),
            options: options.clone(),
        }
    }

    /// `apply_rotary_pos_emb`
    fn turn(&self, query: &Tensor, key: &Tensor, value: &Tensor, call: &LayerCall) -> (Tensor, Tensor) {
        if self.options.mode.has_kernel(Kernel::FastRopeEmbeddings) {
            fast_rope_embedding(query, key, &call.cos, &call.sin)
        } else if self.options.mode.liger_kernels() == LigerKernels::Off {
            let rotary = RotaryCall { cos: &call.cos, sin: &call.sin, position_ids: &call.position_ids };
            self.rotary_emb.turn(query, key, value, &rotary)
        } else {
            liger_rope(query, key, &call.cos, &call.sin)
        }
    }

    fn groups(&self) -> u64 {
        self.config.num_attention_heads / self.config.num_key_value_heads
    }
}

impl SelfAttention for DecoderAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let heads_first = |projected: Tensor, norm: Option<&RmsNorm>| {
            let split = self.projections.split_heads(&projected);
            match norm {
                Some(norm) => norm.forward(&split).transpose(1, 2),
                None => split.transpose(1, 2),
            }
        };
        let query_norm = self.norms.as_ref().map(|(query, _)| query);
        let key_norm = self.norms.as_ref().map(|(_, key)| key);
        let projected = match self.projections.project_fused(hidden_states) {
            None if self.config.projects_first => Some(self.projections.project(hidden_states)),
            fused => fused,
        };
        let [mut query_states, mut key_states, mut value_states] = if let Some(projected) = projected {
            projected.map(|projected| heads_first(projected, None))
        } else {
            [
                heads_first(q_proj.forward(hidden_states), query_norm),
                heads_first(k_proj.forward(hidden_states), key_norm),
                heads_first(v_proj.forward(hidden_states), None),
            ]
        };
        if self.config.turns_layer(layer) {
            (query_states, key_states) = self.turn(&query_states, &key_states, &value_states, call);
        }
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let transformers = hidden_states.context().transformers();
        let repeats = self.options.attention != Attention::FlashAttention2
            || transformers.repeats_keys_for_flash(self.config.file);
        if repeats && transformers.sdpa() == SdpaForm::Class {
            // Before attention functions, the module's own variables are repeated.
            key_states = repeat_kv(&key_states, self.groups());
            value_states = repeat_kv(&value_states, self.groups());
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct DecoderModel<L, N> {
    module: Module,
    embed_tokens: Embedding,
    layers: Vec<Rc<L>>,
    /// None in a stage before the last.
    norm: Option<N>,
    /// One, or one of each type of layer in the order of `layer_ropes`; none where the layers have their own.
    rotary_embs: Vec<RotaryEmbedding>,
    config: DecoderConfig,
    options: RunOptions,
}

impl<L: DecoderLayer, N: Norm> DecoderModel<L, N> {
    fn new(
        at: &Builder,
        config: DecoderConfig,
        options: &RunOptions,
        new_layer: impl Fn(&Builder, usize, &DecoderConfig) -> L,
    ) -> Self {
        let place = at.context().transformers().rotary(config.file);
        let is_the_models = matches!(place, RotaryPlace::Model | RotaryPlace::ModelBesideLayers);
        let rotary = |rope: &Rope| {
            RotaryEmbedding::new(&at.at("rotary_emb"), config.rotary_dim, rope).with_tables(config.tables)
        };
        let layer = |layer: u64| Rc::new(new_layer(&at.at("layers").element(layer), layer as usize, &config));
        let module = at.module();
        let embed_tokens = Embedding::of_head(
            &at.at(config.embeddings).at_front(),
            [config.vocab_size, config.hidden_size],
            config.pad_token_id,
            config.tie_word_embeddings,
        );
        let layers = (0..config.num_hidden_layers).map(layer).collect();
        let (name, is_behind) = config.last_norm;
        let norm = || at.has_back().then(|| N::new(&at.at(name), config.hidden_size, config.norm_eps));
        let first = (!is_behind).then(norm);
        let rotary_embs = if is_the_models { config.ropes().map(rotary).collect() } else { Vec::new() };
        Self {
            module,
            embed_tokens,
            layers,
            norm: first.unwrap_or_else(norm),
            rotary_embs,
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        self.run_layers(call, self.embed_tokens(call.input_ids), None)
    }

    /// `get_input_embeddings()(input_ids)`
    fn embed_tokens(&self, input_ids: &Tensor) -> Tensor {
        self.options.require_input_grads(self.embed_tokens.forward(input_ids))
    }

    /// The same with embeddings in the place of ids.
    fn forward_embedded(&self, call: &ForwardCall, inputs_embeds: Tensor, front: Option<&Front>) -> Tensor {
        let _module = self.module.enter();
        self.run_layers(call, inputs_embeds, front)
    }

    fn run_layers(&self, call: &ForwardCall, mut inputs_embeds: Tensor, front: Option<&Front>) -> Tensor {
        if let Some(multipliers) = self.config.multipliers {
            inputs_embeds = inputs_embeds.mul_scalar(multipliers.embedding);
        }
        let embedded = self.config.keeps_embeddings.then(|| inputs_embeds.clone_contiguous());
        let mut position_ids = match call.position_ids {
            None if !self.config.counts_seen => arange(inputs_embeds.context(), inputs_embeds.size(1)).unsqueeze(0),
            _ => call.position_ids_for(&inputs_embeds),
        };
        if self.config.tables.are_of_grids() && call.position_ids.is_none() {
            position_ids = position_ids.expand(&[inputs_embeds.size(0), inputs_embeds.size(1)]);
        }
        let mut inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        inputs.position_ids = inputs.position_ids.filter(|_| self.config.masks_read_positions);
        let masks = LayerMasks::create(inputs, self.config.mask_types, self.config.sliding_window);
        let mut hidden_states = inputs_embeds.dropout(self.options.active_call(self.config.embedding_dropout), true);
        let dtype = if self.config.float_tables { DType::Float32 } else { inputs_embeds.dtype() };
        let rotary = |rotary_emb: &RotaryEmbedding| rotary_emb.forward(dtype, &position_ids);
        // Where there are two, transformers goes through a set of names, whose order is Python's hash's.
        let position_embeddings: Vec<(Tensor, Tensor)> = self.rotary_embs.iter().map(rotary).collect();
        // Before the first layer, whose keys the cache then has.
        let decodes = call.decodes();
        let mut layer_outputs: Option<Tensor> = None;
        // Positions in time, height and width are no layer's.
        let hands_positions = self.config.hands_positions && position_ids.sizes().len() <= 2;
        for (at, (layer, &layer_type)) in self.layers.iter().zip(self.config.layer_types.iter()).enumerate() {
            // Layers with tables of their own read these positions only. Layers that turn nothing are given what they hold anyway.
            let stands_in = if self.config.rotary_dim == 0 { &hidden_states } else { &position_ids };
            let own = || (stands_in.clone(), stands_in.clone());
            let (cos, sin) = position_embeddings.get(self.config.rope_of(layer_type)).cloned().unwrap_or_else(own);
            let layer_call = LayerCall {
                sin,
                // A layer that is given none has a table in their place here.
                position_ids: if hands_positions { position_ids.clone() } else { cos.clone() },
                cos,
                linear_mask: masks.of(LayerType::LinearAttention).cloned(),
                embedded: embedded.clone(),
                mask: masks.of(layer_type).cloned(),
                cache: call.cache.clone(),
                decodes,
            };
            hidden_states = call_layer(layer, &hidden_states, layer_call, &self.options);
            if let Some(front) = front {
                // Python's variable of that name holds what the layer made until the next one has.
                let before = layer_outputs.replace(hidden_states.clone());
                drop(before);
                hidden_states = front.after_layer(at, hidden_states);
            }
        }
        match &self.norm {
            Some(norm) => norm.forward(&hidden_states),
            None => hidden_states,
        }
    }
}

/// `LlamaForCausalLM` and its relatives, which differ in their layers.
pub(crate) struct DecoderForCausalLm<L, N = RmsNorm> {
    module: Module,
    front: Option<Front>,
    model: DecoderModel<L, N>,
    lm_head: LmHead,
    /// Of a mixture of experts.
    router: Option<Rc<RouterLoss>>,
}

impl DecoderForCausalLm<LlamaDecoderLayer> {
    /// With Llama's layers.
    pub(crate) fn new(at: &Builder, config: DecoderConfig, options: &RunOptions) -> Self {
        Self::with_layers(at, config, options, |at, layer, config| {
            LlamaDecoderLayer::new(at, layer, config, options, |at| DecoderMlp::new(at, config))
        })
    }
}

impl<L: DecoderLayer> DecoderForCausalLm<L> {
    /// With the layers that `new_layer` makes at their place.
    pub(crate) fn with_layers(
        at: &Builder,
        config: DecoderConfig,
        options: &RunOptions,
        new_layer: impl Fn(&Builder, usize, &DecoderConfig) -> L,
    ) -> Self {
        Self::with_norms(at, config, options, new_layer)
    }
}

impl<L: DecoderLayer, N: Norm> DecoderForCausalLm<L, N> {
    /// With norms of another class too.
    pub(crate) fn with_norms(
        at: &Builder,
        config: DecoderConfig,
        options: &RunOptions,
        new_layer: impl Fn(&Builder, usize, &DecoderConfig) -> L,
    ) -> Self {
        let module = at.module();
        let at = &at.deviating(config.initializer_range);
        let (front, place) = Front::before(&at.at("model"), options, config.hidden_size);
        let model = DecoderModel::new(&place, config, options, new_layer);
        let tied = model.config.tie_word_embeddings.then_some(&model.embed_tokens);
        let lm_head = LmHead::new(&at.at("lm_head").at_back(), model.config.hidden_size, model.config.vocab_size, tied);
        let lm_head = lm_head.of_file(model.config.file);
        Self { module, front, model, lm_head, router: None }
    }

    /// The last hidden states, and what a tower in front made of images.
    fn base_model(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        match &self.front {
            None => (self.model.forward(call), None),
            Some(front) => front.forward(
                call,
                || self.model.embed_tokens(call.input_ids),
                |call, inputs_embeds| self.model.forward_embedded(call, inputs_embeds, Some(front)),
            ),
        }
    }

    /// Whose layers have these routers.
    pub(crate) fn with_router(self, router: Rc<RouterLoss>) -> Self {
        Self { router: Some(router), ..self }
    }
}

impl<L: DecoderLayer, N: Norm> Model for DecoderForCausalLm<L, N> {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let router = self.router.as_ref().filter(|router| router.is_output);
        router.inspect(|router| router.collect());
        let (hidden_states, image_hidden_states) = self.base_model(call);
        let config = &self.model.config;
        let scaled = |logits: Tensor| match (config.logit_scale, config.multipliers) {
            (Some(scale), _) => logits.mul_scalar(scale),
            (None, Some(multipliers)) => logits.div_scalar(multipliers.logits_scaling),
            (None, None) if config.float_logits => logits.float(),
            (None, None) => logits,
        };
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), scaled);
        let output = ModelOutput {
            loss,
            logits,
            cache: call.cache.clone(),
            router: None,
            more: image_hidden_states.into_iter().collect(),
        };
        output.with_router_loss(router, call)
    }

    fn router(&self) -> Option<Rc<RouterLoss>> {
        self.router.clone()
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.base_model(call).0
    }

    fn base_outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        self.base_model(call)
    }

    fn run_stage(&self, call: &ForwardCall, received: Option<&Tensor>) -> Option<Tensor> {
        let _module = self.module.enter();
        let hidden_states = match received {
            Some(received) => self.model.forward_embedded(call, received.clone(), None),
            None => self.model.forward(call),
        };
        let has_head = self.model.norm.is_some();
        Some(if has_head { self.lm_head.logits(&hidden_states, None) } else { hidden_states })
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        let forgets = self.model.embed_tokens.weight.context().transformers().forgets_keys();
        Rc::new(KvCache::new(if forgets { self.model.config.windows() } else { Vec::new() }))
    }
}
