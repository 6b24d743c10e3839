//! `DistributedDataParallel` (torch/nn/parallel/distributed.py, PyTorch 2.11): the same model on every rank, gradients
//! reduced in buckets.

use std::cell::Cell;
use std::rc::Rc;

use crate::job::Ddp;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::tensor::{Context, Gradients, NodeBuilder, Tensor};

use super::broadcast::broadcast_coalesced;
use super::reducer::Reducer;
use super::{Loaded, Wrapper};

pub(super) struct DistributedDataParallel {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    hooks: DdpHooks,
}

impl DistributedDataParallel {
    pub(super) fn new(context: &Rc<Context>, loaded: Loaded, options: Ddp) -> Self {
        let hooks = DdpHooks::new(context, &loaded.all_parameters, loaded.buffers, loaded.parameters.clone(), options);
        Self { model: loaded.model, parameters: loaded.parameters, hooks }
    }

    fn post_forward(&self, output: &ModelOutput) -> ModelOutput {
        output.with_tensors(self.hooks.post_forward(output.tensors()))
    }
}

/// What stands before and behind the forward pass of any model that it wraps.
pub(crate) struct DdpHooks {
    context: Rc<Context>,
    buffers: Vec<Tensor>,
    reducer: Rc<Reducer>,
    /// Whether `_DDPSink` stands behind every pass.
    looks_for_unused: bool,
    require_backward_grad_sync: Cell<bool>,
    require_forward_param_sync: Cell<bool>,
}

impl DdpHooks {
    /// Rank 0's parameters and buffers are broadcast, then the reducer makes its buckets of those that are `trained`.
    pub(crate) fn new(
        context: &Rc<Context>,
        parameters: &[Tensor],
        buffers: Vec<Tensor>,
        trained: Vec<Tensor>,
        options: Ddp,
    ) -> Self {
        let module_states: Vec<Tensor> = parameters.iter().chain(&buffers).cloned().collect();
        broadcast_coalesced(&module_states);
        let reducer = Reducer::new(context, trained, options);
        Self {
            context: Rc::clone(context),
            buffers,
            reducer,
            looks_for_unused: options.find_unused_parameters && !options.static_graph,
            require_backward_grad_sync: Cell::new(true),
            require_forward_param_sync: Cell::new(true),
        }
    }

    /// `_pre_forward`
    pub(crate) fn pre_forward(&self) {
        if self.context.is_grad_enabled() {
            self.reducer.rebuild_buckets();
        }
        if self.require_forward_param_sync.get() {
            broadcast_coalesced(&self.buffers);
        }
    }

    /// Whether the passes that follow reduce gradients: entering and leaving `no_sync()`.
    pub(crate) fn set_gradient_sync(&self, sync: bool) {
        self.require_backward_grad_sync.set(sync);
    }

    /// The gradients of the backward pass that comes are reduced, whatever was said in forward
    /// (`reducer.prepare_for_backward`, which schedules of pipelines call).
    pub(crate) fn reduce_next_backward(&self) {
        self.reducer.prepare_for_backward();
    }

    fn prepare_for_backward(&self) {
        let synchronizes = self.context.is_grad_enabled() && self.require_backward_grad_sync.get();
        if synchronizes {
            self.reducer.prepare_for_backward();
        }
        self.require_forward_param_sync.set(synchronizes);
    }

    /// What `_post_forward` makes of the tensors that the model returns.
    pub(crate) fn post_forward(&self, outputs: Vec<Tensor>) -> Vec<Tensor> {
        self.prepare_for_backward();
        if self.looks_for_unused || self.reducer.is_delayed() { self.sink(outputs) } else { outputs }
    }

    /// `_DDPSink`: outputs are cloned; in a static graph's first pass backward begins by putting the reduction off to its
    /// end. Those without a gradient are handed on as they were.
    fn sink(&self, outputs: Vec<Tensor>) -> Vec<Tensor> {
        let delayed = self.reducer.is_delayed().then(|| (Rc::clone(&self.context), Rc::clone(&self.reducer)));
        let backward = move |gradients: &[Option<Tensor>]| -> Gradients {
            if let Some((context, reducer)) = &delayed {
                let reducer = Rc::clone(reducer);
                context.queue_callback(move || reducer.delay_all_reduce());
            }
            gradients.iter().cloned().map(|gradient| gradient.map(Into::into)).collect()
        };
        let node = {
            let with_gradient: Vec<&Tensor> = outputs.iter().filter(|output| output.requires_grad()).collect();
            NodeBuilder::new("_DDPSinkBackward", with_gradient)
        };
        let clones: Vec<Tensor> = outputs.iter().map(|output| output.unary("clone.default", output.dtype())).collect();
        let is_passed: Vec<bool> = outputs.iter().map(Tensor::requires_grad).collect();
        let cloned =
            clones.iter().zip(&is_passed).filter(|(_, passed)| **passed).map(|(clone, _)| clone.clone()).collect();
        let mut passed = node.finish_list(cloned, backward).into_iter();
        let chosen = |(output, is_passed): (Tensor, bool)| if is_passed { passed.next() } else { Some(output) };
        outputs.clone().into_iter().zip(is_passed).filter_map(chosen).collect()
    }
}

impl Wrapper for DistributedDataParallel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.hooks.pre_forward();
        let output = self.model.forward(call);
        self.post_forward(&output)
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        self.hooks.pre_forward();
        let outputs = forward(self.model.as_ref());
        Some(self.hooks.post_forward(outputs))
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn divides_optimizer(&self) -> bool {
        false
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.hooks.set_gradient_sync(sync);
    }
}
