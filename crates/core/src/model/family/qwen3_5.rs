//! Qwen3.5's text models (transformers/models/qwen3_5/modeling_qwen3_5.py and qwen3_5_moe/modeling_qwen3_5_moe.py): Qwen3-Next's layers
//! with a projection for each part of the gated delta rule, and positions in time, height and width.

use crate::building::{BuildError, Builder};
use crate::job::{Fields, ModelSpec};
use crate::model::nn::RotaryTables;

use super::decoder::DecoderDefaults;
use super::gated_delta::{InProjections, LinearConfig};
use super::qwen3_next::{self, MoeConfig, SparseDefaults, build_hybrid, read_decoder};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["qwen3_5_text", MOE], build };

const MOE: &str = "qwen3_5_moe_text";

/// What `Qwen3_5TextConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 248_320,
    hidden_size: 4096,
    intermediate_size: 12288,
    num_hidden_layers: 32,
    num_key_value_heads: Some(4),
    ..qwen3_next::DEFAULTS
};

/// What `Qwen3_5MoeTextConfig` has.
const MOE_DEFAULTS: DecoderDefaults =
    DecoderDefaults { vocab_size: 248_320, num_hidden_layers: 40, ..qwen3_next::DEFAULTS };

/// The same class's experts.
const SPARSE: SparseDefaults = SparseDefaults { num_experts: 256, num_experts_per_tok: 8, ..SparseDefaults::NEXT };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let has_experts = model.model_type == MOE;
    let mut decoder = read_decoder(fields, if has_experts { &MOE_DEFAULTS } else { &DEFAULTS })?;
    decoder.tables = RotaryTables::OfGrids;
    let moe = has_experts.then(|| MoeConfig::read(&all_experts(fields), &decoder, at.dtype(), &SPARSE));
    build_hybrid(decoder, LinearConfig::read(fields, InProjections::Apart)?, moe.transpose()?, at, options)
}

/// The config without what its class does not read: all layers have experts, whose weights add up to 1.
fn all_experts(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields.0.retain(|key, _| !["norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"].contains(&key.as_str()));
    fields
}
