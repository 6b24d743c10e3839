//! bitsandbytes' optimizers (bitsandbytes/optim/optimizer.py, ademamix.py, 0.50): in 8 bits moments of one byte per element with an fp32 scale for
//! each block of 256 (2048 before 0.45), small tensors keep fp32 moments; in 32 bits fp32 moments whatever the weights are. Where it is paged
//! the moments of large tensors lie in managed memory, which no allocator of PyTorch's knows. The step itself works in place.

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

/// Everything kept for one parameter: moments and their scales.
type Kept = Vec<Tensor>;

/// What an update rule keeps of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moments {
    /// A momentum or a mean of squares (`Optimizer1State`): Lion, RMSprop.
    One,
    /// Adam's (`Optimizer2State`).
    Two,
    /// AdEMAMix's: two averages of gradients in one tensor, and one of squares.
    Three,
}

/// How its moments are kept.
#[derive(Clone, Copy)]
pub(super) struct Storage {
    pub moments: Moments,
    pub eight_bits: bool,
    pub paged: bool,
}

pub(super) struct Bitsandbytes {
    states: States<Kept>,
    storage: Storage,
    /// Whether the weights of embeddings keep moments of 32 bits.
    spares_embeddings: bool,
    /// The signed table, and the unsigned one of squares, moved to the device for the first quantized tensor.
    tables: Option<Vec<Tensor>>,
}

impl Bitsandbytes {
    pub(super) fn new(parameters: Vec<Tensor>, storage: Storage, spares_embeddings: bool) -> Self {
        Self { states: States::new(parameters), storage, spares_embeddings, tables: None }
    }

    fn storage_of(&self, parameter: &Tensor) -> Storage {
        let is_spared = self.spares_embeddings && parameter.context().is_embedding(parameter.module());
        Storage { eight_bits: self.storage.eight_bits && !is_spared, ..self.storage }
    }
}

impl Optimizer for Bitsandbytes {
    fn step(&mut self) {
        for at in 0..self.states.parameters().len() {
            let Some(parameter) = self.states.parameters().get(at) else { return };
            let storage = self.storage_of(parameter);
            if storage.quantizes(parameter) && parameter.grad().is_some() {
                self.tables.get_or_insert_with(|| storage.tables(parameter.context()));
            }
            self.states.initialize_one(at, |parameter, _| storage.moments_of(parameter));
        }
    }

    fn traffic(&self) -> Traffic {
        // Parameter and gradient read, parameter written; moments read and written.
        let moments = self.storage.moments.count();
        Traffic { passes: 3, state_bytes_per_element: moments * if self.storage.eight_bits { 2 } else { 8 } }
    }
}

impl Moments {
    const fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

impl Storage {
    pub(super) fn quantizes(self, parameter: &Tensor) -> bool {
        self.eight_bits && parameter.numel() >= MIN_QUANTIZED
    }

    pub(super) fn tables(self, context: &Rc<Context>) -> Vec<Tensor> {
        let _category = context.enter_category(Category::OptimizerState);
        (0..self.moments.count().min(2)).map(|_| full(context, "_to_copy.default", &[CODES], DType::Float32)).collect()
    }

    /// The moments before their scales, but AdEMAMix's after them (`init_state`).
    pub(super) fn moments_of(self, parameter: &Tensor) -> Kept {
        let dtype = if self.quantizes(parameter) { DType::Uint8 } else { DType::Float32 };
        let copies: &[u64] = match self.moments {
            Moments::One => &[1],
            Moments::Two => &[1, 1],
            Moments::Three => &[2, 1],
        };
        let moments = || copies.iter().map(|&copies| self.state_buffer(parameter, copies, dtype));
        let scales = || copies.iter().filter_map(|&copies| self.scales(parameter, copies));
        match self.moments {
            Moments::Three => scales().chain(moments()).collect(),
            _ => moments().chain(scales()).collect(),
        }
    }

    fn scales(self, parameter: &Tensor, copies: u64) -> Option<Tensor> {
        let size = copies * parameter.numel().div_ceil(BLOCK);
        self.quantizes(parameter).then(|| full(parameter.context(), "zeros.default", &[size], DType::Float32))
    }

    /// Zeros as large as so many parameters, in managed memory where it is paged and large enough (`get_state_buffer`).
    fn state_buffer(self, parameter: &Tensor, copies: u64, dtype: DType) -> Tensor {
        let context = parameter.context();
        let elements = copies.saturating_mul(parameter.numel());
        if self.paged && parameter.numel() >= MIN_PAGED {
            context.count_managed(elements.saturating_mul(dtype.size()));
            return Tensor::nowhere(context, Shape::new(&[elements]), dtype);
        }
        if copies == 1 {
            return parameter.unary("zeros_like.default", dtype);
        }
        full(context, "zeros.default", &[elements], dtype)
    }
}
