//! Whisper (transformers/models/whisper/modeling_whisper.py): two convolutions over the frames of a recording, then layers like those of BART's
//! kin.

use std::rc::Rc;

use super::bart::config::{Config, Half, Sizes};
use super::bart::layers::{BartLayer, LayerCall, layers, norm, run_layers};
use super::targets::{decoder_input_ids, shift_right};
use crate::building::{BuildError, Builder, Init, Module};
use crate::job::{FieldError, ModelSpec, ModelingFile, keys};
use crate::model::family::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::{Embedding, KvCache, LayerNorm, Linear, LmHead, MaskInputs, create_causal_mask, masked_lm_loss};
use crate::op::{Gelu, arange};
use crate::tensor::Tensor;

pub(super) const FAMILY: Family = Family { model_types: &["whisper"], build };

/// Frames that a convolution sees at once.
const KERNEL: u64 = 3;

/// `WhisperConfig`'s defaults.
const SIZES: Sizes = Sizes {
    vocab_size: 51865,
    d_model: 384,
    half: Half { layers: 4, heads: 6, ffn_dim: 1536 },
    pad_token_id: 50256,
    activation: "gelu",
    dropouts: [0.0; 3],
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    if options.mode.is_training() && fields.flag("apply_spec_augment", false)? {
        return Err(FieldError::unsimulated(
            "apply_spec_augment",
            "frames that are hidden at random are not simulated",
        )
        .into());
    }
    let config = Config { is_whisper: true, ..Config::read(fields, &SIZES, options)? };
    let [mels, frames] = model.recording()?.ok_or_else(|| FieldError::new("num_mel_bins", "is missing"))?;
    let targets = fields.size("max_target_positions", 448)?;
    let freezes = fields.flag(keys::FREEZE_ENCODER, false)?;
    let at = &at.deviating(config.init_std);
    let sizes = [mels, frames / 2, targets];
    Ok(Box::new(WhisperForConditionalGeneration::new(at, &Rc::new(config), sizes, freezes)))
}

/// `nn.Conv1d` over time, whose kernel reaches a frame beyond each end, and GELU.
struct Convolution {
    module: Module,
    weight: Tensor,
    bias: Tensor,
    stride: u64,
}

impl Convolution {
    fn new(at: &Builder, [inputs, outputs]: [u64; 2], stride: u64) -> Self {
        let module = at.module();
        let weight = at.parameter("weight", &[outputs, inputs, KERNEL], Init::Normal);
        Self { module, weight, bias: at.parameter("bias", &[outputs], Init::Zeros), stride }
    }

    fn forward(&self, frames: &Tensor) -> Tensor {
        let _module = self.module.enter();
        frames.convolve_time(&self.weight, &self.bias, self.stride, 1)
    }
}

struct WhisperEncoder {
    module: Module,
    conv1: Convolution,
    conv2: Convolution,
    embed_positions: Embedding,
    layers: Vec<Rc<BartLayer>>,
    layer_norm: LayerNorm,
    config: Rc<Config>,
}

impl WhisperEncoder {
    fn new(at: &Builder, config: &Rc<Config>, [mels, positions]: [u64; 2]) -> Self {
        let width = config.d_model;
        Self {
            module: at.module(),
            conv1: Convolution::new(&at.at("conv1"), [mels, width], 1),
            conv2: Convolution::new(&at.at("conv2"), [width, width], 2),
            embed_positions: Embedding::new(&at.at("embed_positions").frozen(true), positions, width, None),
            layers: layers(at, config, config.encoder, false),
            layer_norm: norm(&at.at("layer_norm"), config),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, input_features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut inputs_embeds = {
            let convolved = self.config.options.require_input_grads(self.conv1.forward(input_features));
            convolved.gelu(Gelu::Exact)
        };
        inputs_embeds = {
            let convolved = self.conv2.forward(&inputs_embeds);
            convolved.gelu(Gelu::Exact)
        };
        let inputs_embeds = inputs_embeds.transpose(1, 2);
        let all_positions = arange(input_features.context(), self.embed_positions.weight.size(0));
        let mut hidden_states = {
            let positions = self.embed_positions.forward(&all_positions);
            &inputs_embeds + &positions
        };
        hidden_states = self.config.drop_out(&hidden_states);
        hidden_states = run_layers(&self.layers, hidden_states, &LayerCall::default());
        self.layer_norm.forward(&hidden_states)
    }
}

struct WhisperDecoder {
    module: Module,
    embed_tokens: Embedding,
    positions: Module,
    embed_positions: Tensor,
    layers: Vec<Rc<BartLayer>>,
    layer_norm: LayerNorm,
    config: Rc<Config>,
}

impl WhisperDecoder {
    fn new(at: &Builder, config: &Rc<Config>, positions: u64) -> Self {
        let sizes = [config.vocab_size, config.d_model];
        let embed_tokens =
            Embedding::of_head(&at.at("embed_tokens"), sizes, config.pad_token_id, config.tie_word_embeddings);
        let at_positions = at.at("embed_positions");
        Self {
            module: at.module(),
            embed_tokens,
            positions: at_positions.embedding_module(),
            embed_positions: at_positions.parameter("weight", &[positions, config.d_model], Init::Normal),
            layers: layers(at, config, config.decoder, true),
            layer_norm: norm(&at.at("layer_norm"), config),
            config: Rc::clone(config),
        }
    }

