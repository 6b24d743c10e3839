//! Where a row has room for what a tower made of its images (`get_placeholder_mask` and `masked_scatter`).

use crate::dtype::DType;
use crate::model::family::RunOptions;
use crate::tensor::Tensor;

/// What `gradient_checkpointing_enable` does to what a tower makes of patches: of a model of tokens it has the embeddings of all
/// its parts require grad, also of those that stay as they are (transformers 5.17, `enable_input_require_grads`).
pub(super) fn require_patch_grads(options: &RunOptions, patches: Tensor) -> Tensor {
    if options.checkpoints_layers() && !patches.requires_grad() { patches.require_grad_in_hook() } else { patches }
}

/// The places of images in rows of ids, and the check that they are as many as the features: the mask [rows, tokens, 1].
pub(super) fn placeholder_mask(input_ids: &Tensor) -> Tensor {
    let special_image_mask = input_ids.eq_number(0.0);
    let n_image_tokens = special_image_mask.sum_int();
    let mask = special_image_mask.unsqueeze(2);
    check_count(&n_image_tokens);
    mask
}

/// `torch_compilable_check(count * width == image_features.numel(), ...)`
pub(super) fn check_count(count: &Tensor) {
    let is_equal = {
        let numbers = count.unary("mul.Tensor", DType::Int64);
        numbers.eq_number(0.0)
    };
    let _all = is_equal.map("_is_all_true.default", DType::Bool);
}
