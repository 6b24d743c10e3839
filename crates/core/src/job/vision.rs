//! [`Vision`]: the tower in front of a language model, and what images it is given.

use serde_json::Value;

use super::image::{Image, sides_of};
use super::{FieldError, Fields, ModelSpec};
use crate::dtype::DType;
use crate::model_type::{ImageForm, ImageTokens, default_tower, has_token_types, vision_form};

/// The tower of a multimodal model, and the images of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Vision {
    /// The multimodal model's type.
    pub model_type: String,
    /// Its whole config.
    pub config: Fields,
    /// How many images stand in a row.
    pub images_per_row: u64,
    /// Height and width of each in pixels, as the tower is given it.
    pub sides: [u64; 2],
    /// Whether the tower stays as it is.
    pub freezes_tower: bool,
    /// Whether what projects its states to the language model's width stays as it is.
    pub freezes_projector: bool,
}

/// A tensor that a processor makes of the images of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisionInput {
    pub what: VisionTensor,
    pub sizes: Vec<u64>,
    pub dtype: DType,
}

/// What such a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisionTensor {
    PixelValues,
    /// `image_grid_thw`: time, height and width of each image in patches.
    Grid,
    /// `token_type_ids`, `mm_token_type_ids`: whether a token stands for a part of an image.
    TokenTypes,
}

/// Height and width of a grid, and what is taken together in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatchGrid {
    pub height: u64,
    pub width: u64,
    /// Patches on a side of the square that becomes one token.
    pub merge: u64,
    /// Numbers of a patch.
    pub numbers: u64,
}

impl PatchGrid {
    pub(crate) const fn patches(&self) -> u64 {
        self.height * self.width
    }

    pub(crate) const fn tokens(&self) -> u64 {
        (self.height / self.merge) * (self.width / self.merge)
    }
}

impl Vision {
    /// Whether the tower takes images of any size.
    pub(crate) fn takes_any_size(&self) -> bool {
        matches!(vision_form(&self.model_type), Some(ImageForm::Grids(_) | ImageForm::Sized(_)))
    }

    /// The tower's own config.
    ///
    /// # Errors
    /// When it is no object.
    pub(crate) fn tower(&self) -> Result<Fields, FieldError> {
        Ok(match self.config.object("vision_config")? {
            Some(tower) => tower,
            None => Fields(default_tower(&self.model_type).map(|(key, size)| (key.to_owned(), size.into())).collect()),
        })
    }

    /// Whether the config says no tower, and its class has one for that.
    pub(crate) fn has_default_tower(&self) -> bool {
        self.config.get("vision_config").is_none() && default_tower(&self.model_type).next().is_some()
    }

    /// The images of a tower that takes one size.
    ///
    /// # Errors
    /// When its config says none.
    pub(crate) fn image(&self, tower: &Fields) -> Result<Image, FieldError> {
        let default = match vision_form(&self.model_type) {
            Some(ImageForm::Patches(default, _)) => default,
            _ => return Err(FieldError::new("image_size", "is missing")),
        };
        Image::read(tower, default)
    }

    /// Pixels on the side of a patch, where the tower takes images of any size.
    ///
    /// # Errors
    /// When the config says no side.
    pub(crate) fn patch_side(&self, tower: &Fields) -> Result<u64, FieldError> {
        match vision_form(&self.model_type) {
            Some(ImageForm::Grids(default)) => tower.size("patch_size", default.patch),
            Some(ImageForm::Sized(patch)) => tower.size("patch_size", patch),
            _ => Ok(1),
        }
    }

    /// Its images as patches of a list, where the tower takes images of any size.
    ///
    /// # Errors
    /// When the config's sizes are none.
    pub(crate) fn grid(&self) -> Result<Option<PatchGrid>, FieldError> {
        let Some(ImageForm::Grids(default)) = vision_form(&self.model_type) else { return Ok(None) };
        let tower = self.tower()?;
        let (patch, merge) = (tower.size("patch_size", default.patch)?, tower.size("spatial_merge_size", 2)?);
        let temporal = tower.size("temporal_patch_size", 2)?;
        let channels = tower.size(default.channels_key, 3)?;
        let [height, width] = self.sides.map(|side| side / patch);
        let numbers = [temporal, patch, patch].iter().try_fold(channels, |product, size| product.checked_mul(*size));
        let numbers = numbers.filter(|numbers| *numbers < 1 << 40);
        let numbers = numbers.ok_or_else(|| FieldError::new("patch_size", "is beyond any model"))?;
        Ok(Some(PatchGrid { height, width, merge, numbers }))
    }

