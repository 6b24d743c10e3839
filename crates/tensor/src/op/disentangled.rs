//! What DeBERTa computes of the distances between tokens (transformers/models/deberta_v2/modeling_deberta_v2.py), which nobody
//! differentiates, and the copies of a table of theirs for each row.

use super::reduce::only;
use super::scratch::reduce::ReduceKind;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `make_log_bucket_position(self, bucket_size, max_position)`, a function in TorchScript: far distances share a bucket.
    pub fn log_buckets(&self, _bucket_size: u64, _max_position: u64) -> Tensor {
        let sign = self.map("sign.default", self.dtype());
        if self.context().run_script() { self.compiled_buckets(sign) } else { self.interpreted_buckets(sign) }
    }

    /// In a process's first pass, which TorchScript profiles, one operator runs after the other.
    fn interpreted_buckets(&self, sign: Tensor) -> Tensor {
        let abs_pos = {
            let is_near = {
                let (below, above) = (self.map("lt.Scalar", DType::Bool), self.map("gt.Scalar", DType::Bool));
                below.binary("bitwise_and.Tensor", &above, DType::Bool)
            };
            let _middle = self.middle();
            let _distance = self.map("abs.default", self.dtype());
            is_near.map("where.self", self.dtype())
        };
        let mut log_pos = abs_pos.map("div.Tensor", DType::Float32);
        for op in ["log.default", "div.Tensor", "mul.Tensor", "ceil.default", "add.Tensor"] {
            log_pos = log_pos.map(op, DType::Float32);
        }
        let is_near = abs_pos.map("le.Scalar", DType::Bool);
        // The interpreter lets go of what no later operator reads.
        drop(abs_pos);
        let _near = self.map("_to_copy.default", DType::Float32);
        let _far = log_pos.binary("mul.Tensor", &sign, DType::Float32);
        drop((log_pos, sign));
        is_near.map("where.self", DType::Float32)
    }

    /// Later those before and those behind the division by a number on the host are compiled to a kernel each.
    fn compiled_buckets(&self, _sign: Tensor) -> Tensor {
        let (log, _abs_pos) = {
            let _middle = self.middle();
            (self.map("log.default", DType::Float32), self.map("where.self", self.dtype()))
        };
        let log_pos = log.map("div.Tensor", DType::Float32);
        drop(log);
        log_pos.map("where.self", DType::Float32)
    }

    /// `torch.tensor(mid - 1).type_as(self)`
    fn middle(&self) -> Tensor {
        Tensor::empty(self.context(), "_to_copy.default", Shape::new(&[]), self.dtype())
    }

    /// `self.repeat(count, 1, 1, 1)` of three dimensions: copies along a new one, whose gradients are summed.
    pub fn repeat_beside(&self, count: u64) -> Tensor {
        let node = NodeBuilder::new("RepeatBackward0", [self]);
        let from = *self.sizes();
        let out = Tensor::empty(self.context(), "repeat.default", from.inserted(0, count), self.dtype());
        node.finish(out, move |grad| gradients![grad.reduce_to("sum.dim_IntList", ReduceKind::Sum, &only(0), from)])
    }

    /// `self.repeat(count, 1, 1)`; the gradients of all copies are summed.
    pub fn repeat_first(&self, count: u64) -> Tensor {
        let node = NodeBuilder::new("RepeatBackward0", [self]);
        let from = *self.sizes();
        let out = Tensor::empty(self.context(), "repeat.default", from.with(0, from[0] * count), self.dtype());
        node.finish(out, move |grad| {
            if count == 1 {
                return gradients![grad.clone()];
            }
            let copies = grad.reshape(&from.inserted(0, count));
            gradients![copies.reduce_to("sum.dim_IntList", ReduceKind::Sum, &only(0), from)]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::op::full;
    use crate::tensor::Context;

    #[test]
    fn a_script_is_compiled_after_its_first_run() {
        let allocated = |calls: usize| {
            let context = Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 });
            let distances = full(&context, "sub.Tensor", &[64, 64], DType::Int64);
            (0..calls).for_each(|_| drop(distances.log_buckets(32, 512)));
            context.take_trace().allocations.len()
        };
        let (none, once, twice) = (allocated(0), allocated(1), allocated(2));
        assert_eq!((once - none, twice - once), (17, 6));
    }
}
