//! Attention masks (transformers/masking_utils.py): when one is made, of which dtype, and through which temporaries.
//!
//! Rows are taken as unpacked, and as unpadded unless the job says otherwise: what tests of a mask's values answer.

use std::rc::Rc;

use crate::building::{OlderMask, update_causal_mask};
use crate::dtype::DType;
use crate::job::{Attention, keys};
use crate::op::{arange, index, number_from_host, true_scalar, where_number, zeros};
use crate::tensor::{Context, Tensor};

use super::cache::KvCache;
use super::mask_inputs::MaskInputs;
use super::positions::find_packed_sequence_indices;

/// Which keys the queries of a layer see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "so configs call them")]
pub(crate) enum LayerType {
    /// All before them.
    FullAttention,
    /// The last ones of a window.
    SlidingAttention,
    /// Those of the same chunk of the row; the cache keeps as many as for a window.
    ChunkedAttention,
    /// None: a state that each token changes stands for those before it.
    LinearAttention,
}

/// The masks of a forward call, by the type of the layers that use them.
#[derive(Clone, Default)]
pub(crate) struct LayerMasks {
    full: Option<Tensor>,
    sliding: Option<Tensor>,
    linear: Option<Tensor>,
}

impl LayerMasks {
    /// Makes the masks of the given types, in this order.
    pub(crate) fn create(inputs: MaskInputs, types: &[LayerType], sliding_window: u64) -> Self {
        let mut masks = Self::default();
        for layer_type in types {
            match layer_type {
                LayerType::FullAttention => masks.full = create_causal_mask(inputs),
                LayerType::SlidingAttention => {
                    masks.sliding = create_sliding_window_causal_mask(inputs, sliding_window);
                }
                LayerType::ChunkedAttention => masks.sliding = create_chunked_causal_mask(inputs, sliding_window),
                LayerType::LinearAttention => masks.linear = create_recurrent_attention_mask(inputs),
            }
        }
        masks
    }

    /// Masks that somebody else made.
    pub(crate) fn given(full: Option<Tensor>, sliding: Option<Tensor>) -> Self {
        Self { full, sliding, linear: None }
    }

    /// The mask of a layer, if it takes one.
    pub(crate) fn of(&self, layer_type: LayerType) -> Option<&Tensor> {
        match layer_type {
            LayerType::FullAttention => self.full.as_ref(),
            LayerType::SlidingAttention | LayerType::ChunkedAttention => self.sliding.as_ref(),
            LayerType::LinearAttention => self.linear.as_ref(),
        }
    }
}

/// `create_causal_mask`
pub(crate) fn create_causal_mask(inputs: MaskInputs) -> Option<Tensor> {
    if !inputs.has_masking_utils() {
        return update_causal_mask(inputs.older(None));
    }
    let call = preprocess(inputs, None);
    if inputs.attention == Attention::Eager {
        Some(eager_mask(&call, Pattern::Causal, inputs.inputs_embeds.dtype()))
    } else if inputs.attention == Attention::FlashAttention2 {
        flash_attention_mask(&call)
    } else if call.packed_sequence_mask.is_none() && ignores_causal_mask(&call, None) {
        None
    } else {
        Some(sdpa_mask(&call, Pattern::Causal))
    }
}

/// `create_sliding_window_causal_mask`
pub(crate) fn create_sliding_window_causal_mask(inputs: MaskInputs, window: u64) -> Option<Tensor> {
    if !inputs.has_masking_utils() {
        return update_causal_mask(inputs.older(Some(window)));
    }
    let call = preprocess(inputs, Some(window));
    if inputs.attention == Attention::Eager {
        Some(eager_mask(&call, Pattern::SlidingWindow(window), inputs.inputs_embeds.dtype()))
    } else if inputs.attention == Attention::FlashAttention2 {
        flash_attention_mask(&call)
    } else if call.packed_sequence_mask.is_none() && ignores_causal_mask(&call, Some(window)) {
        None
    } else {
        Some(sdpa_mask(&call, Pattern::SlidingWindow(window)))
    }
}

