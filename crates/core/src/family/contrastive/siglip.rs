//! SigLIP, and SigLIP 2 of one resolution, which is the same class (transformers/models/siglip/modeling_siglip.py, `SiglipModel`).

use std::rc::Rc;

use super::pixel_values;
use super::pooling::PoolingHead;
use super::text::{TextConfig, TextModel};
use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::family::vision::clip::ClipConfig;
use crate::family::vision::clip_layer::Kind;
use crate::family::vision::siglip::SiglipVisionModel;
use crate::job::{FieldError, ModelSpec, PairTower};
use crate::model::family::bounds::bound_weights;
use crate::model::family::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::Linear;
use crate::op::eye;
use crate::tensor::Tensor;

pub(super) const FAMILY: Family = Family { model_types: &["siglip"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let (text, tower) = (model.pair_tower(PairTower::Text)?, model.pair_tower(PairTower::Vision)?);
    let image = model.pair_image()?.ok_or_else(|| FieldError::new("vision_config", "is missing"))?;
    let vision = ClipConfig::read(&tower, image, Kind::Siglip)?;
    let config = TextConfig::read(&text, Kind::Siglip)?;
    let projection_size = text.size("projection_size", config.layers.hidden_size)?;
    bound_weights(&[("projection_size", [projection_size, config.layers.hidden_size], 1)])?;
    if !tower.flag("vision_use_head", true)? {
        let problem = "without its head the tower makes no state of a whole image to compare texts with";
        return Err(FieldError::new("vision_use_head", problem).into());
    }
    if projection_size != vision.layers.hidden_size {
        let problem = format!("texts of {projection_size} numbers meet images of {}", vision.layers.hidden_size);
        return Err(FieldError::new("projection_size", problem).into());
    }
    Ok(Box::new(SiglipModel::new(at, (&config, projection_size), &vision, options)))
}

struct SiglipModel {
    module: Module,
    text_model: TextModel,
    text_head: Rc<Linear>,
    vision_model: SiglipVisionModel,
    vision_head: PoolingHead,
    logit_scale: Tensor,
    logit_bias: Tensor,
}

impl SiglipModel {
    fn new(
        at: &Builder,
        (text, projection_size): (&TextConfig, u64),
        vision: &ClipConfig,
        options: &RunOptions,
    ) -> Self {
        let (module, slot) = (at.module(), at.next_slot());
        let (text_place, vision_place) = (at.at("text_model"), at.at("vision_model"));
        let text_model = TextModel::new(&text_place, text, options);
        let text_head = Linear::new(&text_place.at("head"), text.layers.hidden_size, projection_size, true);
        let vision_model = SiglipVisionModel::new(&vision_place, vision, options);
        let vision_head = PoolingHead::new(&vision_place.at("head"), &vision.layers);
        let logit_scale = at.parameter_listed_at(slot, "logit_scale", &[1], Init::Zeros);
        let logit_bias = at.parameter_listed_at(slot + 1, "logit_bias", &[1], Init::Zeros);
        let text_head = Rc::new(text_head);
        Self { module, text_model, text_head, vision_model, vision_head, logit_scale, logit_bias }
    }

    /// Texts' and images' states: of all tokens, and one of each.
    fn encode(&self, call: &ForwardCall) -> [[Tensor; 2]; 2] {
        let (vision_states, image_embeds) =
            self.vision_model.forward_with(&pixel_values(call), |states| self.vision_head.forward(states));
        let text = self.text_model.forward(call, |states| {
            let pooled_output = states.select(1, states.size(1).saturating_sub(1));
            self.text_head.forward(&pooled_output)
        });
        [[text.last_hidden_state, text.pooler_output], [vision_states, image_embeds]]
    }
}

impl Model for SiglipModel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let [text, vision] = self.encode(call);
        let [image_embeds, text_embeds] = [&vision[1], &text[1]].map(of_length_one);
        let mut logits_per_text = text_embeds.matmul(&image_embeds.t());
        logits_per_text = {
            let scaled = {
                let scale = self.logit_scale.exp();
                &logits_per_text * &scale
            };
            &scaled + &self.logit_bias
        };
        let logits_per_image = logits_per_text.t();
        let loss = sigmoid_loss(&logits_per_text);
        let more = [logits_per_text, text_embeds, image_embeds].into_iter().chain(text).chain(vision).collect();
        ModelOutput { loss: Some(loss), logits: Some(logits_per_image), cache: None, router: None, more }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        let [[states, _], _] = self.encode(call);
        states
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.text_head)
    }
}

/// `embeds / embeds.norm(p=2, dim=-1, keepdim=True)`
fn of_length_one(embeds: &Tensor) -> Tensor {
    embeds.div(&embeds.vector_norm())
}

/// Each pair is right or wrong by itself.
fn sigmoid_loss(logits_per_text: &Tensor) -> Tensor {
    let eye = eye(logits_per_text.context(), logits_per_text.size(0), DType::Float32);
    let m1_diag1 = {
        let all_wrong = logits_per_text.ones_like().neg();
        let twice = eye.mul_scalar(2.0);
        &all_wrong + &twice
    };
    let loglik = {
        let signed = &m1_diag1 * logits_per_text;
        signed.log_sigmoid()
    };
    let nll = loglik.sum_each().neg();
    nll.mean()
}
