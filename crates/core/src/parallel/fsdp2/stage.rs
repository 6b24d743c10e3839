//! A stage of a pipeline that is sharded over the ranks that have it (torch/distributed/pipelining, PyTorch 2.11): gradients of micro-batches
//! accumulate unsharded, and the schedule itself has them reduced when the last one is there.

use std::rc::Rc;

use crate::building::{ForwardHooks, ModuleHooks};
use crate::job::{Fsdp2, JobSpec};
use crate::model::family::{ForwardCall, Model};
use crate::tensor::{Context, Tensor};

use super::super::{LoadedStage, WrappedStage};
use super::collectives::SIDE_STREAMS;
use super::group::ParamGroup;
use super::state::{State, Tree};
use super::{FIRST_SIDE_STREAM, shard_model};

/// `fully_shard` on every layer of a stage and on the stage.
pub(in crate::parallel) struct ShardedStage {
    hooks: Rc<ModuleHooks>,
    model: Box<dyn Model>,
    parameters: Vec<Tensor>,
    tree: Rc<Tree>,
}

impl ShardedStage {
    /// Shards the rank's stage of this number, counted from 0.
    pub(in crate::parallel) fn new(
        policy: &Fsdp2,
        job: &JobSpec,
        context: &Rc<Context>,
        (stage, number): (LoadedStage, u8),
    ) -> Self {
        let LoadedStage { model, parameters, placed, hooks, .. } = stage;
        let trained: Vec<Tensor> = parameters.into_iter().filter(Tensor::requires_grad).collect();
        let first_side_stream = FIRST_SIDE_STREAM + SIDE_STREAMS * number;
        let (tree, parameters) = shard_model(policy, job, (context, &hooks), (placed, &trained), first_side_stream);
        Self { hooks, model, parameters, tree }
    }
}

/// The hooks hold the model, whose modules hold the hooks.
impl Drop for ShardedStage {
    fn drop(&mut self) {
        self.hooks.remove_all();
    }
}

impl WrappedStage for ShardedStage {
    fn forward(&self, call: &ForwardCall, received: Option<&Tensor>) -> Option<Tensor> {
        let root = self.tree.root()?;
        let output = match received {
            Some(received) => {
                let received = Rc::clone(root).pre_forward(received);
                self.model.run_stage(call, Some(&received))?
            }
            None => {
                root.pre_forward_of_root();
                self.model.run_stage(call, None)?
            }
        };
        State::after_forward(root, &[&output]);
        Some(output)
    }

    fn begin_backward(&self, _is_last: bool) {
        self.tree.set_last_backward(false);
    }

    fn reduce_gradients(&self) {
        self.tree.reduce_gradients();
    }

    fn gather(&self) {
        self.tree.groups().for_each(|group| group.unshard_early());
    }

    fn wait_for_gather(&self) {
        self.tree.groups().for_each(|group| group.wait_for_unshard());
    }

    fn reshard(&self) {
        self.tree.groups().map(Rc::as_ref).for_each(ParamGroup::reshard);
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}
