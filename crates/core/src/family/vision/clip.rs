//! CLIP's tower (transformers/models/clip/modeling_clip.py, `CLIPVisionModel`), and SigLIP's, which has no token for the whole image.

use std::rc::Rc;

use super::clip_layer::{Kind, Layer, LayerCall, LayerConfig};
use super::places::require_patch_grads;
use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Image};
use crate::model::family::RunOptions;
use crate::model::family::bounds::bound_weights;
use crate::model::family::encoder::{EncoderLayer, run_layers};
use crate::model::nn::{Conv2d, Embedding, LayerNorm};
use crate::op::cat;
use crate::tensor::{Tensor, checkpoint};

/// What `CLIPVisionConfig` and `SiglipVisionConfig` have (transformers 5.17), under their own names.
#[derive(Debug)]
pub(in crate::family) struct ClipConfig {
    pub image: Image,
    pub layers: LayerConfig,
}

impl ClipConfig {
    pub(in crate::family) fn read(fields: &Fields, image: Image, kind: Kind) -> Result<Self, FieldError> {
        let config = Self { image, layers: LayerConfig::read(fields, kind, [768, 3072, 12, 12])? };
        let hidden = config.layers.hidden_size;
        let [inner, own] = config.layers.weights();
        bound_weights(&[
            ("image_size", [config.positions(), hidden], 1),
            ("patch_size", [image.channels * image.patch[0] * image.patch[1], hidden], 1),
            inner,
            own,
        ])?;
        Ok(config)
    }

    /// Patches, and where there is one the token for the whole image.
    fn positions(&self) -> u64 {
        self.image.patches() + u64::from(self.layers.kind == Kind::Clip)
    }
}

pub(in crate::family) struct Embeddings {
    module: Module,
    class_embedding: Option<Tensor>,
    patch_embedding: Conv2d,
    position_embedding: Embedding,
    position_ids: Tensor,
    options: RunOptions,
}

impl Embeddings {
    pub(in crate::family) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let (module, slot, width, image) = (at.module(), at.next_slot(), config.layers.hidden_size, config.image);
        let new_conv = match config.layers.kind {
            Kind::Clip => Conv2d::without_bias,
            Kind::Siglip => Conv2d::new,
        };
        let patch_embedding = new_conv(&at.at("patch_embedding"), image.channels, width, image.patch);
        let positions = config.positions();
        let position_embedding = Embedding::new(&at.at("position_embedding"), positions, width, None);
        let class_embedding = (config.layers.kind == Kind::Clip)
            .then(|| at.parameter_listed_at(slot, "class_embedding", &[width], Init::Normal));
        let position_ids = at.buffer(&[1, positions], DType::Int64, Vec::new);
        Self { module, class_embedding, patch_embedding, position_embedding, position_ids, options: options.clone() }
    }

    pub(in crate::family) fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patch_embeds = {
            let pixel_values = pixel_values.to(self.patch_embedding.weight().dtype());
            require_patch_grads(&self.options, self.patch_embedding.forward(&pixel_values))
        };
        let [rows, width, height, wide] = [0, 1, 2, 3].map(|at| patch_embeds.size(at));
        let patch_embeds = patch_embeds.view(&[rows, width, height * wide]).transpose(1, 2);
        let embeddings = match &self.class_embedding {
            Some(class_embedding) => cat(&[&class_embedding.expand(&[rows, 1, width]), &patch_embeds], 1),
            None => patch_embeds.clone(),
        };
        &embeddings + &self.position_embedding.forward(&self.position_ids)
    }
}

/// `CLIPVisionModel` with `output_hidden_states=True`.
pub(in crate::family) struct ClipVisionModel {
    module: Module,
    embeddings: Embeddings,
    pre_layrnorm: LayerNorm,
    encoder: Module,
    layers: Vec<Rc<Layer>>,
    post_layernorm: LayerNorm,
    options: RunOptions,
}

impl ClipVisionModel {
    pub(in crate::family) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let embeddings = Embeddings::new(&at.at("embeddings"), config, options);
        let pre_layrnorm = config.layers.norm(&at.at("pre_layrnorm"));
        let encoder = at.at("encoder");
        Self {
            module,
            embeddings,
            pre_layrnorm,
            encoder: encoder.module(),
            layers: config.layers.layers(&encoder, options),
            post_layernorm: config.layers.norm(&at.at("post_layernorm")),
            options: options.clone(),
        }
    }

    /// Without them: the last layer's states, and what is pooled of them.
    pub(in crate::family) fn forward_last(&self, pixel_values: &Tensor) -> [Tensor; 2] {
        let _module = self.module.enter();
        let mut hidden_states = self.embeddings.forward(pixel_values);
        hidden_states = self.pre_layrnorm.forward(&hidden_states);
        let last_hidden_state = {
            let _encoder = self.encoder.enter();
            run_layers(&self.layers, &hidden_states, |_| LayerCall::default(), &self.options)
        };
        let pooled_output = self.post_layernorm.forward(&last_hidden_state.select(1, 0));
        [last_hidden_state, pooled_output]
    }

    /// The states before all layers and after each, and what is pooled of the last.
    pub(in crate::family) fn forward(&self, pixel_values: &Tensor) -> (Vec<Tensor>, Tensor) {
        let _module = self.module.enter();
        let mut inputs_embeds = self.embeddings.forward(pixel_values);
        inputs_embeds = self.pre_layrnorm.forward(&inputs_embeds);
        let hidden_states = self.run_encoder(inputs_embeds);
        let last_hidden_state = hidden_states[hidden_states.len() - 1].clone();
        let pooled_output = self.post_layernorm.forward(&last_hidden_state.select(1, 0));
        (hidden_states, pooled_output)
    }

    fn run_encoder(&self, inputs_embeds: Tensor) -> Vec<Tensor> {
        let _encoder = self.encoder.enter();
        let mut all = vec![inputs_embeds];
        for layer in &self.layers {
            let hidden_states = &all[all.len() - 1];
            let next = if self.options.checkpoints_layers() {
                let layer = Rc::clone(layer);
                checkpoint(hidden_states, move |states| {
                    layer.module().call(states, |states| layer.forward(states, &LayerCall::default()))
                })
            } else {
                layer.module().call(hidden_states, |states| layer.forward(states, &LayerCall::default()))
            };
            all.push(next);
        }
        all
    }
}
