//! What becomes of a flat parameter's gradient, from the engine to the optimizer (_runtime_utils.py and _flat_param.py).

use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::full;
use crate::tensor::{Layout, Shape, Tensor};
use crate::trace::Category;

use super::handle::{Handle, Piece};

impl Handle {
    /// `_post_backward_hook` behind `_post_backward_reshard`: the gradient is scattered, or kept whole until a later pass does.
    pub(super) fn reduce_grad(&self) {
        let Some(computed) = self.flat.grad() else { return };
        if !self.syncs.get() {
            self.make_whole_grads();
            return;
        }
        let context = &self.shared.context;
        let _stream = context.enter_stream(self.shared.post_backward_stream());
        self.flat.set_grad(None);
        let reduced = {
            let _category = context.enter_category(Category::Communication);
            let unsharded = computed.to(self.reduce_dtype());
            self.reduce_scatter(&unsharded)
        };
        self.accumulate_shard(reduced);
        drop(computed);
        self.offload_grad();
        self.use_sharded_grad_views();
    }

    /// `_init_param_reduce_dtypes`
    fn reduce_dtype(&self) -> DType {
        self.shared.options.reduce_dtype.unwrap_or(self.flat.dtype())
    }

    /// `_get_reduce_scatter_tensors`
    fn reduce_scatter(&self, unsharded: &Tensor) -> Tensor {
        let (context, world_size) = (&self.shared.context, self.shared.world_size);
        let chunk = unsharded.numel().div_ceil(world_size);
        let numel = chunk.saturating_mul(world_size);
        let dtype = unsharded.dtype();
        let pads = numel > unsharded.numel();
        let _padded = pads.then(|| full(context, "constant_pad_nd.default", &[numel], dtype));
        let _category = context.enter_category(Category::Gradient);
        let reduced = full(context, "empty_like.default", &[chunk], dtype);
        let _stream = context.enter_stream(self.shared.all_reduce_stream());
        reduced.to(self.orig_dtype)
    }

    /// `_accumulate_sharded_grad`: adds in place.
    fn accumulate_shard(&self, reduced: Tensor) {
        let mut saved = self.saved_grad_shard.borrow_mut();
        if saved.is_none() {
            *saved = Some(reduced);
        }
    }

    /// `_offload_grad`: the copy on the device stays until backward is over.
    fn offload_grad(&self) {
        if let Some(grad) = self.saved_grad_shard.borrow().as_ref().filter(|_| self.shared.options.cpu_offload) {
            self.shared.context.count_link(grad.bytes());
        }
    }

    /// `_use_sharded_grad_views`: parts of parameters get parts of the gradient.
    fn use_sharded_grad_views(&self) {
        let saved = self.saved_grad_shard.borrow();
        let Some(grad) = saved.as_ref().filter(|_| self.cpu_grad.borrow().is_none()) else { return };
        self.parts().for_each(|part| part.set_grad(Some(grad.alias(part.layout().clone()))));
    }

    fn parts(&self) -> impl Iterator<Item = &Tensor> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Parameter { part, .. } => part.as_ref(),
            Piece::Padding(_) => None,
        })
    }

    /// `_use_unsharded_grad_views` in `no_sync()`: where the whole parameter's gradient does not look like the part, one that does is
    /// made first, to have its data replaced.
    fn make_whole_grads(&self) {
        let Some(whole) = self.flat.grad() else { return };
        let _stream = self.shared.context.enter_stream(self.shared.unshard_stream());
        for piece in &self.pieces {
            let Piece::Parameter { tensor, part: Some(part) } = piece else { continue };
            if part.has_grad() {
                continue;
            }
            if part.sizes() != tensor.sizes() || part.dtype() != whole.dtype() {
                drop(part.another());
            }
            part.set_grad(Some(whole.alias(Layout::contiguous(Shape::new(&[part.numel()])))));
        }
    }

    /// `prepare_gradient_for_backward`: what was reduced before is put aside.
    pub(super) fn prepare_gradient_for_backward(&self) {
        let whose =
            if self.shared.options.use_orig_params { self.grad_of_parts.take() } else { self.local_shard.grad() };
        self.local_shard.set_grad(None);
        if let Some(grad) = whose.filter(|_| self.cpu_grad.borrow().is_none()) {
            self.saved_grad_shard.replace(Some(grad));
        }
    }

    pub(super) fn prepare_gradient_for_optim(&self) {
        if !self.trains() || !self.syncs.get() {
            return;
        }
        let Some(saved) = self.saved_grad_shard.take() else { return };
        let grad = self.cpu_grad.borrow().clone().unwrap_or(saved);
        if self.shared.options.use_orig_params {
            if self.cpu_grad.borrow().is_some() {
                self.parts().for_each(|part| part.set_grad(Some(grad.alias(part.layout().clone()))));
            }
            self.grad_of_parts.replace(Some(grad));
        } else {
            self.local_shard.set_grad(Some(grad));
        }
    }

    /// `_reset_flat_param_grad_info_if_needed`: gradients go when no parameter has one any more.
    pub(super) fn reset_grad_info(&self) {
        if self.shared.options.use_orig_params && !self.parts().any(Tensor::has_grad) {
            drop(self.grad_of_parts.take());
            self.flat.set_grad(None);
        }
    }

    /// A shard that stays on the host, pinned, with `CPUOffload`.
    pub(super) fn shard_on_host(shard: &Tensor) -> Tensor {
        shard.to_host((HostKind::Pinned, Category::Parameter))
    }
}
