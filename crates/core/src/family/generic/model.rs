//! The generic decoder: embeddings, layers, a norm, and the language-model head.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::Attention;
use crate::model::family::layer::{LayerCall, call_layer};
use crate::model::family::{ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::{Embedding, HeadOutput, KvCache, LayerMasks, Linear, LmHead, Rope, RotaryEmbedding};
use crate::op::UNTOLD;
use crate::tensor::Tensor;

use super::block::{GenericLayer, Norm};
use super::config::GenericConfig;
use super::shape::{Positions, Scores};

pub(super) struct GenericForCausalLm {
    module: Module,
    model: GenericModel,
    lm_head: LmHead,
}

struct GenericModel {
    module: Module,
    embed_tokens: Embedding,
    embed_positions: Option<Embedding>,
    embedding_norm: Option<Norm>,
    layers: Vec<Rc<GenericLayer>>,
    norm: Norm,
    rotary_emb: Option<RotaryEmbedding>,
    config: GenericConfig,
    options: RunOptions,
}

impl GenericModel {
    fn new(at: &Builder, config: GenericConfig, options: &RunOptions) -> Self {
        let layer =
            |layer: u64| Rc::new(GenericLayer::new(&at.at("layers").element(layer), layer as usize, &config, options));
        let module = at.module();
        let embed_tokens = Embedding::of_head(
            &at.at("embed_tokens"),
            [config.vocab_size, config.hidden_size],
            None,
            config.tie_word_embeddings,
        );
        let embed_positions = match config.shape.positions {
            Positions::Learned(more) => {
                Some(Embedding::new(&at.at("embed_positions"), config.positions + more, config.hidden_size, None))
            }
            Positions::Rotary(_) | Positions::InScores => None,
        };
        let rotary = matches!(config.shape.positions, Positions::Rotary(_));
        Self {
            module,
            embed_tokens,
            embed_positions,
            embedding_norm: config.shape.embedding_norm.then(|| Norm::new(&at.at("embedding_norm"), &config)),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            norm: Norm::new(&at.at("norm"), &config),
            rotary_emb: rotary
                .then(|| RotaryEmbedding::new(&at.at("rotary_emb"), config.rotary_dim, &Rope::of_theta(UNTOLD))),
            config,
            options: options.clone(),
        }
    }

    /// Which attention the masks are for: scores that the class computes itself take the eager one.
    fn attention(&self) -> Attention {
        match self.config.shape.scores {
            Scores::Interface | Scores::BroadcastKeys | Scores::RepeatedKeys => self.options.attention,
            Scores::Float32 | Scores::Float32Masked | Scores::Alibi => Attention::Eager,
        }
    }

    fn embed(&self, call: &ForwardCall) -> (Tensor, Tensor) {
        let mut inputs_embeds = self.options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        if self.config.shape.scales_embeddings {
            inputs_embeds = inputs_embeds.mul_scalar(UNTOLD);
        }
        let position_ids = call.position_ids_for(&inputs_embeds);
        if let Some(norm) = &self.embedding_norm {
            inputs_embeds = norm.forward(&inputs_embeds);
        }
        if let Some(embed_positions) = &self.embed_positions {
            inputs_embeds = &inputs_embeds + &embed_positions.forward(&position_ids);
        }
        (inputs_embeds.dropout(self.config.embedding_dropout, self.options.drops_out()), position_ids)
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let (inputs_embeds, position_ids) = self.embed(call);
        let inputs = call.mask_inputs(self.attention(), &inputs_embeds, &position_ids);
        let masks = LayerMasks::create(inputs, &self.config.mask_types(), self.config.sliding_window);
        let (cos, sin) = match &self.rotary_emb {
            Some(rotary_emb) => rotary_emb.forward(self.table_dtype(&inputs_embeds), &position_ids),
            // Nothing reads them.
            None => (position_ids.clone(), position_ids.clone()),
        };
        let layer_call = LayerCall {
            cos,
            sin,
            position_ids,
            mask: None,
            embedded: None,
            linear_mask: None,
            cache: call.cache.clone(),
            decodes: call.decodes(),
        };
        let mut hidden_states = inputs_embeds.clone();
        for (layer, &layer_type) in self.layers.iter().zip(self.config.layer_types.iter()) {
            let layer_call = LayerCall { mask: masks.of(layer_type).cloned(), ..layer_call.clone() };
            hidden_states = call_layer(layer, &hidden_states, layer_call, &self.options);
        }
        self.norm.forward(&hidden_states)
    }

    fn table_dtype(&self, inputs_embeds: &Tensor) -> DType {
        match self.config.shape.positions {
            Positions::Rotary(rotary) if rotary.in_float32 => DType::Float32,
            _ => inputs_embeds.dtype(),
        }
    }
}

impl GenericForCausalLm {
    pub(super) fn new(at: &Builder, config: GenericConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let model = GenericModel::new(&at.at("model"), config, options);
        let config = &model.config;
        let lm_head = if config.shape.head_bias && !config.tie_word_embeddings {
            LmHead::with_bias(&at.at("lm_head"), config.hidden_size, config.vocab_size)
        } else {
            let tied = config.tie_word_embeddings.then_some(&model.embed_tokens);
            LmHead::new(&at.at("lm_head"), config.hidden_size, config.vocab_size, tied)
        };
        Self { module, model, lm_head }
    }
}

impl Model for GenericForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.model.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        Rc::new(KvCache::new(self.model.config.windows()))
    }
}
