//! Carries out an op's steps on a device: outputs become tensors, temporaries come and go.

use std::rc::Rc;

use smallvec::SmallVec;

use super::{Device, Step, Steps};
use crate::dtype::DType;
use crate::tensor::{Context, Layout, Shape, Tensor};

/// An op's steps on the device, and the names of the sizes that its temporaries have on others.
pub struct DeviceSteps {
    steps: Steps,
    /// By step; empty where all are the same everywhere.
    sizes: Vec<u32>,
}

/// What an output looks like.
pub type Described = (Layout, DType);

/// An op's output tensors by their index in the aten schema.
pub struct Outputs {
    context: Rc<Context>,
    tensors: SmallVec<[(u8, Tensor); 4]>,
}

impl Outputs {
    /// All outputs, in the order of their allocation.
    pub fn into_vec(self) -> Vec<Tensor> {
        self.tensors.into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Output number `index`; a tensor without memory where the op makes none.
    pub fn take(&mut self, index: u8) -> Tensor {
        match self.tensors.iter().position(|(at, _)| *at == index) {
            Some(at) => self.tensors.remove(at).1,
            None => Tensor::nowhere(&self.context, Shape::new(&[]), DType::Float32),
        }
    }
}

impl DeviceSteps {
    /// What `steps` says of the device and of the others that were asked about.
    pub fn new(context: &Context, steps: impl Fn(Device) -> Steps) -> Self {
        let (own, mut others) = context.ask_each(steps);
        others.retain(|(at, steps)| {
            let is_same = is_same_program(&own, steps);
            if !is_same {
                context.diverges(*at);
            }
            is_same
        });
        let sizes = if others.iter().all(|(_, steps)| *steps == own) {
            Vec::new()
        } else {
            own.iter().enumerate().map(|(step, own)| name_sizes(context, step, own, &others)).collect()
        };
        Self { steps: own, sizes }
    }

    /// Without the op's outputs, for those that are there already.
    pub fn without_outputs(mut self) -> Self {
        let is_output = |step: &Step| matches!(step, Step::Output { .. });
        let mut is_kept = self.steps.iter().map(|step| !is_output(step)).collect::<Vec<_>>().into_iter();
        self.sizes.retain(|_| is_kept.next().unwrap_or(true));
        self.steps.retain(|step| !is_output(step));
        self
    }

    /// Runs them for `op`, as [`run_steps`] does.
    pub fn run(&self, context: &Rc<Context>, op: &'static str, describe: impl Fn(u8) -> Described) -> Outputs {
        run_sized(context, op, (&self.steps, &self.sizes), describe)
    }
}

/// Whether the steps differ in nothing but the sizes of temporaries.
fn is_same_program(own: &[Step], other: &[Step]) -> bool {
    let is_same = |(own, other): (&Step, &Step)| match (own, other) {
        (Step::Alloc { slot, .. }, Step::Alloc { slot: other, .. }) => slot == other,
        _ => own == other,
    };
    own.len() == other.len() && own.iter().zip(other).all(is_same)
}

fn name_sizes(context: &Context, step: usize, own: &Step, others: &[(usize, Steps)]) -> u32 {
    let bytes_of = |step: &Step| if let Step::Alloc { bytes, .. } = step { Some(*bytes) } else { None };
    let Some(own) = bytes_of(own) else { return 0 };
    let on_others: Vec<_> = others.iter().filter_map(|(at, steps)| Some((*at, bytes_of(&steps[step])?))).collect();
    context.name_sizes(own, &on_others)
}

/// Runs `steps` for `op`; `describe` gives sizes, strides and dtype of output number `index`.
pub fn run_steps(
    context: &Rc<Context>,
    op: &'static str,
    steps: &[Step],
    describe: impl Fn(u8) -> Described,
) -> Outputs {
    run_sized(context, op, (steps, &[]), describe)
}

fn run_sized(
    context: &Rc<Context>,
    op: &'static str,
    (steps, sizes): (&[Step], &[u32]),
    describe: impl Fn(u8) -> Described,
) -> Outputs {
    let mut outputs = Outputs { context: Rc::clone(context), tensors: SmallVec::new() };
    let mut temporaries: SmallVec<[(u32, crate::tensor::Scratch); 4]> = SmallVec::new();
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Output { index, .. } => {
                let (layout, dtype) = describe(index);
                outputs.tensors.push((index, Tensor::empty_strided(context, op, layout, dtype)));
            }
            Step::Alloc { bytes, slot } => {
                let sizes = sizes.get(at).copied().unwrap_or_default();
                temporaries.push((slot, Tensor::scratch_sized(context, op, (bytes, sizes))));
            }
            Step::Free { slot } => temporaries.retain(|(other, _)| *other != slot),
        }
    }
    outputs
}

/// Contiguous sizes of a dtype.
pub fn contiguous(sizes: Shape, dtype: DType) -> Described {
    (Layout::contiguous(sizes), dtype)
}

/// The layout of `empty_like(tensor)`.
pub fn like(tensor: &Tensor) -> Described {
    (tensor.dense_layout(), tensor.dtype())
}