    /// Numbers of a patch.
    pub(crate) fn patch_numbers(&self) -> Option<u64> {
        if let Some(grid) = self.grid().ok()? {
            return Some(grid.numbers);
        }
        let tower = self.tower().ok()?;
        if self.takes_any_size() {
            let patch = self.patch_side(&tower).ok()?;
            return patch.checked_mul(patch)?.checked_mul(tower.size("num_channels", 3).ok()?);
        }
        let image = self.image(&tower).ok()?;
        Some(image.channels * image.patch[0] * image.patch[1])
    }

    /// Patches of the images of so many rows; `None` beyond any number.
    pub(crate) fn patches_of(&self, rows: u64) -> Option<u64> {
        let tower = self.tower().ok()?;
        let each = match self.grid().ok()? {
            Some(grid) => grid.height.checked_mul(grid.width)?,
            None if self.takes_any_size() => {
                let patch = self.patch_side(&tower).ok()?;
                (self.sides[0] / patch) * (self.sides[1] / patch)
            }
            None => self.image(&tower).ok()?.patches(),
        };
        rows.checked_mul(self.images_per_row)?.checked_mul(each)
    }

    /// Patches on the side of a square that becomes one token.
    ///
    /// # Errors
    /// When the config says no such side.
    pub(crate) fn shuffled_side(&self) -> Result<u64, FieldError> {
        let Some(ImageForm::Patches(_, ImageTokens::Shuffled(key, ratio))) = vision_form(&self.model_type) else {
            return Ok(1);
        };
        let side = 1.0 / self.config.positive(key, ratio)?;
        if !(1.0..=64.0).contains(&side) || side.fract() != 0.0 {
            return Err(FieldError::new(key, "must be one over a whole number"));
        }
        Ok(side as u64)
    }

    /// Tokens that an image takes the place of.
    ///
    /// # Errors
    /// When the config's sizes are none.
    pub fn tokens(&self) -> Result<u64, FieldError> {
        match vision_form(&self.model_type) {
            Some(ImageForm::Patches(_, ImageTokens::Said(key, default))) => self.config.size(key, default),
            Some(ImageForm::Patches(default, tokens)) => {
                let patch = sides_of(&self.tower()?, "patch_size", default.patch)?;
                let shuffled = self.shuffled_side()?;
                let class = matches!(tokens, ImageTokens::Selected)
                    && self.config.text("vision_feature_select_strategy", "default")? == "full";
                let [height, width] = [0, 1].map(|at| self.sides[at] / patch[at] / shuffled);
                Ok(height * width + u64::from(class))
            }
            Some(ImageForm::Grids(_)) => Ok(self.grid()?.map_or(0, |grid| grid.tokens())),
            Some(ImageForm::Sized(_)) => {
                let side = self.patch_side(&self.tower()?)? * self.config.size("spatial_merge_size", 2)?;
                Ok((self.sides[0] / side) * (self.sides[1] / side))
            }
            None => Ok(0),
        }
    }

