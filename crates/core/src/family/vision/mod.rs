//! Towers that see images, in front of the language models of `model::family`; a file a family, which is only simulated.

mod clip;
mod grid_positions;
mod grids;
mod llava;
mod merger;
mod places;
mod qwen2_5_vl;
mod qwen2_vl;

use std::rc::Rc;

use crate::building::BuildError;
use crate::job::{ModelSpec, Vision};
use crate::model::family::{BuildLanguageModel, TowerConfig, qwen2};

/// Reads the config of a tower.
type ReadTower = fn(&Vision) -> Result<Rc<dyn TowerConfig>, BuildError>;

/// A multimodal model.
struct VisionModel {
    model_type: &'static str,
    read_tower: ReadTower,
    /// What builds the language model, where that is not the family of its type.
    language_model: Option<BuildLanguageModel>,
}

const QWEN_TEXT: Option<BuildLanguageModel> = Some(qwen2::build_behind_tower);

const MODELS: &[VisionModel] = &[
    VisionModel { model_type: "llava", read_tower: llava::read_tower, language_model: None },
    VisionModel { model_type: "qwen2_5_vl", read_tower: qwen2_5_vl::read_tower, language_model: QWEN_TEXT },
    VisionModel { model_type: "qwen2_vl", read_tower: qwen2_vl::read_tower, language_model: QWEN_TEXT },
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

/// What builds the language model behind the tower, where that is not the family of its type.
pub(super) fn language_model_of(model: &ModelSpec) -> Option<BuildLanguageModel> {
    vision_model(model)?.0.language_model
}
