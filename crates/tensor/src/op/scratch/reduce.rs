//! Scratch space of `gpu_reduce_kernel` (Reduce.cuh): every sum, mean, norm, max, any, argmax and variance.
//!
//! A reduction with few outputs and many inputs is spread over several thread blocks per output, which then meet
//! in a buffer in global memory. Its size follows from the launch configuration, reproduced here. Order: the
//! output(s), a cast copy of the input if any, then per 32-bit piece the buffer and its semaphores (freed in reverse).

use super::iter::{self, Dim, Dims, ReduceIter};
use super::{Device, Plan, Steps};
use crate::dtype::DType;

/// Threads per block at most (`mnt_wrapper::MAX_NUM_THREADS`).
const MAX_THREADS: u64 = 512;
/// Threads in a warp.
const WARP: u64 = 32;
/// Inputs a thread should at least have left after a split (`min_values_per_thread`).
const MIN_VALUES_PER_THREAD: u64 = 16;
/// Inputs a thread should at most have (`max_values_per_thread`).
const MAX_VALUES_PER_THREAD: u64 = 256;
/// Shortest reduced row whose loads are vectorised.
const MIN_VECTORISED: u64 = 128;
/// Of an input of more bytes, 512 GiB, which no GPU has, the launches are not told one by one: their buffers are a hundred
/// thousandth of it, and there would be thousands in each layer.
const MOST_TOLD: u64 = 1 << 39;
/// Bytes of one semaphore (`sizeof(int)`).
const SEMAPHORE: u64 = 4;

/// Which reduction runs; they differ in their accumulator and in how many elements a thread loads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "measured rules of reductions that no family runs yet"))]
pub enum ReduceKind {
    /// `sum`, and `nansum`
    Sum,
    /// `prod`
    Prod,
    /// `mean`
    Mean,
    /// `linalg_vector_norm`, any order
    Norm,
    /// `amax`, `amin`
    Max,
    /// `max`, `min` of a whole tensor, which is made contiguous first
    WholeMax,
    /// `max.dim`, `min.dim`: values and indices
    MaxDim,
    /// `argmax`, `argmin`; without a dimension (everything reduced) the input is made contiguous first
    ArgMax,
    /// `any`, `all`
    Any,
    /// `var`, `std`
    Var,
    /// `var_mean`, `std_mean`
    VarMean,
}

impl ReduceKind {
    /// Bytes of the accumulator (`arg_t` of the op's functor).
    fn accumulator(self, input: DType) -> u64 {
        let accumulate = if input.is_half() { 4 } else { input.size() };
        match self {
            Self::Sum | Self::Prod | Self::Mean | Self::Norm => accumulate,
            Self::Max | Self::WholeMax | Self::Any => input.size(),
            // A pair of a value and an int64 index; WelfordData of two floats, a count and its float.
            Self::MaxDim | Self::ArgMax | Self::Var | Self::VarMean => 16,
        }
    }

    /// Elements of one vectorised load along a reduced row (`input_vec_size`).
    fn input_vector(self, input: DType) -> u64 {
        match self {
            Self::Var | Self::VarMean => 2,
            Self::Sum | Self::Mean | Self::Norm if input.is_half() => 8,
            _ => 4,
        }
    }

    /// Whether partial results can wait in the output itself (`can_accumulate_in_output`).
    fn accumulates_in_output(self, input: DType, output: DType) -> bool {
        match self {
            Self::MaxDim | Self::ArgMax | Self::Var | Self::VarMean => false,
            // Measured: a product has no buffer for partial results, whatever its dtype.
            Self::Prod => true,
            _ => !(input == output && input.is_half()),
        }
    }
}

/// One reduction: the input as it lies in memory and what is reduced.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    /// The input's sizes.
    pub sizes: &'a [u64],
    /// The input's strides, in elements.
    pub strides: &'a [u64],
    /// Which dimensions are reduced; as long as `sizes`.
    pub reduced: &'a [bool],
    /// The input's offset into its storage, in elements.
    pub storage_offset: u64,
    /// The input's dtype.
    pub input: DType,
    /// The dtype of the (first) output.
    pub output: DType,
    pub kind: ReduceKind,
}

