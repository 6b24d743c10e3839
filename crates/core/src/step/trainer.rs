//! Hugging Face's `Trainer` (transformers 5.17, trainer.py, `_run_epoch`), from the first step to the last; what is a
//! trainer's own is its [`Recipe`]. The names of variables that live on are Python's.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobSpec, OptimizerKind};
use crate::op::{ReduceKind, UNTOLD, full};
use crate::optimizer::{self, GradScaler, Optimizer};
use crate::parallel::Wrapper;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::offload::Offload;
use super::repeat::{Pass, RecordedPasses};
use super::repetition::Repetition;
use super::schedule::{Passes, Schedule, Skip};
use super::settled::{Piece, Settled};
use super::wrapped::Wrapped;

/// Ranks whose losses are gathered one by one; those beyond add 512 bytes each.
const MOST_RANKS: u64 = 1 << 14;

/// What one trainer does its own way.
pub(super) trait Recipe {
    /// The model that is trained.
    fn wrapped(&self) -> &Wrapped<'_>;

    /// `get_batch_samples`: the batches of an optimizer step come to the device.
    fn get_batch_samples(&self) {}

    /// `_prepare_inputs`, before pass number `pass`.
    fn prepare_inputs(&self, _pass: u64) {}

    /// Every so many passes `prepare_inputs` generates anew.
    fn generate_every(&self) -> u64 {
        u64::MAX
    }

    /// `compute_loss(model, inputs)`; `None` where there are no inputs.
    fn compute_loss(&self, pass: u64) -> Option<Tensor>;

    /// Whether the loop divides the loss by the number of passes, as where the loss is a mean of its own batch.
    fn divides_loss(&self) -> bool {
        false
    }

    /// The end of the loop: what its variables hold goes.
    fn end(&self) {}
}

/// Python variables that live from one pass to the next.
#[derive(Default)]
struct Variables {
    tr_loss_step: Option<Tensor>,
    grad_norm: Option<Tensor>,
}

/// `trainer.train()`
pub(super) fn run_trainer(
    job: &JobSpec,
    context: &Rc<Context>,
    parameters: &[Tensor],
    recipe: &dyn Recipe,
) -> Repetition {
    context.begin_step(1);
    context.phase(PhaseKind::Between);
    // `accelerator.free_memory()` (accelerate 1.15), with which `_inner_training_loop` begins.
    context.empty_cache();
    recipe.wrapped().prepare();
    let wrapper = recipe.wrapped().wrapper();
    let parameters = wrapper.map_or(parameters, Wrapper::parameters);
    let optimizers = create_optimizers(job, parameters, wrapper);
    let _numbers = numbers_moved(job, context, (optimizers.len(), parameters.len()));
    let runs_all = job.simulated_offload().is_some()
        || job.optimizer_in_backward
        || job.optimizer.fuses_backward()
        || recipe.generate_every() != u64::MAX;
    let mut state = State {
        recorded: wrapper.map(|wrapper| RecordedPasses::new(context, wrapper, runs_all)),
        optimizers,
        scaler: job.precision.scales_loss().then(|| GradScaler::new(context)),
        parameters,
        wrapper,
        engine_steps: false,
        ranks: wrapper.map_or(1, |_| job.parallel.world_size),
    };
    let offload = Offload::of(job, context);
    let tr_loss = full(context, "_to_copy.default", &[], DType::Float32);
    let mut variables = Variables::default();
    let passes = Passes { of_step: job.gradient_accumulation_steps, generate_every: recipe.generate_every() };
    let mut schedule = Schedule::new(passes);
    let mut settled = Settled::new(job, context).with_generation(passes.generate_every, passes.of_step);
    let mut run = Repetition::begin(passes.of_step);
    let mut step = 1;
    while step <= u64::from(job.steps) && !context.has_failed() {
        run.steps += 1;
        let begun = context.phases();
        recipe.get_batch_samples();
        let whens = (&mut schedule, &mut settled);
        let ran = run_passes((context, &offload), recipe, (whens, &mut state), (passes, step), &mut variables);
        run.passes = run.passes.min(ran);
        variables.grad_norm = None;
        state.update_parameters(context, &mut variables);
        let left_out = schedule.after_step(step, settled.alike(Piece::Step, u64::from(job.steps) - step));
        if let Some(steps @ 1..) = left_out {
            context.count_phases_again(begun..context.phases(), steps);
        }
        step += 1 + left_out.unwrap_or(u64::from(job.steps));
        context.begin_step(u32::try_from(step).unwrap_or(u32::MAX).min(job.steps.saturating_add(1)));
        context.phase(PhaseKind::Between);
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
        state.log_loss(&tr_loss);
    }
    drop(variables);
    recipe.end();
    context.end();
    settled.close(run)
}