fn create_chunked_causal_mask(inputs: MaskInputs, chunk: u64) -> Option<Tensor> {
    let mut call = preprocess(inputs, Some(chunk));
    call.left_padding = Some(match &call.padding_mask {
        Some(mask) => {
            let is_before = mask.cumsum().eq_tensor(&mask.zeros_like());
            is_before.count_last()
        }
        None => zeros(&call.context, &[call.batch_size], DType::Int64),
    });
    match inputs.attention {
        Attention::Eager => Some(eager_mask(&call, Pattern::Chunked(chunk), inputs.inputs_embeds.dtype())),
        _ if call.packed_sequence_mask.is_none() && ignores_causal_mask(&call, Some(chunk)) => None,
        _ => Some(sdpa_mask(&call, Pattern::Chunked(chunk))),
    }
}

/// `create_recurrent_attention_mask`: the rows' own, none where no row is padded.
fn create_recurrent_attention_mask(inputs: MaskInputs) -> Option<Tensor> {
    let (mask, tokens) = (inputs.attention_mask?, inputs.inputs_embeds.size(1));
    if tokens == 1 {
        return None;
    }
    let _all = mask.eq_number(1.0).all();
    mask.context().has_padded_rows().then(|| mask.narrow(1, mask.size(1) - tokens..mask.size(1)).contiguous())
}

/// `flash_attention_mask`: none where no row is padded.
fn flash_attention_mask(call: &MaskCall) -> Option<Tensor> {
    let mask = call.padding_mask.as_ref()?;
    let mask = mask.narrow(1, mask.size(1) - call.kv_length.min(mask.size(1))..mask.size(1));
    if mask.size(1) != call.kv_length {
        return None;
    }
    let _all = mask.all();
    if mask.context().has_padded_rows() {
        mask.context().fail_unsimulated(&[keys::ATTENTION], || {
            "attention = \"flash_attention_2\": padded rows are not simulated with it".to_owned()
        });
    }
    None
}

/// `create_bidirectional_mask`: never needed for unpadded rows, whatever the attention.
pub(crate) fn create_bidirectional_mask(inputs: MaskInputs) -> Option<Tensor> {
    let call = preprocess(MaskInputs { position_ids: None, ..inputs }, None);
    if inputs.attention == Attention::FlashAttention2 {
        return flash_attention_mask(&call);
    }
    let padding_mask = call.padding_mask.as_ref()?;
    drop(padding_mask.all());
    if !padding_mask.context().has_padded_rows() {
        return None;
    }
    Some(match inputs.attention {
        Attention::Eager => eager_mask(&call, Pattern::Bidirectional, inputs.inputs_embeds.dtype()),
        _ => sdpa_mask(&call, Pattern::Bidirectional),
    })
}

/// `create_bidirectional_sliding_window_mask`: needed where rows are as long as the window at least.
pub(crate) fn create_bidirectional_sliding_window_mask(inputs: MaskInputs, window: u64) -> Option<Tensor> {
    let call = preprocess(MaskInputs { position_ids: None, ..inputs }, None);
    if inputs.attention == Attention::FlashAttention2 {
        return flash_attention_mask(&call);
    }
    let is_padded = call.padding_mask.as_ref().is_some_and(|mask| {
        let _all = mask.all();
        mask.context().has_padded_rows()
    });
    if !is_padded && call.kv_length < window {
        return None;
    }
    let pattern = Pattern::Window(window);
    Some(match inputs.attention {
        Attention::Eager => eager_mask(&call, pattern, inputs.inputs_embeds.dtype()),
        _ => sdpa_mask(&call, pattern),
    })
}

/// The mask functions that are mirrored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Causal,
    /// Every key, behind the query too.
    Bidirectional,
    /// The last ones, so many with the query itself.
    SlidingWindow(u64),
    /// Those at most so many before or behind the query.
    Window(u64),
    /// Those before it in its chunk of so many.
    Chunked(u64),
}

/// What `_preprocess_mask_arguments` finds out.
struct MaskCall {
    context: Rc<Context>,
    batch_size: u64,
    q_length: u64,
    kv_length: u64,
    q_offset: u64,
    kv_offset: u64,
    padding_mask: Option<Tensor>,
    packed_sequence_mask: Option<Tensor>,
    /// How many tokens of each row are padding at its left, for masks of chunks.
    left_padding: Option<Tensor>,
}

