//! What a config of DeBERTa-v2 and v3 says.

use crate::building::Module;
use crate::job::{FieldError, Fields};
use crate::model::nn::Activation;
use crate::tensor::Tensor;

use super::super::RunOptions;
use super::super::bert::{self, Defaults};

/// `DebertaV2Config` (transformers 5.17), which BERT's output, intermediate and prediction modules read as BERT's.
#[derive(Clone)]
pub(super) struct Config {
    pub bert: bert::Config,
    /// Of 0 there is no table.
    pub type_vocab_size: u64,
    pub position_biased_input: bool,
    pub relative: Option<Relative>,
    /// Whether the table of distances has a norm, which is there without the table too.
    pub norms_table: bool,
    pub pooler_dropout: f64,
    pub pooler_activation: Activation,
    /// The dropout before the classes of rows.
    pub cls_dropout: f64,
    pub options: RunOptions,
}

/// Attention to distances (`relative_attention`).
#[derive(Clone, Copy)]
pub(super) struct Relative {
    /// Distances that have rows of their own, of each sign.
    pub span: u64,
    /// Whether far distances share buckets.
    pub has_buckets: bool,
    pub max_relative_positions: u64,
    /// Whether distances are projected by the queries' and keys' own weights.
    pub share_att_key: bool,
    /// What attends to distances: the content of queries, and that of keys.
    pub c2p: bool,
    pub p2c: bool,
}

impl Config {
    pub(super) fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        refuse_others(fields)?;
        let type_vocab_size = count(fields, "type_vocab_size")?;
        let mut as_bert = fields.clone();
        // BERT's table of token types is never empty.
        as_bert.0.remove("type_vocab_size");
        let defaults = Defaults {
            vocab_size: 128_100,
            hidden_size: 1536,
            num_hidden_layers: 24,
            num_attention_heads: 24,
            intermediate_size: 6144,
            ..Defaults::BERT
        };
        let mut bert = bert::Config::read(&as_bert, defaults)?;
        bert.layer_norm_eps = fields.number("layer_norm_eps", 1e-7)?;
        // Classes of tokens have the encoder's dropout, whatever other keys say.
        bert.classes.dropout = bert.hidden_dropout;
        let relative = fields.flag("relative_attention", false)?;
        let norms = fields.text("norm_rel_ebd", "none")?.to_lowercase();
        let act = |key| Activation::from_name(key, fields.text(key, "gelu")?);
        for (key, own) in [
            ("embedding_size", bert.hidden_size),
            ("pooler_hidden_size", bert.hidden_size),
            ("attention_head_size", bert.hidden_size / bert.num_attention_heads),
        ] {
            if fields.size(key, own)? != own {
                return Err(FieldError::unsimulated(key, format!("only {own}, the encoder's own, is simulated")));
            }
        }
        Ok(Self {
            bert,
            type_vocab_size,
            position_biased_input: fields.flag("position_biased_input", true)?,
            relative: relative.then(|| Relative::read(fields, bert.max_position_embeddings)).transpose()?,
            norms_table: norms.split('|').any(|norm| norm.trim() == "layer_norm"),
            pooler_dropout: fields.probability("pooler_dropout", 0.0)?,
            pooler_activation: act("pooler_hidden_act")?,
            cls_dropout: fields.probability("cls_dropout", bert.hidden_dropout)?,
            options: options.clone(),
        })
    }

    pub(super) fn dropped(&self, at: &Module, states: &Tensor, probability: f64) -> Tensor {
        let _dropout = at.enter();
        states.dropout(probability, self.options.drops_out())
    }

    /// 1, and 1 for each kind of attention to distances.
    pub(super) fn scale_factor(&self) -> u64 {
        self.relative.map_or(1, |relative| 1 + u64::from(relative.c2p) + u64::from(relative.p2c))
    }
}

/// What of the modeling file is not mirrored.
fn refuse_others(fields: &Fields) -> Result<(), FieldError> {
    if count(fields, "conv_kernel_size")? > 0 {
        return Err(FieldError::unsimulated("conv_kernel_size", "the convolution over tokens is not simulated"));
    }
    if !fields.flag("legacy", true)? {
        return Err(FieldError::unsimulated("legacy", "the newer head for masked tokens is not simulated"));
    }
    Ok(())
}

/// A number of which 0 and below mean none.
fn count(fields: &Fields, key: &str) -> Result<u64, FieldError> {
    if fields.get(key).and_then(serde_json::Value::as_i64).is_some_and(|number| number <= 0) {
        return Ok(0);
    }
    Ok(fields.optional_size(key)?.unwrap_or(0))
}

impl Relative {
    fn read(fields: &Fields, positions: u64) -> Result<Self, FieldError> {
        let max_relative_positions = match count(fields, "max_relative_positions")? {
            0 => positions,
            most => most,
        };
        let buckets = count(fields, "position_buckets")?;
        let kinds = match fields.get("pos_att_type") {
            Some(serde_json::Value::String(kinds)) => kinds.to_lowercase(),
            _ => fields.texts("pos_att_type")?.unwrap_or_default().join("|"),
        };
        let attends = |kind: &str| kinds.split('|').any(|own| own.trim() == kind);
        Ok(Self {
            span: if buckets > 0 { buckets } else { max_relative_positions },
            has_buckets: buckets > 0,
            max_relative_positions,
            share_att_key: fields.flag("share_att_key", false)?,
            c2p: attends("c2p"),
            p2c: attends("p2c"),
        })
    }
}
