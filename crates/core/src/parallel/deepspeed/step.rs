//! `DeepSpeedZeroOptimizer.step`: a check and a norm, a flat fp32 gradient, the optimizer over a rank's fp32 weights.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::ReduceKind;
use crate::op::{UNTOLD, full, stack_scalars};
use crate::optimizer::{Optimizer, Traffic};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::gradients::{Averaged, Gradients};

/// The optimizer over a rank's part of the fp32 weights.
pub(super) struct ZeroOptimizer {
    optimizer: Box<dyn Optimizer>,
    master: Tensor,
    gradients: Rc<Gradients>,
    clips: bool,
    /// `_global_grad_norm` of the last step.
    norm: Option<Tensor>,
}

impl ZeroOptimizer {
    pub(super) fn new(optimizer: Box<dyn Optimizer>, master: Tensor, gradients: Rc<Gradients>, clips: bool) -> Self {
        Self { optimizer, master, gradients, clips, norm: None }
    }

    /// `has_overflow_partitioned_grads_serial`, which 16 bits ask for.
    fn check_overflow(&self, averaged: &Averaged) {
        let context = &self.gradients.context;
        if self.gradients.dtype == DType::Float32 {
            return;
        }
        let _count = full(context, "zeros.default", &[1], DType::Float32);
        for gradient in averaged.parts.iter().chain(&averaged.padding) {
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
    fn global_norm(&self, averaged: &Averaged) -> Tensor {
        let norms: Vec<Tensor> = averaged.parts.iter().map(|gradient| gradient.to(DType::Float64).norm()).collect();
        let stacked = match stack_scalars(&norms) {
            Some(stacked) => stacked,
            None => full(&self.gradients.context, "zeros.default", &[1], DType::Float32),
        };
        let sum = stacked.sum();
        sum.to(DType::Float32).unary("pow.Tensor_Scalar", DType::Float32)
    }

    /// `flatten(averaged_gradients[i]).to(float32)`; one tensor is flat as it is.
    fn flat_gradient(&self, averaged: Averaged) -> Tensor {
        let Gradients { context, dtype, partition, .. } = self.gradients.as_ref();
        let _category = context.enter_category(Category::Gradient);
        let flat = match (averaged.parts.as_slice(), &averaged.padding) {
            ([one], None) | ([], Some(one)) => one.clone(),
            _ => full(context, "flatten_dense_tensors", &[partition.elements], *dtype),
        };
        flat.to(DType::Float32)
    }
}

impl Optimizer for ZeroOptimizer {
    fn step(&mut self) {
        if let Some(offload) = self.gradients.offload() {
            offload.agree_on_step(self.gradients.dtype);
            self.optimizer.step();
            return offload.end_step();
        }
        let averaged = self.gradients.averaged.take();
        self.check_overflow(&averaged);
        let scaled = self.global_norm(&averaged);
        // The engine keeps the last step's until this one is done.
        let _of_engine = self.norm.replace(scaled.div_scalar(UNTOLD));
        let gradient = self.flat_gradient(averaged);
        if self.clips {
            let sum = scaled.div_scalar(UNTOLD).add_scalar(UNTOLD);
            let clamped = sum.div_scalar(UNTOLD).unary("clamp.default", sum.dtype());
            let _factor = clamped.mul_scalar(UNTOLD).unary("reciprocal.default", clamped.dtype());
        }
        self.master.set_grad(Some(gradient));
        self.optimizer.step();
        self.master.set_grad(None);
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}
