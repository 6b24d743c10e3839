//! The parameters that are gathered and reduced together (_fsdp_param_group.py, `FSDPParamGroup`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::tensor::{Context, Tensor};

use super::Mesh;
use super::collectives::{foreach_all_gather, foreach_all_gather_copy_out, foreach_reduce};
use super::param::FsdpParam;

/// `TrainingState`
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainingState {
    Forward,
    PreBackward,
    PostBackward,
    Idle,
}

/// `FSDPCommContext`: what all groups share.
pub(super) struct CommContext {
    pub context: Rc<Context>,
    /// The last all-gather output of forward, alive until the next group has copied its own out.
    pub all_gather_state: RefCell<Option<AllGatherResult>>,
    /// The last reduce-scatter input, alive until the next group reduces.
    pub reduce_scatter_state: RefCell<Option<Tensor>>,
    pub post_forward_order: RefCell<Vec<Rc<ParamGroup>>>,
    /// The first of its side streams: models that are sharded apart have streams of their own.
    pub first_side_stream: u8,
}

impl CommContext {
    pub(super) fn new(context: &Rc<Context>, first_side_stream: u8) -> Self {
        Self {
            context: Rc::clone(context),
            first_side_stream,
            all_gather_state: RefCell::default(),
            reduce_scatter_state: RefCell::default(),
            post_forward_order: RefCell::default(),
        }
    }
}

/// What an all-gather leaves behind until it is copied out.
pub(super) enum AllGatherResult {
    /// On one rank nothing is gathered.
    Alone,
    /// The gathered shards.
    Output(#[expect(dead_code, reason = "whoever holds the result holds its memory")] Tensor),
}

/// What a schedule's own code runs on.
const DEFAULT_STREAM: u8 = 0;

pub(super) struct ParamGroup {
    pub params: Vec<FsdpParam>,
    pub comm: Rc<CommContext>,
    pub mesh: Mesh,
    pub training_state: Cell<TrainingState>,
    pub reduce_grads: Cell<bool>,
    pub reshard_after_backward: Cell<bool>,
    reshard_after_forward: bool,
    is_unsharded: Cell<bool>,
    /// `_all_reduce_state`: what HSDP all-reduces lives until backward is over.
    all_reduce_state: RefCell<Option<Tensor>>,
    all_gather_result: RefCell<Option<AllGatherResult>>,
    post_forward_indices: RefCell<Vec<usize>>,
}

impl ParamGroup {
    pub(super) fn new(params: Vec<FsdpParam>, comm: Rc<CommContext>, mesh: Mesh, reshard_after_forward: bool) -> Self {
        Self {
            params,
            comm,
            mesh,
            training_state: Cell::new(TrainingState::Idle),
            reduce_grads: Cell::new(true),
            reshard_after_backward: Cell::new(true),
            reshard_after_forward,
            is_unsharded: Cell::new(false),
            all_reduce_state: RefCell::default(),
            all_gather_result: RefCell::default(),
            post_forward_indices: RefCell::default(),
        }
    }

    /// Whether there is nothing to gather: PyTorch has no group then, as round a pipeline's stage that has layers alone.
    pub(super) const fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    pub(super) const fn is_unsharded(&self) -> bool {
        self.is_unsharded.get()
    }

    /// Gathers the shards, unless that was done.
    pub(super) fn unshard(&self) {
        self.unshard_on(self.comm.first_side_stream);
    }

    /// The same outside of any pass, on the stream of the caller (`get_all_gather_streams`).
    pub(super) fn unshard_early(&self) {
        self.unshard_on(DEFAULT_STREAM);
    }

    fn unshard_on(&self, stream: u8) {
        if self.all_gather_result.borrow().is_some() || self.is_unsharded() || self.is_empty() {
            return;
        }
        let result = match self.mesh.world_size {
            1 => AllGatherResult::Alone,
            _ => AllGatherResult::Output(foreach_all_gather(self, stream)),
        };
        self.all_gather_result.replace(Some(result));
    }

