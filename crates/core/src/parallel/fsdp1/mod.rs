//! FSDP1, `FullyShardedDataParallel` round every layer and the model (torch/distributed/fsdp, PyTorch 2.11): the parameters of a
//! layer are one flat parameter, of which a rank keeps a shard; it is gathered when the layer runs, and its gradient is scattered.
//!
//! `init` makes the flat parameters, `handle` is one, `reduce` what becomes of its gradient, `state` the hooks that call it all.
//! What other streams still use is free at once here, as where their work is done; on a GPU it is free later.

mod handle;
mod init;
mod reduce;
mod state;

use std::cell::OnceCell;
use std::rc::Rc;

use crate::building::ModuleHooks;
use crate::dtype::DType;
use crate::job::{Framework, Fsdp1, JobSpec};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::optimizer::{self, Optimizer};
use crate::tensor::{Context, Tensor};
use crate::trace::{Allocation, Category, Trace};

use super::{Loaded, Wrapper};
use handle::Handle;
use state::{State, Tree};

/// What all flat parameters share.
struct Shared {
    context: Rc<Context>,
    options: Fsdp1,
    /// Ranks that a model is sharded over, and the place of this one among them.
    world_size: u64,
    rank: u64,
    /// The number before those of its streams: each tree of wrappers has its own.
    streams_before: u8,
    /// Whether accelerate makes trained shards fp32.
    upcasts: bool,
    /// Whether frozen layers hold their inputs and the gradients of those until backward is over: the hook that waits for them
    /// is on a leaf, that the recomputation makes, and holds what accumulates into it (torch/autograd/graph.py,
    /// `register_multi_grad_hook`), which is let go when FSDP takes the hook away.
    holds_inputs: bool,
}

impl Shared {
    /// `_uses_param_mixed_precision`: whether shards are cast before they are gathered.
    fn casts(&self, orig_dtype: DType) -> bool {
        self.options.param_dtype.is_some_and(|dtype| dtype != orig_dtype)
    }

    const fn pre_unshard_stream(&self) -> u8 {
        self.streams_before + 1
    }

    /// `_unshard_stream`, on which backward puts a layer's gradients together too.
    fn unshard_stream(&self) -> u8 {
        self.streams_before + unshard_stream(&self.options)
    }

    fn post_backward_stream(&self) -> u8 {
        self.unshard_stream() + 1
    }

    /// `_all_reduce_stream`, on which sharded gradients are cast with HSDP.
    fn all_reduce_stream(&self) -> u8 {
        self.post_backward_stream() + u8::from(self.options.replicate_size > 1)
    }
}

/// The most that a tree has: one to cast on, one to gather on, one for gradients, one for those of all groups.
const STREAMS: u8 = 4;

/// Side streams are numbered in the order that they first allocate: what is cast or comes from the host does so before it is
/// gathered.
fn unshard_stream(options: &Fsdp1) -> u8 {
    if options.cpu_offload || options.param_dtype.is_some() { 2 } else { 1 }
}

/// Bytes of a layer's gathered parameters, as most of what was gathered has them.
pub(crate) fn gathered_layer(options: &Fsdp1, trace: &Trace) -> u64 {
    let stream = unshard_stream(options);
    let is_gathered = |one: &&Allocation| one.category == Category::Communication && one.stream == stream;
    let mut gathered: Vec<u64> = trace.allocations.iter().filter(is_gathered).map(|one| one.bytes).collect();
    gathered.sort_unstable();
    gathered.get(gathered.len() / 2).copied().unwrap_or_default()
}

/// A model in `FullyShardedDataParallel`.
struct FlatSharded {
    hooks: Rc<ModuleHooks>,
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    /// How many of them the Trainer has decay: it puts them first.
    decaying: usize,
    tree: Rc<Tree>,
    /// Trained parameters that are not sharded (`ignored_modules`).
    unmanaged: Vec<Tensor>,
    /// `_zero_scalar`
    zero: OnceCell<Tensor>,
}

/// The hooks hold the model, whose modules hold the hooks.
impl Drop for FlatSharded {
    fn drop(&mut self) {
        self.hooks.remove_all();
    }
}

/// Puts the model in `FullyShardedDataParallel`.
pub(super) fn wrap_fsdp1(options: &Fsdp1, job: &JobSpec, context: &Rc<Context>, loaded: Loaded) -> Box<dyn Wrapper> {
    let upcasts = matches!(job.framework, Framework::Trl | Framework::Trainer | Framework::Accelerate)
        && job.precision.autocast_dtype().is_some();
    wrap_flat(options, job, context, loaded, (0, [upcasts, job.use_reentrant]))
}