    /// What the processor makes of the images of so many rows of `tokens`, in the order in which it comes to the device.
    ///
    /// # Errors
    /// When the config's sizes are none.
    pub(crate) fn inputs(&self, rows: u64, tokens: u64) -> Result<Vec<VisionInput>, FieldError> {
        let images = rows.saturating_mul(self.images_per_row);
        let input = |what, sizes: &[u64], dtype| VisionInput { what, sizes: sizes.to_vec(), dtype };
        let types = input(VisionTensor::TokenTypes, &[rows, tokens], DType::Int64);
        if let Some(grid) = self.grid()? {
            let patches = images.saturating_mul(grid.patches());
            return Ok(vec![
                types,
                input(VisionTensor::PixelValues, &[patches, grid.numbers], DType::Float32),
                input(VisionTensor::Grid, &[images, 3], DType::Int64),
            ]);
        }
        let channels = self.tower()?.size("num_channels", 3)?;
        let sizes = [images, channels, self.sides[0], self.sides[1]];
        let pixels = input(VisionTensor::PixelValues, &sizes, DType::Float32);
        if matches!(vision_form(&self.model_type), Some(ImageForm::Sized(_))) {
            return Ok(vec![pixels, input(VisionTensor::Grid, &[images, 2], DType::Int64)]);
        }
        Ok(if has_token_types(&self.model_type) { vec![types, pixels] } else { vec![pixels] })
    }

    /// Height and width of images as the tower takes them: those of its config, or of `asked` what a processor makes.
    ///
    /// # Errors
    /// When the config says other images than were asked for, or none were asked for and it says none.
    pub(crate) fn read_sides(&self, asked: Option<[u64; 2]>) -> Result<[u64; 2], FieldError> {
        let tower = self.tower()?;
        match vision_form(&self.model_type) {
            Some(ImageForm::Patches(default, _)) => sides_of(&tower, "image_size", default.image),
            Some(ImageForm::Grids(default)) => {
                let factor = tower.size("patch_size", default.patch)? * tower.size("spatial_merge_size", 2)?;
                let asked = asked.ok_or_else(|| FieldError::new("image_size", "is missing"))?;
                Ok(asked.map(|side| rounded_to(side, factor)))
            }
            Some(ImageForm::Sized(patch)) => {
                let factor = tower.size("patch_size", patch)? * self.config.size("spatial_merge_size", 2)?;
                let asked = asked.ok_or_else(|| FieldError::new("image_size", "is missing"))?;
                Ok(asked.map(|side| side.div_ceil(factor) * factor))
            }
            None => Err(FieldError::new("vision_config", "no tower of this model type is simulated")),
        }
    }
}

impl ModelSpec {
    /// Puts its tower in front of it, for so many images in a row of about `asked` pixels. Without one nothing changes.
    ///
    /// # Errors
    /// When the tower's config says no images.
    pub fn see_images(&mut self, images_per_row: u64, asked: Option<[u64; 2]>) -> Result<(), FieldError> {
        let Some(left_out) = &self.beside.left_out else { return Ok(()) };
        let mut vision = Vision {
            model_type: left_out.model_type.clone(),
            config: left_out.config.clone(),
            images_per_row,
            sides: [1, 1],
            freezes_tower: false,
            freezes_projector: false,
        };
        vision.sides = vision.read_sides(asked)?;
        self.beside.left_out = None;
        self.beside.vision = Some(vision);
        Ok(())
    }
}

/// `round(side / factor) * factor`, half to even as Python does, and one at least.
const fn rounded_to(side: u64, factor: u64) -> u64 {
    let (whole, rest) = (side / factor, side % factor);
    let up = rest * 2 > factor || (rest * 2 == factor && whole % 2 == 1);
    let rounded = whole + up as u64;
    (if rounded == 0 { 1 } else { rounded }) * factor
}

/// `448`, or `448x672` for height and width.
///
/// # Errors
/// When it is neither.
pub(crate) fn read_image_size(value: &Value) -> Option<[u64; 2]> {
    if let Some(side) = value.as_u64() {
        return Some([side, side]);
    }
    let text = value.as_str()?;
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    Some([height.trim().parse().ok()?, width.trim().parse().ok()?])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_side_is_rounded_as_the_processor_rounds_it() {
        let sides = [448, 461, 462, 463, 490, 13].map(|side| rounded_to(side, 28));
        assert_eq!(sides, [448, 448, 448, 476, 504, 28]);
        assert_eq!(read_image_size(&json!("448x672")), Some([448, 672]));
        assert_eq!(read_image_size(&json!(336)), Some([336, 336]));
        assert_eq!(read_image_size(&json!("336")), Some([336, 336]));
        assert_eq!(read_image_size(&json!("large")), None);
    }
}
