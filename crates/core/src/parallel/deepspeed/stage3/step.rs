//! `DeepSpeedZeroOptimizer_Stage3.step`: a norm, then group by group an fp32 gradient and the optimizer over a rank's fp32 weights.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, UNTOLD, full, number_from_host, stack_scalars};
use crate::optimizer::{Optimizer, Traffic};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::gradients::Gradients;
use super::offload::Offload;
use super::param::{Param, Status};

/// A group of parameters that is stepped at once.
pub(super) struct Group {
    /// Places among the trained parameters.
    pub members: Vec<usize>,
    /// Their parts in fp32.
    pub master: Tensor,
    pub optimizer: Box<dyn Optimizer>,
}

/// The optimizer over a rank's fp32 weights.
pub(super) struct PartOptimizer {
    pub groups: Vec<Group>,
    pub gradients: Rc<Gradients>,
    pub params: Vec<Rc<Param>>,
    pub clips: bool,
    /// Whether what is trained has 16 bits that overflow.
    pub checks_overflow: bool,
    /// `offload_param`: parts of weights lie on the host.
    pub has_params_on_host: bool,
    /// `_global_grad_norm` of the last step.
    pub norm: Option<Tensor>,
}

impl PartOptimizer {
    fn context(&self) -> &Rc<Context> {
        &self.gradients.context
    }

    /// `has_overflow`, which fp16 asks for.
    fn check_overflow(&self) {
        let flat = &self.gradients.flat;
        let _stream = self.gradients.enter_stream();
        let any = |found: &Tensor| drop(found.reduce_all("any.default", ReduceKind::Max, DType::Bool));
        {
            let magnitude = flat.unary("abs.default", flat.dtype());
            let is_inf = magnitude.map("eq.Scalar", DType::Bool);
            drop(magnitude);
            any(&is_inf);
        }
        any(&flat.map("ne.Tensor", DType::Bool));
        let found = full(self.context(), "clone.default", &[1], DType::Bool);
        drop(found.to(DType::Uint8));
    }

    /// `get_grad_norm_direct`: each gradient is cast to double for it.
    fn norm_of(&self, gradients: &[Tensor]) -> Tensor {
        let norms: Vec<Tensor> = gradients.iter().map(|gradient| gradient.to(DType::Float64).norm()).collect();
        let squares = {
            let stacked = stack_scalars(&norms);
            let sizes = [norms.len() as u64];
            let squares = full(self.context(), "pow.Tensor_Scalar", &sizes, DType::Float64);
            drop(stacked);
            squares
        };
        let sum = squares.sum();
        drop(squares);
        let total = sum.unary("pow.Tensor_Scalar", DType::Float64);
        let _is_inf = {
            let magnitude = total.unary("abs.default", total.dtype());
            magnitude.map("eq.Scalar", DType::Bool)
        };
        let is_nan = total.map("ne.Tensor", DType::Bool);
        let _either = is_nan.map("logical_or.default", DType::Bool);
        let error = number_from_host(self.context(), "_to_copy.default", -1.0, DType::Float32);
        let _cast = error.to(DType::Float64);
        total.unary("where.self", DType::Float64)
    }

    /// `_prepare_fp32_grad_for_sub_group`: one part is flat as it is.
    fn flat_gradient(&self, parts: &[Tensor]) -> Option<Tensor> {
        let _category = self.context().enter_category(Category::Gradient);
        let first = parts.first()?;
        let elements = parts.iter().map(Tensor::numel).sum();
        let flat = match parts {
            [one] => one.clone(),
            _ => full(self.context(), "flatten_dense_tensors", &[elements], first.dtype()),
        };
        Some(flat.to(DType::Float32))
    }

    /// `unscale_and_clip_grads`
    fn clip(scaled: &Tensor) {
        let mut clip = {
            let sum = scaled.div_scalar(UNTOLD).add_scalar(UNTOLD);
            sum.div_scalar(UNTOLD)
        };
        clip = clip.unary("clamp.default", clip.dtype());
        let combined = clip.mul_scalar(UNTOLD);
        // A number divided by a tensor.
        let reciprocal = combined.unary("reciprocal.default", combined.dtype());
        drop(reciprocal.mul_scalar(UNTOLD));
    }

    /// `_post_step`: small parameters are gathered to stay.
    fn gather_persistent(&self) {
        let small = self.params.iter().filter(|param| param.persists && param.is(Status::NotAvailable));
        let small: Vec<&Rc<Param>> = small.collect();
        match small.as_slice() {
            [one] => one.gather_alone(),
            several => Param::gather_together(several),
        }
    }

    /// The same step where fp32 weights and their gradients lie on the host.
    fn step_on_host(&mut self, offload: &Offload) {
        offload.agree_on_step(&self.gradients, self.checks_overflow);
        self.groups.iter().for_each(|group| offload.norm_of(&self.gradients.context, &group.members));
        for group in &mut self.groups {
            group.optimizer.step();
            if !self.has_params_on_host {
                let elements = group.master.numel();
                self.gradients.context.count_link(elements.saturating_mul(self.gradients.dtype.size()));
            }
        }
        offload.end_step();
        self.gather_persistent();
    }
}

/// One norm of several groups', and whether it is finite (`combine_grad_norm_groups`, DeepSpeed 0.19.8).
pub(in crate::parallel::deepspeed) fn combine_norms(norms: &[Tensor]) -> Option<Tensor> {
    let stacked = stack_scalars(norms)?;
    let _is_invalid = has_invalid(&stacked);
    let combined = stacked.norm();
    let _infinite = combined.ones_like();
    Some(combined.unary("where.self", combined.dtype()))
}

/// `(~torch.isfinite(norm) | (norm < 0)).any()`
fn has_invalid(norm: &Tensor) -> Tensor {
    let is_finite = {
        let magnitude = norm.unary("abs.default", norm.dtype());
        let below_infinity = magnitude.map("ne.Scalar", DType::Bool);
        let is_number = norm.map("eq.Tensor", DType::Bool);
        let both = is_number.map("mul.Tensor", DType::Bool);
        drop((is_number, below_infinity, magnitude));
        both
    };
    let is_not = is_finite.map("bitwise_not.default", DType::Bool);
    drop(is_finite);
    let is_below = norm.map("lt.Scalar", DType::Bool);
    let either = is_not.map("bitwise_or.Tensor", DType::Bool);
    drop((is_not, is_below));
    either.reduce_all("any.default", ReduceKind::Max, DType::Bool)
}

impl Optimizer for PartOptimizer {
    fn step(&mut self) {
        self.gradients.coordinator.release_all();
        let gradients = Rc::clone(&self.gradients);
        if let Some(offload) = &gradients.offload {
            return self.step_on_host(offload);
        }
        if self.checks_overflow {
            self.check_overflow();
        }
        let parts: Vec<Vec<Tensor>> = self.groups.iter().map(|group| self.gradients.parts(&group.members)).collect();
        let norms: Vec<Tensor> = parts.iter().map(|parts| self.norm_of(parts)).collect();
        let Some(scaled) = combine_norms(&norms) else { return };
        drop(has_invalid(&scaled));
        // The engine keeps the last step's until this one is done.
        let _of_engine = self.norm.replace(scaled.div_scalar(UNTOLD));
        for (at, parts) in parts.iter().enumerate() {
            let gradient = self.flat_gradient(parts);
            if self.clips {
                Self::clip(&scaled);
            }
            let Some(group) = self.groups.get_mut(at) else { continue };
            group.master.set_grad(gradient);
            group.optimizer.step();
            group.master.set_grad(None);
        }
        self.gather_persistent();
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}
