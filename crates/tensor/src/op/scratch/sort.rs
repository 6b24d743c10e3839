//! Sorting (Sort.cpp, Sort.cu): what `sort` of a vector allocates beside its results.

use super::{Device, Plan, Steps, cub};
use crate::dtype::DType;

/// Up to so many elements one block sorts in place (`sortKeyValueInplace`).
const ONE_BLOCK: u64 = 4096;

/// `sort` of `n` numbers of int64, fp32 or 16 bits; outputs are the numbers and their places.
pub fn sort(n: u64, numbers: DType, device: Device) -> Steps {
    let bytes = n * DType::Int64.size();
    let mut plan = Plan::new();
    plan.output(0, n * numbers.size());
    plan.output(1, bytes);
    let places = plan.alloc(bytes);
    if n > ONE_BLOCK {
        plan.touch(cub::sort_with_places(n, numbers, device));
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
            Table::parse(text).replay(|case, device| sort(table::number(&case[0]), DType::Int64, device));
        }
    }

    /// Storage of a sort of fp32 and of 16 bits, as measured on devices of so many multiprocessors.
    #[test]
    fn sorts_of_floats_take_the_storage_that_was_measured() {
        for (capability, sms, n, single, half) in [
            ((7, 5), 40, 5000, None, 914_943),
            ((8, 0), 108, 4097, Some(60_415), 4_510_463),
            ((8, 0), 50, 10_000, None, 2_193_663),
            ((8, 6), 84, 7777, None, 2_703_871),
            ((8, 9), 142, 10_000, None, 4_507_903),
            ((9, 0), 132, 4097, Some(59_391), 47_103),
            ((9, 0), 132, 12_000, Some(155_903), 127_743),
            ((9, 0), 132, 50_000, Some(619_263), 514_047),
            ((12, 0), 108, 4097, Some(59_391), 47_103),
        ] {
            let device = Device { compute_capability: capability, multiprocessors: sms };
            let storage = |numbers| cub::sort_with_places(n, numbers, device);
            assert_eq!(storage(DType::Bfloat16), half, "{capability:?} {n}");
            assert!(single.is_none_or(|bytes| bytes == storage(DType::Float32)), "{capability:?} {n}");
        }
    }
}
