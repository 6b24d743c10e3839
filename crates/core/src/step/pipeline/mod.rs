//! Training in a pipeline as `torch.distributed.pipelining` runs one rank of it (PyTorch 2.11): micro-batches of a step go through the
//! rank's stages in the order of a schedule.

mod order;
mod stage;

use std::rc::Rc;

use crate::building::{BuildError, Builder};
use crate::dtype::DType;
use crate::job::{JobSpec, ModelSpec, Schedule, StageWrapper, Strategy};
use crate::model::family::Model;
use crate::op::{full, number_from_host};
use crate::optimizer;
use crate::parallel::{self, LoadedStage, wrap_stages};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::inputs::input_ids;
use super::repetition::Repetition;
use super::settled::Settled;
use order::{Action, order_of_actions};
use stage::{Handed, Rows, Stage};

/// The stages that the rank has, each built by `build`, in what the job has round them.
pub(super) fn build_stages(
    job: &JobSpec,
    builder: &Builder,
    build: impl Fn(&ModelSpec, &Builder) -> Result<Box<dyn Model>, BuildError>,
) -> Result<Pipeline, BuildError> {
    let Strategy::PipelineParallel { stages: count, schedule, .. } = job.parallel.strategy else {
        return Ok(Pipeline { stages: Vec::new(), schedule: Schedule::GPipe, output: None, loss: None, sent: None });
    };
    let several = job.parallel.stages_of_rank().count() > 1;
    let (mut loaded, mut all_ends) = (Vec::new(), Vec::new());
    for at in job.parallel.stages_of_rank() {
        let (model, ends) = parallel::stage_of_pipeline(job, count, at)?;
        let place = if several { builder.at(&format!("stage{at}")) } else { builder.clone() };
        let before = builder.parameters().len();
        let model = build(&model, &place.of_stage(ends))?;
        let parameters = builder.parameters().split_off(before);
        let (buffers, placed, hooks) = (builder.take_buffers(), builder.take_placed(), builder.module_hooks());
        loaded.push(LoadedStage { model, parameters, buffers, placed, hooks });
        all_ends.push(ends);
    }
    builder.check_targets()?;
    loaded.iter().for_each(|stage| builder.materialize(&stage.buffers));
    let wrapped = wrap_stages(job, builder.context(), loaded);
    let stages =
        wrapped.into_iter().zip(all_ends).map(|(stage, ends)| Stage::new(stage, [ends.front, ends.back])).collect();
    Ok(Pipeline { stages, schedule, output: None, loss: None, sent: None })
}

/// A rank's stages under a schedule.
pub(super) struct Pipeline {
    stages: Vec<Stage>,
    schedule: Schedule,
    /// Python variables of a schedule of one stage: what it made last, its loss, and the gradient that it sent last.
    output: Option<Tensor>,
    loss: Option<Tensor>,
    sent: Option<Tensor>,
}

/// Trains; steps that only repeat are left out of a long job.
pub(super) fn train_pipeline(job: &JobSpec, context: &Rc<Context>, mut pipeline: Pipeline) -> Repetition {
    let parameters = pipeline.parameters();
    let parameters = parameters.as_slice();
    context.autocast_backward();
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut optimizer = optimizer::build(job, parameters);
    let (ranks, place) = job.parallel.place_in_pipeline();
    let reads_rows = place == 0 || place + 1 == ranks;
    let micro_batches = job.gradient_accumulation_steps as usize;
    let mut rows = Rows { ids: None, micro_batch_size: job.micro_batch_size, micro_batches };
    let actions = order_of_actions(job.parallel, micro_batches);
    let mut settled = Settled::new(job, context);
    for step in 1..=job.steps {
        if !settled.begin_next(&mut run, (step, u64::from(job.steps - step + 1))) {
            break;
        }
        context.phase(PhaseKind::Input);
        let of_step = job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps);
        let ids = reads_rows.then(|| input_ids(context, of_step, job.seq_len));
        rows.ids = ids;
        context.phase(PhaseKind::Forward);
        let autocast = context.autocast(job.precision.autocast_dtype());
        pipeline.run_step(job, context, &rows, (step == 1, &actions));
        drop(autocast);
        if job.clip_grad_norm.is_some() {
            context.phase(PhaseKind::Clip);
            clip_grad_norm(job, parameters);
        }
        context.phase(PhaseKind::Optimizer);
        optimizer.step();
        context.phase(PhaseKind::ZeroGrad);
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }
    context.end();
    settled.close(run)
}

