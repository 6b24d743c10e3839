//! torchao's AdamW of few bits (torchao/optim/adam.py, 0.18): moments as codes with an fp32 scale for each block and a table of what codes
//! mean; small tensors and those that are no whole blocks keep moments in the weights' dtype. Parameter by parameter the step is
//! one function that `torch.compile` fuses: its temporaries were measured (`testdata/optimizers/measure.py`), the kernels as Inductor has
//! them once they are compiled. What timing them takes before is a caveat.

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// Tensors with fewer elements keep their moments whole (`_new_buffer`).
const MIN_QUANTIZED: u64 = 4096;

/// How a moment is kept.
#[derive(Clone, Copy)]
pub(super) enum Codes {
    /// A byte each, a scale for 256.
    EightBits,
    /// Two in a byte, a scale for so many.
    FourBits { block: u64 },
}

impl Codes {
    const fn block(self) -> u64 {
        match self {
            Self::EightBits => 256,
            Self::FourBits { block } => block,
        }
    }

    const fn bytes_of(self, elements: u64) -> u64 {
        match self {
            Self::EightBits => elements,
            Self::FourBits { .. } => elements / 2,
        }
    }

    /// Values of the table that says what codes mean.
    const fn meanings(self) -> u64 {
        match self {
            Self::EightBits => 256,
            Self::FourBits { .. } => 16,
        }
    }

    /// What the kernels leave for each other beside the scales: a moment scaled in fp32, and of 4 bits its codes as indices.
    const fn temporaries(self) -> &'static [DType] {
        match self {
            Self::EightBits => &[DType::Float32],
            Self::FourBits { .. } => &[DType::Float32, DType::Int64],
        }
    }

    /// Whether the largest of a block is sought in two halves first: what reads halves of bytes is no inner reduction to Inductor
    /// (`Reduction.num_splits` and `reduction_split_factor`, torch 2.11), which splits those of more than 128 with few results.
    fn splits_blocks(self, blocks: u64, multiprocessors: u64) -> bool {
        matches!(self, Self::FourBits { block } if block > 128) && blocks < 64 * multiprocessors
    }
}

/// Both moments: of each its codes, their scales and their table, or all of it.
type Moments = Vec<Tensor>;

pub(super) struct TorchaoAdamW {
    states: States<Moments>,
    codes: Codes,
}

impl TorchaoAdamW {
    pub(super) fn new(parameters: Vec<Tensor>, codes: Codes) -> Self {
        Self { states: States::new(parameters), codes }
    }

    fn quantizes(&self, parameter: &Tensor) -> bool {
        parameter.numel() >= MIN_QUANTIZED && parameter.numel().is_multiple_of(self.codes.block())
    }

    /// `_new_buffer`, for each moment.
    fn moments_of(codes: Codes, parameter: &Tensor) -> Moments {
        let (context, elements) = (parameter.context(), parameter.numel());
        let zeros = |size, dtype| full(context, "zeros.default", &[size], dtype);
        let mut kept = Vec::new();
        for _ in 0..2 {
            kept.push(zeros(codes.bytes_of(elements), DType::Uint8));
            kept.push(zeros(elements / codes.block(), DType::Float32));
            kept.push(zeros(codes.meanings(), DType::Float32));
        }
        kept
    }

    /// The compiled `single_param_adam`, whose buffers are made for both moments in turn.
    fn step_one(&self, parameter: &Tensor) {
        let (context, elements) = (parameter.context(), parameter.numel());
        let buffer = |size, dtype| full(context, "empty_strided_cuda", &[size], dtype);
        let blocks = elements / self.codes.block();
        let splits = context.ask(|device| self.codes.splits_blocks(blocks, device.multiprocessors));
        let halves = [(); 2].map(|()| splits.then(|| buffer(2 * blocks, DType::Float32)));
        let _scales = halves.map(|half| {
            let scales = buffer(blocks, DType::Float32);
            drop(half);
            scales
        });
        let moments = self.codes.temporaries().iter().flat_map(|&dtype| [dtype; 2]);
        let _moments: Vec<Tensor> = moments.map(|dtype| buffer(elements, dtype)).collect();
    }
}

impl Optimizer for TorchaoAdamW {
    fn step(&mut self) {
        for at in 0..self.states.parameters().len() {
            let Some(parameter) = self.states.parameters().get(at).cloned() else { return };
            let (codes, quantizes) = (self.codes, self.quantizes(&parameter));
            self.states.initialize_one(at, |parameter, _| {
                if quantizes {
                    Self::moments_of(codes, parameter)
                } else {
                    vec![zeros_like(parameter), zeros_like(parameter)]
                }
            });
            if quantizes && parameter.grad().is_some() {
                self.step_one(&parameter);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        // Parameter read and written, gradient read twice; two moments' codes read and written, and what lies between the kernels read.
        let between: u64 = self.codes.temporaries().iter().map(|dtype| 2 * dtype.size()).sum();
        Traffic { passes: 4, state_bytes_per_element: 2 * self.codes.bytes_of(2) + between }
    }
}
