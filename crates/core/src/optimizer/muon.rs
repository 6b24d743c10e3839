//! Muon (torch/optim/_muon.py) for matrices, AdamW for every other parameter, stepped after it: `torch.optim.Muon` only
//! takes matrices. Embeddings and the head are matrices here, as for the optimizer itself. Each gradient's direction
//! is orthogonalised by Newton-Schulz iterations in bf16.

use crate::dtype::DType;
use crate::tensor::Tensor;

use super::adam::{Adam, Implementation};
use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// Newton-Schulz iterations of one step (`DEFAULT_NS_STEPS`).
const ITERATIONS: usize = 5;

pub(super) struct Muon {
    /// A momentum for each matrix, in the gradient's dtype.
    matrices: States<Tensor>,
    others: Adam,
}

impl Muon {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        let (matrices, others) = parameters.into_iter().partition(|parameter| parameter.sizes().len() == 2);
        Self { matrices: States::new(matrices), others: Adam::new(others, Implementation::Foreach) }
    }
}

impl Optimizer for Muon {
    fn step(&mut self) {
        self.matrices.initialize(|_, gradient| zeros_like(gradient));
        let mut update = None;
        for active in self.matrices.active() {
            update = Some(active.gradient.binary("lerp.Scalar", active.state, active.gradient.dtype()));
            update = update.as_ref().map(orthogonalize);
        }
        drop(update);
        self.others.step();
    }

    fn traffic(&self) -> Traffic {
        // torch/optim/_muon.py: momentum 3, decay 2, add_ 3.
        Traffic::of_passes(8)
    }
}

/// The orthogonal factor of a matrix, by rows when it is taller than wide (`_zeropower_via_newtonschulz`).
fn orthogonalize(matrix: &Tensor) -> Tensor {
    let tall = matrix.size(0) > matrix.size(1);
    let mut factor = matrix.to(DType::Bfloat16);
    if tall {
        factor = factor.t();
    }
    normalize(&factor);
    let (mut gram, mut polynomial) = (None, None);
    for _ in 0..ITERATIONS {
        let product = factor.mm(&factor.t());
        gram = Some(product.clone());
        let sum = product.add_product(&product, &product);
        polynomial = Some(sum.clone());
        factor = factor.add_product(&sum, &factor);
    }
    drop((gram, polynomial));
    if tall { factor.t() } else { factor }
}

/// Divides a matrix by its norm, in place.
fn normalize(matrix: &Tensor) {
    let norm = matrix.norm();
    let _clamped = norm.unary("clamp.default", norm.dtype());
    drop(norm);
}