/// `clip_grad_norm_` of all that the rank trains.
fn clip_grad_norm(job: &JobSpec, parameters: &[Tensor]) {
    match job.parallel.stage_replicas().map(|replicas| replicas.wrapper) {
        Some(StageWrapper::Fsdp2(_)) => drop(optimizer::clip_sharded_grad_norm(parameters)),
        Some(StageWrapper::Ddp(_)) | None => drop(optimizer::clip_grad_norm(parameters)),
    }
}

impl Pipeline {
    /// What is trained, stage by stage.
    fn parameters(&self) -> Vec<Tensor> {
        self.stages.iter().flat_map(Stage::parameters).cloned().collect()
    }

    /// All micro-batches of an optimizer step through the rank's stages (`schedule.step(ids, target=ids)`).
    fn run_step(&mut self, job: &JobSpec, context: &Rc<Context>, rows: &Rows, (is_first, actions): (bool, &[Action])) {
        self.stages.iter_mut().for_each(Stage::clear);
        if is_first {
            self.prepare(job, context, rows.micro_batches);
        }
        for &action in actions {
            self.run_action(context, action, rows);
        }
        self.stages.iter_mut().for_each(|stage| drop(stage.take_losses()));
        self.loss = None;
        self.output = None;
        self.sent = None;
        self.stages.iter().for_each(|stage| drop(stage.merge_outputs()));
    }

    /// Buffers for what is received, which the first step makes while what greets the neighbours is there.
    fn prepare(&mut self, job: &JobSpec, context: &Rc<Context>, micro_batches: usize) {
        let hidden = job.model.config.size("hidden_size", 0).unwrap_or_default();
        // What autocast leaves the residual stream in.
        let policy = job.parallel.stage_replicas().and_then(|replicas| replicas.param_dtype());
        let dtype = policy.unwrap_or(job.precision.weight_dtype());
        let handed = Handed { sizes: [job.micro_batch_size, job.seq_len, hidden], dtype };
        let _category = context.enter_category(Category::Communication);
        let greet = |_: &Stage| {
            let received = full(context, "zeros.default", &[1], DType::Float32);
            [received, number_from_host(context, "tensor", 0.0, DType::Float32)]
        };
        let greetings: Vec<_> = self.stages.iter().map(greet).collect();
        self.stages.iter_mut().for_each(|stage| stage.prepare_forward(context, micro_batches, handed));
        self.stages.iter_mut().for_each(|stage| stage.prepare_backward(context, micro_batches, handed));
        drop(greetings);
    }

    fn run_action(&mut self, context: &Rc<Context>, action: Action, rows: &Rows) {
        let keeps_variables = self.schedule != Schedule::Interleaved;
        match action {
            Action::Forward { stage, micro_batch } => {
                let Some(stage) = self.stages.get_mut(stage) else { return };
                let output = stage.run_forward(context, micro_batch, rows);
                self.output = output.filter(|_| keeps_variables);
            }
            Action::Backward { stage, micro_batch } => {
                let Some(stage) = self.stages.get_mut(stage) else { return };
                if self.schedule == Schedule::GPipe {
                    // `ops` is what is received by then.
                    self.sent = None;
                }
                let gradient = stage.run_backward(context, micro_batch, micro_batch + 1 == rows.micro_batches);
                self.sent = gradient.filter(|_| keeps_variables);
            }
            Action::Reduce { stage } => {
                let Some(stage) = self.stages.get_mut(stage) else { return };
                if keeps_variables {
                    self.loss = stage.take_losses();
                }
                stage.reduce_gradients(rows.micro_batches);
            }
            Action::Unshard { stage } => {
                let Some(stage) = self.stages.get_mut(stage) else { return };
                stage.gather();
            }
            Action::Reshard { stage } => {
                let Some(stage) = self.stages.get_mut(stage) else { return };
                stage.reshard();
            }
        }
    }
}
