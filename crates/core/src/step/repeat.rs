//! Passes that do what an earlier one did: recorded once, copied from then on.
//!
//! A pass that finds the same parameters with gradients as an earlier one allocates and frees the same, for models keep
//! nothing else from pass to pass. What the trace cannot vouch for runs: passes through a wrapper that remembers earlier
//! ones, and those like a pass that freed what was there before it, or left more than its output, gradients and
//! workspaces.

use std::rc::Rc;

use crate::model::family::ModelOutput;
use crate::parallel::Wrapper;
use crate::tensor::{Context, Copied, Tensor, TensorMeta, TraceSlice};
use crate::trace::AllocationId;

use super::settled::runs_whole;

/// The passes of a training loop, of which those are kept that may be copied.
pub(super) struct RecordedPasses<'a> {
    context: &'a Rc<Context>,
    /// None of one whose passes are all run.
    copied: Option<&'a dyn Wrapper>,
    recorded: Vec<Rc<Recorded>>,
}

#[cfg(test)]
thread_local! {
    /// Passes copied in this thread.
    pub(super) static COPIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A pass that was run, and what it left.
struct Recorded {
    /// Which parameters had gradients when it began.
    had_gradients: Vec<bool>,
    /// Whether TorchScript knew its functions then.
    had_scripted: bool,
    slices: Vec<TraceSlice>,
    output: Output,
    /// The gradients that it made, each with the place of its parameter.
    gradients: Vec<Gradient>,
}

/// A gradient that has gone: the place of its parameter, what it looked like, and the allocation that held it.
struct Gradient {
    at: usize,
    meta: TensorMeta,
    allocation: AllocationId,
}

/// A model's output that has gone.
struct Output {
    /// Its tensors, without memory.
    shell: ModelOutput,
    kept: Vec<Kept>,
}

/// A tensor without its memory, and the allocation that held it.
struct Kept {
    shell: Tensor,
    allocation: Option<AllocationId>,
}

impl Gradient {
    /// Of the parameters that had none before; `None` where one lies in no memory of its own.
    fn of_each(parameters: &[Tensor], had_gradients: &[bool]) -> Option<Vec<Self>> {
        let made = parameters.iter().zip(had_gradients).enumerate().filter(|(_, (_, had_gradient))| !**had_gradient);
        let gradient = |(at, (parameter, _)): (usize, (&Tensor, &bool))| {
            parameter.grad().map(|gradient| {
                let allocation = gradient.allocation()?;
                Some(Self { at, meta: gradient.meta(), allocation })
            })
        };
        made.filter_map(gradient).collect()
    }
}

impl Kept {
    fn of(tensor: &Tensor) -> Self {
        Self { shell: tensor.without_memory(), allocation: tensor.allocation() }
    }

    /// The tensor in the memory that was copied; without memory where that is not its own.
    fn copy(&self, copied: &Copied) -> Tensor {
        match self.allocation {
            Some(id) => Tensor::over(self.shell.context(), copied.id(id), &self.shell.meta()),
            None => self.shell.clone(),
        }
    }
}

pub(super) struct Pass<'a> {
    context: &'a Rc<Context>,
    progress: Progress,
}

enum Progress {
    Unrecorded,
    Recorded(Recording),
    Copied(Copying),
}

/// A pass that is copied.
struct Copying {
    recorded: Rc<Recorded>,
    /// How many of its slices are there.
    slices: usize,
    copied: Copied,
}

/// What is known of a pass that runs.
#[derive(Default)]
struct Recording {
    had_gradients: Vec<bool>,
    had_scripted: bool,
    slices: Vec<TraceSlice>,
    output: Option<Output>,
}

impl<'a> RecordedPasses<'a> {
    /// No pass has run yet.
    pub(super) fn new(context: &'a Rc<Context>, wrapper: &'a dyn Wrapper, runs_all: bool) -> Self {
        let copied = Some(wrapper).filter(|wrapper| !runs_all && !runs_whole() && !wrapper.remembers_passes());
        Self { context, copied, recorded: Vec::new() }
    }

