//! FSDP2, `fully_shard` on every layer and on the model (torch/distributed/fsdp/_fully_shard, PyTorch 2.11): a rank
//! keeps a shard of each parameter, gathers a layer's parameters when the layer runs and scatters its gradients.
//!
//! `init` makes the shards, `param` is one parameter, `group` a layer's parameters, `collectives` what is gathered and
//! reduced, `state` the hooks that call it all, `stage` a stage of a pipeline.

mod collectives;
mod group;
mod init;
mod param;
mod stage;
mod state;

use std::rc::Rc;

use crate::building::{ModuleHooks, Placed};
use crate::dtype::DType;
use crate::job::{Fsdp2, JobSpec, keys};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::optimizer;
use crate::tensor::{Context, Tensor};

use super::{Loaded, Wrapper};
use group::{CommContext, ParamGroup};
use init::Unit;
pub(super) use stage::ShardedStage;
use state::{State, Tree};

/// What holds for all groups.
#[derive(Clone, Copy)]
struct Mesh {
    /// Ranks that a model is sharded over, and the place of this one among them.
    world_size: u64,
    rank: u64,
    /// Whether there are other groups of such ranks.
    replicates: bool,
}

/// A parameter's dtypes by a `MixedPrecisionPolicy`, without those that ask for no cast.
#[derive(Clone, Copy)]
struct Precision {
    orig_dtype: DType,
    param_dtype: Option<DType>,
    reduce_dtype: Option<DType>,
}

impl Precision {
    /// `FSDPParam.init_dtype_attrs`
    fn new(policy: &Fsdp2, orig_dtype: DType) -> Self {
        Self {
            orig_dtype,
            param_dtype: policy.param_dtype.filter(|dtype| *dtype != orig_dtype),
            reduce_dtype: policy.reduce_dtype.filter(|dtype| Some(*dtype) != policy.param_dtype),
        }
    }
}

/// A sharded model.
struct FullyShardedModel {
    hooks: Rc<ModuleHooks>,
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    tree: Rc<Tree>,
    world_size: u64,
}

/// The hooks hold the model, whose modules hold the hooks.
impl Drop for FullyShardedModel {
    fn drop(&mut self) {
        self.hooks.remove_all();
    }
}

/// Shards a model.
pub(super) fn wrap_fsdp2(policy: &Fsdp2, job: &JobSpec, context: &Rc<Context>, loaded: Loaded) -> Box<dyn Wrapper> {
    let Loaded { model, parameters, placed, builder, .. } = loaded;
    let hooks = builder.module_hooks();
    let (tree, parameters) = shard_model(policy, job, (context, &hooks), (placed, &parameters), FIRST_SIDE_STREAM);
    let (world_size, _) = job.parallel.sharding_group();
    Box::new(FullyShardedModel { hooks, model, parameters, tree, world_size })
}

/// The streams behind the default one.
const FIRST_SIDE_STREAM: u8 = 1;

/// Shards a model's tensors and puts hooks round its layers, with side streams from the given one on; its trained parameters are what the
/// optimizer steps, in the given order.
fn shard_model(
    policy: &Fsdp2,
    job: &JobSpec,
    (context, hooks): (&Rc<Context>, &ModuleHooks),
    (placed, parameters): (Vec<Placed>, &[Tensor]),
    first_side_stream: u8,
) -> (Rc<Tree>, Vec<Tensor>) {
    let (world_size, rank) = job.parallel.sharding_group();
    let mesh = Mesh { world_size, rank, replicates: policy.replicate_size > 1 };
    let is_first = first_side_stream == FIRST_SIDE_STREAM;
    let units = init::shard_units(policy, (context, is_first), mesh, placed);
    units.iter().for_each(|unit| check_trained_dtypes(context, unit));
    let sharded: Vec<(Tensor, Tensor)> = units.iter().flat_map(Unit::parameters).collect();
    let in_order = parameters.iter().filter_map(|parameter| {
        let (_, sharded) = sharded.iter().find(|(unsharded, _)| unsharded.is_same(parameter))?;
        Some(sharded.clone())
    });
    let parameters = in_order.collect();
    let comm = Rc::new(CommContext::new(context, first_side_stream));
    let group = |unit: Unit| {
        let reshards = policy.reshard_after_forward && unit.module.is_some();
        (unit.module, Rc::new(ParamGroup::new(unit.params, Rc::clone(&comm), mesh, reshards)))
    };
    let tree = Tree::new(context, hooks, units.into_iter().map(group), policy.param_dtype);
    (tree, parameters)
}

/// `_init_mp_dtypes`: what a group trains has one dtype.
fn check_trained_dtypes(context: &Rc<Context>, unit: &Unit) {
    let trained = unit.params.iter().filter(|param| param.sharded.requires_grad());
    let mut dtypes = trained.map(|param| param.precision.orig_dtype);
    let Some(first) = dtypes.next() else { return };
    if dtypes.any(|dtype| dtype != first) {
        context.fail(&[keys::FSDP2_SHARD_ROOT_ONLY, keys::PRECISION], || {
            "`fsdp2`: a group trains adapters in fp32 beside weights in another dtype (\"FSDP expects uniform original parameter \
             dtype\")"
                .to_owned()
        });
    }
}

impl Wrapper for FullyShardedModel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let Some(root) = self.tree.root() else { return self.model.forward(call) };
        root.pre_forward_of_root();
        let output = self.model.forward(call);
        let outputs: Vec<&Tensor> = [&output.loss, &output.logits].into_iter().flatten().collect();
        State::after_forward(root, &outputs);
        output
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.tree.groups().for_each(|group| group.reduce_grads.set(sync));
    }

    fn clip_grad_norm(&self) {
        match self.world_size {
            1 => optimizer::clip_grad_norm(&self.parameters),
            _ => optimizer::clip_sharded_grad_norm(&self.parameters),
        };
    }
}
