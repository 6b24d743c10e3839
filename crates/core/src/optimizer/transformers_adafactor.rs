//! transformers' own Adafactor (optimization.py, 5.17, as the Trainer makes it: no relative step) and GaLore's, which is the same on projected
//! gradients (galore_torch 1.0, adafactor.py): variances in fp32 whatever the weights are. It goes from parameter to parameter, and its
//! variables stay until the next one's replace them.

use crate::dtype::DType;
use crate::job::LowRankSpec;
use crate::op::{UNTOLD, full};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::galore::Galore;
use super::low_rank::{Projected, Projection, Stepped};
use super::state::zeros_like;
use super::{Optimizer, Traffic};

/// Row and column variances of what has two dimensions or more, a whole variance of the rest.
enum Variance {
    Factored { row: Tensor, column: Tensor },
    Whole(Tensor),
}

#[derive(Default)]
struct State {
    projected: Projected,
    variance: Option<Variance>,
    /// The weights' root mean square.
    rms: Option<Tensor>,
}

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    gradient: Option<Tensor>,
    weights: Option<Tensor>,
    update: Option<Tensor>,
}

pub(super) struct TransformersAdafactor {
    parameters: Vec<(Tensor, State)>,
    /// Those from here on are projected.
    first_projected: usize,
    spec: LowRankSpec,
}

impl TransformersAdafactor {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        let first_projected = parameters.len();
        let parameters = parameters.into_iter().map(|parameter| (parameter, State::default())).collect();
        Self { parameters, first_projected, spec: LowRankSpec::default() }
    }

    /// GaLore's: the gradients of linear layers that are named are projected.
    pub(super) fn in_low_rank(parameters: Vec<Tensor>, spec: &LowRankSpec) -> Self {
        let (parameters, first_projected) = super::low_rank::others_first(parameters, spec);
        Self { first_projected, spec: spec.clone(), ..Self::new(parameters) }
    }
}

impl Optimizer for TransformersAdafactor {
    fn step(&mut self) {
        let mut variables = Variables::default();
        for (at, (parameter, state)) in self.parameters.iter_mut().enumerate() {
            let Some(whole) = parameter.grad() else { continue };
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            let is_projected = at >= self.first_projected;
            variables.gradient = Some(whole.clone());
            if whole.dtype().is_half() {
                variables.gradient = Some(in_fp32(&whole));
            }
            if is_projected {
                let projected = |gradient| state.projected.project(&gradient, &self.spec, &Galore);
                variables.gradient = variables.gradient.take().map(projected);
            }
            let Some(gradient) = &variables.gradient else { continue };
            let variance = state.variance.get_or_insert_with(|| Variance::new(gradient));
            variables.weights = Some(parameter.clone());
            if parameter.dtype().is_half() {
                variables.weights = Some(in_fp32(parameter));
            }
            let rms = variables.weights.as_ref().map(root_mean_square);
            rms.iter().for_each(|rms| rms.set_category(Category::OptimizerState));
            state.rms = rms;
            variables.update = Some({
                let squares = gradient.unary("pow.Tensor_Scalar", gradient.dtype());
                squares.add_scalar(UNTOLD)
            });
            variables.update = variables.update.as_ref().map(|squares| variance.estimate(gradient, squares));
            variables.update.iter().for_each(clip);
            if let (true, Some(matrix)) = (is_projected, state.projected.matrix()) {
                let (direction, norm) = (&mut variables.update, &mut None);
                Galore.update(Stepped { gradient: &whole, projected: gradient, matrix, direction, norm });
            }
            drop(variables.update.as_ref().map(|update| update.unary("neg.default", update.dtype())));
        }
    }

    fn traffic(&self) -> Traffic {
        // update.mul_ 3, div_ 2, mul_ 2, the parameter's add_ 3.
        Traffic::of_passes(10)
    }
}

fn in_fp32(tensor: &Tensor) -> Tensor {
    tensor.unary("_to_copy.default", DType::Float32)
}

/// `_rms`
fn root_mean_square(tensor: &Tensor) -> Tensor {
    let norm = tensor.norm();
    norm.unary("div.Tensor", norm.dtype())
}

/// Divides an update by its root mean square where that is above the threshold.
fn clip(update: &Tensor) {
    let size = root_mean_square(update);
    let _ratio = size.unary("div.Tensor", size.dtype());
    drop(size);
}

impl Variance {
    fn new(gradient: &Tensor) -> Self {
        let context = gradient.context();
        let _category = context.enter_category(Category::OptimizerState);
        let rank = gradient.sizes().len();
        if rank < 2 {
            return Self::Whole(zeros_like(gradient));
        }
        // Made on the host.
        let without = |at| full(context, "_to_copy.default", &gradient.sizes().removed(at), gradient.dtype());
        Self::Factored { row: without(rank - 1), column: without(rank - 2) }
    }

    /// The direction, given the gradient's squares.
    fn estimate(&self, gradient: &Tensor, squares: &Tensor) -> Tensor {
        match self {
            Self::Factored { row, column } => {
                let rank = gradient.sizes().len();
                drop(squares.mean_along(rank - 1));
                drop(squares.mean_along(rank - 2));
                let _rows = {
                    let mean = row.mean_along(row.sizes().len() - 1);
                    row.binary("div.Tensor", &mean, row.dtype())
                };
                let _columns = column.unary("rsqrt.default", column.dtype());
                full(gradient.context(), "mul.Tensor", gradient.sizes(), gradient.dtype())
            }
            Self::Whole(variance) => variance.unary("rsqrt.default", variance.dtype()),
        }
    }
}
