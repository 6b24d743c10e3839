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
            outermost: dtype.is_some() && outer.is_none(),
            _scope: self.replace_autocast(inner),
        }
    }

    /// `torch.autocast(enabled=False)`; the cache stays.
    pub fn disable_autocast(&self) -> Scope<'_, Option<DType>> {
        self.replace_autocast(None)
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
