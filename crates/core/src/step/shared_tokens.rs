//! Rows whose tokens several ranks share, as `context_parallel` takes them apart (torch/distributed/tensor/experimental/_context_parallel,
//! PyTorch 2.11): every rank gets the batch whole, and its part is copied into the front of each tensor of it.

use std::rc::Rc;

use super::inputs::input_ids;
use crate::dtype::DType;
use crate::job::JobSpec;
use crate::op::full;
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

/// A rank's part of a batch.
#[derive(Clone)]
pub(super) struct SharedRows {
    pub ids: Tensor,
    pub labels: Tensor,
    pub shift_labels: Tensor,
    pub positions: Tensor,
}

/// What the context manager's frame holds until it is left.
pub(super) struct Frame {
    _tensors: Vec<Tensor>,
}

/// The rows of a pass in the place of those `before`, if ranks share their tokens.
pub(super) fn share_rows(job: &JobSpec, context: &Rc<Context>, before: &mut Option<SharedRows>) -> Option<Frame> {
    let ring = job.parallel.ring()?;
    let _category = context.enter_category(Category::Input);
    let whole = [(); 4].map(|()| input_ids(context, job.micro_batch_size, job.seq_len));
    let sizes = Shape::new(&[job.micro_batch_size, job.seq_len / ring.ranks]);
    let part = |whole: &Tensor| whole.alias(Layout::contiguous(sizes));
    let [ids, labels, shift_labels, positions] = whole.each_ref().map(part);
    if let Some(SharedRows { ids, labels, shift_labels, positions }) =
        before.replace(SharedRows { ids, labels, shift_labels, positions })
    {
        // Python frees a list from its end.
        [positions, shift_labels, labels, ids].into_iter().for_each(drop);
    }
    let indices = full(context, "_to_copy.default", &[job.seq_len], DType::Int32);
    let shards = whole.each_ref().map(|whole| {
        let gathered = full(context, "gather.default", whole.sizes(), DType::Int64);
        let shard = full(context, "clone.default", &sizes, DType::Int64);
        drop(gathered);
        shard
    });
    drop(indices);
    let mut clone = None;
    for shard in &shards {
        let before = clone.replace(shard.unary("clone.default", DType::Int64));
        drop(before);
    }
    Some(Frame { _tensors: shards.into_iter().chain(clone).collect() })
}
