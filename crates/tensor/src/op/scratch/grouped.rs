//! Grouped matrix products (GroupedBlas.cpp, GroupMM.cu): the arguments and the workspace of CUTLASS's kernels. Where those do not run,
//! each group is a product of its own, which writes into its part of the result.

use super::{Device, Plan, Steps};
use crate::dtype::DType;

/// What CUTLASS is told of all groups: three lists of pointers, each in whole units of 16 bytes, three strides and a shape of three.
const fn arguments(groups: u64) -> u64 {
    3 * (8 * groups).next_multiple_of(16) + (3 * 8 + 3 * 4) * groups
}

/// Up to so many rows or columns the kernel with small tiles runs.
const SMALL: u64 = 128;

/// A product of groups; output 0 is its result.
#[derive(Clone, Copy)]
pub struct Grouped {
    pub groups: u64,
    /// Rows of a left matrix, where those are runs of one an even share, and columns of a right one.
    pub rows: u64,
    pub columns: u64,
    pub dtype: DType,
    /// Of the result.
    pub bytes: u64,
}

impl Grouped {
    /// Of the kernel's workspace, by multiprocessor; `None` where no kernel takes all groups at once.
    fn workspace(&self, device: Device) -> Option<u64> {
        let is_small = self.rows <= SMALL || self.columns <= SMALL;
        match device.compute_capability {
            _ if self.dtype != DType::Bfloat16 => None,
            (9, _) => Some(512),
            (10, _) if is_small => Some(5376),
            (10, _) => Some(5888),
            _ => None,
        }
    }
}

/// `_grouped_mm`
pub fn grouped_mm(product: &Grouped, device: Device) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, product.bytes);
    if let Some(workspace) = product.workspace(device) {
        let arguments = plan.alloc(arguments(product.groups));
        let workspace = plan.alloc(workspace * device.multiprocessors);
        plan.free_all([workspace, arguments]);
    }
    plan.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::scratch::table::{self, Table};

    #[test]
    fn measured_products_are_reproduced() {
        for text in [
            include_str!("../../../../../testdata/scratch/grouped_sm80.json"),
            include_str!("../../../../../testdata/scratch/grouped_sm90.json"),
            include_str!("../../../../../testdata/scratch/grouped_sm100.json"),
            include_str!("../../../../../testdata/scratch/grouped_sm120.json"),
        ] {
            Table::parse(text).replay(|case, device| {
                let [groups, all, columns, bytes] = [2, 3, 4, 5].map(|at| table::number(&case[at]));
                let rows = if case[0].as_str() == Some("weights") { all } else { all / groups };
                grouped_mm(&Grouped { groups, rows, columns, dtype: table::dtype(&case[1]), bytes }, device)
            });
        }
    }
}
