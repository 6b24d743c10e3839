//! Training in a pipeline as `torch.distributed.pipelining` runs one rank of it (PyTorch 2.11): micro-batches of a step go through the
//! rank's stages in the order of a schedule.

mod order;
mod stage;

use std::rc::Rc;

use crate::building::{BuildError, Builder};
use crate::dtype::DType;
use crate::job::{JobSpec, ModelSpec, Schedule, Strategy};
use crate::model::family::Model;
use crate::op::{UNTOLD, full, number_from_host};
use crate::optimizer;
use crate::parallel;
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::inputs::input_ids;
use super::repetition::Repetition;
use super::settled::Settled;
use order::{Action, order_of_passes};
use stage::{Handed, Rows, Stage};

/// The stages that the rank has, each built by `build`.
pub(super) fn build_stages(
    job: &JobSpec,
    builder: &Builder,
    build: impl Fn(&ModelSpec, &Builder) -> Result<Box<dyn Model>, BuildError>,
) -> Result<Pipeline, BuildError> {
    let Strategy::PipelineParallel { stages: count, schedule } = job.parallel.strategy else {
        return Ok(Pipeline { stages: Vec::new(), schedule: Schedule::GPipe, output: None, sent: None });
    };
    let several = job.parallel.stages_of_rank().count() > 1;
    let mut stages = Vec::new();
    for at in job.parallel.stages_of_rank() {
        let (model, ends) = parallel::stage_of_pipeline(job, count, at)?;
        let place = if several { builder.at(&format!("stage{at}")) } else { builder.clone() };
        stages.push(Stage::new(build(&model, &place.of_stage(ends))?, [ends.front, ends.back]));
    }
    Ok(Pipeline { stages, schedule, output: None, sent: None })
}

/// A rank's stages under a schedule.
pub(super) struct Pipeline {
    stages: Vec<Stage>,
    schedule: Schedule,
    /// Python variables of a schedule of one stage: what it made last, and the gradient that it sent last.
    output: Option<Tensor>,
    sent: Option<Tensor>,
}

/// Trains; steps that only repeat are left out of a long job.
pub(super) fn train_pipeline(
    job: &JobSpec,
    context: &Rc<Context>,
    mut pipeline: Pipeline,
    parameters: &[Tensor],
) -> Repetition {
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut optimizer = optimizer::build(job, parameters);
    let reads_rows = job.parallel.rank == 0 || job.parallel.rank + 1 == job.parallel.world_size;
    let mut rows = Rows { ids: None, micro_batch_size: job.micro_batch_size };
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
        pipeline.run_step(job, context, &rows, (step == 1, parameters));
        drop(autocast);
        if job.clip_grad_norm.is_some() {
            context.phase(PhaseKind::Clip);
            optimizer::clip_grad_norm(parameters);
        }
        context.phase(PhaseKind::Optimizer);
        optimizer.step();
        context.phase(PhaseKind::ZeroGrad);
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }
    context.end();
    settled.close(run)
}

impl Pipeline {
    /// All micro-batches of an optimizer step through the rank's stages (`schedule.step(ids, target=ids)`).
    fn run_step(
        &mut self,
        job: &JobSpec,
        context: &Rc<Context>,
        rows: &Rows,
        (is_first, parameters): (bool, &[Tensor]),
    ) {
        self.stages.iter_mut().for_each(Stage::clear);
        let micro_batches = job.gradient_accumulation_steps as usize;
        if is_first {
            self.prepare(job, context, micro_batches);
        }
        for action in order_of_passes(job.parallel, micro_batches) {
            self.run_action(context, action, rows);
        }
        self.stages.iter_mut().for_each(Stage::forget_losses);
        if micro_batches > 1 {
            // `scale_grads`
            parameters.iter().filter_map(Tensor::grad).for_each(|gradient| drop(gradient.mul_scalar_in_place(UNTOLD)));
        }
        self.output = None;
        self.sent = None;
        self.stages.iter().for_each(|stage| drop(stage.merge_outputs()));
    }

    /// Buffers for what is received, which the first step makes while what greets the neighbours is there.
    fn prepare(&mut self, job: &JobSpec, context: &Rc<Context>, micro_batches: usize) {
        let hidden = job.model.config.size("hidden_size", 0).unwrap_or_default();
        // What autocast leaves the residual stream in.
        let dtype = job.precision.weight_dtype();
        let handed = Handed { sizes: [job.micro_batch_size, job.seq_len, hidden], dtype };
        let _category = context.enter_category(Category::Communication);
        let greet = |_: &Stage| {
            let received = full(context, "zeros.default", &[1], DType::Float32);
            [received, number_from_host(context, "tensor", 0.0, DType::Float32)]
        };
        let greetings: Vec<_> = self.stages.iter().map(greet).collect();
        self.stages.iter_mut().for_each(|stage| stage.prepare_forward(context, micro_batches, handed));
        drop(greetings);
        self.stages.iter_mut().for_each(|stage| stage.prepare_backward(context, micro_batches, handed));
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
                let gradient = stage.run_backward(context, micro_batch);
                self.sent = gradient.filter(|_| keeps_variables);
            }
        }
    }
}