/// Everything the op allocates, outputs included (`keepdim` makes no difference).
pub fn reduce(reduction: &Reduction<'_>, device: Device) -> Steps {
    let mut plan = Plan::new();
    let outputs: u64 = kept(reduction).product();
    let elements: u64 = reduction.sizes.iter().product();
    plan.output(0, outputs * reduction.output.size());
    match reduction.kind {
        ReduceKind::MaxDim => plan.output(1, outputs * DType::Int64.size()),
        ReduceKind::VarMean => plan.output(1, outputs * reduction.output.size()),
        _ => {}
    }
    if elements == 0 {
        return plan.finish();
    }
    if let Some(bytes) = copies_only(reduction, elements) {
        plan.touch(bytes);
        return plan.finish();
    }
    let dtype = if casts_input(reduction) { reduction.output } else { reduction.input };
    // A conversion keeps the order of the dimensions in memory, flattening does not.
    let strides = if dtype != reduction.input {
        iter::dense_strides(reduction.sizes, reduction.strides)
    } else if packs_input(reduction) {
        contiguous(reduction.sizes)
    } else {
        pieces(&mut plan, reduction, device);
        return plan.finish();
    };
    let copy = plan.alloc(elements * dtype.size());
    pieces(&mut plan, &Reduction { strides: &strides, storage_offset: 0, input: dtype, ..*reduction }, device);
    plan.free(copy);
    plan.finish()
}

/// Reductions over nothing but dimensions of size 1 that are an elementwise op instead: the bytes of its cast input.
fn copies_only(reduction: &Reduction<'_>, elements: u64) -> Option<u64> {
    let converted = if reduction.input == reduction.output { 0 } else { elements * reduction.output.size() };
    let trivial = reduction.sizes.iter().zip(reduction.reduced).all(|(size, reduced)| !reduced || *size == 1);
    match reduction.kind {
        ReduceKind::Any => (elements == 1).then_some(converted),
        ReduceKind::Norm => trivial.then_some(converted),
        _ => None,
    }
}

/// Whether the input is first copied to be contiguous: where a whole tensor is flattened and no view of it will do.
fn packs_input(reduction: &Reduction<'_>) -> bool {
    let long = reduction.sizes.iter().zip(reduction.strides).filter(|(size, _)| **size != 1);
    let mut inner = None;
    let one_run = long.rev().all(|(&size, &stride)| {
        let follows = inner.is_none_or(|expected| stride == expected);
        inner = Some(size * stride);
        follows
    });
    let unit_stride = reduction.sizes.iter().zip(reduction.strides).rfind(|(size, _)| **size != 1);
    match reduction.kind {
        ReduceKind::WholeMax => !one_run || unit_stride.is_some_and(|(_, stride)| *stride != 1),
        ReduceKind::ArgMax => !one_run && reduction.reduced.iter().all(|reduced| *reduced),
        _ => false,
    }
}

/// Strides of a contiguous tensor.
fn contiguous(sizes: &[u64]) -> Vec<u64> {
    let mut out = Vec::with_capacity(sizes.len());
    let mut packed = 1;
    for size in sizes.iter().rev() {
        out.push(packed);
        packed *= size.max(&1);
    }
    out.reverse();
    out
}

/// What a reduction into an existing output allocates, without that output or copies of the input.
pub(super) fn into_output(plan: &mut Plan, reduction: &Reduction<'_>, device: Device) {
    pieces(plan, reduction, device);
}

/// Sizes of the dimensions that are not reduced.
fn kept<'a>(reduction: &Reduction<'a>) -> impl Iterator<Item = u64> + use<'a> {
    reduction.sizes.iter().zip(reduction.reduced).filter(|(_, reduced)| !**reduced).map(|(size, _)| *size)
}

/// Sums and the like convert their input first, unless the kernel itself widens a half type (`make_reduction`).
fn casts_input(reduction: &Reduction<'_>) -> bool {
    let arithmetic = matches!(reduction.kind, ReduceKind::Sum | ReduceKind::Prod | ReduceKind::Mean | ReduceKind::Norm);
    let widened = reduction.input.is_half() && reduction.output == DType::Float32;
    arithmetic && reduction.input != reduction.output && !widened
}

