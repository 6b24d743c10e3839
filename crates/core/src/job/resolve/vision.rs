//! The images of a vision-language model, and which of its parts are trained.

use super::chooser::Chooser;
use crate::job::{JobError, JobErrorKind, ModelSpec, keys, read_image_size};
use crate::model_type::{vision_form, with_towers};

/// The keys that only images have a meaning for.
const OF_IMAGES: [&str; 3] = [keys::IMAGE_SIZE, keys::FREEZE_VISION_TOWER, keys::FREEZE_MULTI_MODAL_PROJECTOR];

/// Puts the model's tower in front of it, where rows have images.
pub(super) fn resolve_vision(choose: &mut Chooser<'_>, model: &mut ModelSpec) -> Result<(), JobError> {
    let images_per_row = if choose.is_said(keys::IMAGES_PER_ROW) { choose.take_size(keys::IMAGES_PER_ROW) } else { 0 };
    if images_per_row == 0 {
        // What a config of a trainer says of images holds for those that there are.
        return match OF_IMAGES.into_iter().find(|key| choose.is_said(key) && !choose.is_implied(key)) {
            Some(key) => Err(JobError::new(format!("`{key}`: rows have no images"))
                .about(&[key])
                .hint("set images_per_row, or leave it out")),
            None => Ok(()),
        };
    }
    has_tower(model)?;
    let is_implied = choose.is_implied(keys::IMAGE_SIZE);
    let asked = if choose.is_said(keys::IMAGE_SIZE) { Some(asked_size(choose)?) } else { None };
    model.see_images(images_per_row, asked).map_err(|error| {
        JobError::from(error).about(&[keys::IMAGE_SIZE]).hint("set image_size to what the processor makes of an image")
    })?;
    let mut freezes = |key| choose.is_said(key) && choose.take_switch(key);
    let (tower, projector) = (freezes(keys::FREEZE_VISION_TOWER), freezes(keys::FREEZE_MULTI_MODAL_PROJECTOR));
    let Some(vision) = &mut model.beside.vision else { return Ok(()) };
    (vision.freezes_tower, vision.freezes_projector) = (tower, projector);
    match asked.filter(|asked| !is_implied && !vision.takes_any_size() && *asked != vision.sides) {
        Some([height, width]) => {
            let sides = vision.sides;
            let problem = format!(
                "`image_size`: the tower of `{}` takes images of {} by {} pixels, not {height} by {width}",
                vision.model_type, sides[0], sides[1]
            );
            Err(JobError::new(problem)
                .about(&[keys::IMAGE_SIZE])
                .hint("leave it out: the processor resizes all images to that"))
        }
        None => Ok(()),
    }
}

/// Refuses a model whose images nobody simulates.
fn has_tower(model: &ModelSpec) -> Result<(), JobError> {
    let Some(left_out) = &model.beside.left_out else {
        let problem = format!("`{}`: `{}` has no tower that sees images", keys::IMAGES_PER_ROW, model.name);
        return Err(JobError::new(problem).about(&[keys::IMAGES_PER_ROW]).hint("leave it out"));
    };
    if vision_form(&left_out.model_type).is_none() {
        let problem = format!("`{}`: the tower of `{}` is not simulated", keys::IMAGES_PER_ROW, left_out.model_type);
        let known = with_towers().join(", ");
        let hint = format!("simulated are those of {known}; without it the language model alone is estimated");
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::IMAGES_PER_ROW])
            .hint(hint)
            .or_rehearse());
    }
    Ok(())
}

fn asked_size(choose: &mut Chooser<'_>) -> Result<[u64; 2], JobError> {
    let value = choose.fixed_value(keys::IMAGE_SIZE);
    let sides = read_image_size(&value).filter(|sides| sides.iter().all(|side| (1..=1 << 16).contains(side)));
    sides.ok_or_else(|| {
        let problem = format!("`{}`: {value} is no side in pixels, nor height x width", keys::IMAGE_SIZE);
        JobError::of_kind(JobErrorKind::Value, problem).about(&[keys::IMAGE_SIZE]).hint("write 448, or \"448x672\"")
    })
}