    /// Gives the parameters their memory. In forward the gathered shards stay until the next group has copied out its
    /// own; else they go at once.
    pub(super) fn wait_for_unshard(&self) {
        let Some(result) = self.all_gather_result.take() else { return };
        let in_forward = self.training_state.get() == TrainingState::Forward;
        // The previous one's last reference is a local variable.
        let _previous = if in_forward { self.comm.all_gather_state.take() } else { None };
        match result {
            AllGatherResult::Alone => self.copy_shards(),
            AllGatherResult::Output(_) => foreach_all_gather_copy_out(self),
        }
        self.is_unsharded.set(true);
        if in_forward && self.mesh.world_size > 1 {
            self.comm.all_gather_state.replace(Some(result));
        }
    }

    /// On one rank the parameters are copies of the shards; each cast stays until the next one is there.
    fn copy_shards(&self) {
        let mut all_gather_input = None;
        for param in &self.params {
            all_gather_input = Some(param.all_gather_input(&self.comm.context));
            param.alloc_all_gather_output();
        }
        drop(all_gather_input);
    }

    /// Takes the gathered parameters' memory away, except after the forward pass of a group that keeps them.
    pub(super) fn reshard(&self) {
        let in_forward = self.training_state.get() == TrainingState::Forward;
        if !in_forward || self.reshard_after_forward {
            self.params.iter().for_each(|param| param.unsharded.free_storage());
            self.is_unsharded.set(false);
        }
    }

    fn reshard_after_backward(&self) {
        if self.reshard_after_backward.get() {
            self.reshard();
        }
    }

    pub(super) fn pre_forward(&self) {
        self.training_state.set(TrainingState::Forward);
        self.unshard();
        self.wait_for_unshard();
    }

    pub(super) fn post_forward(self: &Rc<Self>) {
        if self.is_empty() {
            return;
        }
        self.reshard();
        let mut order = self.comm.post_forward_order.borrow_mut();
        self.post_forward_indices.borrow_mut().push(order.len());
        order.push(Rc::clone(self));
        self.training_state.set(TrainingState::Idle);
    }

    /// Gathers the parameters, and the shards of the group that ran before this one.
    pub(super) fn pre_backward(&self) {
        if self.training_state.replace(TrainingState::PreBackward) == TrainingState::PreBackward {
            return;
        }
        self.unshard();
        self.wait_for_unshard();
        let Some(index) = self.post_forward_indices.borrow_mut().pop() else { return };
        let order = self.comm.post_forward_order.borrow();
        if let Some(target) = index.checked_sub(1).and_then(|index| order.get(index)) {
            target.unshard();
        }
    }

    /// Reduces the gradients, or keeps them whole until a later pass does.
    pub(super) fn post_backward(&self) {
        self.training_state.set(TrainingState::PostBackward);
        self.params.iter().for_each(FsdpParam::accumulate_unsharded_grad_if_needed);
        if !self.reduce_grads.get() {
            self.reshard_after_backward();
            self.params.iter().for_each(FsdpParam::to_accumulated_grad_if_needed);
            return;
        }
        let with_grad = |param| FsdpParam::take_unsharded_grad(param).map(|grad| (param, grad));
        let (params, unsharded_grads): (Vec<&FsdpParam>, Vec<Tensor>) =
            self.params.iter().filter_map(with_grad).unzip();
        self.reshard_after_backward();
        if params.is_empty() {
            return;
        }
        drop(self.comm.reduce_scatter_state.take());
        drop(self.all_reduce_state.take());
        let (reduce_scatter_input, all_reduce_input) = foreach_reduce(self, &params, unsharded_grads).unzip();
        self.comm.reduce_scatter_state.replace(reduce_scatter_input);
        self.all_reduce_state.replace(all_reduce_input.flatten());
    }

    pub(super) fn finalize_backward(&self) {
        drop(self.all_reduce_state.take());
        drop(self.all_gather_result.take());
        self.post_forward_indices.borrow_mut().clear();
    }
}
