//! T5 and mT5 (transformers/models/t5/modeling_t5.py, models/mt5/modeling_mt5.py), whose code is the same.

mod attention;
mod block;
mod config;

use std::cell::RefCell;
use std::rc::Rc;

use super::targets::{decoder_input_ids, shift_right};
use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::family::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::{
    Embedding, KvCache, Linear, LmHead, MaskInputs, create_bidirectional_mask, create_causal_mask, masked_lm_loss,
};
use crate::tensor::{Tensor, checkpoint};

use block::{Biases, BlockCall, T5Block, T5LayerNorm};
use config::{Config, Defaults};

pub(super) const FAMILY: Family = Family { model_types: &["mt5", "t5"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, Defaults::of(&model.model_type), options)?;
    Ok(Box::new(T5ForConditionalGeneration::new(at, &Rc::new(config))))
}

/// What the decoder attends to.
struct Encoded<'a> {
    hidden_states: &'a Tensor,
    attention_mask: Option<&'a Tensor>,
}

/// `T5Stack`: the encoder or the decoder.
struct T5Stack {
    module: Module,
    embed_tokens: Module,
    block: Vec<Rc<T5Block>>,
    final_layer_norm: T5LayerNorm,
    dropout: Module,
    config: Rc<Config>,
}

impl T5Stack {
    fn new(at: &Builder, config: &Rc<Config>, shared: &Embedding, is_decoder: bool) -> Self {
        let embed_tokens = at.at("embed_tokens");
        embed_tokens.tie(&shared.weight);
        let layers = if is_decoder { config.num_decoder_layers } else { config.num_layers };
        let blocks = at.at("block");
        let block = |layer: u64| Rc::new(T5Block::new(&blocks.element(layer), config, is_decoder, layer == 0));
        Self {
            module: at.module(),
            embed_tokens: embed_tokens.module(),
            block: (0..layers).map(block).collect(),
            final_layer_norm: T5LayerNorm::new(&at.at("final_layer_norm"), config),
            dropout: at.at("dropout").module(),
            config: Rc::clone(config),
        }
    }

    fn drop_out(&self, states: &Tensor) -> Tensor {
        let _dropout = self.dropout.enter();
        states.dropout(self.config.dropout_rate, self.config.options.drops_out())
    }

    fn embed(&self, shared: &Embedding, input_ids: &Tensor) -> Tensor {
        let _module = self.embed_tokens.enter();
        self.config.options.require_input_grads(shared.look_up(input_ids))
    }

    /// The masks of its own tokens and of the encoder's.
    fn masks(
        &self,
        inputs_embeds: &Tensor,
        attention_mask: Option<&Tensor>,
        encoded: Option<&Encoded>,
        cache: Option<&KvCache>,
    ) -> [Option<Tensor>; 2] {
        let inputs = MaskInputs {
            attention: self.config.options.attention,
            file: ModelingFile::Later,
            inputs_embeds,
            attention_mask,
            cache,
            position_ids: None,
        };
        let Some(encoded) = encoded else { return [create_bidirectional_mask(inputs), None] };
        let own = create_causal_mask(inputs);
        let attention_mask = encoded.attention_mask;
        [own, create_bidirectional_mask(MaskInputs { attention_mask, cache: None, ..inputs })]
    }

