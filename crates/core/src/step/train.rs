//! The training step: forward, loss, backward for each micro-batch, then clipping, the optimizer and `zero_grad`.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::job::{JobSpec, LossKernel};
use crate::model::family::{ForwardCall, Images, ModelOutput};
use crate::model_type::ModelKind;
use crate::optimizer::{Average, GradScaler, Optimizer, step_in_backward};
use crate::parallel::Wrapper;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::inputs::{attention_mask, labels, main_input, renew_images};
use super::offload::Offload;
use super::repeat::{Pass, RecordedPasses};
use super::repetition::Repetition;
use super::settled::Settled;
use super::shared_tokens::{SharedRows, share_rows};

/// Python variables that live from one step to the next.
#[derive(Default)]
struct Variables {
    ids: Option<Tensor>,
    shared: Option<SharedRows>,
    mask: Option<Tensor>,
    labels: Option<Tensor>,
    images: Option<Images>,
    loss: Option<Tensor>,
    outputs: Option<ModelOutput>,
    /// Losses whose backward has not run, where several passes stand open.
    open: VecDeque<Tensor>,
}

/// What scales a loss, and what may have a backward pass of its own.
type Steps<'a> = (Option<&'a mut GradScaler>, &'a mut dyn Optimizer);

/// Trains; what only repeats is left out of a long job.
pub(super) fn train_loop(
    job: &JobSpec,
    context: &Rc<Context>,
    wrapper: &dyn Wrapper,
    mut average: Option<Average>,
) -> Repetition {
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut optimizer = optimizer_of(job, wrapper);
    let mut scaler = job.precision.scales_loss().then(|| GradScaler::new(context));
    let mut variables = Variables::default();
    let steps_in_backward = job.optimizer_in_backward || job.optimizer.fuses_backward();
    let mut passes = RecordedPasses::new(context, wrapper, job.simulated_offload().is_some() || steps_in_backward);
    let offload = Offload::of(job, context);
    let mut settled = Settled::new(job, context);
    for step in 1..=job.steps {
        if !settled.begin_next(&mut run, (step, u64::from(job.steps - step + 1))) {
            break;
        }
        let mut begun = [context.phases(); 2];
        for pass in 1..=job.gradient_accumulation_steps {
            let left = job.gradient_accumulation_steps - pass;
            let leaves_out = settled.leaves_out_after(pass, left, wrapper.in_flight());
            let is_last = pass == job.gradient_accumulation_steps || leaves_out;
            wrapper.set_gradient_sync(is_last);
            begun = [begun[1], context.phases()];
            let mut running = passes.begin_pass();
            micro_step((job, &offload), &mut running, wrapper, (scaler.as_mut(), optimizer.as_mut()), &mut variables);
            passes.end_pass(running);
            if is_last {
                run.passes = run.passes.min(pass);
                // The passes that are left out do what the one before the last did.
                context.count_phases_again(begun[0]..begun[1], left);
                break;
            }
        }
        while let Some(loss) = variables.open.pop_front() {
            backward_pass(&mut Pass::unrecorded(context), wrapper, (scaler.as_mut(), optimizer.as_mut()), &loss);
        }
        update_parameters((job, context, wrapper), (scaler.as_mut(), optimizer.as_mut()));
        if let Some(average) = &mut average {
            average.update();
        }
        context.phase(PhaseKind::ZeroGrad);
        if job.zero_grad_set_to_none {
            wrapper.parameters().iter().for_each(|parameter| parameter.set_grad(None));
        }
    }
    context.end();
    settled.close(run)
}

/// Clipping, and the optimizer's step.
fn update_parameters(
    (job, context, wrapper): (&JobSpec, &Rc<Context>, &dyn Wrapper),
    (mut scaler, optimizer): Steps<'_>,
) {
    if job.clip_grad_norm.is_some() {
        context.phase(PhaseKind::Clip);
        if let Some(scaler) = &mut scaler {
            scaler.unscale();
        }
        wrapper.clip_grad_norm();
    }
    context.phase(PhaseKind::Optimizer);
    match scaler {
        Some(scaler) => {
            scaler.step(optimizer);
            scaler.update();
        }
        None => optimizer.step(),
    }
}

fn optimizer_of(job: &JobSpec, wrapper: &dyn Wrapper) -> Box<dyn Optimizer> {
    if job.optimizer_in_backward { step_in_backward(job, wrapper.parameters()) } else { wrapper.optimizer(job) }
}

