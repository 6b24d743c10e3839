//! bitsandbytes' `AdamW8bit` (bitsandbytes/optim/optimizer.py, 0.50): two moments of one byte per element with an fp32
//! scale for each block of 256 (2048 before 0.45); small tensors keep fp32 moments. The step itself works in place.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::state::States;
use super::{Optimizer, Traffic};

/// Elements that share a scale.
const BLOCK: u64 = 256;
/// Tensors with fewer elements keep fp32 moments (`min_8bit_size`).
const MIN_QUANTIZED: u64 = 4096;
/// Values of one quantization table, one for each code.
const CODES: u64 = 256;

/// Everything kept for one parameter: the moments, then their scales.
type Moments = Vec<Tensor>;

pub(super) struct AdamW8bit {
    states: States<Moments>,
    /// The signed and the unsigned table, moved to the device for the first quantized tensor.
    tables: Option<[Tensor; 2]>,
}

impl AdamW8bit {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters), tables: None }
    }
}

impl Optimizer for AdamW8bit {
    fn step(&mut self) {
        for at in 0..self.states.parameters().len() {
            let quantizes = |parameter: &Tensor| is_quantized(parameter) && parameter.grad().is_some();
            if let Some(parameter) = self.states.parameters().get(at).filter(|parameter| quantizes(parameter)) {
                self.tables.get_or_insert_with(|| quantile_tables(parameter.context()));
            }
            self.states.initialize_one(at, |parameter, _| moments_of(parameter));
        }
    }

    fn traffic(&self) -> Traffic {
        // Parameter and gradient read, parameter written; the moments are bytes.
        Traffic { passes: 3, state_bytes_per_element: 4 }
    }
}

fn is_quantized(parameter: &Tensor) -> bool {
    parameter.numel() >= MIN_QUANTIZED
}

fn quantile_tables(context: &Rc<Context>) -> [Tensor; 2] {
    let _category = context.enter_category(Category::OptimizerState);
    [(); 2].map(|()| full(context, "_to_copy.default", &[CODES], DType::Float32))
}

fn moments_of(parameter: &Tensor) -> Moments {
    let quantized = is_quantized(parameter);
    let dtype = if quantized { DType::Uint8 } else { DType::Float32 };
    let mut kept: Moments = (0..2).map(|_| parameter.unary("zeros_like.default", dtype)).collect();
    if quantized {
        let blocks = parameter.numel().div_ceil(BLOCK);
        kept.extend((0..2).map(|_| full(parameter.context(), "zeros.default", &[blocks], DType::Float32)));
    }
    kept
}