/// The passes of an optimizer step; how many were run.
fn run_passes(
    (context, offload): (&Rc<Context>, &Offload),
    recipe: &dyn Recipe,
    ((schedule, settled), state): ((&mut Schedule, &mut Settled), &mut State),
    (passes, step): (Passes, u64),
    variables: &mut Variables,
) -> u64 {
    schedule.begin_step();
    settled.begin_step();
    let (mut at, mut ran) = (0, 0);
    // Where the phases of the pass, and of its cycle of generation, begin.
    let mut cycle_begun = context.phases();
    while at < passes.of_step && !context.has_failed() {
        let pass = (step - 1).saturating_mul(passes.of_step).saturating_add(at);
        let begun = context.phases();
        if pass.is_multiple_of(passes.generate_every) {
            cycle_begun = begun;
        }
        if let Some(wrapper) = state.wrapper {
            wrapper.set_gradient_sync(at + 1 == passes.of_step);
        }
        let is_last = at + 1 == passes.of_step;
        training_step((context, offload), recipe, (pass, is_last), (&mut *state, &mut *variables));
        ran += 1;
        at += 1;
        let alike = settled.alike(Piece::Pass, passes.of_step.saturating_sub(at + 1));
        let (phases, times) = match schedule.after_pass(pass, at - 1, alike) {
            Skip::Nothing => continue,
            Skip::Passes(skipped) => {
                at += skipped;
                (begun, skipped)
            }
            Skip::Cycles(skipped) => {
                at += skipped * passes.generate_every;
                (cycle_begun, skipped)
            }
        };
        context.count_phases_again(phases..context.phases(), times);
    }
    ran
}

/// What an optimizer step works on.
struct State<'a> {
    recorded: Option<RecordedPasses<'a>>,
    optimizers: Vec<Box<dyn Optimizer>>,
    /// accelerate's, where fp16 scales the loss.
    scaler: Option<GradScaler>,
    parameters: &'a [Tensor],
    wrapper: Option<&'a dyn Wrapper>,
    /// Whether an engine has stepped in backward: what the loop calls then does nothing.
    engine_steps: bool,
    ranks: u64,
}

/// `create_optimizer`: matrices decay and come first, biases and norms do not. Wrappers that divide the optimizer make it.
pub(super) fn create_optimizers(
    job: &JobSpec,
    parameters: &[Tensor],
    wrapper: Option<&dyn Wrapper>,
) -> Vec<Box<dyn Optimizer>> {
    if let Some(wrapper) = wrapper.filter(|wrapper| wrapper.divides_optimizer()) {
        return wrapper.optimizers(job);
    }
    if job.optimizer_in_backward {
        return vec![optimizer::step_in_backward(job, parameters)];
    }
    if job.optimizer.is_low_rank() || job.optimizer.fuses_backward() {
        // Its groups are what is projected and what is not, or it takes the model as it is.
        return vec![optimizer::build(job, parameters)];
    }
    let (decaying, rest): (Vec<Tensor>, Vec<Tensor>) = parameters.iter().cloned().partition(optimizer::decays);
    if job.optimizer.walks_groups() {
        return vec![optimizer::build(job, &[decaying, rest].concat())];
    }
    optimizer::build_groups(job, &decaying, &rest)
}

