//! bitsandbytes' AdamW (bitsandbytes/optim/optimizer.py, 0.50): in 8 bits two moments of one byte per element with an fp32 scale for each block
//! of 256 (2048 before 0.45), small tensors keep fp32 moments; in 32 bits fp32 moments whatever the weights are. Where it is paged the
//! moments of large tensors lie in managed memory, which no allocator of PyTorch's knows. The step itself works in place.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::{Context, Shape, Tensor};
use crate::trace::Category;

use super::state::States;
use super::{Optimizer, Traffic};

/// Elements that share a scale.
const BLOCK: u64 = 256;
/// Tensors with fewer elements keep fp32 moments (`min_8bit_size`).
const MIN_QUANTIZED: u64 = 4096;
/// Values of one quantization table, one for each code.
const CODES: u64 = 256;
/// Tensors with fewer elements are not paged (`get_state_buffer`).
const MIN_PAGED: u64 = 100_000;

/// Everything kept for one parameter: the moments, then their scales.
type Moments = Vec<Tensor>;

/// How its moments are kept.
#[derive(Clone, Copy)]
pub(super) struct Storage {
    pub eight_bits: bool,
    pub paged: bool,
}

pub(super) struct BitsandbytesAdamW {
    states: States<Moments>,
    storage: Storage,
    /// The signed and the unsigned table, moved to the device for the first quantized tensor.
    tables: Option<[Tensor; 2]>,
}

impl BitsandbytesAdamW {
    pub(super) fn new(parameters: Vec<Tensor>, storage: Storage) -> Self {
        Self { states: States::new(parameters), storage, tables: None }
    }
}

impl Optimizer for BitsandbytesAdamW {
    fn step(&mut self) {
        let storage = self.storage;
        for at in 0..self.states.parameters().len() {
            let quantizes = |parameter: &Tensor| storage.quantizes(parameter) && parameter.grad().is_some();
            if let Some(parameter) = self.states.parameters().get(at).filter(|parameter| quantizes(parameter)) {
                self.tables.get_or_insert_with(|| quantile_tables(parameter.context()));
            }
            self.states.initialize_one(at, |parameter, _| storage.moments_of(parameter));
        }
    }

    fn traffic(&self) -> Traffic {
        // Parameter and gradient read, parameter written; two moments read and written.
        Traffic { passes: 3, state_bytes_per_element: if self.storage.eight_bits { 4 } else { 16 } }
    }
}

fn quantile_tables(context: &Rc<Context>) -> [Tensor; 2] {
    let _category = context.enter_category(Category::OptimizerState);
    [(); 2].map(|()| full(context, "_to_copy.default", &[CODES], DType::Float32))
}

impl Storage {
    fn quantizes(self, parameter: &Tensor) -> bool {
        self.eight_bits && parameter.numel() >= MIN_QUANTIZED
    }

    fn moments_of(self, parameter: &Tensor) -> Moments {
        let quantized = self.quantizes(parameter);
        let dtype = if quantized { DType::Uint8 } else { DType::Float32 };
        let mut kept: Moments = (0..2).map(|_| self.state_buffer(parameter, dtype)).collect();
        if quantized {
            let blocks = parameter.numel().div_ceil(BLOCK);
            kept.extend((0..2).map(|_| full(parameter.context(), "zeros.default", &[blocks], DType::Float32)));
        }
        kept
    }

    /// Zeros as large as the parameter, in managed memory where it is paged and large enough (`get_state_buffer`).
    fn state_buffer(self, parameter: &Tensor, dtype: DType) -> Tensor {
        if self.paged && parameter.numel() >= MIN_PAGED {
            let context = parameter.context();
            context.count_managed(parameter.numel() * dtype.size());
            return Tensor::nowhere(context, Shape::new(parameter.sizes()), dtype);
        }
        parameter.unary("zeros_like.default", dtype)
    }
}
