//! Positions: their ids, the test for packed sequences, and rotary embeddings.

use std::cell::RefCell;
use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, arange, cat};
use crate::tensor::{Context, Tensor};

use super::builder::Builder;
use super::module::Module;

/// `(arange(tokens) + past_seen_tokens).unsqueeze(0)`
pub(crate) fn position_ids(context: &Rc<Context>, tokens: u64) -> Tensor {
    let positions = arange(context, tokens);
    if context.transformers().reads_cache_position() {
        return positions.unsqueeze(0);
    }
    positions.map("add.Tensor", DType::Int64).unsqueeze(0)
}

/// `find_packed_sequence_indices` (transformers/masking_utils.py): the ops run, and unpacked rows answer "not packed", but
/// before 5.0 it was never asked.
pub(crate) fn find_packed_sequence_indices(position_ids: &Tensor) -> Option<Tensor> {
    let first_dummy_value = position_ids.narrow(1, 1).map("sub.Tensor", DType::Int64);
    let position_diff = {
        let joined = cat(&[&first_dummy_value, position_ids], 1);
        let tokens = position_ids.size(1);
        joined.narrow(1, tokens).map("sub.Tensor", DType::Int64)
    };
    let packed_sequence_mask = {
        let differs = position_diff.map("ne.Scalar", DType::Bool);
        differs.cumsum()
    };
    if position_ids.context().transformers().takes_rows_as_packed() {
        return Some(packed_sequence_mask);
    }
    let is_last_zero = packed_sequence_mask.narrow(1, 1).squeeze(1).map("eq.Scalar", DType::Bool);
    let _all = is_last_zero.reduce_all("all.default", ReduceKind::Any, DType::Bool);
    None
}

/// Whether rotary frequencies depend on how long the sequence is (transformers/modeling_rope_utils.py).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeType {
    /// They do not, whatever their scaling.
    Fixed,
    /// `dynamic`: checked for growth and for reset.
    Dynamic,
    /// `longrope`: one of two sets.
    LongRope,
}

impl RopeType {
    /// Reads `rope_type`.
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "dynamic" => Self::Dynamic,
            // Phi-3's configs once said su or yarn for it; elsewhere yarn is fixed.
            "longrope" | "su" => Self::LongRope,
            _ => Self::Fixed,
        }
    }

    /// What `dynamic_rope_update` runs to find the sequence's length; new frequencies are a few hundred bytes and left
    /// out.
    fn check_length(self, position_ids: &Tensor) {
        let comparisons: &[&'static str] = match self {
            Self::Fixed => return,
            Self::Dynamic => &["gt.Scalar", "lt.Scalar"],
            Self::LongRope => &["gt.Scalar"],
        };
        let seq_len = {
            let longest = position_ids.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64);
            longest.map("add.Tensor", DType::Int64)
        };
        for &comparison in comparisons {
            let _is_beyond = seq_len.map(comparison, DType::Bool);
        }
    }
}

/// `LlamaRotaryEmbedding`: cosine and sine tables [1, tokens, head_dim] in the activations' dtype.
pub(crate) struct RotaryEmbedding {
    module: Module,
    inv_freq: RefCell<Tensor>,
    /// What a longer sequence's frequencies are put back from; on the CPU before transformers 5.
    original_inv_freq: Option<Tensor>,
    rope: RopeType,
    /// Whether the tables are multiplied by the attention's scaling, which older ones did not have.
    scales: bool,
}

impl RotaryEmbedding {
    pub(crate) fn new(at: &Builder, rotary_dim: u64, rope: RopeType) -> Self {
        let module = at.module();
        let inv_freq = RefCell::new(at.buffer(&[rotary_dim / 2], DType::Float32));
        let keeps_original = at.context().transformers().keeps_original_frequencies();
        let original_inv_freq = keeps_original.then(|| at.buffer(&[rotary_dim / 2], DType::Float32));
        Self { module, inv_freq, original_inv_freq, rope, scales: true }
    }

    /// One without a scaling of its tables.
    pub(crate) fn unscaled(at: &Builder, rotary_dim: u64, rope: RopeType) -> Self {
        Self { scales: false, ..Self::new(at, rotary_dim, rope) }
    }

    pub(crate) fn forward(&self, dtype: DType, position_ids: &Tensor) -> (Tensor, Tensor) {
        let context = position_ids.context();
        let _module = self.module.enter();
        let _no_grad = context.set_grad_enabled(false);
        self.rope.check_length(position_ids);
        // One of the two sets is registered anew in each forward pass.
        if let (RopeType::LongRope, Some(original)) = (self.rope, &self.original_inv_freq) {
            self.inv_freq.replace(original.clone());
        }
        let inv_freq = self.inv_freq.borrow();
        let half_dim = inv_freq.size(0);
        let inv_freq_expanded = inv_freq.unsqueeze(0).unsqueeze(2).expand(&[position_ids.size(0), half_dim, 1]);
        let position_ids_expanded = position_ids.unsqueeze(1).float();
        let _float32 = context.disable_autocast();
        let freqs = inv_freq_expanded.matmul(&position_ids_expanded).transpose(1, 2);
        let emb = cat(&[&freqs, &freqs], 2);
        if !self.scales {
            let cos = emb.map("cos.default", DType::Float32);
            let sin = emb.map("sin.default", DType::Float32);
            return (cos.to(dtype), sin.to(dtype));
        }
        let cos = emb.map("cos.default", DType::Float32).mul_scalar();
        let sin = emb.map("sin.default", DType::Float32).mul_scalar();
        (cos.to(dtype), sin.to(dtype))
    }
}

/// `rotate_half`: `cat((-x2, x1), dim=-1)`
fn rotate_half(x: &Tensor) -> Tensor {
    let last = x.sizes().len() - 1;
    let half = x.size(-1) / 2;
    let x1 = x.slice(last, half);
    let x2 = x.slice(last, half);
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
    let first = |x: &Tensor| if rotary_dim == head_dim { x.alias_all() } else { x.slice(3, rotary_dim) };
    let rest = |x: &Tensor| x.slice(3, head_dim - rotary_dim);
    let (q_rot, q_pass) = (first(q), rest(q));
    let (k_rot, k_pass) = (first(k), rest(k));
    let q_embed = cat(&[&rotate(&q_rot, &cos, &sin), &q_pass], 3);
    let k_embed = cat(&[&rotate(&k_rot, &cos, &sin), &k_pass], 3);
    (q_embed, k_embed)
}
