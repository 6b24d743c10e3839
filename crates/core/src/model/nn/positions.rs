//! Positions: their ids, the test for packed sequences, and rotary embeddings.

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::op::{arange, arange_from, cat};
use crate::tensor::{Context, Tensor};

use super::rope::{Rope, RopeKind};
use super::rotations::repeat_interleave;

/// `(arange(tokens) + past_seen_tokens).unsqueeze(0)`
pub(crate) fn position_ids(context: &Rc<Context>, tokens: u64, past_seen_tokens: u64) -> Tensor {
    if context.transformers().reads_cache_position() {
        return arange_from(context, past_seen_tokens..past_seen_tokens + tokens).unsqueeze(0);
    }
    let positions = arange(context, tokens);
    positions.add_int(past_seen_tokens).unsqueeze(0)
}

/// `find_packed_sequence_indices` (transformers/masking_utils.py): the ops run, and unpacked rows answer "not packed", but
/// before 5.0 it was never asked.
pub(crate) fn find_packed_sequence_indices(position_ids: &Tensor) -> Option<Tensor> {
    let first_dummy_value = position_ids.narrow(1, 0..1).sub_int(1);
    let position_diff = {
        let joined = cat(&[&first_dummy_value, position_ids], 1);
        let tokens = position_ids.size(1);
        &joined.narrow(1, 1..1 + tokens) - &joined.narrow(1, 0..tokens)
    };
    let packed_sequence_mask = {
        let differs = position_diff.ne_number(1.0);
        differs.cumsum()
    };
    let context = position_ids.context();
    if context.transformers().takes_rows_as_packed() {
        return Some(packed_sequence_mask);
    }
    let tokens = packed_sequence_mask.size(1);
    let is_last_zero = packed_sequence_mask.narrow(1, tokens - 1..tokens).squeeze(1).eq_number(0.0);
    let _all = is_last_zero.all();
    context.has_packed_rows().then_some(packed_sequence_mask)
}

/// `LlamaRotaryEmbedding`: cosine and sine tables [1, tokens, head_dim] in the activations' dtype.
pub(crate) struct RotaryEmbedding {
    module: Module,
    inv_freq: RefCell<Tensor>,
    /// What a longer sequence's frequencies are put back from; on the CPU before transformers 5.
    original_inv_freq: Option<Tensor>,
    rope: Rope,
    /// Whether the tables are multiplied by the attention's scaling, which older ones did not have.
    scales: bool,
    tables: RotaryTables,
}

/// How often rotary tables hold their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotaryTables {
    /// All numbers, then all again.
    Twice,
    /// Every number twice in a row.
    Interleaved,
    Once,
    /// As `Twice`, of positions in time, height and width, which are the same for text.
    OfGrids,
    /// The same, of which each has so many numbers one after the other (`mrope_section`).
    OfSections([u64; 3]),
    /// One table of complex numbers, in the place of both.
    Complex,
}

impl RotaryTables {
    /// Whether they are of positions in time, height and width.
    pub(crate) fn are_of_grids(self) -> bool {
        matches!(self, Self::OfGrids | Self::OfSections(_))
    }

    /// `recomposition_frequencies`
    fn recompose(self, freq: &Tensor) -> Tensor {
        let Self::OfSections(sections) = self else {
            let freqs_thw = freq.select(0, 0);
            return cat(&[&freqs_thw, &freqs_thw], 2);
        };
        let mut begin = 0;
        let parts: Vec<Tensor> = (0..)
            .zip(sections)
            .map(|(at, width)| {
                let part = freq.select(0, at).slice(2, begin..begin + width);
                begin += width;
                part
            })
            .collect();
        let freqs_thw = cat(&parts.iter().collect::<Vec<_>>(), 2);
        cat(&[&freqs_thw, &freqs_thw], 2)
    }
}

impl RotaryEmbedding {
    pub(crate) fn new(at: &Builder, rotary_dim: u64, rope: &Rope) -> Self {
        if let Some(unknown) = rope.unknown(rotary_dim) {
            at.lack_numbers("rope_parameters", || format!("frequencies of rope_type {unknown} are not computed here"));
        }
        let module = at.module();
        let buffer = || at.buffer(&[rotary_dim.div_ceil(2)], DType::Float32, || rope.inverse_frequencies(rotary_dim));
        let inv_freq = RefCell::new(buffer());
        let keeps_original = at.context().transformers().keeps_original_frequencies();
        let original_inv_freq = keeps_original.then(buffer);
        Self { module, inv_freq, original_inv_freq, rope: rope.clone(), scales: true, tables: RotaryTables::Twice }
    }

    /// One with such tables.
    pub(crate) fn with_tables(self, tables: RotaryTables) -> Self {
        Self { tables, ..self }
    }

    /// One without a scaling of its tables.
    pub(crate) fn unscaled(at: &Builder, rotary_dim: u64, rope: &Rope) -> Self {
        Self { scales: false, ..Self::new(at, rotary_dim, rope) }
    }

