//! Training as roby2358/agi2 does it at 6e54453 (src/training.py, `train_epoch`): gradients go before the forward pass, the
//! loss is taken of the logits of all positions, and `logits` and `loss` live until the next batch has its own.

use std::rc::Rc;

use crate::building::Builder;
use crate::dtype::DType;
use crate::job::{JobSpec, Strategy};
use crate::model::family::agi2::Agi2Model;
use crate::op::{Reduction, full};
use crate::optimizer::{self, GradScaler, Optimizer};
use crate::parallel::DdpHooks;
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::repetition::Repetition;
use super::settled::Settled;

/// The variables of the loop's function, which live from one batch to the next.
#[derive(Default)]
struct Variables {
    input_ids: Option<Tensor>,
    target_ids: Option<Tensor>,
    logits: Option<Tensor>,
    loss: Option<Tensor>,
}

/// The model, and DistributedDataParallel round it where the job says so: the trainer has one GPU, and this is how people spread
/// such a loop.
struct Wrapped<'a> {
    model: &'a Agi2Model,
    ddp: Option<DdpHooks>,
}

impl Wrapped<'_> {
    fn new<'a>(job: &JobSpec, context: &Rc<Context>, model: &'a Agi2Model, builder: &Builder) -> Wrapped<'a> {
        let Strategy::Ddp(options) = job.parallel.strategy else { return Wrapped { model, ddp: None } };
        context.phase(PhaseKind::Wrap);
        let (parameters, buffers) = (builder.parameters(), builder.take_buffers());
        Wrapped { model, ddp: Some(DdpHooks::new(context, &parameters, buffers, builder.trainable(), options)) }
    }

    /// Whether the gradients of the pass that follows are reduced.
    fn set_gradient_sync(&self, sync: bool) {
        if let Some(ddp) = &self.ddp {
            ddp.set_gradient_sync(sync);
        }
    }

    fn forward(&self, input_ids: &Tensor) -> Tensor {
        let Some(ddp) = &self.ddp else { return self.model.forward(input_ids) };
        ddp.pre_forward();
        let logits = self.model.forward(input_ids);
        ddp.post_forward(vec![logits.clone()]).pop().unwrap_or(logits)
    }
}

/// Trains; what only repeats is left out of a long job. The trainer accumulates no gradients: a job with several batches a
/// step divides the loss and steps after the last, as people change such a loop.
pub(super) fn train_agi2(
    job: &JobSpec,
    context: &Rc<Context>,
    model: &Agi2Model,
    builder: &Builder,
    parameters: &[Tensor],
) -> Repetition {
    let model = Wrapped::new(job, context, model, builder);
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut optimizer = optimizer::build(job, parameters);
    let mut scaler = job.precision.scales_loss().then(|| GradScaler::new(context));
    let mut variables = Variables::default();
    let growing = job.row_growth.map(|growth| growth.rehearsed()).unwrap_or_default();
    let shorter = growing.len() as u32;
    let lengths = growing.into_iter().chain(std::iter::repeat_n(job.seq_len, job.steps as usize));
    let mut settled = Settled::new(job, context);
    for (step, tokens) in (1..).zip(lengths) {
        let left = u64::from((shorter + job.steps).saturating_sub(step - 1));
        // Steps of shorter rows show nothing of the whole ones.
        let whole = step.saturating_sub(shorter);
        if whole > 0 && settled.leaves_out_step((whole, left)) {
            break;
        }
        run.steps = whole;
        settled.begin_step();
        context.begin_step(step);
        for pass in 1..=job.gradient_accumulation_steps {
            let left = job.gradient_accumulation_steps - pass;
            let leaves_out = settled.leaves_out_after(pass, left, 1);
            model.set_gradient_sync(left == 0 || leaves_out);
            let begun = context.phases();
            variables.load_batch(job, tokens, context);
            if pass == 1 {
                zero_grad(job, context, parameters);
            }
            variables.forward(job, context, &model);
            variables.backward(context, scaler.as_mut());
            if leaves_out {
                run.passes = run.passes.min(pass);
                context.count_phases_again(begun..context.phases(), left);
                break;
            }
        }
        if job.clip_grad_norm.is_some() {
            context.phase(PhaseKind::Clip);
            if let Some(scaler) = &mut scaler {
                scaler.unscale();
            }
            optimizer::clip_grad_norm(parameters);
        }
        context.phase(PhaseKind::Optimizer);
        step_parameters(scaler.as_mut(), optimizer.as_mut());
    }
    context.end();
    settled.close(run)
}

