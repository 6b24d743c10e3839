//! What a row is to a model of images and their texts: an image, as the tower of images takes it, and the tokens of its text.

use std::borrow::Cow;

use super::{FieldError, Fields, Image, ModelSpec, keys};

/// One of its two towers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairTower {
    Text,
    Vision,
}

impl PairTower {
    /// Where an outer config has its own; the second, which configs of OpenAI's have beside it, holds in its place.
    const fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Text => ["text_config", "text_config_dict"],
            Self::Vision => ["vision_config", "vision_config_dict"],
        }
    }
}

impl ModelSpec {
    /// The config of one of its towers: its class's defaults where there is none.
    ///
    /// # Errors
    /// When it is no object.
    pub(crate) fn pair_tower(&self, tower: PairTower) -> Result<Fields, FieldError> {
        let [usual, in_its_place] = tower.keys();
        let config = match self.config.object(in_its_place)? {
            Some(config) => Some(config),
            None => self.config.object(usual)?,
        };
        Ok(config.unwrap_or_else(|| Fields(serde_json::Map::new())))
    }

    /// The image of a row, where rows are images and their texts.
    ///
    /// # Errors
    /// When the tower's config says no image.
    pub(crate) fn pair_image(&self) -> Result<Option<Image>, FieldError> {
        let Some(default) = self.facts().pair_image else { return Ok(None) };
        let image = Image::read(&self.pair_tower(PairTower::Vision)?, default)?;
        if image.sides[0] != image.sides[1] || image.patch[0] != image.patch[1] {
            return Err(FieldError::unsimulated(keys::IMAGE_SIZE, "images and patches are simulated as squares"));
        }
        Ok(Some(image))
    }

    /// Where the fields of what reads tokens are.
    pub(crate) fn of_tokens(&self) -> Cow<'_, Fields> {
        match self.facts().pair_image {
            Some(_) => Cow::Owned(self.pair_tower(PairTower::Text).unwrap_or_default()),
            None => Cow::Borrowed(&self.config),
        }
    }
}