/// The kernel launches: one, or several when 32-bit offsets cannot reach all of the input.
fn pieces(plan: &mut Plan, reduction: &Reduction<'_>, device: Device) {
    let dtype = reduction.input;
    let output_size = reduction.output.size();
    let iter = ReduceIter::new(dims(reduction), reduction.storage_offset * dtype.size());
    if iter.fits_32_bits() {
        launch(plan, &iter, reduction.kind, dtype, device);
        return;
    }
    if iter.elements().saturating_mul(dtype.size()) > MOST_TOLD {
        return;
    }
    let accumulator = reduction.kind.accumulator(dtype);
    let in_output = reduction.kind.accumulates_in_output(dtype, reduction.output) || output_size >= accumulator;
    let span = iter.dims.iter().map(|dim| dim.size * dim.output).max().unwrap_or(0).max(output_size) / output_size;
    let shared = plan.alloc(if in_output { 0 } else { span * accumulator });
    for piece in iter.split() {
        launch(plan, &piece, reduction.kind, dtype, device);
    }
    plan.free(shared);
}

/// The iterator's dimensions from the last to the first: the output is contiguous, and its strides along reduced
/// dimensions are 0.
fn dims(reduction: &Reduction<'_>) -> Dims {
    let mut out = Dims::new();
    let mut output = reduction.output.size();
    let strided = reduction.sizes.iter().zip(reduction.strides).zip(reduction.reduced);
    for ((&size, &stride), &reduced) in strided.rev() {
        out.push(Dim { size, output: if reduced { 0 } else { output }, input: stride * reduction.input.size() });
        if !reduced {
            output *= size.max(1);
        }
    }
    out
}

/// One launch's buffer and semaphores.
fn launch(plan: &mut Plan, iter: &ReduceIter, kind: ReduceKind, dtype: DType, device: Device) {
    let (buffer, semaphores) = Config::new(iter, kind, dtype).global_buffers(device);
    let buffer = plan.alloc(buffer);
    let semaphores = plan.alloc(semaphores);
    plan.free_all([semaphores, buffer]);
}

/// The launch configuration before the input is split over blocks (`setReduceConfig`).
struct Config {
    accumulator: u64,
    outputs: u64,
    inputs: u64,
    output_vector: u64,
    width: u64,
    height: u64,
    along_row: bool,
}

impl Config {
    fn new(iter: &ReduceIter, kind: ReduceKind, dtype: DType) -> Self {
        let outputs = iter.outputs().max(1);
        let inputs = iter.elements() / outputs;
        let reduced = iter.reduced_dims();
        let fastest = iter.dims.first().map_or(dtype.size(), |dim| dim.input);
        let kept = iter.dims.get(reduced).map(|dim| dim.input);
        let along_row = kept.is_none_or(|kept| reduced > 0 && fastest < kept);
        let stride = if along_row { fastest } else { kept.unwrap_or(fastest) };
        let (mut dim0, dim1) = match (iter.dims.is_empty(), along_row) {
            (true, _) => (1, 1),
            (_, true) => (inputs, outputs),
            (_, false) => (outputs, inputs),
        };
        let mut output_vector = 1;
        if stride == dtype.size() {
            if along_row && dim0 >= MIN_VECTORISED && reduced == 1 {
                dim0 /= kind.input_vector(dtype);
            } else if !along_row {
                output_vector = output_vector_size(iter, reduced, dtype);
                dim0 /= output_vector;
            }
        }
        let (width, height) = block(dim0, dim1, output_vector);
        Self { accumulator: kind.accumulator(dtype), outputs, inputs, output_vector, width, height, along_row }
    }

    /// Bytes of the staging buffer and of the semaphores; both 0 when one block per output suffices.
    fn global_buffers(&self, device: Device) -> (u64, u64) {
        let mut input_step = if self.along_row { self.width } else { 1 };
        let output_step = if self.along_row { 1 } else { self.width };
        let threshold = (self.height * 16).min(MAX_VALUES_PER_THREAD);
        if self.inputs.div_ceil(input_step) < threshold {
            return (0, 0);
        }
        input_step *= self.height;
        let values = self.inputs.div_ceil(input_step);
        let target = device.multiprocessors * (device.threads_per_multiprocessor() / (self.width * self.height));
        let grid = (self.outputs / self.output_vector).div_ceil(output_step).max(1);
        if values < MAX_VALUES_PER_THREAD || grid > target {
            return (0, 0);
        }
        let blocks = target
            .div_ceil(grid)
            .min(values.div_ceil(MIN_VALUES_PER_THREAD))
            .max(values.div_ceil(MAX_VALUES_PER_THREAD));
        if blocks <= 1 {
            return (0, 0);
        }
        let lanes = if self.along_row { 1 } else { self.width * self.output_vector };
        (self.accumulator * self.outputs * blocks * lanes, SEMAPHORE * grid)
    }
}

