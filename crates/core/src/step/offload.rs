//! [`Offload`]: where in a training loop the hooks are entered that move activations to the host.

use std::rc::Rc;

use crate::job::{JobSpec, OffloadHooks};
use crate::tensor::{Context, EnteredHooks, EnteredOffload, OffloadActivations, SaveOnCpu};

/// The hooks of a job.
pub(super) struct Offload {
    save_on_cpu: Option<SaveOnCpu>,
    /// In the process where bitsandbytes is, it empties the cache before each pass.
    streams: Option<(Rc<OffloadActivations>, bool)>,
    context: Rc<Context>,
}

impl Offload {
    pub(super) fn of(job: &JobSpec, context: &Rc<Context>) -> Self {
        let held = |hooks| job.simulated_offload().filter(|offload| offload.hooks == hooks).map(|offload| offload.held);
        let has_bitsandbytes = job.quantization.is_some() || job.optimizer.is_bitsandbytes();
        Self {
            save_on_cpu: held(OffloadHooks::SaveOnCpu).map(SaveOnCpu),
            streams: held(OffloadHooks::Streams)
                .map(|held| (OffloadActivations::new(context, held, &job.allocator), has_bitsandbytes)),
            context: Rc::clone(context),
        }
    }

    /// Round forward and backward pass.
    pub(super) fn enter_pass(&self) -> Option<EnteredOffload<'_>> {
        let (streams, empties_cache) = self.streams.as_ref()?;
        let entered = streams.enter();
        if *empties_cache {
            self.context.empty_cache();
        }
        Some(entered)
    }

    /// Round forward pass and loss.
    pub(super) fn enter_forward(&self) -> Option<EnteredHooks> {
        self.save_on_cpu.map(|hooks| hooks.enter(&self.context))
    }
}
