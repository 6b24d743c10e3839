//! [`Wrapped`]: the model that a trainer trains, inside the wrapper that `accelerator.prepare` puts round it; called without,
//! it is a [`Prepared`] model, and both are [`Called`].

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use crate::dtype::DType;
use crate::job::JobSpec;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::op::TokenOutputs;
use crate::parallel::{self, Loaded, Wrapper};
use crate::tensor::Context;
use crate::trace::PhaseKind;

use super::fused_head::{FusedCall, FusedCausalLmOutput, fused_forward};
use super::prepared::{Prepared, convert_outputs_to_fp32};

/// A model that trainers call: `model(**inputs)`; `None` where its wrapper cannot be called this way.
pub(super) trait Called {
    /// With its own head.
    fn call(&self, call: &ForwardCall) -> Option<ModelOutput>;

    /// With TRL's fused head.
    fn call_fused(&self, call: &FusedCall) -> Option<FusedCausalLmOutput>;
}

impl Called for Prepared<'_> {
    fn call(&self, call: &ForwardCall) -> Option<ModelOutput> {
        Some(self.forward(call))
    }

    fn call_fused(&self, call: &FusedCall) -> Option<FusedCausalLmOutput> {
        let _autocast = self.context.autocast(self.autocast);
        Some(fused_forward(self, call))
    }
}

/// The trained model until and after it is wrapped.
pub(super) struct Wrapped<'a> {
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    /// What its fused head returns beside log-probabilities.
    head_outputs: TokenOutputs,
    /// What accelerate has its forward run under.
    autocast: Option<DType>,
    wrap: Wrap,
    loaded: RefCell<Option<Loaded>>,
    wrapper: OnceCell<Box<dyn Wrapper>>,
}

/// What puts a wrapper round a model.
type Wrap = fn(&JobSpec, &Rc<Context>, Loaded) -> Box<dyn Wrapper>;

impl<'a> Wrapped<'a> {
    pub(super) fn new(job: &'a JobSpec, context: &'a Rc<Context>, loaded: Loaded, head_outputs: TokenOutputs) -> Self {
        let autocast = job.precision.autocast_dtype();
        let (loaded, wrapper) = (RefCell::new(Some(loaded)), OnceCell::new());
        Self { job, context, head_outputs, autocast, wrap: parallel::wrap_model, loaded, wrapper }
    }

    /// A model that is not trained, as TRL prepares it at once (trl 1.16, models/utils.py): sharded as the policy is, or as it is.
    pub(super) fn frozen(job: &'a JobSpec, context: &'a Rc<Context>, loaded: Loaded) -> Self {
        let frozen = Self::new(job, context, loaded, TokenOutputs::default());
        let autocast = frozen.autocast.filter(|_| !job.parallel.shards_frozen_models());
        let frozen = Self { autocast, wrap: parallel::wrap_frozen, ..frozen };
        frozen.wrap_loaded();
        frozen
    }

    /// `accelerator.prepare(model)`
    pub(super) fn prepare(&self) {
        if self.wrap_loaded() {
            self.context.phase(PhaseKind::Between);
        }
    }

    fn wrap_loaded(&self) -> bool {
        let Some(loaded) = self.loaded.take() else { return false };
        self.wrapper.get_or_init(|| (self.wrap)(self.job, self.context, loaded));
        true
    }

    pub(super) fn wrapper(&self) -> Option<&dyn Wrapper> {
        self.wrapper.get().map(Box::as_ref)
    }

    fn prepared_model<'b>(&'b self, model: &'b dyn Model) -> Prepared<'b> {
        Prepared { context: self.context, model, autocast: self.autocast, head_outputs: self.head_outputs }
    }
}

impl Called for Wrapped<'_> {
    fn call(&self, call: &ForwardCall) -> Option<ModelOutput> {
        let wrapper = self.wrapper()?;
        let mut returned = None;
        let mut inner = |model: &dyn Model| {
            let output = self.prepared_model(model).forward(call);
            let tensors = output.tensors();
            returned = Some(output);
            tensors
        };
        if let Some(outputs) = wrapper.around(&mut inner) {
            return returned.map(|returned| returned.with_tensors(outputs));
        }
        let output = {
            let _autocast = self.context.autocast(self.autocast);
            wrapper.forward(call)
        };
        Some(if self.autocast.is_some() { convert_outputs_to_fp32(&output) } else { output })
    }

    fn call_fused(&self, call: &FusedCall) -> Option<FusedCausalLmOutput> {
        let mut rest = None;
        let outputs = self.wrapper()?.around_fused(&mut |model| {
            let output = self.prepared_model(model).call_fused(call);
            let tensors = output.iter().flat_map(FusedCausalLmOutput::tensors).collect();
            rest = output;
            tensors
        })?;
        Some(rest?.with_tensors(outputs))
    }
}
