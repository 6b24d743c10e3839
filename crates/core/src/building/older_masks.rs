//! Masks before masking_utils.py, which came with transformers 4.53: `_update_causal_mask` of the decoders
//! (4.39 to 4.52), in the numbers that are added to scores.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::Attention;
use crate::op::{ReduceKind, arange, full};
use crate::tensor::{Context, Tensor};

/// What such a mask is made from.
#[derive(Clone, Copy)]
pub(crate) struct OlderMask<'a> {
    pub attention: Attention,
    pub inputs_embeds: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    /// Tokens in the cache.
    pub seen: u64,
    /// In tokens; `None` where every earlier token is seen (Mistral's `sliding_window`).
    pub window: Option<u64>,
}

/// `_update_causal_mask`
pub(crate) fn update_causal_mask(inputs: OlderMask) -> Option<Tensor> {
    let window = inputs.window;
    let context = Rc::clone(inputs.inputs_embeds.context());
    if inputs.attention == Attention::FlashAttention2 {
        if let Some(mask) = inputs.attention_mask {
            let is_zero = mask.map("eq.Scalar", DType::Bool);
            let _any = is_zero.reduce_all("any.default", ReduceKind::Any, DType::Bool);
        }
        return inputs.attention_mask.filter(|_| context.has_padded_rows()).cloned();
    }
    let queries = inputs.inputs_embeds.size(1);
    let seen = inputs.seen;
    if inputs.attention != Attention::Eager
        && ignores_causal_mask(inputs.attention_mask, queries, queries + seen, window)
    {
        return None;
    }
    let keys = inputs.attention_mask.map_or(seen + queries + 1, |mask| mask.size(-1));
    let dtype = inputs.inputs_embeds.dtype();
    let causal = {
        let hidden = hidden_keys(&context, queries, keys, window, dtype);
        hidden.unsqueeze(0).unsqueeze(0).expand(&[inputs.inputs_embeds.size(0), 1, queries, keys])
    };
    let Some(attention_mask) = inputs.attention_mask else { return Some(causal) };
    let mask = hide_padding(&causal, attention_mask);
    if inputs.attention == Attention::Eager {
        return Some(mask);
    }
    Some(unmask_unattended(&mask))
}

/// What `GPTBigCodeModel` makes of its table of which positions see which (before 4.54), for rows of so many tokens: numbers in the dtype of
/// its embeddings, which stand in the place of what they make; none for the flash-attn package.
pub(crate) fn tabled_mask(table: &Tensor, inputs: OlderMask, tokens: u64) -> Option<Tensor> {
    if inputs.attention == Attention::FlashAttention2 {
        return update_causal_mask(inputs);
    }
    let seen = table.narrow(0, 0..tokens).narrow(1, 0..tokens).unsqueeze(0);
    let seen = match inputs.attention_mask {
        Some(mask) => {
            let rows = mask.unsqueeze(1).to(DType::Bool);
            seen.binary("mul.Tensor", &rows, DType::Bool)
        }
        None => seen,
    };
    let dtype = inputs.inputs_embeds.dtype();
    let number = || full(table.context(), "full.default", &[], dtype);
    let mask = {
        let (zero, _lowest) = (number(), number());
        seen.unsqueeze(2).binary("where.self", &zero, dtype).transpose(1, 2)
    };
    if tokens < 2 || inputs.attention_mask.is_none() {
        return Some(mask);
    }
    Some(unmask_unattended(&mask))
}

/// `attention_mask.long().cumsum(-1) - 1`, and 1 where a row is padded.
pub(crate) fn counted_positions(attention_mask: &Tensor) -> Tensor {
    let position_ids = {
        let counted = attention_mask.cumsum();
        counted.sub_int(1)
    };
    let _is_padding = attention_mask.eq_number(0.0);
    position_ids
}

/// Rows that would see nothing see all (`_unmask_unattended`).
fn unmask_unattended(mask: &Tensor) -> Tensor {
    let sees_some = {
        let hides_all = {
            let is_lowest = mask.map("eq.Scalar", DType::Bool);
            is_lowest.reduce_last("all.dim", ReduceKind::Any, DType::Bool).unsqueeze(3)
        };
        hides_all.map("bitwise_not.default", DType::Bool)
    };
    mask.binary("mul.Tensor", &sees_some, mask.dtype())
}

/// `_ignore_causal_mask_sdpa`: asks the host whether all of the mask is 1.
fn ignores_causal_mask(mask: Option<&Tensor>, queries: u64, keys: u64, window: Option<u64>) -> bool {
    if window.is_some_and(|window| keys >= window) {
        return false;
    }
    let hides_nothing = mask.is_none_or(|mask| {
        let is_one = mask.map("eq.Scalar", DType::Bool);
        let _all = is_one.reduce_all("all.default", ReduceKind::Any, DType::Bool);
        !mask.context().has_padded_rows()
    });
    hides_nothing && (queries == 1 || keys == queries)
}

/// `full(...) * (arange(keys) > cache_position)`, [queries, keys].
fn hidden_keys(context: &Rc<Context>, queries: u64, keys: u64, window: Option<u64>, dtype: DType) -> Tensor {
    let lowest = full(context, "full.default", &[queries, keys], dtype);
    let later = |op: &'static str| {
        let positions = arange(context, keys).unsqueeze(0);
        positions.binary(op, &arange(context, queries).unsqueeze(1), DType::Bool)
    };
    let _later = later("gt.Tensor");
    if window.is_some() {
        let _left_window = later("le.Tensor");
        return lowest;
    }
    // Mistral's file has no `triu`.
    if queries > 1 { lowest.unary("triu.default", dtype) } else { lowest }
}

/// The mask of each row: a copy, and the lowest number where a row is padded.
fn hide_padding(causal: &Tensor, attention_mask: &Tensor) -> Tensor {
    let mask = causal.clone_contiguous();
    let is_padding = {
        let sum = mask.binary("add.Tensor", &attention_mask.unsqueeze(1).unsqueeze(1), mask.dtype());
        sum.map("eq.Scalar", DType::Bool)
    };
    let _filled = mask.map("masked_fill.Scalar", mask.dtype());
    drop(is_padding);
    mask
}
