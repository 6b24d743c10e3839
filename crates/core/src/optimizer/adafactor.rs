//! Adafactor (torch/optim/_adafactor.py): row and column variances of matrices, a whole variance for vectors. It goes
//! from parameter to parameter (foreach is not its default), and its variables stay until the next one's replace them.

use crate::op::full;
use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// State of one parameter.
enum Variance {
    Factored { row: Tensor, column: Tensor },
    Whole(Tensor),
}

impl Variance {
    fn new(gradient: &Tensor) -> Self {
        let rank = gradient.sizes().len();
        if rank < 2 {
            return Self::Whole(zeros_like(gradient));
        }
        let reduced =
            |at: usize| full(gradient.context(), "new_zeros.default", &gradient.sizes().with(at, 1), gradient.dtype());
        Self::Factored { row: reduced(rank - 1), column: reduced(rank - 2) }
    }
}

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    row_mean: Option<Tensor>,
    column_mean: Option<Tensor>,
    squared: Option<Tensor>,
    estimate: Option<Tensor>,
    update: Option<Tensor>,
}

pub(super) struct Adafactor {
    states: States<Variance>,
}

impl Adafactor {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters) }
    }
}

impl Optimizer for Adafactor {
    fn step(&mut self) {
        self.states.initialize(|_, gradient| Variance::new(gradient));
        let mut variables = Variables::default();
        for active in self.states.active() {
            drop(active.parameter.norm());
            variables.estimate(&active.gradient, active.state);
            // The update is the estimate, changed in place.
            variables.update.clone_from(&variables.estimate);
            drop(variables.update.as_ref().map(Tensor::norm));
        }
    }

    fn traffic(&self) -> Traffic {
        // torch/optim/_adafactor.py: decay 2, lerps of the variances 2, scaling the update 4, add_ 3.
        Traffic::of_passes(11)
    }
}

impl Variables {
    /// The second moment of a gradient: the outer product of its factors, or a copy of the whole.
    fn estimate(&mut self, gradient: &Tensor, variance: &Variance) {
        match variance {
            Variance::Factored { row, column } => {
                let rank = gradient.sizes().len();
                self.row_mean = Some(gradient.norm_along(rank - 1));
                self.column_mean = Some(gradient.norm_along(rank - 2));
                self.estimate = Some(row.matmul(column));
                drop(row.mean_along(rank - 2));
            }
            Variance::Whole(variance) => {
                self.squared = Some(gradient * gradient);
                self.estimate = Some(variance.unary("clone.default", variance.dtype()));
            }
        }
    }
}
