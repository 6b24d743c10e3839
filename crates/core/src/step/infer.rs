//! Passes without gradients: a forward pass, or `generate`.

use std::rc::Rc;

use crate::job::JobSpec;
use crate::model::family::{ForwardCall, Images, Model, ModelOutput};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::generate::{self, GenerateCall, GenerationConfig, SpecialTokens};
use super::inputs::{attention_mask, input_ids, main_input, renew_images};

/// Forward passes this many times: the second shows what the first leaves behind.
const PASSES: u32 = 2;

pub(super) fn inference_forward(job: &JobSpec, context: &Rc<Context>, model: &dyn Model) {
    let mut batch: Option<Batch> = None;
    let mut images = None;
    for pass in 1..=PASSES {
        context.begin_step(pass);
        context.phase(PhaseKind::Input);
        let input_ids = main_input(job, context, job.micro_batch_size);
        let attention_mask = attention_mask(job, context, job.micro_batch_size);
        renew_images(job, context, job.micro_batch_size, &mut images);
        let of_pass = Batch { input_ids, attention_mask, images: images.clone() };
        batch = Some(of_pass.clone());
        context.phase(PhaseKind::Forward);
        let output = forward(job, context, model, &of_pass);
        if pass == PASSES {
            context.end();
        } else {
            context.phase(PhaseKind::End);
        }
        drop(output);
    }
    drop(batch);
}

#[derive(Clone)]
struct Batch {
    input_ids: Tensor,
    attention_mask: Option<Tensor>,
    images: Option<Images>,
}

fn forward(job: &JobSpec, context: &Rc<Context>, model: &dyn Model, batch: &Batch) -> ModelOutput {
    let _no_grad = context.set_grad_enabled(false);
    let _autocast = context.autocast(job.precision.autocast_dtype());
    model.forward(&ForwardCall {
        attention_mask: batch.attention_mask.as_ref(),
        cache: job.use_cache.then(|| model.new_cache()),
        logits_to_keep: job.logits.logits_to_keep,
        images: batch.images.as_ref(),
        ..ForwardCall::new(&batch.input_ids)
    })
}

/// `generate` on one batch of prompts; the likeliest token is taken, and no token ends a row.
pub(super) fn generate_alone(job: &JobSpec, context: &Rc<Context>, model: &dyn Model, has_begin_token: bool) {
    context.begin_step(1);
    context.phase(PhaseKind::Input);
    let ids = input_ids(context, job.micro_batch_size, job.seq_len);
    let mask = {
        let _category = context.enter_category(Category::Input);
        ids.ones_like()
    };
    context.phase(PhaseKind::Generate);
    let config = GenerationConfig {
        max_new_tokens: job.max_new_tokens,
        sampling: None,
        special_tokens: SpecialTokens { begin: has_begin_token, end: false, pad: true },
        use_cache: true,
        output_scores: false,
    };
    let output = {
        let _no_grad = context.set_grad_enabled(false);
        let _autocast = context.autocast(job.precision.autocast_dtype());
        generate::generate(context, model, &GenerateCall { input_ids: &ids, attention_mask: &mask, config: &config })
    };
    context.end();
    drop(output);
}
