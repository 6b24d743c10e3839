//! The training step: forward, loss, backward for each micro-batch, then clipping, the optimizer and `zero_grad`.

use std::rc::Rc;

use crate::family::{ForwardCall, Model, ModelOutput};
use crate::optimizer::{self, GradScaler};
use crate::spec::{JobSpec, LossKernel, Task};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::simulate::input_ids;

/// Python variables that live from one step to the next.
#[derive(Default)]
struct Variables {
    ids: Option<Tensor>,
    loss: Option<Tensor>,
    outputs: Option<ModelOutput>,
}

pub(super) fn train(job: &JobSpec, context: &Rc<Context>, model: &dyn Model, parameters: &[Tensor]) {
    let mut optimizer = optimizer::build(job.optimizer, parameters);
    let mut scaler = job.precision.scales_loss().then(|| GradScaler::new(context));
    let mut variables = Variables::default();
    for step in 1..=job.steps {
        context.begin_step(step);
        for _ in 0..job.gradient_accumulation_steps {
            micro_step(job, context, model, scaler.as_mut(), &mut variables);
        }
        if job.clip_grad_norm.is_some() {
            context.phase(PhaseKind::Clip);
            if let Some(scaler) = &mut scaler {
                scaler.unscale();
            }
            optimizer::clip_grad_norm(parameters);
        }
        context.phase(PhaseKind::Optimizer);
        match &mut scaler {
            Some(scaler) => {
                scaler.step(optimizer.as_mut());
                scaler.update();
            }
            None => optimizer.step(),
        }
        context.phase(PhaseKind::ZeroGrad);
        if job.zero_grad_set_to_none {
            parameters.iter().for_each(|parameter| parameter.set_grad(None));
        }
    }
    context.end();
}

fn micro_step(
    job: &JobSpec,
    context: &Rc<Context>,
    model: &dyn Model,
    scaler: Option<&mut GradScaler>,
    variables: &mut Variables,
) {
    context.phase(PhaseKind::Input);
    let ids = input_ids(context, job.micro_batch_size, job.seq_len);
    variables.ids = Some(ids.clone());
    context.phase(PhaseKind::Forward);
    {
        let _autocast = context.autocast(job.precision.autocast_dtype());
        let caches = job.use_cache && job.task == Task::CausalLm;
        let mut output = model.forward(&ForwardCall {
            input_ids: &ids,
            attention_mask: None,
            position_ids: None,
            labels: Some(&ids),
            cache: caches.then(|| model.new_cache()),
            logits_to_keep: job.logits.logits_to_keep,
            // Liger leaves the model's own loss in place outside training mode.
            fused_loss: job.logits.loss == LossKernel::Liger && job.train_mode,
        });
        let mut loss = output.loss.take();
        if job.logits.keep_outputs {
            output.loss = loss.clone();
            variables.outputs = Some(output);
        } else {
            drop(output);
        }
        variables.loss = loss.clone();
        if job.gradient_accumulation_steps > 1 {
            loss = loss.map(|loss| loss.div_scalar());
            variables.loss = loss;
        }
    }
    drop(ids);
    context.phase(PhaseKind::Backward);
    if let Some(loss) = &variables.loss {
        match scaler {
            Some(scaler) => scaler.scale(loss).backward(),
            None => loss.backward(),
        }
    }
}
