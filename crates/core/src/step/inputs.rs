//! What every task's batches are made of.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobSpec, ModelSpec, Task, VisionTensor};
use crate::model::family::Images;
use crate::op::full;
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

/// Token ids that were moved to the device.
pub(super) fn input_ids(context: &Rc<Context>, rows: u64, tokens: u64) -> Tensor {
    let _category = context.enter_category(Category::Input);
    full(context, "_to_copy.default", &[rows, tokens], DType::Int64)
}

/// Numbers of a row of a batch.
pub(super) fn row_numbers(job: &JobSpec) -> u64 {
    let recording = job.model.recording().ok().flatten().map(|[mels, frames]| mels * frames);
    let image = job.model.image().ok().flatten().map(|image| image.numbers());
    let pair = job.model.pair_image().ok().flatten().map(|image| image.numbers().saturating_add(job.seq_len));
    recording.or(image).or(pair).unwrap_or(job.seq_len)
}

/// What a batch of the job's model is made of: token ids, or the pixels of images.
pub(super) fn main_input(job: &JobSpec, context: &Rc<Context>, rows: u64) -> Tensor {
    if let Ok(Some([mels, frames])) = job.model.recording() {
        let _category = context.enter_category(Category::Input);
        // Without autocast frames are cast as weights are: a convolution takes no others.
        let dtype = job.precision.autocast_dtype().map_or(job.precision.weight_dtype(), |_| DType::Float32);
        return full(context, "_to_copy.default", &[rows, mels, frames], dtype);
    }
    let Ok(Some(image)) = job.model.image() else { return input_ids(context, rows, job.seq_len) };
    let _category = context.enter_category(Category::Input);
    let sizes = [rows, image.channels, image.sides[0], image.sides[1]];
    full(context, "_to_copy.default", &sizes, DType::Float32)
}

/// The images of so many pairs, where rows are images and their texts.
pub(super) fn pair_pixels(job: &JobSpec, context: &Rc<Context>, rows: u64) -> Option<Tensor> {
    let image = job.model.pair_image().ok().flatten()?;
    let sizes = [rows, image.channels, image.sides[0], image.sides[1]];
    Some(full(context, "_to_copy.default", &sizes, DType::Float32))
}

/// What a processor makes of the images of so many rows, each tensor in the place of the batch's before.
pub(super) fn renew_images(job: &JobSpec, context: &Rc<Context>, rows: u64, images: &mut Option<Images>) {
    let _category = context.enter_category(Category::Input);
    if let Some(pixel_values) = pair_pixels(job, context, rows) {
        let before = images.get_or_insert_default().pixel_values.replace(pixel_values);
        drop(before);
    }
    let Some(vision) = &job.model.beside.vision else { return };
    for input in vision.inputs(rows, job.seq_len).unwrap_or_default() {
        let moved = full(context, "_to_copy.default", &input.sizes, input.dtype);
        let images = images.get_or_insert_default();
        let place = match input.what {
            VisionTensor::PixelValues => &mut images.pixel_values,
            VisionTensor::Grid => &mut images.grid_thw,
            VisionTensor::TokenTypes => &mut images.token_types,
        };
        let before = place.replace(moved);
        drop(before);
    }
}

/// The mask of a plain loop, which passes one where rows are padded.
pub(super) fn attention_mask(job: &JobSpec, context: &Rc<Context>, rows: u64) -> Option<Tensor> {
    (job.padded == Some(true)).then(|| input_ids(context, rows, job.seq_len))
}

/// Labels that were moved to the device: one a token of these rows or of those that are written, or one a row.
pub(super) fn labels(context: &Rc<Context>, task: &Task, sizes: [u64; 2]) -> Tensor {
    let _category = context.enter_category(Category::Input);
    let sizes = [sizes[0], task.target_len().unwrap_or(sizes[1])];
    let of_rows = matches!(task, Task::SequenceClassification | Task::ImageClassification);
    full(context, "_to_copy.default", if of_rows { &sizes[..1] } else { &sizes }, DType::Int64)
}

/// Whether the model's config, and so its generation config, names a begin token.
pub(super) fn has_begin_token(model: &ModelSpec) -> bool {
    model.has_begin_token()
}
