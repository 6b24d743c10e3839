//! What collectives of accelerate leave and return (accelerate 1.15, utils/operations.py), whose processes are ranks.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::JobSpec;
use crate::op::{ReduceKind, full};
use crate::tensor::{Context, Tensor};

/// Ranks whose sizes are compared; each comparison is a byte that goes at once.
const MOST_COMPARED: u64 = 64;

/// `accelerator.num_processes`, and whether they share layers.
#[derive(Clone, Copy)]
pub(super) struct Processes(u64, bool);

impl Processes {
    pub(super) const fn of(job: &JobSpec) -> Self {
        Self(job.parallel.world_size, job.parallel.ranks_of_layers().is_some())
    }

    /// `accelerator.gather(x)`: the rows of all; one process gets its own tensor back.
    pub(super) fn gather(self, x: &Tensor) -> Tensor {
        if self.0 == 1 {
            return x.clone();
        }
        let (rows, sent) = match x.sizes().first() {
            Some(rows) => (*rows, x.contiguous()),
            None => (1, x.unary("clone.default", x.dtype())),
        };
        let sizes = if x.sizes().is_empty() { sent.view(&[1]).sizes().with(0, 1) } else { *x.sizes() };
        let output = full(x.context(), "empty.memory_format", &[self.0.saturating_mul(sent.numel())], x.dtype());
        drop(sent);
        output.view(&sizes.with(0, self.0.saturating_mul(rows)))
    }

    /// `accelerator.gather(x).sum()`; a temporary `x` goes when it is gathered.
    pub(super) fn sum_of_all(self, x: Tensor) -> Tensor {
        let gathered = self.gather(&x);
        drop(x);
        sum_all(&gathered)
    }

    /// `accelerator.gather(num_items_in_batch).sum()`, where there are several ranks; what is sent is a copy.
    pub(super) fn sum_of_items(self, own: Tensor) -> Tensor {
        if self.0 == 1 {
            return own;
        }
        let gathered = {
            let _sent = own.unary("clone.default", DType::Int64);
            full(own.context(), "empty.memory_format", &[self.0], DType::Int64)
        };
        let sum = sum_all(&gathered);
        drop((gathered, own));
        // `// parallelism_config.non_data_parallel_size`: ranks that share layers have the same rows.
        if self.1 { sum.map("floor_divide.default", DType::Int64) } else { sum }
    }

    /// `dist.barrier()`: PyTorch keeps the byte that was sent last (torch/csrc/distributed/c10d/ProcessGroup.hpp).
    pub(super) fn barrier(self, context: &Rc<Context>) -> Option<Tensor> {
        (self.0 > 1).then(|| full(context, "empty.memory_format", &[1], DType::Uint8))
    }

    /// The main process prepares the data set first, once for the text and once for its tokens.
    pub(super) fn wait_for_main(self, context: &Rc<Context>) -> Option<Tensor> {
        let _first = self.barrier(context);
        self.barrier(context)
    }

    /// `gather_object(...)` of what is so many bytes long (torch/distributed/distributed_c10d.py, `all_gather_object`): under NCCL
    /// it travels over the GPU.
    pub(super) fn gather_object(self, context: &Rc<Context>, bytes: u64) {
        if self.0 == 1 {
            return;
        }
        let moved = |elements: u64, dtype| full(context, "_to_copy.default", &[elements], dtype);
        let input = moved(bytes, DType::Uint8);
        let local_size = moved(1, DType::Int64);
        let object_sizes = full(context, "zeros.default", &[self.0], DType::Int64);
        // `max(object_size_list)` compares them one by one.
        (1..self.0.min(MOST_COMPARED)).for_each(|_| drop(object_sizes.narrow_any(0, 1).map("gt.Tensor", DType::Bool)));
        let coalesced = full(context, "empty.memory_format", &[bytes.saturating_mul(self.0)], DType::Uint8);
        drop((coalesced, object_sizes, local_size, input));
    }
}

/// `x.sum()`, outside autograd
pub(super) fn sum_all(x: &Tensor) -> Tensor {
    let dtype = if x.dtype().is_floating_point() { x.dtype() } else { DType::Int64 };
    x.reduce_all("sum.default", ReduceKind::Sum, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;

    /// The sizes of what is gathered, and how many bytes were asked for.
    fn gathered(ranks: u64, sizes: &[u64]) -> (Vec<u64>, u64) {
        let context = Context::new(Gpu::parse("h100").unwrap().device());
        let own = full(&context, "full.default", sizes, DType::Float32);
        let all = Processes(ranks, false).gather(&own);
        let sizes = all.sizes().to_vec();
        drop((own, all));
        context.end();
        (sizes, context.take_trace().allocations.iter().map(|allocation| allocation.bytes).sum())
    }

    #[test]
    fn rows_of_all_ranks_come_together_and_numbers_become_rows() {
        assert_eq!(gathered(1, &[3, 5]), (vec![3, 5], 60));
        assert_eq!(gathered(4, &[3, 5]), (vec![12, 5], 60 + 240));
        // A number is copied before it is sent.
        assert_eq!(gathered(4, &[]), (vec![4], 4 + 4 + 16));
    }
}
