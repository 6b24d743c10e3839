//! BART (transformers/models/bart/modeling_bart.py) and its kin, whose files are copies of it with other norms and positions: M2M-100,
//! which NLLB is, Marian, mBART and Pegasus.

pub(super) mod config;
pub(super) mod layers;
mod positions;

use std::rc::Rc;

use super::targets::{decoder_input_ids, shift_right, wrap_last};
use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, ModelSpec, ModelingFile};
use crate::model::family::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::{
    Embedding, LayerNorm, Linear, LmHead, MaskInputs, create_bidirectional_mask, create_causal_mask, masked_lm_loss,
};
use crate::op::{arange, ones};
use crate::tensor::Tensor;

use config::{Config, Form, Half, PositionTable};
use layers::{BartLayer, LayerCall, layers, norm, run_layers};
use positions::Positions;

pub(super) const FAMILY: Family = Family { model_types: &["bart", "m2m_100", "marian", "mbart", "pegasus"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let form = Form::of(&model.model_type);
    if !fields.flag("share_encoder_decoder_embeddings", true)? {
        return Err(
            FieldError::unsimulated("share_encoder_decoder_embeddings", "embeddings apart are not simulated").into()
        );
    }
    let config = Config { is_pre_norm: form.is_pre_norm, ..Config::read(fields, &form.sizes(), options)? };
    let positions = fields.size("max_position_embeddings", 1024)?;
    let at = &at.deviating(config.init_std);
    Ok(Box::new(BartForConditionalGeneration::new(at, &Rc::new(config), form, positions)))
}

/// `BartEncoder` or `BartDecoder`
struct BartStack {
    module: Module,
    embed_tokens: Module,
    /// Its own, where nothing is tied: then nobody reads the shared one.
    own: Option<Embedding>,
    embed_positions: Positions,
    layers: Vec<Rc<BartLayer>>,
    layernorm_embedding: Option<LayerNorm>,
    layer_norm: Option<LayerNorm>,
    form: Form,
    config: Rc<Config>,
}

impl BartStack {
    fn new(
        at: &Builder,
        (config, form): (&Rc<Config>, Form),
        shared: &Embedding,
        positions: u64,
        half: Option<Half>,
    ) -> Self {
        let embed_tokens = at.at("embed_tokens");
        let own = (!config.tie_word_embeddings)
            .then(|| Embedding::new(&embed_tokens, config.vocab_size, config.d_model, config.pad_token_id));
        if own.is_none() {
            embed_tokens.tie(&shared.weight);
        }
        let sizes = [positions, config.d_model];
        let padding_idx = config.pad_token_id.unwrap_or_default();
        let embed_positions = Positions::new(&at.at("embed_positions"), form.positions, sizes, padding_idx);
        let layers = layers(at, config, half.unwrap_or(config.encoder), half.is_some());
        Self {
            module: at.module(),
            embed_tokens: embed_tokens.module(),
            own,
            embed_positions,
            layers,
            layernorm_embedding: form.norms_embeddings.then(|| norm(&at.at("layernorm_embedding"), config)),
            layer_norm: form.is_pre_norm.then(|| norm(&at.at("layer_norm"), config)),
            form,
            config: Rc::clone(config),
        }
    }

    /// Scaled, whatever the scale is.
    fn embed(&self, shared: &Embedding, input_ids: &Tensor) -> Tensor {
        let scaled = {
            let _module = self.embed_tokens.enter();
            let embedded = self.own.as_ref().unwrap_or(shared).look_up(input_ids);
            embedded.mul_scalar(1.0)
        };
        self.config.options.require_input_grads(scaled)
    }

    fn masked<'a>(&self, inputs_embeds: &'a Tensor, attention_mask: Option<&'a Tensor>) -> MaskInputs<'a> {
        MaskInputs {
            attention: self.config.options.attention,
            file: ModelingFile::Later,
            inputs_embeds,
            attention_mask,
            cache: None,
            position_ids: None,
        }
    }

    fn add_positions(&self, inputs_embeds: &Tensor, positions: &Tensor) -> Tensor {
        let mut hidden_states = inputs_embeds + positions;
        if let Some(layernorm_embedding) = &self.layernorm_embedding {
            hidden_states = layernorm_embedding.forward(&hidden_states);
        }
        self.config.drop_out(&hidden_states)
    }

    fn run(&self, hidden_states: Tensor, call: &LayerCall) -> Tensor {
        let hidden_states = run_layers(&self.layers, hidden_states, call);
        match &self.layer_norm {
            Some(layer_norm) => layer_norm.forward(&hidden_states),
            None => hidden_states,
        }
    }

    fn encode(&self, shared: &Embedding, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.embed(shared, call.input_ids);
        let embed_pos = self.embed_positions.of_encoder(call.input_ids);
        let hidden_states = self.add_positions(&inputs_embeds, &embed_pos);
        let mask = create_bidirectional_mask(self.masked(&inputs_embeds, call.attention_mask));
        self.run(hidden_states, &LayerCall { mask, ..LayerCall::default() })
    }

    fn decode(
        &self,
        (shared, input_ids): (&Embedding, &Tensor),
        encoded: &Tensor,
        attention_mask: Option<&Tensor>,
    ) -> Tensor {
        let _module = self.module.enter();
        let context = input_ids.context();
        let inputs_embeds = self.embed(shared, input_ids);
        let mut position_ids = (self.form.positions != PositionTable::Buffer).then(|| {
            let positions = arange(context, input_ids.size(1));
            positions.add_int(0)
        });
        let all_tokens = ones(context, input_ids.sizes(), DType::Float32);
        let mask = context.with_whole_rows(|| create_causal_mask(self.masked(&inputs_embeds, Some(&all_tokens))));
        let _all_tokens = self.form.keeps_mask.then_some(all_tokens);
        let encoder_mask = create_bidirectional_mask(self.masked(&inputs_embeds, attention_mask));
        let positions = self.embed_positions.of_decoder(position_ids.as_ref(), input_ids);
        position_ids = position_ids.filter(|_| self.form.keeps_numbers);
        let hidden_states = self.add_positions(&inputs_embeds, &positions);
        let encoder_hidden_states = Some(encoded.clone());
        let decoded = self.run(hidden_states, &LayerCall { mask, encoder_hidden_states, encoder_mask, cache: None });
        drop(position_ids);
        decoded
    }
}

struct BartForConditionalGeneration {
    module: Module,
    model: Module,
    shared: Embedding,
    encoder: BartStack,
    decoder: BartStack,
    lm_head: Rc<Linear>,
    final_logits_bias: Option<Tensor>,
    form: Form,
}

impl BartForConditionalGeneration {
    fn new(at: &Builder, config: &Rc<Config>, form: Form, positions: u64) -> Self {
        let module = at.module();
        let model = at.at("model");
        let sizes = [config.vocab_size, config.d_model];
        let shared = Embedding::of_head(&model.at("shared"), sizes, config.pad_token_id, config.tie_word_embeddings);
        let encoder = BartStack::new(&model.at("encoder"), (config, form), &shared, positions, None);
        let decoder = BartStack::new(&model.at("decoder"), (config, form), &shared, positions, Some(config.decoder));
        let tied = config.tie_word_embeddings.then_some(&shared);
        let lm_head = LmHead::new(&at.at("lm_head"), config.d_model, config.vocab_size, tied).linear();
        let bias = || at.saved_buffer("final_logits_bias", &[1, config.vocab_size], at.dtype(), Init::Zeros);
        let final_logits_bias = form.biases_logits.then(bias);
        Self { module, model: model.module(), shared, encoder, decoder, lm_head, final_logits_bias, form }
    }

    /// The decoder's states, the encoder's and the decoder's tokens.
    fn decode(&self, call: &ForwardCall) -> [Tensor; 3] {
        let shift = if self.form.begins_with_language { wrap_last } else { shift_right };
        let decoder_input_ids = decoder_input_ids(call, shift);
        let _model = self.model.enter();
        let encoded = self.encoder.encode(&self.shared, call);
        let decoded = self.decoder.decode((&self.shared, &decoder_input_ids), &encoded, call.attention_mask);
        [decoded, encoded, decoder_input_ids]
    }
}

impl Model for BartForConditionalGeneration {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let [decoded, encoded, _decoder_input_ids] = self.decode(call);
        let mut lm_logits = self.lm_head.forward(&decoded);
        if let Some(final_logits_bias) = &self.final_logits_bias {
            lm_logits = &lm_logits + final_logits_bias;
        }
        let loss = call.labels.map(|labels| masked_lm_loss(&lm_logits, labels));
        ModelOutput { loss, logits: Some(lm_logits), cache: None, router: None, more: vec![encoded] }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        let [decoded, ..] = self.decode(call);
        decoded
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.lm_head)
    }
}
