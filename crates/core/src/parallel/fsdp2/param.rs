//! One parameter under FSDP2 (_fsdp_param.py, `FSDPParam`).

use std::cell::RefCell;
use std::rc::Rc;

use crate::host::HostKind;
use crate::job::Fsdp2;
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

use super::{Mesh, Precision};

/// Where a rank's shard of a parameter ends: `torch.chunk` along dimension 0, all chunks padded to the first one's size.
#[derive(Clone, Copy)]
pub(super) struct ShardSizes {
    /// `sharded_size`
    pub local: Shape,
    /// `padded_sharded_param_size`
    pub padded: Shape,
}

impl ShardSizes {
    pub(super) fn new(sizes: &Shape, mesh: Mesh) -> Self {
        let rows = sizes.first().copied().unwrap_or(1);
        let chunk = rows.div_ceil(mesh.world_size.max(1));
        let before = chunk.saturating_mul(mesh.rank);
        let local = rows.saturating_sub(before).min(chunk);
        Self { local: sizes.with(0, local), padded: sizes.with(0, chunk) }
    }
}

/// A sharded parameter.
pub(super) struct FsdpParam {
    /// `_unsharded_param`: what the model computes with; its storage is that of the all-gather output.
    pub unsharded: Tensor,
    /// `sharded_param`: what the optimizer steps.
    pub sharded: Tensor,
    /// `_sharded_param_data`: the padded shard.
    data: Tensor,
    /// `unsharded_accumulated_grad`
    accumulated_grad: RefCell<Option<Tensor>>,
    pub precision: Precision,
    /// How the host holds the shard and its gradient.
    pub cpu_offload: Option<HostKind>,
    world_size: u64,
}

impl FsdpParam {
    /// A parameter over its padded shard.
    pub(super) fn new(unsharded: Tensor, data: Tensor, sizes: ShardSizes, mesh: Mesh, policy: &Fsdp2) -> Self {
        let precision = Precision::new(policy, data.dtype());
        let sharded = data.alias(Layout::contiguous(sizes.local));
        let sharded = if unsharded.requires_grad() { sharded.into_parameter() } else { sharded };
        let world_size = mesh.world_size;
        let cpu_offload = policy.cpu_offload;
        Self { unsharded, sharded, data, accumulated_grad: RefCell::default(), precision, cpu_offload, world_size }
    }

    /// The padded shard.
    pub(super) const fn sharded_data(&self) -> &Tensor {
        &self.data
    }

    /// `all_gather_inputs`: the padded shard as it is gathered, copied from the host and cast where it must be.
    pub(super) fn all_gather_input(&self, context: &Rc<Context>) -> Tensor {
        let data = if self.cpu_offload.is_some() { self.data.to_device(context) } else { self.data.clone() };
        self.precision.param_dtype.map_or_else(|| data.clone(), |dtype| data.to(dtype))
    }

    /// Bytes of the padded shard in the dtype that is gathered.
    pub(super) fn gathered_bytes_per_rank(&self) -> u64 {
        self.data.numel().saturating_mul(self.unsharded.dtype().size())
    }

    /// `init_all_gather_outputs` and `alloc_all_gather_outputs`
    pub(super) fn alloc_all_gather_output(&self) {
        let _category = self.unsharded.context().enter_category(Category::Communication);
        let bytes = self.gathered_bytes_per_rank().saturating_mul(self.world_size);
        self.unsharded.alloc_storage("FSDP::all_gather_copy_out", bytes);
    }

    /// `accumulate_unsharded_grad_if_needed`: adds in place.
    pub(super) fn accumulate_unsharded_grad_if_needed(&self) {
        if self.accumulated_grad.borrow().is_some() {
            self.unsharded.set_grad(None);
        }
    }

    /// `to_accumulated_grad_if_needed`
    pub(super) fn to_accumulated_grad_if_needed(&self) {
        let Some(reduce_dtype) = self.precision.reduce_dtype else { return };
        let Some(grad) = self.unsharded.grad().filter(|grad| grad.dtype() != reduce_dtype) else { return };
        self.unsharded.set_grad(None);
        let accumulated = grad.to(reduce_dtype);
        self.accumulated_grad.replace(Some(accumulated));
    }

    /// The gradient to reduce, which the parameter gives up.
    pub(super) fn take_unsharded_grad(&self) -> Option<Tensor> {
        self.accumulated_grad.take().or_else(|| {
            let grad = self.unsharded.grad();
            self.unsharded.set_grad(None);
            grad
        })
    }

    /// Numel of the padded gradient on all ranks together.
    pub(super) fn padded_unsharded_numel(&self) -> u64 {
        self.data.numel().saturating_mul(self.world_size)
    }

    /// A view of the reduced gradients becomes this parameter's, or is added to the one that is there.
    pub(super) fn accumulate_sharded_grad(&self, reduce_output: &Tensor) {
        let is_first = self.sharded.grad().is_none();
        let grad = reduce_output.alias(self.sharded.layout().clone());
        let grad = match self.cpu_offload {
            None => grad,
            // A copy that is added at once waits for it, and is not pinned.
            Some(kind) => grad.to_host((if is_first { kind } else { HostKind::Pageable }, Category::Gradient)),
        };
        if is_first {
            self.sharded.set_grad(Some(grad));
        }
    }
}
