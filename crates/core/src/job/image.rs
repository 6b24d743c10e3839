//! [`Image`]: what a row is to a model of images, as its config says.

use serde_json::Value;

use super::{FieldError, Fields};
use crate::model_type::ImageSizes;

/// The longest side: what is computed of an image stays a `u64`.
const MAX_SIDE: u64 = 1 << 16;
const MAX_CHANNELS: u64 = 1 << 12;

/// The images of a model, and the patches that it takes them apart into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Numbers of a pixel.
    pub channels: u64,
    /// Height and width in pixels.
    pub sides: [u64; 2],
    /// Height and width of a patch in pixels.
    pub patch: [u64; 2],
}

impl Image {
    pub(super) fn read(fields: &Fields, default: ImageSizes) -> Result<Self, FieldError> {
        let image = Self {
            channels: fields.bounded("num_channels", 3, MAX_CHANNELS)?,
            sides: sides_of(fields, "image_size", default.image)?,
            patch: sides_of(fields, "patch_size", default.patch)?,
        };
        if image.patches() == 0 {
            let problem = format!("a patch of {:?} pixels is larger than the image of {:?}", image.patch, image.sides);
            return Err(FieldError::new("patch_size", problem));
        }
        Ok(image)
    }

    /// How many patches it has; what is left at its edges is none.
    pub const fn patches(&self) -> u64 {
        (self.sides[0] / self.patch[0]) * (self.sides[1] / self.patch[1])
    }

    /// What attention runs over: the patches, and before them a token for what is said of the whole image.
    pub const fn tokens(&self) -> u64 {
        self.patches() + 1
    }

    /// Numbers of an image.
    pub const fn numbers(&self) -> u64 {
        self.channels * self.sides[0] * self.sides[1]
    }
}

/// Height and width, of which configs say both or one for both.
pub(super) fn sides_of(fields: &Fields, key: &str, default: u64) -> Result<[u64; 2], FieldError> {
    let Some(Value::Array(both)) = fields.get(key) else {
        return fields.bounded(key, default, MAX_SIDE).map(|side| [side, side]);
    };
    let side = |at: usize| both.get(at).and_then(Value::as_u64).filter(|side| (1..=MAX_SIDE).contains(side));
    match (both.len(), side(0), side(1)) {
        (2, Some(height), Some(width)) => Ok([height, width]),
        _ => Err(FieldError::new(key, format!("must be a height and a width from 1 to {MAX_SIDE}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{JobSource, Task};

    fn read(config: Value) -> Result<Image, FieldError> {
        Image::read(&Fields(config.as_object().cloned().unwrap()), ImageSizes { image: 224, patch: 16 })
    }

    #[test]
    fn a_job_of_images_has_their_tokens_and_no_others() {
        let vit = JobSource::model("google/vit-base-patch16-224");
        let job = vit.resolve(&[]).unwrap().job;
        assert_eq!((job.task, job.seq_len, job.micro_batch_size), (Task::ImageClassification, 197, 8));
        assert_eq!(vit.clone().set("model.image_size", 384).resolve(&[]).unwrap().job.seq_len, 577);
        let refused = |key: &str, value: &str| vit.clone().set(key, value).resolve(&[]).unwrap_err();
        for (key, value, problem) in [
            ("seq_len", "128", "`seq_len` = 128: an image of 224 by 224 pixels is 197 tokens"),
            ("padded", "true", "`padded`: images are all of one size"),
            ("task", "causal_lm", "`vit` is no decoder"),
            ("task", "masked_lm", "`vit` has no masked-LM head"),
            ("task", "sequence_classification", "the rows of `vit` are images"),
        ] {
            let error = refused(key, value);
            assert!(error.problem.contains(problem), "{error}");
        }
        let text = JobSource::model("gpt2").set("task", "image_classification").resolve(&[]).unwrap_err();
        assert!(text.problem.contains("the rows of `gpt2` are no images"), "{text}");
    }

    #[test]
    fn an_image_has_as_many_tokens_as_patches_and_one() {
        assert_eq!(read(json!({})).unwrap().tokens(), 197);
        let wide = read(json!({"image_size": [100, 64], "patch_size": [16, 32], "num_channels": 1})).unwrap();
        assert_eq!((wide.patches(), wide.numbers()), (12, 6400));
        for (config, key) in [
            (json!({"image_size": 0}), "image_size"),
            (json!({"image_size": [64]}), "image_size"),
            (json!({"image_size": [64, 1_u64 << 40]}), "image_size"),
            (json!({"patch_size": 300}), "patch_size"),
            (json!({"num_channels": 1_u64 << 20}), "num_channels"),
        ] {
            assert_eq!(read(config.clone()).unwrap_err().key, key, "{config}");
        }
    }
}
