//! Sorting (Sort.cpp, Sort.cu): what `sort` of a vector of int64 allocates beside its results.

use super::{Device, Plan, Steps, cub};
use crate::dtype::DType;

/// Up to so many elements one block sorts in place (`sortKeyValueInplace`).
const ONE_BLOCK: u64 = 4096;

/// `sort` of `n` numbers; outputs are the numbers and their places.
pub fn sort(n: u64, device: Device) -> Steps {
    let bytes = n * DType::Int64.size();
    let mut plan = Plan::new();
    plan.output(0, bytes);
    plan.output(1, bytes);
    let places = plan.alloc(bytes);
    if n > ONE_BLOCK {
        plan.touch(cub::sort_pairs(n, DType::Int64, device));
    }
    plan.free(places);
    plan.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::scratch::table::{self, Table};

    #[test]
    fn measured_sorts_are_reproduced() {
        for text in [
            include_str!("../../../../../testdata/scratch/sort_sm80.json"),
            include_str!("../../../../../testdata/scratch/sort_sm90.json"),
            include_str!("../../../../../testdata/scratch/sort_sm100.json"),
            include_str!("../../../../../testdata/scratch/sort_sm120.json"),
        ] {
            Table::parse(text).replay(|case, device| sort(table::number(&case[0]), device));
        }
    }
}