    /// `self.weight[position_ids]`
    fn look_up(&self, position_ids: &Tensor) -> Tensor {
        let _module = self.positions.enter();
        let found = self.embed_positions.at_places(&[&position_ids.view(&[position_ids.numel()])]);
        found.view(&[position_ids.size(0), position_ids.size(1), self.config.d_model])
    }

    fn forward(&self, input_ids: &Tensor, encoded: &Tensor, cache: Option<&Rc<KvCache>>) -> Tensor {
        let _module = self.module.enter();
        let (context, sizes) = (input_ids.context(), input_ids.sizes());
        let inputs_embeds = self.config.options.require_input_grads(self.embed_tokens.forward(input_ids));
        let position_ids = {
            let one_row = {
                let positions = arange(context, sizes[1]);
                positions.add_int(0)
            };
            one_row.unsqueeze(0).expand(sizes).clone_contiguous()
        };
        let positions = self.look_up(&position_ids);
        let mut hidden_states = &inputs_embeds + &positions;
        hidden_states = self.config.drop_out(&hidden_states);
        let mask = create_causal_mask(MaskInputs {
            attention: self.config.options.attention,
            file: ModelingFile::Later,
            inputs_embeds: &inputs_embeds,
            attention_mask: None,
            cache: cache.map(Rc::as_ref),
            position_ids: Some(&position_ids),
        });
        let call =
            LayerCall { mask, encoder_hidden_states: Some(encoded.clone()), encoder_mask: None, cache: cache.cloned() };
        hidden_states = run_layers(&self.layers, hidden_states, &call);
        self.layer_norm.forward(&hidden_states)
    }
}

struct WhisperForConditionalGeneration {
    module: Module,
    model: Module,
    encoder: WhisperEncoder,
    decoder: WhisperDecoder,
    proj_out: Rc<Linear>,
}

impl WhisperForConditionalGeneration {
    fn new(at: &Builder, config: &Rc<Config>, [mels, sources, targets]: [u64; 3], freezes: bool) -> Self {
        let (module, model) = (at.module(), at.at("model"));
        let encoder = WhisperEncoder::new(&model.at("encoder").frozen(freezes), config, [mels, sources]);
        let decoder = WhisperDecoder::new(&model.at("decoder"), config, targets);
        let tied = config.tie_word_embeddings.then_some(&decoder.embed_tokens);
        let proj_out = LmHead::new(&at.at("proj_out"), config.d_model, config.vocab_size, tied).linear();
        Self { module, model: model.module(), encoder, decoder, proj_out }
    }

    /// The decoder's states, the encoder's and the decoder's tokens.
    fn decode(&self, call: &ForwardCall) -> [Tensor; 3] {
        let decoder_input_ids = decoder_input_ids(call, shift_right);
        let _model = self.model.enter();
        let encoded = self.encoder.forward(call.input_ids);
        [self.decoder.forward(&decoder_input_ids, &encoded, call.cache.as_ref()), encoded, decoder_input_ids]
    }
}

impl Model for WhisperForConditionalGeneration {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let [decoded, encoded, _decoder_input_ids] = self.decode(call);
        let lm_logits = self.proj_out.forward(&decoded);
        let loss = call.labels.map(|labels| masked_lm_loss(&lm_logits, labels));
        let cache = call.cache.clone();
        ModelOutput { loss, logits: Some(lm_logits), cache, router: None, more: vec![encoded] }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        let [decoded, ..] = self.decode(call);
        decoded
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.proj_out)
    }
}