    pub(crate) fn forward(&self, dtype: DType, position_ids: &Tensor) -> (Tensor, Tensor) {
        let context = position_ids.context();
        let _module = self.module.enter();
        let _no_grad = context.set_grad_enabled(false);
        self.check_length(position_ids);
        // One of the two sets is registered anew in each forward pass.
        if let (RopeKind::LongRope { .. }, Some(original)) = (&self.rope.kind, &self.original_inv_freq) {
            self.inv_freq.replace(original.clone());
        }
        let inv_freq = self.inv_freq.borrow();
        if self.tables.are_of_grids() {
            return self.grid_tables(&inv_freq, dtype, position_ids);
        }
        let half_dim = inv_freq.size(0);
        let inv_freq = inv_freq.unsqueeze(0).unsqueeze(2).float();
        let inv_freq_expanded = inv_freq.expand(&[position_ids.size(0), half_dim, 1]);
        let position_ids_expanded = position_ids.unsqueeze(1).float();
        let _float32 = context.disable_autocast();
        let freqs = inv_freq_expanded.matmul(&position_ids_expanded).transpose(1, 2);
        let emb = match self.tables {
            RotaryTables::Twice | RotaryTables::OfGrids | RotaryTables::OfSections(_) => cat(&[&freqs, &freqs], 2),
            RotaryTables::Interleaved => repeat_interleave(&freqs),
            RotaryTables::Once => freqs,
            RotaryTables::Complex => {
                let freqs_cis = freqs.polar().mul_scalar(self.rope.attention_scaling);
                return (freqs_cis.clone(), freqs_cis);
            }
        };
        if !self.scales {
            let (cos, sin) = (emb.cos(), emb.sin());
            return (cos.to(dtype), sin.to(dtype));
        }
        let cos = emb.cos().mul_scalar(self.rope.attention_scaling);
        let sin = emb.sin().mul_scalar(self.rope.attention_scaling);
        (cos.to(dtype), sin.to(dtype))
    }

    /// `Qwen3_5TextRotaryEmbedding.forward`, of positions [rows, tokens] or [3, rows, tokens]: the numbers of height and width are written
    /// over those of time, or stand behind them.
    fn grid_tables(&self, inv_freq: &Tensor, dtype: DType, position_ids: &Tensor) -> (Tensor, Tensor) {
        let (rows, tokens) = (position_ids.size(-2), position_ids.size(-1));
        let inv_freq = inv_freq.unsqueeze(0).unsqueeze(1).unsqueeze(3);
        let inv_freq_expanded = inv_freq.expand(&[3, rows, inv_freq.size(2), 1]);
        let position_ids = match position_ids.sizes().len() {
            2 => position_ids.unsqueeze(0).expand(&[3, rows, tokens]),
            _ => position_ids.clone(),
        };
        let position_ids_expanded = position_ids.unsqueeze(2).float();
        let _float32 = position_ids.context().disable_autocast();
        let freqs = inv_freq_expanded.matmul(&position_ids_expanded).transpose(2, 3);
        let mut cos = freqs.cos().mul_scalar(self.rope.attention_scaling);
        let mut sin = freqs.sin().mul_scalar(self.rope.attention_scaling);
        sin = self.tables.recompose(&sin);
        cos = self.tables.recompose(&cos);
        (cos.to(dtype), sin.to(dtype))
    }

    /// What `dynamic_rope_update` (transformers/modeling_rope_utils.py) runs to find the sequence's length; new frequencies are a
    /// few hundred bytes and left out.
    fn check_length(&self, position_ids: &Tensor) {
        if !matches!(self.rope.kind, RopeKind::Dynamic | RopeKind::LongRope { .. }) {
            return;
        }
        let seq_len = {
            let longest = position_ids.max_int();
            longest.add_int(1)
        };
        let original = self.rope.original_max_positions as f64;
        let _is_beyond = seq_len.gt_number(original);
        if self.rope.kind == RopeKind::Dynamic {
            let _is_below = seq_len.lt_number(original);
        }
    }
}

/// `rotate_half`: `cat((-x2, x1), dim=-1)`
pub(crate) fn rotate_half(x: &Tensor) -> Tensor {
    let last = x.sizes().len() - 1;
    let half = x.size(-1) / 2;
    let x1 = x.slice(last, 0..half);
    let x2 = x.slice(last, half..x.size(-1));
    let negated = x2.neg();
    cat(&[&negated, &x1], last)
}

/// `x * cos + rotate_half(x) * sin`
pub(crate) fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let kept = x * cos;
    let turned = {
        let rotated = rotate_half(x);
        &rotated * sin
    };
    &kept + &turned
}

/// `apply_rotary_pos_emb` on [batch, heads, tokens, head_dim] queries and keys.
pub(crate) fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let q_embed = rotate(q, &cos, &sin);
    let k_embed = rotate(k, &cos, &sin);
    (q_embed, k_embed)
}

/// Phi-3's `apply_rotary_pos_emb`: the first part of each head is rotated and joined with the rest, even with none.
pub(crate) fn apply_partial_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let (rotary_dim, head_dim) = (cos.size(-1), q.size(-1));
    let first = |x: &Tensor| if rotary_dim == head_dim { x.alias_all() } else { x.slice(3, 0..rotary_dim) };
    let rest = |x: &Tensor| x.slice(3, rotary_dim..head_dim);
    let (q_rot, q_pass) = (first(q), rest(q));
    let (k_rot, k_pass) = (first(k), rest(k));
    let q_embed = cat(&[&rotate(&q_rot, &cos, &sin), &q_pass], 3);
    let k_embed = cat(&[&rotate(&k_rot, &cos, &sin), &k_pass], 3);
    (q_embed, k_embed)
}