    fn forward(
        &self,
        (shared, input_ids): (&Embedding, &Tensor),
        attention_mask: Option<&Tensor>,
        encoded: Option<&Encoded>,
        cache: Option<&Rc<KvCache>>,
    ) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.embed(shared, input_ids);
        let [mask, encoder_mask] = self.masks(&inputs_embeds, attention_mask, encoded, cache.map(Rc::as_ref));
        let mut hidden_states = self.drop_out(&inputs_embeds);
        let mut biases = Biases::default();
        for (at, block) in self.block.iter().enumerate() {
            let call = BlockCall {
                mask: mask.clone(),
                encoder_hidden_states: encoded.map(|encoded| encoded.hidden_states.clone()),
                encoder_mask: encoder_mask.clone(),
                biases: biases.clone(),
                cache: cache.filter(|_| !self.config.options.checkpoints_layers()).cloned(),
                at,
            };
            (hidden_states, biases) = self.call_block(block, &hidden_states, call);
        }
        hidden_states = self.final_layer_norm.forward(&hidden_states);
        self.drop_out(&hidden_states)
    }

    /// A block that is recomputed in backward makes its biases anew there, and lets them go.
    fn call_block(&self, block: &Rc<T5Block>, hidden_states: &Tensor, call: BlockCall) -> (Tensor, Biases) {
        let biases: Rc<RefCell<Biases>> = Rc::default();
        let (block, wanted) = (Rc::clone(block), Rc::downgrade(&biases));
        let region = move |hidden_states: &Tensor| {
            block.module.call(hidden_states, |hidden_states| {
                let (hidden_states, biases) = block.forward(hidden_states, &call);
                wanted.upgrade().inspect(|wanted| drop(wanted.replace(biases)));
                hidden_states
            })
        };
        let hidden_states = if self.config.options.checkpoints_layers() {
            checkpoint(hidden_states, region)
        } else {
            region(hidden_states)
        };
        (hidden_states, biases.take())
    }
}

/// The encoder without the rest, as pipelines of diffusers have it (`T5EncoderModel`).
pub(crate) struct T5Encoder {
    shared: Embedding,
    encoder: T5Stack,
}

impl T5Encoder {
    pub(crate) fn build(fields: &Fields, at: &Builder, options: &RunOptions) -> Result<Self, FieldError> {
        let config = Rc::new(Config::read(fields, Defaults::of("t5"), options)?);
        let shared = Embedding::of_head(&at.at("shared"), [config.vocab_size, config.d_model], None, true);
        let encoder = T5Stack::new(&at.at("encoder"), &config, &shared, false);
        Ok(Self { shared, encoder })
    }

    pub(crate) fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.encoder.forward((&self.shared, input_ids), None, None, None)
    }
}

struct T5ForConditionalGeneration {
    module: Module,
    shared: Embedding,
    encoder: T5Stack,
    decoder: T5Stack,
    lm_head: Rc<Linear>,
    config: Rc<Config>,
}

impl T5ForConditionalGeneration {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let module = at.module();
        let at = &at.deviating(config.initializer_factor);
        let shared = Embedding::of_head(&at.at("shared"), [config.vocab_size, config.d_model], None, config.is_tied);
        let encoder = T5Stack::new(&at.at("encoder"), config, &shared, false);
        let decoder = T5Stack::new(&at.at("decoder"), config, &shared, true);
        let tied = config.is_tied.then_some(&shared);
        let lm_head = LmHead::new(&at.at("lm_head"), config.d_model, config.vocab_size, tied).linear();
        Self { module, shared, encoder, decoder, lm_head, config: Rc::clone(config) }
    }

    /// The decoder's states, and what lives until the loss is there: the encoder's states and the decoder's tokens.
    fn decode(&self, call: &ForwardCall) -> (Tensor, [Tensor; 2]) {
        let hidden_states = self.encoder.forward((&self.shared, call.input_ids), call.attention_mask, None, None);
        let decoder_input_ids = decoder_input_ids(call, shift_right);
        let encoded = Encoded { hidden_states: &hidden_states, attention_mask: call.attention_mask };
        let input = (&self.shared, &decoder_input_ids);
        let decoded = self.decoder.forward(input, None, Some(&encoded), call.cache.as_ref());
        (decoded, [hidden_states, decoder_input_ids])
    }
}

impl Model for T5ForConditionalGeneration {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let (decoded, [encoded, _decoder_input_ids]) = self.decode(call);
        let sequence_output = if self.config.scales_outputs { decoded.mul_scalar(1.0) } else { decoded.clone() };
        let lm_logits = self.lm_head.forward(&sequence_output);
        let loss = call.labels.map(|labels| masked_lm_loss(&lm_logits, labels));
        ModelOutput { loss, logits: Some(lm_logits), cache: call.cache.clone(), router: None, more: vec![encoded] }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.decode(call).0
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.lm_head)
    }
}
