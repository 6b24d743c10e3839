//! Optimizer-side kernels: `_foreach_norm`, `clip_grad_norm_` and the for-loop Adafactor.
//!
//! Other `_foreach_*` ops allocate their outputs in the order of the list and nothing else; in-place ones,
//! `_fused_adamw_`, `_amp_foreach_non_finite_check_and_unscale_` and `_amp_update_scale_` allocate nothing.

use super::reduce::{self, ReduceKind, Reduction};
use super::{Device, Plan, Steps};
use crate::dtype::DType;

/// Elements per chunk of a multi-tensor kernel (`kChunkSize`, MultiTensorApply.cuh).
const CHUNK: u64 = 65_536;
/// Bytes of a chunk's partial norm: a float for all dtypes here.
const FLOAT: u64 = 4;

/// One gradient or parameter of a list; contiguous and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Sizes.
    pub sizes: &'a [u64],
    /// Dtype.
    pub dtype: DType,
}

impl Item<'_> {
    fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }
}

/// `_foreach_norm` of tensors of one dtype: a table of the chunks' partial norms, then the outputs in order.
pub fn norms(items: &[Item<'_>]) -> Steps {
    let mut plan = Plan::new();
    let table = plan.alloc(chunk_table(items));
    for (index, item) in (0..=u8::MAX).cycle().zip(items) {
        plan.output(index, item.dtype.size());
    }
    plan.free(table);
    plan.finish()
}

/// As many entries per tensor as the largest tensor has chunks.
fn chunk_table(items: &[Item<'_>]) -> u64 {
    let most = items.iter().map(Item::elements).max().unwrap_or(0);
    items.len() as u64 * most.div_ceil(CHUNK) * FLOAT
}

/// `torch.nn.utils.clip_grad_norm_` from start to end; output 0 is the total norm it returns.
pub fn clip_grad_norm(grads: &[Item<'_>], foreach: bool, device: Device) -> Steps {
    let mut plan = Plan::new();
    if grads.is_empty() {
        return plan.finish();
    }
    let mut norms = Vec::with_capacity(grads.len());
    for group in groups(grads) {
        if foreach {
            let table = plan.alloc(chunk_table(&group));
            norms.extend(group.iter().map(|grad| plan.alloc(grad.dtype.size())));
            plan.free(table);
        } else {
            norms.extend(group.iter().map(|grad| whole_norm(&mut plan, grad, device)));
        }
    }
    let dtype = promoted(grads);
    let stacked = plan.alloc(grads.len() as u64 * dtype.size());
    plan.output(0, dtype.size());
    let sizes = [grads.len() as u64];
    into(&mut plan, &whole(&sizes, &[1], &[true], dtype), device);
    plan.free(stacked);
    plan.free_all(norms.into_iter().rev());
    // total + 1e-6, its reciprocal, that times the limit, and the result clamped to 1.
    let [sum, reciprocal, coefficient] = [dtype.size(); 3].map(|bytes| plan.alloc(bytes));
    plan.free_all([reciprocal, sum]);
    let clamped = plan.alloc(dtype.size());
    plan.free_all([coefficient, clamped]);
    plan.finish()
}

/// The gradients grouped by dtype; the groups come in reverse order of appearance (an unordered map of the C++
/// library, which puts new entries in front).
fn groups<'a>(grads: &[Item<'a>]) -> Vec<Vec<Item<'a>>> {
    let mut out: Vec<Vec<Item<'a>>> = Vec::new();
    for grad in grads {
        match out.iter_mut().find(|group| group.first().is_some_and(|first| first.dtype == grad.dtype)) {
            Some(group) => group.push(*grad),
            None => out.push(vec![*grad]),
        }
    }
    out.reverse();
    out
}

/// The dtype of the stacked norms.
fn promoted(items: &[Item<'_>]) -> DType {
    let first = items.first().map_or(DType::Float32, |item| item.dtype);
    if items.iter().all(|item| item.dtype == first) { first } else { DType::Float32 }
}

/// A norm over all of a contiguous tensor.
const fn whole<'a>(sizes: &'a [u64], strides: &'a [u64], reduced: &'a [bool], dtype: DType) -> Reduction<'a> {
    Reduction { sizes, strides, reduced, storage_offset: 0, input: dtype, output: dtype, kind: ReduceKind::Norm }
}