/// Outputs a thread computes at once: 4, 2 or 1, as alignment and strides allow (`get_output_vec_size`).
fn output_vector_size(iter: &ReduceIter, reduced: usize, dtype: DType) -> u64 {
    let strides = iter.dims.iter().enumerate().filter(|(index, _)| *index != reduced).map(|(_, dim)| dim.input);
    let size = iter.dims.get(reduced).map_or(1, |dim| dim.size);
    let numbers = strides.chain([iter.offset]).map(|bytes| bytes / dtype.size()).chain([size]);
    numbers.fold(4, |mut vector, number| {
        while number % vector != 0 {
            vector /= 2;
        }
        vector
    })
}

/// Block width and height (`set_block_dimension`).
fn block(dim0: u64, dim1: u64, output_vector: u64) -> (u64, u64) {
    let most = MAX_THREADS / output_vector;
    let pow2 = |dim: u64| if dim < most { last_power_of_two(dim) } else { most };
    let (dim0, dim1) = (pow2(dim0), pow2(dim1));
    let height = dim1.min(most / dim0.min(WARP));
    (dim0.min(most / height), height)
}

/// The largest power of two not above `n`; 1 for 0.
fn last_power_of_two(n: u64) -> u64 {
    n.checked_ilog2().map_or(1, |log| 1 << log)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn kind(name: &str) -> ReduceKind {
        match name {
            "sum" => ReduceKind::Sum,
            "prod" => ReduceKind::Prod,
            "mean" => ReduceKind::Mean,
            "norm" | "norm_inf" => ReduceKind::Norm,
            "amax" => ReduceKind::Max,
            "max_all" => ReduceKind::WholeMax,
            "max_dim" => ReduceKind::MaxDim,
            "argmax" | "argmax_all" => ReduceKind::ArgMax,
            "any" | "all" => ReduceKind::Any,
            "var" => ReduceKind::Var,
            "var_mean" => ReduceKind::VarMean,
            other => panic!("unknown kind {other}"),
        }
    }

    fn predict(case: &[Value], device: Device) -> Steps {
        let kind = kind(case[0].as_str().unwrap());
        let sizes = table::sizes(&case[3]);
        let strides = if case[4].is_array() { table::sizes(&case[4]) } else { contiguous(&sizes) };
        let reduced: Vec<bool> = case[5].as_str().unwrap().chars().map(|c| c == '1').collect();
        let output = match kind {
            ReduceKind::Any => DType::Bool,
            ReduceKind::ArgMax => DType::Int64,
            _ => table::dtype(&case[2]),
        };
        let input = table::dtype(&case[1]);
        let (sizes, strides, reduced) = (&sizes, &strides, &reduced);
        reduce(
            &Reduction { sizes, strides, reduced, storage_offset: table::number(&case[6]), input, output, kind },
            device,
        )
    }

    #[test]
    fn what_no_gpu_holds_is_not_cut_into_a_million_launches() {
        let device = Device { compute_capability: (9, 0), multiprocessors: 132 };
        let steps = |elements: u64| {
            let reduction = Reduction {
                sizes: &[32, elements / 32],
                strides: &[elements / 32, 1],
                reduced: &[false, true],
                storage_offset: 0,
                input: DType::Bool,
                output: DType::Bool,
                kind: ReduceKind::Any,
            };
            reduce(&reduction, device).len()
        };
        assert!(steps(1 << 36) > 32, "launches that a device may have are all there");
        assert!(steps(1 << 51) < 16, "{}", steps(1 << 51));
    }

    #[test]
    fn measured_reductions_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/reduce_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/reduce_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }
}