    /// Begins a pass.
    pub(super) fn begin_pass(&self) -> Pass<'a> {
        let Some(wrapper) = self.copied else { return Pass::unrecorded(self.context) };
        let had_gradients: Vec<bool> = wrapper.parameters().iter().map(Tensor::has_grad).collect();
        let had_scripted = self.context.has_scripted();
        let is_like =
            |recorded: &&Rc<Recorded>| recorded.had_scripted == had_scripted && recorded.had_gradients == had_gradients;
        let earlier = self.recorded.iter().find(is_like);
        let progress = match earlier {
            Some(recorded) => {
                #[cfg(test)]
                COPIED.set(COPIED.get() + 1);
                Progress::Copied(Copying::new(recorded))
            }
            None => Progress::Recorded(Recording { had_gradients, had_scripted, ..Recording::default() }),
        };
        Pass { context: self.context, progress }
    }

    /// Ends a pass: what was copied leaves its gradients, what ran is kept to be copied.
    pub(super) fn end_pass(&mut self, pass: Pass) {
        let Some(parameters) = self.copied.map(Wrapper::parameters) else { return };
        match pass.progress {
            Progress::Unrecorded => {}
            Progress::Recorded(recording) => {
                self.recorded.extend(recording.finish(self.context, parameters).map(Rc::new));
            }
            Progress::Copied(Copying { recorded, copied, .. }) => {
                for Gradient { at, meta, allocation } in &recorded.gradients {
                    let gradient = Tensor::over(self.context, copied.id(*allocation), meta);
                    parameters[*at].set_grad(Some(gradient));
                }
            }
        }
    }
}

impl<'a> Pass<'a> {
    /// A pass that is not kept.
    pub(super) fn unrecorded(context: &'a Rc<Context>) -> Self {
        Self { context, progress: Progress::Unrecorded }
    }

    /// The process it runs in.
    pub(super) fn context(&self) -> &'a Rc<Context> {
        self.context
    }

    /// The next slice of the pass. Where it is copied `run` does not run, and what it holds is dropped.
    pub(super) fn run_part(&mut self, run: impl FnOnce()) {
        match &mut self.progress {
            Progress::Unrecorded => run(),
            Progress::Recorded(recording) => recording.run(self.context, run),
            Progress::Copied(copying) => {
                drop(run);
                copying.copy_next(self.context);
            }
        }
    }

    /// The slice from the model's forward call to the loss of what it returned.
    pub(super) fn compute_loss(&mut self, compute_loss: impl FnOnce() -> Option<Tensor>) -> Option<Tensor> {
        self.forward(|| ModelOutput::of_loss(compute_loss())).loss
    }

    /// The slice that is the model's forward call.
    pub(super) fn forward(&mut self, forward: impl FnOnce() -> ModelOutput) -> ModelOutput {
        match &mut self.progress {
            Progress::Unrecorded => forward(),
            Progress::Recorded(recording) => {
                let output = recording.run(self.context, forward);
                recording.output = Some(Output::of(&output));
                output
            }
            Progress::Copied(copying) => {
                copying.copy_next(self.context);
                copying.recorded.output.copy(&copying.copied)
            }
        }
    }
}

impl Copying {
    fn new(recorded: &Rc<Recorded>) -> Self {
        Self { recorded: Rc::clone(recorded), slices: 0, copied: Copied::new(&recorded.slices) }
    }

    fn copy_next(&mut self, context: &Context) {
        if let Some(slice) = self.recorded.slices.get(self.slices) {
            context.copy_later(slice, &mut self.copied);
        }
        self.slices += 1;
    }
}

impl Output {
    fn of(output: &ModelOutput) -> Self {
        let mut kept = Vec::new();
        let shell = output.map(&mut |tensor| {
            let one = Kept::of(tensor);
            let shell = one.shell.clone();
            kept.push(one);
            shell
        });
        Self { shell, kept }
    }

    fn copy(&self, copied: &Copied) -> ModelOutput {
        let mut kept = self.kept.iter();
        self.shell.map(&mut |shell| kept.next().map_or_else(|| shell.clone(), |kept| kept.copy(copied)))
    }
}

impl Recording {
    fn run<T>(&mut self, context: &Context, run: impl FnOnce() -> T) -> T {
        let beginning = context.moment();
        let result = run();
        self.slices.push(context.slice_since(&beginning));
        result
    }