/// The same round a model that is not trained: accelerate does not see it.
pub(super) fn wrap_frozen(options: Fsdp1, job: &JobSpec, context: &Rc<Context>, loaded: Loaded) -> Box<dyn Wrapper> {
    wrap_flat(&options, job, context, loaded, (STREAMS, [false, false]))
}

fn wrap_flat(
    options: &Fsdp1,
    job: &JobSpec,
    context: &Rc<Context>,
    loaded: Loaded,
    (streams_before, [upcasts, holds_inputs]): (u8, [bool; 2]),
) -> Box<dyn Wrapper> {
    let Loaded { model, parameters, placed, builder, .. } = loaded;
    let hooks = builder.module_hooks();
    let (world_size, rank) = job.parallel.sharding_group();
    let shared = Rc::new(Shared {
        context: Rc::clone(context),
        options: *options,
        world_size,
        rank,
        streams_before,
        upcasts,
        holds_inputs,
    });
    let (handles, buffers) = init::flatten_units(&shared, placed);
    let is_managed = |parameter: &&Tensor| handles.iter().any(|handle| handle.holds(parameter));
    let unmanaged = parameters.iter().filter(|parameter| !is_managed(parameter)).cloned().collect();
    let in_trainer = matches!(job.framework, Framework::Trl | Framework::Trainer);
    let (parameters, decaying) = stepped_parameters(options, &handles, parameters, in_trainer);
    let tree = Tree::new(shared, &hooks, handles, buffers);
    Box::new(FlatSharded { hooks, model, parameters, decaying, tree, unmanaged, zero: OnceCell::new() })
}

/// `model.parameters()`: the root's flat parameter, then those of the layers; or the model's own, as far as they lie here. The
/// Trainer's optimizer has matrices first, as they are in the model; how many decay.
fn stepped_parameters(
    options: &Fsdp1,
    handles: &[Rc<Handle>],
    mut listed: Vec<Tensor>,
    in_trainer: bool,
) -> (Vec<Tensor>, usize) {
    let is_managed = |parameter: &Tensor| handles.iter().any(|handle| handle.holds(parameter));
    if !options.use_orig_params {
        listed.retain(|parameter| !is_managed(parameter));
        let flat: Vec<Tensor> = handles.iter().filter_map(|handle| handle.stepped_shard()).chain(listed).collect();
        let count = flat.len();
        return (flat, count);
    }
    let decays = |parameter: &Tensor| !in_trainer || optimizer::decays(parameter);
    listed.sort_by_key(|parameter| !decays(parameter));
    let part = |parameter: &Tensor| match is_managed(parameter) {
        true => handles.iter().find_map(|handle| handle.stepped_part(parameter)),
        false => Some(parameter.clone()),
    };
    let decaying = listed.iter().filter(|parameter| decays(parameter)).filter_map(part).count();
    (listed.iter().filter_map(part).collect(), decaying)
}

impl Wrapper for FlatSharded {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let Some(root) = self.tree.root() else { return self.model.forward(call) };
        self.tree.root_pre_forward();
        root.pre_forward_of_root();
        let output = self.model.forward(call);
        let outputs: Vec<&Tensor> = [&output.loss, &output.logits].into_iter().flatten().collect();
        State::after_forward(root, &outputs);
        output
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        let root = self.tree.root()?;
        self.tree.root_pre_forward();
        root.pre_forward_of_root();
        let outputs = forward(self.model.as_ref());
        State::after_forward(root, &outputs.iter().collect::<Vec<&Tensor>>());
        Some(outputs)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn set_gradient_sync(&self, sync: bool) {
        // `no_sync()`
        if !sync {
            self.tree.initialize();
        }
        self.tree.handles().for_each(|handle| handle.syncs.set(sync));
    }

    fn clip_grad_norm(&self) {
        let norm = self.clip_for_log();
        drop(norm);
    }

    fn clip_for_log(&self) -> Option<Tensor> {
        let context = &self.tree.shared.context;
        self.zero.get_or_init(|| full(context, "_to_copy.default", &[], DType::Float32));
        let is_unmanaged = |parameter: &&Tensor| self.unmanaged.iter().any(|one| one.is_same(parameter));
        let (unmanaged, sharded): (Vec<Tensor>, Vec<Tensor>) =
            self.parameters.iter().cloned().partition(|one| is_unmanaged(&one));
        optimizer::clip_flat_grad_norm(&sharded, &unmanaged)
    }

    fn optimizers(&self, job: &JobSpec) -> Vec<Box<dyn Optimizer>> {
        let (decaying, rest) = self.parameters.split_at(self.decaying);
        optimizer::build_groups(job, decaying, rest)
    }
}
