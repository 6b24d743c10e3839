//! What trainers' configs say of images: a row has as many as its data has, which no config tells, so that these keys act once
//! `images_per_row` says it.

use serde_json::Value;
use tonnage_core::job::keys;

use crate::facts::Facts;
use crate::rule::{Became, Said};
use crate::tree::is_on;

pub const UNTOLD: &str =
    "only models of images, videos or sounds read it: how many tokens they become is not told by this";
const ALL: &str = "only models with towers have one, and only where images_per_row says that rows have images";

/// A part of a model with a tower stays as it is.
pub fn freeze_tower(facts: &mut Facts, said: &Said<'_>) -> Became {
    set_switch(facts, keys::FREEZE_VISION_TOWER, is_on(said.value))
}

pub fn freeze_projector(facts: &mut Facts, said: &Said<'_>) -> Became {
    set_switch(facts, keys::FREEZE_MULTI_MODAL_PROJECTOR, is_on(said.value))
}

/// Unsloth's `finetune_vision_layers`.
pub fn finetune_vision(facts: &mut Facts, said: &Said<'_>) -> Became {
    set_switch(facts, keys::FREEZE_MULTI_MODAL_PROJECTOR, !is_on(said.value));
    set_switch(facts, keys::FREEZE_VISION_TOWER, !is_on(said.value))
}

fn set_switch(facts: &mut Facts, key: &'static str, value: bool) -> Became {
    facts.imply_key(key, value, "what the config says of the model's tower");
    Became::NoMemory(ALL)
}

/// LLaMA-Factory's `image_max_pixels`: the largest square of so many.
pub fn max_pixels(facts: &mut Facts, said: &Said<'_>) -> Became {
    let Some(side) = said.value.as_u64().map(u64::isqrt) else { return Became::NotUnderstood };
    facts.imply_key(keys::IMAGE_SIZE, side.max(1), "the largest image that the config's pixels allow");
    Became::NoMemory("the largest image, where images_per_row says that rows have images")
}

/// Axolotl's `image_size`: a side, or width and height.
pub fn image_size(facts: &mut Facts, said: &Said<'_>) -> Became {
    let size = match said.value {
        Value::Array(sides) => match sides.iter().map(Value::as_u64).collect::<Option<Vec<_>>>().as_deref() {
            Some([width, height]) => format!("{height}x{width}"),
            _ => return Became::NotUnderstood,
        },
        side => match side.as_u64() {
            Some(side) => side.to_string(),
            None => return Became::NotUnderstood,
        },
    };
    facts.imply_key(keys::IMAGE_SIZE, size, "the config's image_size");
    Became::NoMemory("the size of images, where images_per_row says that rows have some")
}

/// LLaMA-Factory's tower and projector are frozen unless it is told otherwise, and its images shrink to 768 * 768 pixels
/// (hparams/model_args.py).
pub fn imply_of_factory(facts: &mut Facts) {
    facts.imply_key(keys::FREEZE_VISION_TOWER, true, "LLaMA-Factory's freeze_vision_tower");
    facts.imply_key(keys::FREEZE_MULTI_MODAL_PROJECTOR, true, "LLaMA-Factory's freeze_multi_modal_projector");
    facts.imply_key(keys::IMAGE_SIZE, 768, "LLaMA-Factory's image_max_pixels");
}
