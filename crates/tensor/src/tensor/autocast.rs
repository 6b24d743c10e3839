//! Autocast (aten/src/ATen/autocast_mode.cpp, PyTorch 2.11): which inputs an op casts, and the cache of weight casts.

use std::rc::Rc;

use super::context::Context;
use super::handle::{Leaf, Tensor};
use super::scope::Scope;
use crate::dtype::DType;
use tonnage_alloc::trace::Category;

/// `torch.autocast("cuda", dtype)` until dropped; leaving the outermost one clears the cache.
pub struct AutocastScope<'a> {
    context: &'a Context,
    outermost: bool,
    _scope: Scope<'a, Option<DType>>,
    _own: Scope<'a, bool>,
}

impl Drop for AutocastScope<'_> {
    fn drop(&mut self) {
        if self.outermost {
            self.context.clear_autocast_cache();
        }
    }
}

impl Context {
    /// Enters autocast with a dtype, or nothing for `None`.
    pub fn autocast(&self, dtype: Option<DType>) -> AutocastScope<'_> {
        let outer = self.autocast.get();
        let inner = dtype.or(outer);
        AutocastScope {
            context: self,
            outermost: dtype.is_some() && (outer.is_none() || self.autocast_is_lent.get()),
            _scope: self.replace_autocast(inner),
            _own: self.lend_autocast(self.autocast_is_lent.get() && dtype.is_none()),
        }
    }

    /// The autocast that a backward pass runs under, in a thread of its own: none, but where the process says so. What is entered there
    /// is that thread's outermost, which clears the cache that all threads share, as recomputed layers do.
    pub(super) fn enter_backward_autocast(&self) -> (Scope<'_, Option<DType>>, Scope<'_, bool>) {
        let dtype = self.autocast.get().filter(|_| self.autocasts_backward.get());
        (self.replace_autocast(dtype), self.lend_autocast(dtype.is_some()))
    }

    /// `torch.autocast(enabled=False)`; the cache stays.
    pub fn disable_autocast(&self) -> Scope<'_, Option<DType>> {
        self.replace_autocast(None)
    }

    /// From here on backward passes run under autocast where it is on when they are asked for, as the engine has them, which takes on the
    /// thread's state: programs leave it before, schedules of pipelines run within it.
    pub fn autocast_backward(&self) {
        self.autocasts_backward.set(true);
    }

    /// The dtype of autocast where it is on.
    pub fn autocast_dtype(&self) -> Option<DType> {
        self.autocast.get()
    }

    fn clear_autocast_cache(&self) {
        // The weights that these hold go when all copies have gone.
        let ends = self.autocast_ends.take();
        ends.iter().for_each(|end| end());
    }
}

impl Tensor {
    /// The tensor as an op of autocast's fp32 list takes it.
    pub fn cast_to_float32(&self) -> Tensor {
        match self.context().autocast.get() {
            Some(_) => self.cached_cast(DType::Float32),
            None => self.clone(),
        }
    }

    fn drop_cast(&self) {
        if let Some(leaf) = self.leaf() {
            let cast = leaf.cast.take();
            drop(cast);
        }
    }

    /// `cached_cast`: half copies of fp32 leaves that require grad are kept until autocast ends.
    fn cached_cast(&self, dtype: DType) -> Tensor {
        if !self.dtype().is_floating_point() || self.dtype() == dtype {
            return self.clone();
        }
        let is_cached =
            |leaf: &&Rc<Leaf>| dtype.is_half() && self.dtype() == DType::Float32 && leaf.computed.borrow().is_none();
        let Some(leaf) = self.leaf().filter(is_cached) else {
            return self.to(dtype);
        };
        if let Some(cast) = leaf.cast.borrow().as_ref() {
            return cast.clone();
        }
        let cast = self.to(dtype);
        cast.set_category(Category::WeightCast);
        leaf.cast.replace(Some(cast.clone()));
        let weight = self.clone();
        self.context().autocast_ends.borrow_mut().push(Box::new(move || weight.drop_cast()));
        cast
    }
}

/// The arguments of an op of autocast's lower-precision list, cast last to first as the compiled wrapper evaluates
/// them.
pub fn cast_arguments<const N: usize>(arguments: [&Tensor; N]) -> [Tensor; N] {
    let mut cast = arguments.map(Tensor::clone);
    if let Some(dtype) = cast.first().and_then(|first| first.context().autocast.get()) {
        for argument in cast.iter_mut().rev().filter(|argument| argument.dtype() != dtype) {
            *argument = argument.cached_cast(dtype);
        }
    }
    cast
}

/// Whether autocast is on where this tensor is used.
pub fn is_autocast(tensor: &Tensor) -> bool {
    tensor.context().autocast.get().is_some()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Device;
    use crate::tensor::Shape;

    fn context() -> Rc<Context> {
        Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 })
    }

    fn leaf(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
        Tensor::empty(context, "empty.default", Shape::new(sizes), dtype).into_parameter()
    }

    #[test]
    fn a_cast_that_passes_share_hands_on_the_gradient_of_each() {
        let context = context();
        let weight = leaf(&context, &[8], DType::Float32);
        let arrived = Rc::new(Cell::new(0));
        let count = Rc::clone(&arrived);
        weight.register_post_accumulate_grad_hook(move || count.set(count.get() + 1));
        let autocast = context.autocast(Some(DType::Bfloat16));
        let passes = [0; 3].map(|_| cast_arguments([&weight])[0].mul_scalar(2.0));
        passes.iter().for_each(Tensor::backward);
        drop(autocast);
        assert_eq!(arrived.get(), 3);
    }

    #[test]
    fn a_backward_pass_under_autocast_sums_in_fp32() {
        let has_wide_sum = |autocasts: bool| {
            let context = context();
            if autocasts {
                context.autocast_backward();
            }
            let bias = leaf(&context, &[1, 8], DType::Bfloat16);
            let _autocast = context.autocast(Some(DType::Bfloat16));
            bias.expand(&[4, 8]).mul_scalar(2.0).backward();
            let trace = context.take_trace();
            trace.allocations.iter().any(|allocation| allocation.bytes == 8 * 4)
        };
        assert_eq!((has_wide_sum(true), has_wide_sum(false)), (true, false));
    }

    /// Its threads share the cache, but not how deep in autocast they are.
    #[test]
    fn autocast_within_a_backward_pass_clears_the_cache_when_it_ends() {
        let context = context();
        context.autocast_backward();
        let weight = leaf(&context, &[8], DType::Float32);
        let _autocast = context.autocast(Some(DType::Bfloat16));
        let cast = cast_arguments([&weight])[0].clone();
        drop(context.autocast(Some(DType::Bfloat16)));
        assert!(cast_arguments([&weight])[0].is_same(&cast));
        let backward = context.enter_backward_autocast();
        drop(context.autocast(Some(DType::Bfloat16)));
        drop(backward);
        assert!(!cast_arguments([&weight])[0].is_same(&cast));
    }
}
