//! `torch.amp.GradScaler` (torch/amp/grad_scaler.py): scales the loss under fp16 autocast, unscales the gradients in
//! place, and skips steps whose gradients overflowed; here none do.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{UNTOLD, full};
use crate::tensor::{Context, Tensor};

use super::Optimizer;

/// The scaler of one optimizer.
pub(crate) struct GradScaler {
    context: Rc<Context>,
    scale: Option<Scale>,
    /// Whether the gradients of this step hold infinities; set by unscaling, dropped by `update`.
    found_inf: Option<Tensor>,
}

/// The scale and the count of steps since it last changed, made when the first loss is scaled.
struct Scale {
    value: Tensor,
    _growth_tracker: Tensor,
}

impl GradScaler {
    /// A scaler; nothing is on the device yet.
    pub(crate) fn new(context: &Rc<Context>) -> Self {
        Self { context: Rc::clone(context), scale: None, found_inf: None }
    }

    /// `scaler.scale(loss)`
    pub(crate) fn scale(&mut self, loss: &Tensor) -> Tensor {
        loss * self.current_scale()
    }

    /// `scaler.unscale_(optimizer)`: the inverse of the scale is computed in double precision.
    pub(crate) fn unscale(&mut self) {
        let reciprocal = {
            let double = self.current_scale().to(DType::Float64);
            double.unary("reciprocal.default", double.dtype())
        };
        let inverse = reciprocal.to(DType::Float32);
        drop(reciprocal);
        self.check_and_unscale(&inverse);
    }

    /// `scaler.step(optimizer)`: unscales first unless that is done, or leaves it to an optimizer that can.
    pub(crate) fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.around_step(optimizer.unscales(), &mut || optimizer.step());
    }

    /// The same of an optimizer with several groups of parameters.
    pub(crate) fn step_all(&mut self, groups: &mut [Box<dyn Optimizer>]) {
        let unscales = groups.iter().any(|group| group.unscales());
        self.around_step(unscales, &mut || groups.iter_mut().for_each(|group| group.step()));
    }

    fn around_step(&mut self, unscales: bool, step: &mut dyn FnMut()) {
        if !unscales {
            if self.found_inf.is_none() {
                self.unscale();
            }
            step();
            return;
        }
        let ready = self.found_inf.is_none();
        if ready {
            self.check_finite();
        }
        // `sum` starts from the number 0, so even one flag is added into a new tensor.
        let _found_inf = self.found_inf.as_ref().map(|flag| flag.add_scalar(0.0));
        let _scale = ready.then(|| self.current_scale().mul_scalar(UNTOLD));
        step();
    }

    /// `scaler.update()`
    pub(crate) fn update(&mut self) {
        self.found_inf = None;
    }

    /// Looks for infinities without unscaling (`_check_inf_per_device`).
    fn check_finite(&mut self) {
        let one = full(&self.context, "full.default", &[], DType::Float32);
        self.check_and_unscale(&one);
    }

    /// `_unscale_grads_`: one op over all gradients, on a copy of the flag (kept) and of the inverse scale.
    fn check_and_unscale(&mut self, inverse: &Tensor) {
        let flag = full(&self.context, "full.default", &[], DType::Float32);
        self.found_inf = Some(flag.unary("_to_copy.default", flag.dtype()));
        let _inverse = inverse.unary("_to_copy.default", inverse.dtype());
    }

    fn current_scale(&mut self) -> &Tensor {
        let context = &self.context;
        let scale = self.scale.get_or_insert_with(|| Scale {
            value: full(context, "full.default", &[], DType::Float32),
            _growth_tracker: full(context, "full.default", &[], DType::Int32),
        });
        &scale.value
    }
}