    /// The pass as something to copy; `None` where it left anything else alive than its output and gradients.
    fn finish(self, context: &Context, parameters: &[Tensor]) -> Option<Recorded> {
        let Self { had_gradients, had_scripted, slices, output } = self;
        let mut output = output?;
        let gradients = Gradient::of_each(parameters, &had_gradients)?;
        let left = context.left_by(&slices)?;
        // Backward freed what is not left: the output does not hold it that long.
        for kept in &mut output.kept {
            kept.allocation = kept.allocation.filter(|id| left.binary_search(id).is_ok());
        }
        let kept = output.kept.iter().filter_map(|kept| kept.allocation);
        let mut held: Vec<AllocationId> = kept.chain(gradients.iter().map(|gradient| gradient.allocation)).collect();
        held.sort_unstable();
        (held == left).then_some(Recorded { had_gradients, had_scripted, slices, output, gradients })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;
    use crate::building::{Builder, Mode};
    use crate::family;
    use crate::job::{JobSpec, from_case};
    use crate::model::family::{ForwardCall, RunOptions};
    use crate::model::nn::KvCache;
    use crate::parallel::{Loaded, wrap_model};
    use crate::step::train::train_loop;
    use crate::trace::Trace;
    use crate::work::PhaseWork;

    /// A wrapper whose passes are copied or not, as asked.
    struct Counted {
        wrapper: Box<dyn Wrapper>,
        copies: bool,
        calls: Cell<usize>,
    }

    impl Wrapper for Counted {
        fn forward(&self, call: &ForwardCall) -> ModelOutput {
            self.calls.set(self.calls.get() + 1);
            self.wrapper.forward(call)
        }

        fn new_cache(&self) -> Rc<KvCache> {
            self.wrapper.new_cache()
        }

        fn parameters(&self) -> &[Tensor] {
            self.wrapper.parameters()
        }

        fn remembers_passes(&self) -> bool {
            !self.copies
        }
    }

    /// How often the model ran, the trace, and the work.
    fn run(job: &JobSpec, copies: bool) -> (usize, (Trace, Vec<PhaseWork>)) {
        let context = Context::new(job.gpu.device());
        let mode = Mode::new(job.train_mode, job.gradient_checkpointing);
        let builder = Builder::new(&context, job.precision.weight_dtype(), job.lora.clone(), mode);
        let options =
            RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: job.lora.is_some(), tower: None };
        let family = family::find_family(&job.model.model_type).unwrap();
        let model = family.build_language_model(&job.model, &builder, &options).unwrap();
        let rebuild = Box::new(|_: &Builder| unreachable!("no wrapper builds the model again"));
        let wrapper = wrap_model(job, &context, Loaded::new(model, &builder, rebuild));
        let wrapper = Counted { wrapper, copies, calls: Cell::new(0) };
        train_loop(job, &context, &wrapper, None);
        let work = context.take_work();
        (wrapper.calls.get(), (context.take_trace(), work))
    }

    fn case(model: Value, options: &Value) -> JobSpec {
        let mut case = json!({"model": model, "micro_batch": 2, "seq_len": 64, "steps": 3});
        case.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        from_case(&case).unwrap()
    }

    #[test]
    fn a_copied_pass_leaves_the_trace_and_the_work_of_one_that_runs() {
        let gpt2 = json!({"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512});
        let gemma = json!({
            "family": "gemma2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "sliding_window": 32,
        });
        // With each, how often the model runs and is called in three steps.
        for (options, ran, called) in [
            (json!({"precision": "bf16"}), 1, 3),
            (json!({"precision": "amp_fp16", "clip_grad_norm": 1.0}), 1, 3),
            (json!({"precision": "amp_bf16", "grad_accum": 3}), 2, 9),
            (json!({"precision": "bf16", "gradient_checkpointing": true}), 1, 3),
            (json!({"precision": "amp_bf16", "gradient_checkpointing": true, "keep_outputs": false}), 1, 3),
            (json!({"precision": "fp32", "zero_grad_set_to_none": false, "optimizer": "sgd"}), 2, 3),
        ] {
            for model in [&gpt2, &gemma] {
                let job = case(model.clone(), &options);
                let (copied, expected) = (run(&job, true), run(&job, false));
                assert_eq!((copied.0, expected.0), (ran, called), "{options}, {model}");
                assert!(copied.1 == expected.1, "{options}, {model}");
            }
        }
    }

    #[test]
    fn a_pass_that_leaves_more_than_gradients_is_not_copied() {
        let longrope = json!({
            "family": "phi3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
            "rope_scaling": {"rope_type": "longrope"},
        });
        let job = case(longrope, &json!({"precision": "bf16"}));
        let (copied, expected) = (run(&job, true), run(&job, false));
        // The first pass frees what the model was loaded with.
        assert_eq!((copied.0, expected.0), (2, 3));
        assert!(copied.1 == expected.1);
    }
}
