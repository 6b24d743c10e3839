//! ViT with its head for classes of images (transformers/models/vit/modeling_vit.py).

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Image, ModelSpec};
use crate::model::nn::{
    Activation, AttentionOutput, ImageTokens, LayerNorm, Linear, PatchEmbeddings, fixed_cross_entropy,
};
use crate::tensor::Tensor;

use super::bounds::{bound_weights, check_divides};
use super::decoder::initializer_range;
use super::encoder::{EncoderLayer, attend, run_layers};
use super::image_mlp::ImageMlp;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["vit"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let image = model.image()?.ok_or_else(|| FieldError::new("image_size", "is missing"))?;
    let config = Rc::new(Config::read(&model.config, image, options)?);
    Ok(Box::new(ViTForImageClassification::new(&at.deviating(config.initializer_range), &config)))
}

/// What `ViTConfig` has (transformers 5.17), under its own names.
struct Config {
    image: Image,
    hidden_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    intermediate_size: u64,
    activation: Activation,
    hidden_dropout: f64,
    attention_dropout: f64,
    initializer_range: f64,
    layer_norm_eps: f64,
    qkv_bias: bool,
    num_labels: u64,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, image: Image, options: &RunOptions) -> Result<Self, FieldError> {
        let config = Self {
            image,
            hidden_size: fields.size("hidden_size", 768)?,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            intermediate_size: fields.size("intermediate_size", 3072)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "gelu")?)?,
            hidden_dropout: fields.probability("hidden_dropout_prob", 0.0)?,
            attention_dropout: fields.probability("attention_probs_dropout_prob", 0.0)?,
            initializer_range: initializer_range(fields)?,
            layer_norm_eps: fields.number("layer_norm_eps", 1e-12)?,
            qkv_bias: fields.flag("qkv_bias", true)?,
            num_labels: fields.num_labels()?,
            options: options.clone(),
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("image_size", [image.tokens(), hidden], 1),
            ("patch_size", [image.channels * image.patch[0] * image.patch[1], hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }

    fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::new(at, self.hidden_size, self.layer_norm_eps)
    }

    fn dropped(&self, at: &Module, states: &Tensor) -> Tensor {
        let _dropout = at.enter();
        states.dropout(self.hidden_dropout, self.options.drops_out())
    }
}

struct ViTEmbeddings {
    module: Module,
    patch_embeddings: PatchEmbeddings,
    tokens: ImageTokens,
    dropout: Module,
    config: Rc<Config>,
}

impl ViTEmbeddings {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (module, slot, width) = (at.module(), at.next_slot(), config.hidden_size);
        let patch_embeddings = PatchEmbeddings::new(&at.at("patch_embeddings"), config.image, width);
        let tokens = ImageTokens::new(at, slot, config.image, width, None);
        Self { module, patch_embeddings, tokens, dropout: at.at("dropout").module(), config: Rc::clone(config) }
    }

    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patches = self.config.options.require_input_grads(self.patch_embeddings.forward(pixel_values));
        let embeddings = self.tokens.add_to(patches);
        self.config.dropped(&self.dropout, &embeddings)
    }
}

struct ViTAttention {
    module: Module,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    config: Rc<Config>,
}

impl ViTAttention {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let linear = |name, bias| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, bias);
        Self {
            module: at.module(),
            q_proj: linear("q_proj", config.qkv_bias),
            k_proj: linear("k_proj", config.qkv_bias),
            v_proj: linear("v_proj", config.qkv_bias),
            o_proj: linear("o_proj", true),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens, heads) = (hidden_states.size(0), hidden_states.size(1), self.config.num_attention_heads);
        let shape = [rows, tokens, heads, self.config.hidden_size / heads];
        let heads_first = |projection: &Linear| projection.forward(hidden_states).view(&shape).transpose(1, 2);
        let query_states = heads_first(&self.q_proj);
        let key_states = heads_first(&self.k_proj);
        let value_states = heads_first(&self.v_proj);
        let dropout = (self.config.attention_dropout, Some(DType::Float32));
        let (mut attn_output, attn_weights) =
            attend([&query_states, &key_states, &value_states], None, dropout, &self.config.options);
        attn_output = attn_output.reshape(&[rows, tokens, self.config.hidden_size]).contiguous();
        attn_output = self.o_proj.forward(&attn_output);
        (attn_output, attn_weights)
    }
}

struct ViTLayer {
    module: Module,
    attention: ViTAttention,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    mlp: ImageMlp,
    dropout: Module,
    config: Rc<Config>,
}

impl ViTLayer {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        Self {
            module: at.module(),
            attention: ViTAttention::new(&at.at("attention"), config),
            layernorm_before: config.norm(&at.at("layernorm_before")),
            layernorm_after: config.norm(&at.at("layernorm_after")),
            mlp: ImageMlp::new(&at.at("mlp"), [config.hidden_size, config.intermediate_size], config.activation),
            dropout: at.at("dropout").module(),
            config: Rc::clone(config),
        }
    }
}

impl EncoderLayer for ViTLayer {
    type Call = ();

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, _call: &()) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.layernorm_before.forward(residual);
        let (attn_output, _weights) = self.attention.forward(&hidden_states);
        hidden_states = attn_output;
        hidden_states = self.config.dropped(&self.dropout, &hidden_states);
        hidden_states = &hidden_states + residual;
        let residual = hidden_states.clone();
        hidden_states = self.layernorm_after.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        hidden_states = self.config.dropped(&self.dropout, &hidden_states);
        &hidden_states + &residual
    }
}

struct ViTModel {
    module: Module,
    embeddings: ViTEmbeddings,
    layers: Vec<Rc<ViTLayer>>,
    layernorm: LayerNorm,
    options: RunOptions,
}

impl ViTModel {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let layer = |layer| Rc::new(ViTLayer::new(&at.at("layers").element(layer), config));
        Self {
            module: at.module(),
            embeddings: ViTEmbeddings::new(&at.at("embeddings"), config),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            layernorm: config.norm(&at.at("layernorm")),
            options: config.options.clone(),
        }
    }

    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let pixel_values = pixel_values.to(self.embeddings.patch_embeddings.weight().dtype());
        let embedding_output = self.embeddings.forward(&pixel_values);
        let hidden_states = run_layers(&self.layers, &embedding_output, |_| (), &self.options);
        self.layernorm.forward(&hidden_states)
    }
}

struct ViTForImageClassification {
    module: Module,
    vit: ViTModel,
    classifier: Rc<Linear>,
}

impl ViTForImageClassification {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let module = at.module();
        let vit = ViTModel::new(&at.at("vit"), config);
        let classifier = Rc::new(Linear::new(&at.at("classifier"), config.hidden_size, config.num_labels, true));
        Self { module, vit, classifier }
    }
}

impl Model for ViTForImageClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.vit.forward(call.input_ids);
        let pooled_output = sequence_output.select(1, 0);
        let logits = self.classifier.forward(&pooled_output);
        let loss = call.labels.map(|labels| fixed_cross_entropy(&logits, labels, call.num_items_in_batch));
        ModelOutput { loss, logits: Some(logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.vit.forward(call.input_ids)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}
