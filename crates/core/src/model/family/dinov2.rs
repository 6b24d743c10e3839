//! DINOv2 with its head for classes of images (transformers/models/dinov2/modeling_dinov2.py).

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Module};
use crate::job::{FieldError, Fields, Image, ModelSpec};
use crate::model::nn::{Activation, ImageTokens, LayerNorm, Linear, PatchEmbeddings, fixed_cross_entropy};
use crate::op::{cat, rand};
use crate::tensor::Tensor;

use super::bounds::{bound_weights, check_divides};
use super::decoder::initializer_range;
use super::encoder::{EncoderLayer, attend, run_layers};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["dinov2"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let image = model.image()?.ok_or_else(|| FieldError::new("image_size", "is missing"))?;
    let config = Rc::new(Config::read(&model.config, image, options)?);
    Ok(Box::new(Dinov2ForImageClassification::new(&at.deviating(config.initializer_range), &config)))
}

/// What `Dinov2Config` has (transformers 5.17), under its own names.
struct Config {
    image: Image,
    hidden_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    mlp_ratio: u64,
    activation: Activation,
    hidden_dropout: f64,
    attention_dropout: f64,
    initializer_range: f64,
    layer_norm_eps: f64,
    qkv_bias: bool,
    layerscale_value: f64,
    drop_path_rate: f64,
    use_swiglu_ffn: bool,
    use_mask_token: bool,
    num_labels: u64,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, image: Image, options: &RunOptions) -> Result<Self, FieldError> {
        if image.sides[0] != image.sides[1] {
            let problem = "positions of an image that is no square are interpolated, which is not simulated";
            return Err(FieldError::unsimulated("image_size", problem));
        }
        let config = Self {
            image,
            hidden_size: fields.size("hidden_size", 768)?,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            mlp_ratio: fields.bounded("mlp_ratio", 4, 1024)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "gelu")?)?,
            hidden_dropout: fields.probability("hidden_dropout_prob", 0.0)?,
            attention_dropout: fields.probability("attention_probs_dropout_prob", 0.0)?,
            initializer_range: initializer_range(fields)?,
            layer_norm_eps: fields.number("layer_norm_eps", 1e-6)?,
            qkv_bias: fields.flag("qkv_bias", true)?,
            layerscale_value: fields.number("layerscale_value", 1.0)?,
            drop_path_rate: fields.probability("drop_path_rate", 0.0)?,
            use_swiglu_ffn: fields.flag("use_swiglu_ffn", false)?,
            use_mask_token: fields.flag("use_mask_token", true)?,
            num_labels: fields.num_labels()?,
            options: options.clone(),
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("image_size", [image.tokens(), hidden], 1),
            ("patch_size", [image.channels * image.patch[0] * image.patch[1], hidden], 1),
            ("hidden_size", [hidden, hidden], (4 + 2 * config.mlp_ratio) * layers),
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

struct Dinov2Embeddings {
    module: Module,
    patch_embeddings: PatchEmbeddings,
    tokens: ImageTokens,
    dropout: Module,
    config: Rc<Config>,
}

impl Dinov2Embeddings {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (module, slot, width) = (at.module(), at.next_slot(), config.hidden_size);
        let patch_embeddings = PatchEmbeddings::new(&at.at("patch_embeddings"), config.image, width);
        let mask_token = [1, width];
        let mask_token = config.use_mask_token.then_some(mask_token.as_slice());
        let tokens = ImageTokens::new(at, slot, config.image, width, mask_token);
        Self { module, patch_embeddings, tokens, dropout: at.at("dropout").module(), config: Rc::clone(config) }
    }

    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patches = {
            let cast = pixel_values.to(self.patch_embeddings.weight().dtype());
            self.config.options.require_input_grads(self.patch_embeddings.forward(&cast))
        };
        let embeddings = self.tokens.add_to(patches);
        self.config.dropped(&self.dropout, &embeddings)
    }
}

/// `Dinov2Attention` with its `Dinov2SelfAttention` and `Dinov2SelfOutput`.
struct Dinov2Attention {
    module: Module,
    attention: Module,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Module,
    dense: Linear,
    dropout: Module,
    config: Rc<Config>,
}

