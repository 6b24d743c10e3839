//! `offload_optimizer` at stage 3: fp32 weights, their gradient and the optimizer's states lie on the host. Each reduced gradient is
//! summed up there, and comes back once in a step for its norm (`partition_grads`, deepspeed/runtime/zero/stage3.py, 0.19.8).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{full, number_from_host};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::gradients::{Gradients, part_of};

/// Elements whose norm is taken at once (`_constant_buffered_norm2`).
const NORM_BUFFER: u64 = 250_000_000;

/// Where a step is among its passes, and what the last one leaves for it.
pub(super) struct Offload {
    /// `micro_step_id`: passes since the last step.
    pass: Cell<u64>,
    pub is_boundary: Cell<bool>,
    /// `norm_for_param_grads`, by the places of trained parameters.
    norms: RefCell<BTreeMap<usize, Tensor>>,
}

impl Default for Offload {
    fn default() -> Self {
        Self { pass: Cell::new(0), is_boundary: Cell::new(true), norms: RefCell::default() }
    }
}

impl Offload {
    pub(super) fn end_pass(&self) {
        self.pass.set(self.pass.get() + 1);
    }

    /// `partition_grads` of what was reduced: this rank's part of each goes to the host.
    pub(super) fn take_parts(&self, gradients: &Gradients, reduced: &[usize]) {
        let context = &gradients.context;
        let _category = context.enter_category(Category::Gradient);
        let is_later = self.pass.get() > 0;
        // What Python's names hold until they are bound anew: what was summed up here, one parameter longer.
        let (mut grad_buffer, mut summed) = (None, None);
        for &at in reduced {
            let Some(param) = gradients.trained.get(at) else { continue };
            let part = part_of(param, gradients.rank);
            if part == 0 {
                param.tensor.set_grad(None);
                continue;
            }
            drop(grad_buffer.take());
            let on_device = full(context, "_to_copy.default", &[part], gradients.dtype);
            // There and back, in whichever order.
            context.count_link(on_device.bytes().saturating_mul(2));
            if is_later {
                drop(summed.replace(on_device.clone()));
            }
            if self.is_boundary.get() {
                self.take_norm(at, &on_device);
            }
            grad_buffer = Some(on_device);
            param.tensor.set_grad(None);
        }
    }

    /// `_offload_grad_partition_at_boundary`: the norm is taken in fp64, piece by piece, and the part goes to the host in fp32.
    fn take_norm(&self, at: usize, part: &Tensor) {
        let (context, elements) = (part.context(), part.numel());
        let mut norm: Option<Tensor> = None;
        for begin in (0..elements).step_by(NORM_BUFFER as usize) {
            let count = NORM_BUFFER.min(elements - begin);
            let doubled = full(context, "_to_copy.default", &[count], DType::Float64);
            let square = {
                let root = doubled.norm();
                drop(doubled);
                root.unary("pow.Tensor_Scalar", DType::Float64)
            };
            norm.get_or_insert(square);
        }
        let Some(norm) = norm else { return };
        let root = norm.unary("pow.Tensor_Scalar", DType::Float64);
        self.norms.borrow_mut().insert(at, root);
        drop(norm);
        let cast = part.to(DType::Float32);
        context.count_link(cast.bytes());
    }

    /// What was learnt of the gradients is asked of all ranks before the step is taken on the host.
    pub(super) fn agree_on_step(&self, gradients: &Gradients, checks_overflow: bool) {
        self.pass.set(0);
        if checks_overflow {
            let _stream = gradients.enter_stream();
            let found = full(&gradients.context, "_to_copy.default", &[1], DType::Bool);
            drop(found.to(DType::Uint8));
        }
    }

    /// `complete_grad_norm_calculation_for_cpu_offload` of a group; what comes of it lies on the host.
    pub(super) fn norm_of(&self, context: &Rc<Context>, members: &[usize]) {
        let norms = self.norms.borrow();
        let mut total: Option<Tensor> = None;
        for norm in members.iter().filter_map(|at| norms.get(at)) {
            let square = norm.unary("pow.Tensor_Scalar", DType::Float64);
            // The first is added to a number, all others in place.
            total = total.or_else(|| Some(square.unary("add.Tensor", DType::Float64)));
        }
        let on_device = number_from_host(context, "_to_copy.default", 0.0, DType::Float32);
        let root = on_device.unary("pow.Tensor_Scalar", DType::Float32);
        drop(total);
        let is_inf = {
            let magnitude = root.unary("abs.default", DType::Float32);
            magnitude.map("eq.Scalar", DType::Bool)
        };
        let is_nan = root.map("ne.Tensor", DType::Bool);
        let either = is_nan.map("logical_or.default", DType::Bool);
        let error = number_from_host(context, "_to_copy.default", -1.0, DType::Float32);
        drop((error, either, is_nan, is_inf, root, on_device));
    }

    /// `reset_cpu_buffers`: the norms go.
    pub(super) fn end_step(&self) {
        self.norms.borrow_mut().clear();
    }
}
