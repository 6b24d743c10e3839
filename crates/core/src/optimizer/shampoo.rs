//! Shampoo (pytorch_optimizer 4.1, shampoo.py): for each dimension of a parameter a square preconditioner and its root, however large, which
//! every step makes anew from a singular value decomposition; and the last direction. It goes from parameter to parameter, and its
//! variables stay until the next one's replace them.

use crate::dtype::DType;
use crate::op::{eye, zeros};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::state::States;
use super::{Optimizer, Traffic};

/// A dimension's preconditioner and its root.
struct Pair {
    preconditioner: Tensor,
    root: Tensor,
}

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    unfolded: Option<Tensor>,
    gradient: Option<Tensor>,
    transposed: Option<Tensor>,
}

pub(super) struct Shampoo {
    states: States<Vec<Pair>>,
    /// The last direction of each parameter (`momentum_buffer`).
    directions: Vec<Option<Tensor>>,
}

impl Shampoo {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        let directions = parameters.iter().map(|_| None).collect();
        Self { states: States::new(parameters), directions }
    }
}

impl Optimizer for Shampoo {
    fn step(&mut self) {
        self.states.initialize(|_, gradient| gradient.sizes().iter().map(|&size| Pair::new(gradient, size)).collect());
        let mut variables = Variables::default();
        for (at, kept) in self.directions.iter_mut().enumerate() {
            let Some(active) = self.states.active_at(at) else { continue };
            let _module = active.parameter.context().enter_module(active.parameter.module());
            let direction = variables.precondition(&active.gradient, active.state);
            direction.set_category(Category::OptimizerState);
            *kept = Some(direction);
        }
    }

    fn traffic(&self) -> Traffic {
        // The weights' add_ 3, decay 3.
        Traffic::of_passes(6)
    }
}

impl Pair {
    /// `init_group`
    fn new(gradient: &Tensor, size: u64) -> Self {
        let context = gradient.context();
        let preconditioner = eye(context, size, DType::Float32).to(gradient.dtype());
        Self { preconditioner, root: zeros(context, &[size, size], gradient.dtype()) }
    }
}

impl Variables {
    /// The gradient times the root of each dimension's preconditioner.
    fn precondition(&mut self, statistics: &Tensor, pairs: &[Pair]) -> Tensor {
        let mut gradient = statistics.clone();
        for (at, pair) in pairs.iter().enumerate() {
            let size = gradient.sizes()[at];
            let rest = gradient.numel().checked_div(size).unwrap_or(0);
            let unfolded = &*self.unfolded.insert(statistics.moved_first(at).reshape(&[size, rest]));
            pair.preconditioner.add_product_in_place(unfolded, &unfolded.t());
            gradient = gradient.transpose(0, at).contiguous();
            self.gradient = Some(gradient.clone());
            let turned = *gradient.sizes();
            let matrix = gradient.reshape(&[size, rest]);
            let transposed = &*self.transposed.insert(matrix.t());
            drop(inverse_root(&pair.preconditioner));
            pair.root.context().count_bytes(pair.root.bytes().saturating_mul(2));
            gradient = match at + 1 == pairs.len() {
                true => transposed.mm(&pair.root).reshape(statistics.sizes()),
                false => pair.root.mm(&matrix).reshape(&turned),
            };
            self.gradient = Some(gradient.clone());
        }
        gradient
    }
}

/// `compute_power_svd`
fn inverse_root(matrix: &Tensor) -> Tensor {
    let [left, values, right] = matrix.float().svd();
    let root = {
        let scaled = left.binary("mul.Tensor", &values, left.dtype());
        scaled.mm(&right)
    };
    root.to(matrix.dtype())
}