impl Dinov2Attention {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (attention, output, hidden) = (at.at("attention"), at.at("output"), config.hidden_size);
        let linear = |name| Linear::new(&attention.at(name), hidden, hidden, config.qkv_bias);
        Self {
            module: at.module(),
            attention: attention.module(),
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: output.module(),
            dense: Linear::new(&output.at("dense"), hidden, hidden, true),
            dropout: output.at("dropout").module(),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (self_attn_output, _weights) = self.attend(hidden_states);
        let _output = self.output.enter();
        let projected = self.dense.forward(&self_attn_output);
        self.config.dropped(&self.dropout, &projected)
    }

    fn attend(&self, hidden_states: &Tensor) -> (Tensor, Option<Tensor>) {
        let _attention = self.attention.enter();
        let (rows, tokens, heads) = (hidden_states.size(0), hidden_states.size(1), self.config.num_attention_heads);
        let shape = [rows, tokens, heads, self.config.hidden_size / heads];
        let heads_first = |projection: &Linear| projection.forward(hidden_states).view(&shape).transpose(1, 2);
        let key_layer = heads_first(&self.key);
        let value_layer = heads_first(&self.value);
        let query_layer = heads_first(&self.query);
        let dropout = (self.config.attention_dropout, None);
        let (context_layer, attention_probs) =
            attend([&query_layer, &key_layer, &value_layer], None, dropout, &self.config.options);
        (context_layer.reshape(&[rows, tokens, self.config.hidden_size]), attention_probs)
    }
}

struct Dinov2LayerScale {
    module: Module,
    lambda1: Tensor,
}

impl Dinov2LayerScale {
    fn new(at: &Builder, config: &Config) -> Self {
        let lambda1 = at.parameter("lambda1", &[config.hidden_size], Init::Filled(config.layerscale_value));
        Self { module: at.module(), lambda1 }
    }

    fn forward(&self, hidden_state: &Tensor) -> Tensor {
        let _module = self.module.enter();
        hidden_state * &self.lambda1
    }
}

/// `Dinov2MLP` or `Dinov2SwiGLUFFN`
struct Dinov2Mlp {
    module: Module,
    first: Linear,
    last: Linear,
    /// `None` where halves are gated.
    activation: Option<(Module, Activation)>,
}

impl Dinov2Mlp {
    fn new(at: &Builder, config: &Config) -> Self {
        let (hidden, inner) = (config.hidden_size, config.hidden_size * config.mlp_ratio);
        let module = at.module();
        if config.use_swiglu_ffn {
            let inner = (inner * 2 / 3).next_multiple_of(8);
            let first = Linear::new(&at.at("weights_in"), hidden, 2 * inner, true);
            return Self {
                module,
                first,
                last: Linear::new(&at.at("weights_out"), inner, hidden, true),
                activation: None,
            };
        }
        let first = Linear::new(&at.at("fc1"), hidden, inner, true);
        let activation = Some((at.at("activation").module(), config.activation));
        Self { module, first, last: Linear::new(&at.at("fc2"), inner, hidden, true), activation }
    }

    fn forward(&self, hidden_state: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_state = self.first.forward(hidden_state);
        let Some((module, activation)) = &self.activation else {
            let [x1, x2] = hidden_state.split_last::<2>();
            let hidden = {
                let gate = x1.silu();
                &gate * &x2
            };
            return self.last.forward(&hidden);
        };
        hidden_state = {
            let _activation = module.enter();
            activation.forward(&hidden_state)
        };
        self.last.forward(&hidden_state)
    }
}

struct Dinov2Layer {
    module: Module,
    norm1: LayerNorm,
    attention: Dinov2Attention,
    layer_scale1: Dinov2LayerScale,
    drop_path: Module,
    norm2: LayerNorm,
    mlp: Dinov2Mlp,
    layer_scale2: Dinov2LayerScale,
    config: Rc<Config>,
}

