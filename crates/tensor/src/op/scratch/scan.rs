//! Scans (ScanKernels.cpp): what `cumsum` allocates beside its result.

use super::{Plan, Steps, cub};
use crate::dtype::DType;

/// `cumsum` over the last dimension of a `[rows, columns]` tensor; integers are summed as int64.
pub fn cumsum(rows: u64, columns: u64, dtype: DType, contiguous: bool) -> Steps {
    let mut plan = Plan::new();
    let out = if dtype.is_floating_point() { dtype } else { DType::Int64 };
    let bytes = rows * columns * out.size();
    plan.output(0, bytes);
    let converted = plan.alloc(if out == dtype { 0 } else { bytes });
    let packed = plan.alloc(if contiguous { 0 } else { bytes });
    if rows == 1 {
        plan.touch(cub::inclusive_scan(columns, out));
    }
    plan.free_all([packed, converted]);
    plan.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::scratch::table::{self, Table};

    #[test]
    fn measured_scans_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/misc_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/misc_sm80.json");
        for table in Table::pair(full, patch) {
            table.only(&["cumsum"]).replay(|case, _| {
                let [rows, columns, contiguous] = [2, 3, 4].map(|index| table::number(&case[index]));
                cumsum(rows, columns, table::dtype(&case[1]), contiguous == 1)
            });
        }
    }
}
