//! CLIP (transformers/models/clip/modeling_clip.py, `CLIPModel`).

use std::rc::Rc;

use super::text::{TextConfig, TextModel};
use super::{Pooled, pixel_values};
use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::family::vision::clip::{ClipConfig, ClipVisionModel};
use crate::family::vision::clip_layer::Kind;
use crate::job::{FieldError, ModelSpec, PairTower};
use crate::model::family::bounds::bound_weights;
use crate::model::family::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::Linear;
use crate::op::{Reduction, arange};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

pub(super) const FAMILY: Family = Family { model_types: &["clip"], build };

/// What `config.eos_token_id` was in published configs before it was put right: then the largest id is looked for.
const WRONG_END: u64 = 2;
const END: u64 = 49407;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let text = model.pair_tower(PairTower::Text)?;
    let image = model.pair_image()?.ok_or_else(|| FieldError::new("vision_config", "is missing"))?;
    let config = Config {
        ends_by_id: text.token("eos_token_id", Some(END)) != Some(WRONG_END),
        text: TextConfig::read(&text, Kind::Clip)?,
        vision: ClipConfig::read(&model.pair_tower(PairTower::Vision)?, image, Kind::Clip)?,
        projection_dim: model.config.size("projection_dim", 512)?,
    };
    let widths = [config.text.layers.hidden_size, config.vision.layers.hidden_size];
    bound_weights(&widths.map(|width| ("projection_dim", [config.projection_dim, width], 1)))?;
    Ok(Box::new(ClipModel::new(at, &config, options)))
}

struct Config {
    text: TextConfig,
    vision: ClipConfig,
    projection_dim: u64,
    /// Whether a text ends where the token that the config names stands, rather than at its largest id.
    ends_by_id: bool,
}

struct ClipModel {
    module: Module,
    text_model: TextModel,
    vision_model: ClipVisionModel,
    visual_projection: Linear,
    text_projection: Rc<Linear>,
    logit_scale: Tensor,
    ends_by_id: bool,
}

impl ClipModel {
    fn new(at: &Builder, config: &Config, options: &RunOptions) -> Self {
        let (module, slot) = (at.module(), at.next_slot());
        let text_model = TextModel::new(&at.at("text_model"), &config.text, options);
        let vision_model = ClipVisionModel::new(&at.at("vision_model"), &config.vision, options);
        let projection = |name, width| Linear::new(&at.at(name), width, config.projection_dim, false);
        let visual_projection = projection("visual_projection", config.vision.layers.hidden_size);
        let text_projection = Rc::new(projection("text_projection", config.text.layers.hidden_size));
        let logit_scale = at.parameter_listed_at(slot, "logit_scale", &[], Init::Ones);
        let ends_by_id = config.ends_by_id;
        Self { module, text_model, vision_model, visual_projection, text_projection, logit_scale, ends_by_id }
    }

    fn image_features(&self, call: &ForwardCall) -> Pooled {
        let [last_hidden_state, pooled_output] = self.vision_model.forward_last(&pixel_values(call));
        Pooled { last_hidden_state, pooler_output: self.visual_projection.forward(&pooled_output) }
    }

    fn text_features(&self, call: &ForwardCall) -> Pooled {
        let pool = |states: &Tensor| self.state_of_end(states, call.input_ids);
        let outputs = self.text_model.forward(call, pool);
        Pooled { pooler_output: self.text_projection.forward(&outputs.pooler_output), ..outputs }
    }

    fn state_of_end(&self, last_hidden_state: &Tensor, input_ids: &Tensor) -> Tensor {
        let rows = arange(last_hidden_state.context(), last_hidden_state.size(0));
        let ends = {
            let mut ids = input_ids.to(DType::Int32);
            if self.ends_by_id {
                ids = ids.eq_number(END as f64);
                ids = ids.to(DType::Int32);
            }
            ids.argmax_last()
        };
        last_hidden_state.at_places(&[&rows, &ends])
    }
}

impl Model for ClipModel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let vision_outputs = self.image_features(call);
        let text_outputs = self.text_features(call);
        let [image_embeds, text_embeds] =
            [&vision_outputs, &text_outputs].map(|outputs| of_length_one(&outputs.pooler_output));
        let mut logits_per_text = text_embeds.mm(&image_embeds.t());
        logits_per_text = {
            let scale = self.logit_scale.exp();
            &logits_per_text * &scale
        };
        let logits_per_image = logits_per_text.t();
        let loss = contrastive_losses(&logits_per_text);
        let [text, vision] =
            [text_outputs, vision_outputs].map(|outputs| [outputs.last_hidden_state, outputs.pooler_output]);
        let more = [logits_per_text, text_embeds, image_embeds].into_iter().chain(text).chain(vision).collect();
        ModelOutput { loss: Some(loss), logits: Some(logits_per_image), cache: None, router: None, more }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.text_features(call).last_hidden_state
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.text_projection)
    }
}

/// `embeds / _get_vector_norm(embeds)`
fn of_length_one(embeds: &Tensor) -> Tensor {
    let normed_tensor = {
        let square_tensor = embeds.pow_scalar(2.0);
        let sum_tensor = square_tensor.sum_last();
        sum_tensor.pow_scalar(0.5)
    };
    embeds.div(&normed_tensor)
}

/// `image_text_contrastive_loss`: each text's own image is the right one of the batch, and each image's own text.
fn contrastive_losses(similarity: &Tensor) -> Tensor {
    let caption_loss = contrastive_loss(similarity);
    let image_loss = contrastive_loss(&similarity.t());
    (&caption_loss + &image_loss).div_scalar(2.0)
}

fn contrastive_loss(logits: &Tensor) -> Tensor {
    let context = logits.context();
    let target = arange(context, logits.size(0));
    context.phase(PhaseKind::Loss);
    let loss = logits.cross_entropy(&target, Reduction::Mean);
    context.phase(PhaseKind::ForwardTail);
    loss
}
