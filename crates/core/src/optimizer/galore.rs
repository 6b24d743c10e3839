//! GaLore's projection (galore_torch 1.0, galore_projector.py): a gradient's first singular vectors, on the side where it is the
//! shorter. Of fp32 gradients the matrix is a view that keeps all vectors of that side; others keep a copy.

use crate::dtype::DType;
use crate::op::{UNTOLD, full};
use crate::tensor::Tensor;

use super::low_rank::{Projection, Stepped, is_tall};

pub(super) struct Galore;

impl Projection for Galore {
    fn orthogonal(&self, gradient: &Tensor, rank: u64) -> Tensor {
        let matrix = gradient.float();
        let [left, values, right] = matrix.svd();
        let rank = rank.min(values.numel());
        let [first_left, first_right] = [left.narrow(1, 0..rank), right.narrow(0, 0..rank)];
        let diagonal = full(gradient.context(), "diag_embed.default", &[rank, rank], DType::Float32);
        // The other side's vectors by their values: computed, and not used.
        let (chosen, _other) = if is_tall(gradient) {
            (first_right, first_left.mm(&diagonal))
        } else {
            (first_left, diagonal.mm(&first_right))
        };
        drop(diagonal);
        chosen.to(gradient.dtype())
    }

    fn update(&mut self, stepped: Stepped<'_>) {
        let Some(direction) = stepped.direction.as_ref() else { return };
        let whole = if is_tall(stepped.gradient) { direction.mm(stepped.matrix) } else { stepped.matrix.mm(direction) };
        let scaled = whole.mul_scalar(UNTOLD);
        drop(whole);
        *stepped.direction = Some(scaled);
    }
}