/// Numbers that accelerate moves to the device with the optimizer's state: learning rates that are tensors, as torchao's, of which the
/// scheduler has three more of each group there (`initial_lr`, `base_lrs`, `_last_lr`; torch/optim/lr_scheduler.py), and the steps that Adagrad
/// has counted for each parameter since it was made.
fn numbers_moved(job: &JobSpec, context: &Rc<Context>, (groups, parameters): (usize, usize)) -> Vec<Tensor> {
    let numbers = match job.optimizer {
        OptimizerKind::Adagrad => parameters,
        optimizer if optimizer.is_compiled() => 4 * groups,
        _ => 0,
    };
    (0..numbers).map(|_| full(context, "clone.default", &[], DType::Float32)).collect()
}

/// `training_step(model, inputs)` and what the loop makes of its loss.
fn training_step(
    (context, offload): (&Rc<Context>, &Offload),
    recipe: &dyn Recipe,
    (pass, is_last): (u64, bool),
    (state, variables): (&mut State, &mut Variables),
) {
    let _offload = offload.enter_pass();
    recipe.prepare_inputs(pass);
    context.phase(PhaseKind::Forward);
    let mut running = state.recorded.as_ref().map_or_else(|| Pass::unrecorded(context), RecordedPasses::begin_pass);
    let loss = {
        let _offload = offload.enter_forward();
        running.compute_loss(|| recipe.compute_loss(pass))
    };
    context.phase(PhaseKind::Between);
    let Some(mut loss) = loss else { return };
    if recipe.divides_loss() {
        loss = loss.div_scalar(UNTOLD);
    }
    context.phase(PhaseKind::Backward);
    state.run_backward(&mut running, &loss, is_last);
    if let Some(recorded) = &mut state.recorded {
        recorded.end_pass(running);
    }
    context.phase(PhaseKind::Between);
    let tr_loss_step = loss.detach();
    drop(loss);
    let loss = &*variables.tr_loss_step.insert(tr_loss_step);
    loss.map("ne.Tensor", DType::Bool);
    let size = loss.unary("abs.default", DType::Float32);
    let _is_infinite = size.map("eq.Scalar", DType::Bool);
}