/// Scratch of a reduction, unless it reduces nothing.
fn into(plan: &mut Plan, reduction: &Reduction<'_>, device: Device) {
    let reduces = reduction.sizes.iter().zip(reduction.reduced).any(|(size, reduced)| *reduced && *size != 1);
    if reduces {
        reduce::into_output(plan, reduction, device);
    }
}

/// Allocates a tensor's 2-norm and runs its reduction.
fn whole_norm(plan: &mut Plan, item: &Item<'_>, device: Device) -> Option<u32> {
    let out = plan.alloc(item.dtype.size());
    into(plan, &whole(&[item.elements()], &[1], &[true], item.dtype), device);
    out
}

/// One `torch.optim.Adafactor` step (its default for-loop, state already there) over parameters of 1 or 2 dimensions
/// with gradients of the same shape and dtype. Python keeps a parameter's temporaries until the next one's replace
/// them. A weight decay changes nothing; the product of the factors may need a cuBLAS workspace besides.
pub fn adafactor(params: &[Item<'_>], device: Device) -> Steps {
    let mut plan = Plan::new();
    let mut locals = Locals::default();
    for param in params {
        let norm = whole_norm(&mut plan, param, device);
        plan.free(norm);
        let estimate = match *param.sizes {
            [rows, columns] => factored(&mut plan, &mut locals, [rows, columns], param.dtype, device),
            _ => {
                let squared = plan.alloc(param.elements() * param.dtype.size());
                plan.free(locals.squared.replace(squared).flatten());
                plan.alloc(param.elements() * param.dtype.size())
            }
        };
        plan.free(locals.update.replace(estimate).flatten());
        let norm = whole_norm(&mut plan, param, device);
        plan.free(norm);
    }
    let Locals { row_mean, column_mean, squared, update } = locals;
    plan.free_all([row_mean, column_mean, squared, update].map(Option::flatten));
    plan.finish()
}

/// The Python function's local variables that hold tensors.
#[derive(Default)]
struct Locals {
    row_mean: Option<Option<u32>>,
    column_mean: Option<Option<u32>>,
    squared: Option<Option<u32>>,
    update: Option<Option<u32>>,
}

/// A matrix: means over rows and columns, the product of the factors, the mean of the row factor.
fn factored(plan: &mut Plan, locals: &mut Locals, sizes: [u64; 2], dtype: DType, device: Device) -> Option<u32> {
    let [rows, columns] = sizes;
    let strides = [columns, 1];
    let row_mean = plan.alloc(rows * dtype.size());
    into(plan, &whole(&sizes, &strides, &[false, true], dtype), device);
    plan.free(locals.row_mean.replace(row_mean).flatten());
    let column_mean = plan.alloc(columns * dtype.size());
    into(plan, &whole(&sizes, &strides, &[true, false], dtype), device);
    plan.free(locals.column_mean.replace(column_mean).flatten());
    let estimate = plan.alloc(rows * columns * dtype.size());
    let mean = plan.alloc(dtype.size());
    let row_sizes = [rows, 1];
    let factor = Reduction { kind: ReduceKind::Mean, ..whole(&row_sizes, &[1, 1], &[true, false], dtype) };
    reduce::into_output(plan, &factor, device);
    plan.free(mean);
    estimate
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], device: Device) -> Steps {
        let shapes: Vec<Vec<u64>> = case[2].as_array().unwrap().iter().map(table::sizes).collect();
        let dtypes = case[1].as_array().unwrap().iter().map(table::dtype);
        let items: Vec<Item<'_>> = shapes.iter().zip(dtypes).map(|(sizes, dtype)| Item { sizes, dtype }).collect();
        match case[0].as_str().unwrap() {
            "norm" => norms(&items),
            "clip" => clip_grad_norm(&items, true, device),
            "clip_loop" => clip_grad_norm(&items, false, device),
            "adafactor" => adafactor(&items, device),
            other => panic!("unknown case {other}"),
        }
    }

    #[test]
    fn measured_optimizer_kernels_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/foreach_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/foreach_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }
}
