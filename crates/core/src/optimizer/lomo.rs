//! LOMO and AdaLomo (lomo-optim 0.1.1): a backward pass that steps. When a gradient arrives, a hook steps every parameter that has one, so
//! that at most two are there at a time; what is left is stepped at the end.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::keys;
use crate::op::{UNTOLD, full};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::{Optimizer, Traffic};

/// What AdaLomo keeps of squares, in fp32, from when it is made.
enum Variance {
    Factored { row: Tensor, column: Tensor },
    Whole(Tensor),
}

/// Python variables of the hook's loop.
#[derive(Default)]
struct Variables {
    gradient: Option<Tensor>,
    weights: Option<Tensor>,
    update: Option<Tensor>,
    rms: Option<Tensor>,
    scale: Option<Tensor>,
    rate: Option<Tensor>,
}

/// What the hooks step.
struct Stepped {
    parameters: Vec<Tensor>,
    /// AdaLomo's, for each parameter.
    variances: Option<Vec<Variance>>,
}

pub(super) struct Lomo(Rc<Stepped>);

impl Lomo {
    /// Stochastic gradient descent.
    pub(super) fn plain(parameters: Vec<Tensor>) -> Self {
        Self::hooked(Stepped { parameters, variances: None })
    }

    /// With Adafactor's variances, by which gradients are divided.
    pub(super) fn adaptive(parameters: Vec<Tensor>) -> Self {
        let variances = Some(parameters.iter().map(Variance::new).collect());
        Self::hooked(Stepped { parameters, variances })
    }

    fn hooked(stepped: Stepped) -> Self {
        let stepped = Rc::new(stepped);
        for parameter in &stepped.parameters {
            let hooked = Rc::clone(&stepped);
            parameter.register_arrival_hook(Some(Rc::new(move || hooked.step_gradients())));
        }
        Self(stepped)
    }
}

impl Optimizer for Lomo {
    /// Nothing, once a backward pass of its own has stepped.
    fn step(&mut self) {
        self.0.step_gradients();
    }

    fn fused_backward(&mut self, loss: &Tensor) -> bool {
        // AdaLomo scales the loss, which its caller keeps.
        let scaled = self.0.variances.as_ref().map(|_| loss.mul_scalar(UNTOLD));
        scaled.as_ref().unwrap_or(loss).backward();
        self.0.step_gradients();
        true
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}

impl Drop for Lomo {
    fn drop(&mut self) {
        self.0.parameters.iter().for_each(|parameter| parameter.register_arrival_hook(None));
    }
}

impl Stepped {
    /// The hook: `fuse_update`.
    fn step_gradients(&self) {
        let mut variables = Variables::default();
        for (at, parameter) in self.parameters.iter().enumerate() {
            let Some(gradient) = parameter.grad() else { continue };
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            variables.gradient = Some(in_fp32(&gradient));
            drop(gradient);
            parameter.set_grad(None);
            // The weights' add_ 3, a copy back 2.
            context.count_bytes(parameter.bytes().saturating_mul(5));
            if let Some(variance) = self.variances.as_ref().and_then(|variances| variances.get(at)) {
                variables.adapt(variance);
            }
            variables.weights = Some(in_fp32(parameter));
            if self.variances.is_some() {
                variables.scale_rate();
            }
        }
    }
}

impl Variables {
    /// AdaLomo's direction, clipped.
    fn adapt(&mut self, variance: &Variance) {
        let Some(gradient) = &self.gradient else { return };
        // div_ 2, the direction's mul_ 3 and div_ 2.
        gradient.context().count_bytes(gradient.bytes().saturating_mul(7));
        self.update = Some({
            let squares = gradient.unary("pow.Tensor_Scalar", gradient.dtype());
            squares.add_scalar(UNTOLD)
        });
        self.update = self.update.as_ref().map(|squares| variance.estimate(gradient, squares));
        drop(self.update.as_ref().map(|update| {
            let size = root_mean_square(update);
            size.unary("div.Tensor", size.dtype())
        }));
    }

    /// The rate times the weights' size, unless that is below a floor, which weights are not that were trained.
    fn scale_rate(&mut self) {
        self.rms = self.weights.as_ref().map(root_mean_square);
        let Some(rms) = &self.rms else { return };
        self.rate = None;
        drop(rms.map("gt.Scalar", DType::Bool));
        self.scale = Some(rms.clone());
        self.rate = Some(rms.unary("mul.Tensor", rms.dtype()));
        drop(rms.unary("neg.default", rms.dtype()));
    }
}

impl Variance {
    fn new(parameter: &Tensor) -> Self {
        let (context, sizes) = (parameter.context(), parameter.sizes());
        let _module = context.enter_module(parameter.module());
        let _category = context.enter_category(Category::OptimizerState);
        let zeros = |at| full(context, "_to_copy.default", &[parameter.size(at)], DType::Float32);
        match sizes.len() {
            1 => Self::Whole(zeros(0)),
            2 => Self::Factored { row: zeros(0), column: zeros(1) },
            rank => {
                context.fail_unsimulated(&[keys::OPTIMIZER], || {
                    format!("AdaLomo fails at weights of {rank} dimensions: optimizer = \"lomo\" steps them")
                });
                Self::Whole(full(context, "_to_copy.default", &[1], DType::Float32))
            }
        }
    }

    fn estimate(&self, gradient: &Tensor, squares: &Tensor) -> Tensor {
        match self {
            Self::Factored { row, column } => {
                drop(squares.mean_along(1));
                drop(squares.mean_along(0));
                let _rows = {
                    let mean = row.mean_along(0);
                    row.binary("div.Tensor", &mean, row.dtype())
                };
                let _columns = column.unary("rsqrt.default", column.dtype());
                full(gradient.context(), "mul.Tensor", gradient.sizes(), gradient.dtype())
            }
            Self::Whole(variance) => variance.unary("rsqrt.default", variance.dtype()),
        }
    }
}

/// `tensor.to(torch.float32)`, which is the tensor itself where it is of that dtype.
fn in_fp32(tensor: &Tensor) -> Tensor {
    let is_there = tensor.dtype() == DType::Float32;
    if is_there { tensor.detach() } else { tensor.detach().unary("_to_copy.default", DType::Float32) }
}

/// `_rms`: the norm over the root of the number of elements.
fn root_mean_square(tensor: &Tensor) -> Tensor {
    let norm = tensor.norm();
    norm.unary("div.Tensor", norm.dtype())
}