impl State<'_> {
    /// `accelerator.backward(loss)`: DeepSpeed's engine steps at its end.
    fn run_backward(&mut self, running: &mut Pass, loss: &Tensor, is_last: bool) {
        let of_engine = self.wrapper.and_then(|wrapper| Some((wrapper, wrapper.engine_loss(loss, false)?)));
        let Some((wrapper, [_, scaled])) = of_engine else {
            let loss = loss.div_scalar(UNTOLD);
            match &mut self.scaler {
                Some(scaler) => {
                    let scaled = scaler.scale(&loss);
                    running.run_part(|| scaled.backward());
                }
                None if self.optimizers.iter_mut().any(|optimizer| optimizer.fused_backward(&loss)) => {}
                None => running.run_part(|| loss.backward()),
            }
            return;
        };
        scaled.backward_of_engine();
        drop(scaled);
        wrapper.end_backward();
        self.engine_steps = true;
        if is_last {
            running.context().phase(PhaseKind::Optimizer);
            self.optimizers.iter_mut().for_each(|optimizer| optimizer.step());
        }
    }

    /// Clipping and the optimizer's step.
    fn update_parameters(&mut self, context: &Rc<Context>, variables: &mut Variables) {
        if self.engine_steps {
            return;
        }
        // Without clipping the norm is taken all the same, to be logged; taking it unscales the gradients.
        context.phase(PhaseKind::Clip);
        if let Some(scaler) = &mut self.scaler {
            scaler.unscale();
        }
        variables.grad_norm = match self.wrapper.filter(|wrapper| wrapper.divides_optimizer()) {
            Some(wrapper) => wrapper.clip_for_log(),
            None => optimizer::clip_grad_norm(self.parameters),
        };
        context.phase(PhaseKind::Between);
        context.phase(PhaseKind::Optimizer);
        match &mut self.scaler {
            Some(scaler) => {
                scaler.step_all(&mut self.optimizers);
                context.phase(PhaseKind::Between);
                scaler.update();
            }
            None => {
                self.optimizers.iter_mut().for_each(|optimizer| optimizer.step());
                context.phase(PhaseKind::Between);
            }
        }
    }

    /// `_maybe_log_save_evaluate`: the mean of the losses of all ranks (`nested_gather`).
    fn log_loss(&self, tr_loss: &Tensor) {
        if self.ranks == 1 {
            tr_loss.reduce_all("mean.default", ReduceKind::Mean, DType::Float32);
            return;
        }
        let all = self.gather_number(&tr_loss.view(&[1]));
        all.reduce_all("mean.default", ReduceKind::Mean, DType::Float32);
        drop(all);
        // `store_flos` (`distributed_broadcast_scalars`).
        let flos = full(tr_loss.context(), "_to_copy.default", &[], DType::Float32);
        let all = self.gather_number(&flos);
        drop(flos);
        all.reduce_all("sum.default", ReduceKind::Sum, DType::Float32);
    }

    /// A number of each rank, gathered into copies of the own one (transformers 5.17, trainer_pt_utils.py).
    fn gather_number(&self, own: &Tensor) -> Tensor {
        let gathered: Vec<Tensor> =
            (0..self.ranks.min(MOST_RANKS)).map(|_| own.unary("clone.default", own.dtype())).collect();
        full(own.context(), "cat.default", &[gathered.len() as u64], DType::Float32)
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate::SimulatedJob;
    use crate::job::JobSource;
    use crate::step::repeat;
    use crate::step::settled::run_whole;

    /// Lines beside those of a small model, and how many passes are copied of three steps of three.
    const JOBS: [(&str, u64); 12] = [
        ("framework = \"trainer\"", 7),
        ("framework = \"trainer\"\nprecision = \"amp-bf16\"", 7),
        ("framework = \"trainer\"\nprecision = \"fp16-amp\"\nuse_cache = true", 7),
        ("framework = \"trainer\"\ngradient_checkpointing = true", 7),
        ("framework = \"trainer\"\nlora = { r = 8 }", 7),
        ("framework = \"trainer\"\nseq_len = 64\nkeep_outputs = true", 0),
        ("framework = \"trainer\"\nworld_size = 2\nparallel = \"ddp\"", 0),
        ("framework = \"trl\"", 7),
        ("task = \"dpo\"\nprompt_len = 24\ncompletion_len = 40", 7),
        ("task = \"kto\"\nprompt_len = 24\ncompletion_len = 40", 7),
        ("task = \"orpo\"\nprompt_len = 24\ncompletion_len = 40", 7),
        ("task = \"reward\"\nseq_len = 64", 7),
    ];

    #[test]
    fn a_copied_pass_leaves_the_trace_and_the_work_of_one_that_runs() {
        for (lines, copied) in JOBS {
            let model = "{ model_type = \"qwen2\", hidden_size = 64, intermediate_size = 96, num_hidden_layers = 2, \
                num_attention_heads = 4, num_key_value_heads = 2, vocab_size = 512 }";
            let text = format!("{lines}\nmodel = {model}\nsteps = 3\ngradient_accumulation_steps = 3\n");
            let job = JobSource::from_file("job.toml", &text)
                .resolve(&[])
                .unwrap_or_else(|error| panic!("{lines}: {error}"))
                .job;
            repeat::COPIED.set(0);
            let simulated = SimulatedJob::new(&job).unwrap();
            assert_eq!(repeat::COPIED.get(), copied, "{lines}");
            let whole = run_whole(|| SimulatedJob::new(&job).unwrap());
            assert!(simulated.trace() == whole.trace(), "{lines}");
            assert!(simulated.work() == whole.work(), "{lines}");
        }
    }
}