fn step_parameters(scaler: Option<&mut GradScaler>, optimizer: &mut dyn Optimizer) {
    match scaler {
        Some(scaler) => {
            scaler.step(optimizer);
            scaler.update();
        }
        None => optimizer.step(),
    }
}

fn zero_grad(job: &JobSpec, context: &Rc<Context>, parameters: &[Tensor]) {
    context.phase(PhaseKind::ZeroGrad);
    if job.zero_grad_set_to_none {
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }
}

impl Variables {
    /// A batch, and what is cut from it: all tokens but the last, all but the first.
    fn load_batch(&mut self, job: &JobSpec, tokens: u64, context: &Rc<Context>) {
        context.phase(PhaseKind::Input);
        let _category = context.enter_category(Category::Input);
        let load = || full(context, "_to_copy.default", &[job.micro_batch_size, tokens], DType::Int64);
        let batch = load();
        self.input_ids = Some(batch.narrow_any(1, tokens.saturating_sub(1)));
        let labels = if job.own_labels { load() } else { batch };
        self.target_ids = Some(labels.narrow_any(1, tokens.saturating_sub(1)));
    }

    fn forward(&mut self, job: &JobSpec, context: &Rc<Context>, model: &Wrapped<'_>) {
        let (Some(input_ids), Some(target_ids)) = (&self.input_ids, &self.target_ids) else { return };
        context.phase(PhaseKind::Forward);
        let autocast = context.autocast(job.precision.autocast_dtype());
        let logits = self.logits.insert(model.forward(input_ids));
        let (rows, vocabulary) = (target_ids.numel(), logits.size(-1));
        let loss = {
            let (flat, targets) = (logits.reshape(&[rows, vocabulary]), target_ids.reshape(&[rows]));
            context.phase(PhaseKind::Loss);
            let loss = flat.cross_entropy(&targets, Reduction::Mean);
            context.phase(PhaseKind::ForwardTail);
            loss
        };
        let loss = self.loss.insert(loss);
        drop(autocast);
        if job.gradient_accumulation_steps > 1 {
            *loss = loss.div_scalar(job.gradient_accumulation_steps as f64);
        }
    }

    fn backward(&self, context: &Rc<Context>, scaler: Option<&mut GradScaler>) {
        let Some(loss) = &self.loss else { return };
        context.phase(PhaseKind::Backward);
        match scaler {
            Some(scaler) => scaler.scale(loss).backward(),
            None => loss.backward(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::building::BuildError;
    use crate::job::from_case;
    use crate::step::simulate;

    fn parameters(changes: &serde_json::Value) -> Result<u64, BuildError> {
        let mut case = json!({"kind": "agi2", "seq_len": 16, "steps": 1});
        case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        simulate(&from_case(&case).unwrap()).map(|simulation| simulation.parameter_count)
    }

    /// What `sum(p.numel() for p in model.parameters())` is for the guide's three models, which has 30.12M for the first.
    #[test]
    fn has_the_parameters_that_the_trainer_counts() {
        assert_eq!(parameters(&json!({})), Ok(29_946_240));
        assert_eq!(parameters(&json!({"n_embd": 768, "n_layer": 12})), Ok(123_653_376));
        let own_head = parameters(&json!({"tied": false})).unwrap();
        assert_eq!(own_head, 29_946_240 + 50_257 * 384);
    }

    #[test]
    fn impossible_configs_name_their_key() {
        for (changes, key) in [
            (json!({"n_head": 5}), "n_head"),
            (json!({"n_embd": 33, "n_head": 3}), "n_embd"),
            (json!({"n_layer": 5000}), "n_layer"),
            (json!({"vocab_size": 1_u64 << 45}), "vocab_size"),
            (json!({"dropout": 1.5}), "embd_pdrop"),
            (json!({"seq_len": 1_u64 << 22}), "n_head"),
        ] {
            let error = parameters(&changes).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{changes}: {error}");
        }
    }
}