impl<'a> MaskInputs<'a> {
    fn has_masking_utils(&self) -> bool {
        self.inputs_embeds.context().transformers().has_masking_utils(self.file)
    }

    fn older(&self, window: Option<u64>) -> OlderMask<'a> {
        OlderMask {
            attention: self.attention,
            inputs_embeds: self.inputs_embeds,
            attention_mask: self.attention_mask,
            seen: self.cache.map_or(0, KvCache::seq_length),
            window,
        }
    }
}

fn preprocess(inputs: MaskInputs, sliding_window: Option<u64>) -> MaskCall {
    let padding_mask = inputs.attention_mask.map(|mask| mask.to(DType::Bool));
    let (batch_size, q_length) = (inputs.inputs_embeds.size(0), inputs.inputs_embeds.size(1));
    let (kv_length, q_offset) = match (inputs.cache, &padding_mask) {
        (Some(cache), _) => (key_length(cache, q_length, sliding_window), cache.seq_length()),
        (None, Some(mask)) => (mask.size(-1), 0),
        (None, None) => (q_length, 0),
    };
    let packed_sequence_mask = match (inputs.position_ids, inputs.attention_mask, inputs.cache) {
        (Some(position_ids), None, None) => {
            find_packed_sequence_indices(&position_ids.expand(&[batch_size, position_ids.size(1)]))
        }
        _ => None,
    };
    MaskCall {
        context: Rc::clone(inputs.inputs_embeds.context()),
        batch_size,
        q_length,
        kv_length,
        q_offset,
        // A layer whose window is full has forgotten what came before it.
        kv_offset: (q_offset + q_length).saturating_sub(kv_length),
        padding_mask,
        packed_sequence_mask,
        left_padding: None,
    }
}

/// `get_mask_sizes` of a cache layer: one with a window hands out no more than the window's keys and the new ones. The
/// mask without a window asks a layer without one, and the first layer where there is none.
fn key_length(cache: &KvCache, q_length: u64, sliding_window: Option<u64>) -> u64 {
    let seen = cache.seq_length();
    match sliding_window.filter(|_| cache.has_windows()).or(cache.first_window_if_all_have_one()) {
        Some(window) if seen >= window => window - 1 + q_length,
        _ => seen + q_length,
    }
}

/// `_ignore_causal_mask_sdpa`: whether SDPA's own `is_causal` does.
fn ignores_causal_mask(call: &MaskCall, local_attention_size: Option<u64>) -> bool {
    let sliced = call.padding_mask.as_ref().filter(|mask| mask.size(-1) > call.kv_length).map(|mask| {
        let mask_indices = arange(&call.context, call.kv_length).add_int(call.kv_offset);
        index(mask, &[call.batch_size, call.kv_length], &[None, Some(&mask_indices)])
    });
    let padding_mask = sliced.as_ref().or(call.padding_mask.as_ref());
    if local_attention_size.is_some_and(|size| call.kv_length >= size) {
        return false;
    }
    if (call.q_length == 1 || call.kv_length == call.q_length) && padding_mask.is_none_or(fast_all) {
        return true;
    }
    let future = call.kv_length.saturating_sub(call.q_length);
    call.q_offset == 0
        && padding_mask.is_none_or(|mask| {
            fast_all(&mask.narrow(1, 0..call.q_length))
                && fast_all(&mask.narrow(1, call.q_length..call.q_length + future).bitwise_not())
        })
}

/// `fast_all`: the sum of the mask and its comparison with the mask's size.
fn fast_all(mask: &Tensor) -> bool {
    let sum = mask.sum_int();
    let _equal = sum.eq_number(mask.numel() as f64);
    !mask.context().has_padded_rows()
}

