//! Rotary embeddings of a decoder's layers before transformers 4.48, when each attention had its own.

use crate::building::Builder;
use crate::dtype::DType;
use crate::job::{ModelingFile, RotaryPlace};
use crate::op::index;
use crate::tensor::Tensor;

use super::positions::{RotaryEmbedding, apply_rotary_pos_emb};
use super::rope::Rope;

/// What a layer's attention has of a rotary embedding.
pub(crate) enum LayerRotary {
    /// Nothing: the model has one.
    Model,
    /// One whose frequencies lie there unused.
    Unused(#[expect(dead_code, reason = "what it is made of lives as long as the layer")] RotaryEmbedding),
    /// One that makes its tables anew in every pass.
    Own(RotaryEmbedding),
    /// Tables of all positions (`cos_cached`, `sin_cached`).
    Tables { cos_cached: Tensor, sin_cached: Tensor, _inv_freq: Tensor },
}

/// A function of all angles, each position's frequencies twice.
fn table(frequencies: &[f64], positions: u64, function: fn(f64) -> f64) -> Vec<f64> {
    let row = |position: u64| {
        frequencies.iter().chain(frequencies).map(move |frequency| function(position as f64 * frequency))
    };
    (0..positions).flat_map(row).collect()
}

/// The model's tables and the positions they are for.
pub(crate) struct RotaryCall<'a> {
    pub cos: &'a Tensor,
    pub sin: &'a Tensor,
    pub position_ids: &'a Tensor,
}

impl LayerRotary {
    /// The rotary embedding of the attention module `at`, with tables of `positions`.
    pub(crate) fn new(at: &Builder, file: ModelingFile, rotary_dim: u64, positions: u64, rope: &Rope) -> Self {
        let at = at.at("rotary_emb");
        match at.context().transformers().rotary(file) {
            RotaryPlace::Model => Self::Model,
            RotaryPlace::ModelBesideLayers => Self::Unused(RotaryEmbedding::new(&at, rotary_dim, rope)),
            RotaryPlace::Layer => Self::Own(RotaryEmbedding::unscaled(&at, rotary_dim, rope)),
            RotaryPlace::LayerTables => Self::Tables {
                _inv_freq: at.buffer(&[rotary_dim / 2], DType::Float32, || rope.inverse_frequencies(rotary_dim)),
                cos_cached: at.buffer(&[positions, rotary_dim], at.dtype(), || {
                    table(&rope.inverse_frequencies(rotary_dim), positions, f64::cos)
                }),
                sin_cached: at.buffer(&[positions, rotary_dim], at.dtype(), || {
                    table(&rope.inverse_frequencies(rotary_dim), positions, f64::sin)
                }),
            },
        }
    }

    /// Queries and keys, turned; the tables are in the values' dtype where they are the layer's own.
    pub(crate) fn turn(&self, query: &Tensor, key: &Tensor, value: &Tensor, call: &RotaryCall) -> (Tensor, Tensor) {
        match self {
            Self::Model | Self::Unused(_) => apply_rotary_pos_emb(query, key, call.cos, call.sin),
            Self::Own(rotary_emb) => {
                let (cos, sin) = rotary_emb.forward(value.dtype(), call.position_ids);
                apply_rotary_pos_emb(query, key, &cos, &sin)
            }
            Self::Tables { cos_cached, sin_cached, .. } => {
                let [cos, sin] = [cos_cached, sin_cached].map(|table| table.to(value.dtype()));
                let sizes = [call.position_ids.size(0), call.position_ids.size(1), cos.size(1)];
                let [cos, sin] = [cos, sin].map(|table| (index(&table, &sizes, &[Some(call.position_ids)]), table));
                apply_rotary_pos_emb(query, key, &cos.0, &sin.0)
            }
        }
    }
}
