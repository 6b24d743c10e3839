//! `DeepSpeedZeroOptimizer.step`: a check and a norm, a flat fp32 gradient, the optimizer over a rank's fp32 weights.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::ReduceKind;
use crate::op::{UNTOLD, full, stack_scalars};
use crate::optimizer::{Optimizer, Traffic};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::gradients::{Averaged, Gradients};
use super::stage3::combine_norms;

/// The optimizer over a rank's part of the fp32 weights.
pub(super) struct ZeroOptimizer {
    groups: Vec<Group>,
    gradients: Rc<Gradients>,
    clips: bool,
    /// `_global_grad_norm` of the last step.
    norm: Option<Tensor>,
}

/// A group of parameters, and this rank's part of them in fp32.
pub(super) struct Group {
    pub optimizer: Box<dyn Optimizer>,
    pub master: Tensor,
}

impl ZeroOptimizer {
    pub(super) const fn new(groups: Vec<Group>, gradients: Rc<Gradients>, clips: bool) -> Self {
        Self { groups, gradients, clips, norm: None }
    }

    /// `has_overflow_partitioned_grads_serial`, which 16 bits ask for.
    fn check_overflow(&self, averaged: &[Averaged]) {
        let context = &self.gradients.context;
        if self.gradients.dtype == DType::Float32 {
            return;
        }
        let _count = full(context, "zeros.default", &[1], DType::Float32);
        for gradient in averaged.iter().flat_map(|group| group.parts.iter().chain(&group.padding)) {
            let is_finite = |op| {
                let extreme = gradient.reduce_all(op, ReduceKind::Max, gradient.dtype());
                extreme.map("isfinite.default", DType::Bool)
            };
            let (above, below) = (is_finite("amax.default"), is_finite("amin.default"));
            let _both = above.map("logical_and.default", DType::Bool);
            drop(below);
        }
    }

    /// `get_grad_norm_direct`: each gradient is cast to double for it.
    fn norm_of(&self, averaged: &Averaged) -> Tensor {
        let norms: Vec<Tensor> = averaged.parts.iter().map(|gradient| gradient.to(DType::Float64).norm()).collect();
        let stacked = match stack_scalars(&norms) {
            Some(stacked) => stacked,
            None => full(&self.gradients.context, "zeros.default", &[1], DType::Float32),
        };
        let sum = stacked.sum();
        sum.to(DType::Float32).unary("pow.Tensor_Scalar", DType::Float32)
    }

    /// The norm over all groups of parameters (`scaled_global_norm`, DeepSpeed 0.19.8).
    fn global_norm(&self, averaged: &[Averaged]) -> Option<Tensor> {
        let norms: Vec<Tensor> = averaged.iter().map(|group| self.norm_of(group)).collect();
        match norms.as_slice() {
            [one] => Some(one.clone()),
            several => combine_norms(several),
        }
    }

    /// `flatten(averaged_gradients[i]).to(float32)`; one tensor is flat as it is.
    fn flat_gradient(&self, averaged: Averaged) -> Tensor {
        let Gradients { context, dtype, .. } = self.gradients.as_ref();
        let _category = context.enter_category(Category::Gradient);
        let elements = averaged.parts.iter().chain(&averaged.padding).map(Tensor::numel).sum();
        let flat = match (averaged.parts.as_slice(), &averaged.padding) {
            ([one], None) | ([], Some(one)) => one.clone(),
            _ => full(context, "flatten_dense_tensors", &[elements], *dtype),
        };
        flat.to(DType::Float32)
    }
}

impl Optimizer for ZeroOptimizer {
    fn step(&mut self) {
        if let Some(offload) = self.gradients.offload() {
            offload.agree_on_step(self.gradients.dtype);
            self.groups.iter_mut().for_each(|group| group.optimizer.step());
            return offload.end_step();
        }
        let averaged = self.gradients.averaged.take();
        self.check_overflow(&averaged);
        let Some(scaled) = self.global_norm(&averaged) else { return };
        // The engine keeps the last step's until this one is done.
        let _of_engine = self.norm.replace(scaled.div_scalar(UNTOLD));
        for (at, averaged) in averaged.into_iter().enumerate() {
            let gradient = self.flat_gradient(averaged);
            if self.clips {
                let sum = scaled.div_scalar(UNTOLD).add_scalar(UNTOLD);
                let clamped = sum.div_scalar(UNTOLD).unary("clamp.default", sum.dtype());
                let _factor = clamped.mul_scalar(UNTOLD).unary("reciprocal.default", clamped.dtype());
            }
            let Some(group) = self.groups.get_mut(at) else { continue };
            group.master.set_grad(Some(gradient));
            group.optimizer.step();
            group.master.set_grad(None);
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}