fn micro_step(
    (job, offload): (&JobSpec, &Offload),
    running: &mut Pass,
    wrapper: &dyn Wrapper,
    steps: Steps<'_>,
    variables: &mut Variables,
) {
    let context = running.context();
    let _offload = offload.enter_pass();
    context.phase(PhaseKind::Input);
    let _frame = share_rows(job, context, &mut variables.shared);
    let shared = variables.shared.clone();
    let whole = || main_input(job, context, wrapper.rows(job.micro_batch_size));
    let ids = shared.as_ref().map_or_else(whole, |shared| shared.ids.clone());
    variables.ids = Some(ids.clone());
    variables.mask = attention_mask(job, context, wrapper.rows(job.micro_batch_size));
    let mask = variables.mask.clone();
    renew_images(job, context, wrapper.rows(job.micro_batch_size), &mut variables.images);
    let images = variables.images.clone();
    if shared.is_none() {
        renew_labels(job, context, wrapper, &mut variables.labels);
    }
    let labels = variables.labels.clone().unwrap_or_else(|| ids.clone());
    context.phase(PhaseKind::Forward);
    {
        let _offload = offload.enter_forward();
        let autocast = context.autocast(job.precision.autocast_dtype());
        let mut output = running.forward(|| {
            wrapper.forward(&ForwardCall {
                attention_mask: mask.as_ref(),
                labels: Some(&labels),
                shift_labels: shared.as_ref().map(|shared| &shared.shift_labels),
                position_ids: shared.as_ref().map(|shared| &shared.positions),
                cache: uses_cache(job).then(|| wrapper.new_cache()),
                logits_to_keep: job.logits.logits_to_keep,
                // Liger leaves the model's own loss in place outside training mode.
                fused_loss: job.logits.loss == LossKernel::Liger && job.train_mode,
                images: images.as_ref(),
                ..ForwardCall::new(&ids)
            })
        });
        let mut loss = output.loss.take();
        if job.logits.keep_outputs {
            output.loss = loss.clone();
            variables.outputs = Some(output);
        } else {
            drop(output);
        }
        variables.loss = loss.clone();
        loss = loss.map(|loss| wrapper.reduce_loss(loss));
        variables.loss = loss.clone();
        if job.gradient_accumulation_steps > 1 && wrapper.divides_loss() {
            loss = loss.map(|loss| loss.div_scalar(job.gradient_accumulation_steps as f64));
            variables.loss = loss;
        }
        running.run_part(|| drop(autocast));
    }
    drop((ids, mask, images, labels, shared));
    backward_in_turn(running, wrapper, steps, variables);
}

/// Labels in the place of those before, where they are no ids.
fn renew_labels(job: &JobSpec, context: &Rc<Context>, wrapper: &dyn Wrapper, before: &mut Option<Tensor>) {
    if job.own_labels || job.task.name().has_classes() || job.task.target_len().is_some() {
        *before = Some(labels(context, &job.task, [wrapper.rows(job.micro_batch_size), job.seq_len]));
    }
}

/// The backward pass of this loss, or of the oldest one where several passes stand open.
fn backward_in_turn(running: &mut Pass, wrapper: &dyn Wrapper, steps: Steps<'_>, variables: &mut Variables) {
    if wrapper.in_flight() > 1 {
        variables.open.extend(variables.loss.take());
        let is_full = variables.open.len() as u64 >= wrapper.in_flight();
        if let Some(loss) = is_full.then(|| variables.open.pop_front()).flatten() {
            backward_pass(running, wrapper, steps, &loss);
        }
    } else if let Some(loss) = &variables.loss {
        backward_pass(running, wrapper, steps, loss);
    }
}

/// Whether the model's forward pass has a cache that labels do not turn off: a decoder's, with any head.
pub(super) fn caches_keys(job: &JobSpec) -> bool {
    let kind = job.model.facts().kind;
    job.task.name().has_labels() && matches!(kind, ModelKind::Decoder | ModelKind::EncoderDecoder)
}

fn uses_cache(job: &JobSpec) -> bool {
    job.use_cache && caches_keys(job) && !(job.train_mode && job.turns_cache_off())
}

fn backward_pass(running: &mut Pass, wrapper: &dyn Wrapper, (scaler, optimizer): Steps<'_>, loss: &Tensor) {
    running.context().phase(PhaseKind::Backward);
    if let Some([_returned, scaled]) = wrapper.engine_loss(loss, true) {
        running.run_part(|| scaled.backward_of_engine());
        wrapper.end_backward();
        return;
    }
    match scaler {
        Some(scaler) => {
            let scaled = scaler.scale(loss);
            running.run_part(|| scaled.backward());
        }
        None => running.run_part(|| {
            if !optimizer.fused_backward(loss) {
                loss.backward();
            }
        }),
    }
}