/// `sdpa_mask` once a mask is needed: True where a query sees a key, [batch, 1, queries, keys].
fn sdpa_mask(call: &MaskCall, pattern: Pattern) -> Tensor {
    let batch_arange = arange(&call.context, call.batch_size);
    let _head_arange = arange(&call.context, 1);
    let q_arange = shifted_arange(&call.context, call.q_length, call.q_offset);
    let kv_arange = shifted_arange(&call.context, call.kv_length, call.kv_offset);
    let batch_indices = batch_arange.unsqueeze(1).unsqueeze(2).unsqueeze(3);
    let q_indices = q_arange.unsqueeze(0).unsqueeze(0).unsqueeze(3);
    let kv_indices = kv_arange.unsqueeze(0).unsqueeze(0).unsqueeze(0);
    let evaluate = || match (pattern, &call.left_padding) {
        (Pattern::Chunked(chunk), Some(left_padding)) => {
            let padding = || index(left_padding, &[call.batch_size, 1, 1, 1], &[Some(&batch_indices)]);
            in_chunk([&q_indices, &kv_indices], padding, chunk)
        }
        _ => pattern.evaluate(&q_indices, &kv_indices),
    };
    let mask = match (&call.padding_mask, &call.packed_sequence_mask) {
        (None, None) => evaluate(),
        (None, Some(packed)) => {
            let result = and(&true_scalar(&call.context), evaluate());
            let same_sequence = {
                let of_queries =
                    index(packed, &[call.batch_size, 1, call.q_length, 1], &[Some(&batch_indices), Some(&q_indices)]);
                let of_keys =
                    index(packed, &[call.batch_size, 1, 1, call.kv_length], &[Some(&batch_indices), Some(&kv_indices)]);
                of_queries.eq_tensor(&of_keys)
            };
            and(&result, same_sequence)
        }
        (Some(padding_mask), _) => {
            let mut result = true_scalar(&call.context);
            let seen = evaluate();
            result = and(&result, seen);
            let sizes = [call.batch_size, 1, 1, call.kv_length];
            and(&result, index(padding_mask, &sizes, &[Some(&batch_indices), Some(&kv_indices)]))
        }
    };
    mask.expand(&[call.batch_size, 1, call.q_length, call.kv_length])
}

impl Pattern {
    fn evaluate(self, q_indices: &Tensor, kv_indices: &Tensor) -> Tensor {
        match self {
            Self::Causal | Self::Chunked(_) => causal(q_indices, kv_indices),
            Self::Bidirectional => q_indices.ge_number(0.0),
            Self::SlidingWindow(window) => {
                let mut result = true_scalar(q_indices.context());
                let overlay = {
                    let first = q_indices.sub_int(window);
                    kv_indices.gt_tensor(&first)
                };
                result = and(&result, overlay);
                and(&result, causal(q_indices, kv_indices))
            }
            Self::Window(window) => {
                let mut result = true_scalar(q_indices.context());
                let overlay = {
                    let distance = {
                        let difference = q_indices - kv_indices;
                        difference.abs_int()
                    };
                    distance.le_number(window as f64)
                };
                result = and(&result, overlay);
                and(&result, Self::Bidirectional.evaluate(q_indices, kv_indices))
            }
        }
    }
}

/// `chunked_causal_mask_function` of queries and keys
fn in_chunk([q_indices, kv_indices]: [&Tensor; 2], padding: impl Fn() -> Tensor, chunk: u64) -> Tensor {
    let mut result = true_scalar(q_indices.context());
    let chunk_of = |indices: &Tensor| {
        let place = indices - &padding();
        place.floor_divide(chunk)
    };
    let is_same = {
        let (of_keys, of_queries) = (chunk_of(kv_indices), chunk_of(q_indices));
        of_keys.eq_tensor(&of_queries)
    };
    result = and(&result, is_same);
    and(&result, causal(q_indices, kv_indices))
}

fn causal(q_indices: &Tensor, kv_indices: &Tensor) -> Tensor {
    kv_indices.le_tensor(q_indices)
}

/// `result & mask`; the right side dies with the expression.
fn and(result: &Tensor, mask: Tensor) -> Tensor {
    result.bitwise_and(&mask)
}

/// `arange(length) + offset`
fn shifted_arange(context: &Rc<Context>, length: u64, offset: u64) -> Tensor {
    arange(context, length).add_int(offset)
}

/// `eager_mask`: 0 where a query sees a key and the dtype's lowest number elsewhere.
fn eager_mask(call: &MaskCall, pattern: Pattern, dtype: DType) -> Tensor {
    let mask = sdpa_mask(call, pattern);
    let zero = number_from_host(&call.context, "tensor", 0.0, dtype);
    where_number(&mask, zero, dtype.lowest(), dtype)
}
