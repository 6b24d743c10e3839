//! APOLLO's projection and update (apollo_torch 1.0.3, random_projector.py and apollo.py): a random matrix, and the gradient scaled by
//! what Adam makes of its rows or columns in the low rank. What limits an update's growth is a number on the GPU where the data let it
//! grow, and is simulated as one: 512 bytes.

use crate::dtype::DType;
use crate::op::{UNTOLD, full};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::low_rank::{Projection, Stepped, is_tall};

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    factor: Option<Tensor>,
    scaled: Option<Tensor>,
    norm: Option<Tensor>,
    limiter: Option<Tensor>,
}

pub(super) struct Apollo {
    /// Whether a gradient is scaled as a whole.
    scales_whole: bool,
    variables: Variables,
}

impl Apollo {
    pub(super) fn new(scales_whole: bool) -> Self {
        Self { scales_whole, variables: Variables::default() }
    }

    /// How much Adam makes the projected gradient longer: as a whole, or each row or column that was not projected.
    fn factor(&self, stepped: &Stepped<'_>) -> Option<Tensor> {
        let norm_of = |tensor: &Tensor| match self.scales_whole {
            true => tensor.norm(),
            false => tensor.norm_along(usize::from(is_tall(stepped.gradient))),
        };
        let found = norm_of(stepped.direction.as_ref()?);
        let projected = norm_of(stepped.projected);
        let divisor = projected.add_scalar(UNTOLD);
        drop(projected);
        Some(found.div_by(&divisor))
    }

    /// The update, kept from growing faster than by a hundredth (the limiter of Fira).
    fn limit(&mut self, scaled: Tensor, last: &Tensor) -> Tensor {
        let norm = &*self.variables.norm.insert(scaled.norm());
        let growth = {
            let divisor = last.add_scalar(UNTOLD);
            norm.div_by(&divisor)
        };
        drop(growth.map("lt.Scalar", DType::Bool));
        let limiter = &*self.variables.limiter.insert(growth.div_scalar(UNTOLD));
        drop(growth);
        let limited = scaled.div_by(limiter);
        drop(scaled);
        self.variables.scaled = Some(limited);
        norm.div_by(limiter)
    }
}

impl Projection for Apollo {
    fn orthogonal(&self, gradient: &Tensor, rank: u64) -> Tensor {
        let _matrix = gradient.float();
        let sizes = if is_tall(gradient) { [rank, gradient.size(1)] } else { [gradient.size(0), rank] };
        let random = full(gradient.context(), "randn.generator", &sizes, DType::Float32);
        let scaled = random.div_scalar(UNTOLD);
        drop(random);
        scaled.to(gradient.dtype())
    }

    fn update(&mut self, stepped: Stepped<'_>) {
        let Some(factor) = self.factor(&stepped) else { return };
        let gradient = stepped.gradient;
        let scaled = gradient.binary("mul.Tensor", &*self.variables.factor.insert(factor), gradient.dtype());
        self.variables.scaled = Some(scaled.clone());
        let norm = match stepped.norm.take() {
            Some(last) => self.limit(scaled, &last),
            None => scaled.norm(),
        };
        norm.set_category(Category::OptimizerState);
        *stepped.norm = Some(norm);
        stepped.direction.clone_from(&self.variables.scaled);
    }

    fn end_step(&mut self) {
        self.variables = Variables::default();
    }
}
