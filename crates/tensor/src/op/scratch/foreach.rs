//! `_foreach_norm` (ForeachReduceOp.cu), the one multi-tensor kernel with memory of its own.
//!
//! Other `_foreach_*` ops allocate their outputs in the order of the list and nothing else; in-place ones,
//! `_fused_adamw_`, `_amp_foreach_non_finite_check_and_unscale_` and `_amp_update_scale_` allocate nothing.

use super::{Plan, Steps};
use crate::dtype::DType;

/// Elements per chunk of a multi-tensor kernel (`kChunkSize`, MultiTensorApply.cuh).
const CHUNK: u64 = 65_536;
/// Bytes of a chunk's partial norm: a float for all dtypes here.
const FLOAT: u64 = 4;

/// One gradient or parameter of a list; contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// In bytes, a tensor each.
    pub sizes: &'a [u64],
    pub dtype: DType,
}

impl Item<'_> {
    fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }
}

/// `_foreach_norm` of tensors of one dtype: a table of the chunks' partial norms, then the outputs in order. A tensor
/// without elements (a shard may be) gets a zero of its own, and an output made for it stays unused.
pub fn norms(items: &[Item<'_>]) -> Steps {
    let mut plan = Plan::new();
    let table = plan.alloc(chunk_table(items));
    let (empty, others): (Vec<&Item<'_>>, Vec<&Item<'_>>) = items.iter().partition(|item| item.elements() == 0);
    let mut indices = (0..=u8::MAX).cycle();
    for (item, index) in others.iter().zip(&mut indices) {
        plan.output(index, item.dtype.size());
    }
    let unused: Vec<Option<u32>> = empty.iter().map(|item| plan.alloc(item.dtype.size())).collect();
    for (item, index) in empty.iter().zip(&mut indices) {
        plan.output(index, item.dtype.size());
    }
    plan.free_all(unused);
    plan.free(table);
    plan.finish()
}

/// As many entries per tensor as the largest tensor has chunks.
fn chunk_table(items: &[Item<'_>]) -> u64 {
    let most = items.iter().map(Item::elements).max().unwrap_or(0);
    items.len() as u64 * most.div_ceil(CHUNK) * FLOAT
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::Device;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], _device: Device) -> Steps {
        let shapes: Vec<Vec<u64>> = case[2].as_array().unwrap().iter().map(table::sizes).collect();
        let dtypes = case[1].as_array().unwrap().iter().map(table::dtype);
        let items: Vec<Item<'_>> = shapes.iter().zip(dtypes).map(|(sizes, dtype)| Item { sizes, dtype }).collect();
        norms(&items)
    }

    #[test]
    fn measured_optimizer_kernels_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/foreach_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/foreach_sm80.json");
        for table in Table::pair(full, patch) {
            table.only(&["norm"]).replay(predict);
        }
    }
}
