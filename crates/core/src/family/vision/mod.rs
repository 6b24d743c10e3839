//! Towers that see images, in front of the language models of `model::family`; a file a family, which is only simulated.

mod blocks;
pub(super) mod clip;
pub(super) mod clip_layer;
mod gemma3;
mod grid_positions;
mod grids;
mod internvl;
mod interpolation;
mod linear_pair;
mod llava;
mod merger;
mod mistral3;
mod paligemma;
mod pixtral;
mod places;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;
pub(super) mod siglip;

use std::cell::Cell;
use std::rc::Rc;

use crate::building::{BuildError, Builder};
use crate::job::{JobError, JobErrorKind, ModelSpec, Vision, keys};
use crate::model::family::{BuildLanguageModel, RunOptions, Tower, TowerConfig, gemma_tower, qwen2};

/// Reads the config of a tower.
type ReadTower = fn(&Vision) -> Result<Rc<dyn TowerConfig>, BuildError>;

/// A multimodal model.
struct VisionModel {
    model_type: &'static str,
    read_tower: ReadTower,
    /// What builds the language model, where that is not the family of its type.
    language_model: Option<BuildLanguageModel>,
}

const QWEN3_TEXT: Option<BuildLanguageModel> = Some(qwen2::build_behind_deepstack);
const QWEN_TEXT: Option<BuildLanguageModel> = Some(qwen2::build_behind_tower);

const MODELS: &[VisionModel] = &[
    VisionModel { model_type: "gemma3", read_tower: gemma3::read_tower, language_model: None },
    VisionModel { model_type: "internvl", read_tower: internvl::read_tower, language_model: None },
    VisionModel { model_type: "llava", read_tower: llava::read_tower, language_model: None },
    VisionModel { model_type: "mistral3", read_tower: mistral3::read_tower, language_model: None },
    VisionModel {
        model_type: "paligemma",
        read_tower: paligemma::read_tower,
        language_model: Some(gemma_tower::build_behind_tower),
    },
    VisionModel { model_type: "qwen2_5_vl", read_tower: qwen2_5_vl::read_tower, language_model: QWEN_TEXT },
    VisionModel { model_type: "qwen2_vl", read_tower: qwen2_vl::read_tower, language_model: QWEN_TEXT },
    VisionModel { model_type: "qwen3_vl", read_tower: qwen3_vl::read_tower, language_model: QWEN3_TEXT },
    VisionModel { model_type: "qwen3_vl_moe", read_tower: qwen3_vl::read_tower, language_model: None },
];

fn vision_model(model: &ModelSpec) -> Option<(&'static VisionModel, &Vision)> {
    let vision = model.beside.vision.as_ref()?;
    Some((MODELS.iter().find(|known| known.model_type == vision.model_type)?, vision))
}

/// What stands in front of the model.
///
/// # Errors
/// When its config is none that it can be built from.
pub(super) fn tower_of(model: &ModelSpec) -> Result<Option<Rc<dyn TowerConfig>>, BuildError> {
    vision_model(model).map(|(known, vision)| (known.read_tower)(vision)).transpose()
}

/// A tower's config that notes whether a language model put it in front of itself.
#[derive(Debug)]
pub(super) struct Watched {
    config: Rc<dyn TowerConfig>,
    is_built: Cell<bool>,
}

impl Watched {
    pub(super) fn new(config: Rc<dyn TowerConfig>) -> Self {
        Self { config, is_built: Cell::new(false) }
    }

    /// Refuses a language model that is never told of its tower.
    pub(super) fn check(&self, model: &ModelSpec) -> Result<(), JobError> {
        if self.is_built.get() {
            return Ok(());
        }
        let problem =
            format!("`{}`: a tower in front of `{}` is not simulated", keys::IMAGES_PER_ROW, model.model_type);
        Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::IMAGES_PER_ROW])
            .hint("without it the language model alone is estimated, and not said to fit")
            .or_rehearse())
    }
}

impl TowerConfig for Watched {
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower> {
        self.is_built.set(true);
        self.config.build_tower(at, options, width)
    }
}

/// What builds the language model behind the tower, where that is not the family of its type.
pub(super) fn language_model_of(model: &ModelSpec) -> Option<BuildLanguageModel> {
    vision_model(model)?.0.language_model
}
