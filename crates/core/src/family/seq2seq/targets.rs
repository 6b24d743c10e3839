//! What encoder-decoders share: the tokens that the decoder reads, made of those that it is to write.

use crate::dtype::DType;
use crate::model::family::ForwardCall;
use crate::op::ReduceKind;
use crate::tensor::Tensor;

/// What the decoder reads: what the collator made, or what `shift` makes of the labels; without any, of what the encoder reads.
pub(super) fn decoder_input_ids(call: &ForwardCall, shift: fn(&Tensor) -> Tensor) -> Tensor {
    call.decoder_input_ids.cloned().unwrap_or_else(|| shift(call.labels.unwrap_or(call.input_ids)))
}

/// `shift_tokens_right(labels, ...)`: a copy, one token later, and without what marks labels that nobody counts.
pub(super) fn shift_right(labels: &Tensor) -> Tensor {
    let shifted = labels.map("new_zeros.default", DType::Int64);
    drop(all_but_one(labels));
    shifted.eq_number(-100.0);
    shifted
}

/// The same where a row begins with the token that it ends with, which says its language (mBART).
pub(super) fn wrap_last(labels: &Tensor) -> Tensor {
    let shifted = labels.map("clone.default", DType::Int64);
    shifted.eq_number(-100.0);
    let index_of_eos = {
        let is_token = shifted.ne_number(1.0);
        let count = is_token.reduce_last("sum.dim_IntList", ReduceKind::Sum, DType::Int64);
        drop(is_token);
        count.sub_int(1)
    };
    let _decoder_start_tokens = shifted.gather_one(&index_of_eos);
    drop(all_but_one(&shifted));
    shifted
}

/// `labels[:, :-1].clone()`
fn all_but_one(labels: &Tensor) -> Tensor {
    labels.narrow_any(1, labels.size(1).saturating_sub(1)).map("clone.default", DType::Int64)
}