impl Dinov2Layer {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        Self {
            module: at.module(),
            norm1: config.norm(&at.at("norm1")),
            attention: Dinov2Attention::new(&at.at("attention"), config),
            layer_scale1: Dinov2LayerScale::new(&at.at("layer_scale1"), config),
            drop_path: at.at("drop_path").module(),
            norm2: config.norm(&at.at("norm2")),
            mlp: Dinov2Mlp::new(&at.at("mlp"), config),
            layer_scale2: Dinov2LayerScale::new(&at.at("layer_scale2"), config),
            config: Rc::clone(config),
        }
    }

    /// `Dinov2DropPath`: whole rows are dropped.
    fn drop_path(&self, hidden_states: &Tensor) -> Tensor {
        let (rate, _module) = (self.config.drop_path_rate, self.drop_path.enter());
        if rate == 0.0 || !self.config.options.mode.is_training() {
            return hidden_states.clone();
        }
        let keep_prob = 1.0 - rate;
        let mut random_tensor = rand(hidden_states.context(), &[hidden_states.size(0), 1, 1], hidden_states.dtype());
        random_tensor = {
            let shifted = random_tensor.add_scalar(keep_prob);
            shifted.floor()
        };
        &hidden_states.div_scalar(keep_prob) * &random_tensor
    }
}

impl EncoderLayer for Dinov2Layer {
    type Call = ();

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, _call: &()) -> Tensor {
        let _module = self.module.enter();
        let hidden_states_norm = self.norm1.forward(hidden_states);
        let mut self_attention_output = self.attention.forward(&hidden_states_norm);
        self_attention_output = self.layer_scale1.forward(&self_attention_output);
        let hidden_states = {
            let kept = self.drop_path(&self_attention_output);
            &kept + hidden_states
        };
        let mut layer_output = self.norm2.forward(&hidden_states);
        layer_output = self.mlp.forward(&layer_output);
        layer_output = self.layer_scale2.forward(&layer_output);
        let kept = self.drop_path(&layer_output);
        &kept + &hidden_states
    }
}

/// `Dinov2Model` with its `Dinov2Encoder`.
struct Dinov2Model {
    module: Module,
    embeddings: Dinov2Embeddings,
    encoder: Module,
    layer: Vec<Rc<Dinov2Layer>>,
    layernorm: LayerNorm,
    options: RunOptions,
}

impl Dinov2Model {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let encoder = at.at("encoder");
        let embeddings = Dinov2Embeddings::new(&at.at("embeddings"), config);
        let layer = |layer| Rc::new(Dinov2Layer::new(&encoder.at("layer").element(layer), config));
        Self {
            module: at.module(),
            embeddings,
            encoder: encoder.module(),
            layer: (0..config.num_hidden_layers).map(layer).collect(),
            layernorm: config.norm(&at.at("layernorm")),
            options: config.options.clone(),
        }
    }

    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let embedding_output = self.embeddings.forward(pixel_values);
        let sequence_output = {
            let _encoder = self.encoder.enter();
            run_layers(&self.layer, &embedding_output, |_| (), &self.options)
        };
        self.layernorm.forward(&sequence_output)
    }
}

struct Dinov2ForImageClassification {
    module: Module,
    dinov2: Dinov2Model,
    classifier: Rc<Linear>,
}

impl Dinov2ForImageClassification {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let module = at.module();
        let dinov2 = Dinov2Model::new(&at.at("dinov2"), config);
        let classifier = Rc::new(Linear::new(&at.at("classifier"), 2 * config.hidden_size, config.num_labels, true));
        Self { module, dinov2, classifier }
    }
}

impl Model for Dinov2ForImageClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.dinov2.forward(call.input_ids);
        let cls_token = sequence_output.select(1, 0);
        let patch_tokens = sequence_output.slice(1, 1..sequence_output.size(1));
        let linear_input = {
            let mean = patch_tokens.mean_without(1);
            cat(&[&cls_token, &mean], 1)
        };
        let logits = self.classifier.forward(&linear_input);
        let loss = call.labels.map(|labels| fixed_cross_entropy(&logits, labels, call.num_items_in_batch));
        ModelOutput { loss, logits: Some(logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.dinov2.forward(call.input_ids)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}
