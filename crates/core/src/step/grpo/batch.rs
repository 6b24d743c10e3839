//! What generating and scoring makes, and how TRL shuffles and splits it (trl 1.16, trainer/utils.py).

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::{Shape, Tensor};

/// A generation batch, or the part of it that one pass trains on. The names are those of TRL's dictionary.
pub(super) struct Batch {
    pub prompt_ids: Tensor,
    pub prompt_mask: Tensor,
    pub completion_ids: Tensor,
    pub completion_mask: Tensor,
    /// RLOO's: of whole completions.
    pub old_logps: Option<Tensor>,
    pub advantages: Tensor,
    /// By which GRPO divides its loss.
    pub num_items_in_batch: Option<Tensor>,
    pub old_per_token_logps: Option<Tensor>,
    pub importance_sampling_ratio: Option<Tensor>,
    pub sampling_per_token_logps: Option<Tensor>,
    pub ref_per_token_logps: Option<Tensor>,
}

impl Batch {
    /// The same with every tensor that has rows replaced; in the dictionary's order.
    fn map_tensors(&self, mut change: impl FnMut(&Tensor) -> Tensor) -> Self {
        Self {
            prompt_ids: change(&self.prompt_ids),
            prompt_mask: change(&self.prompt_mask),
            completion_ids: change(&self.completion_ids),
            completion_mask: change(&self.completion_mask),
            old_logps: self.old_logps.as_ref().map(&mut change),
            advantages: change(&self.advantages),
            num_items_in_batch: self.num_items_in_batch.clone(),
            old_per_token_logps: self.old_per_token_logps.as_ref().map(&mut change),
            importance_sampling_ratio: self.importance_sampling_ratio.as_ref().map(&mut change),
            sampling_per_token_logps: self.sampling_per_token_logps.as_ref().map(&mut change),
            ref_per_token_logps: self.ref_per_token_logps.as_ref().map(&mut change),
        }
    }

    /// `shuffle_sequence_dict`: `tensor[permutation]` by a permutation made on the host.
    pub(super) fn shuffled(&self) -> Self {
        let rows = self.prompt_ids.size(0);
        self.map_tensors(|tensor| {
            let _permutation = full(tensor.context(), "_to_copy.default", &[rows], DType::Int64);
            let sizes = Shape::new(tensor.sizes());
            Tensor::empty(tensor.context(), "index.Tensor", sizes, tensor.dtype())
        })
    }

    /// One of the views of `split_tensor_dict`, which all have as many rows.
    pub(super) fn part_of(&self, chunks: u64) -> Self {
        let rows = self.prompt_ids.size(0) / chunks.max(1);
        self.map_tensors(|tensor| tensor.narrow_any(0, rows))
    }
}
