//! What configs of BART and its kin say, and where their modeling files differ.

use crate::job::{FieldError, Fields};
use crate::model::family::RunOptions;
use crate::model::family::bounds::{bound_weights, check_divides};
use crate::model::family::decoder::padding_row;
use crate::model::nn::Activation;
use crate::tensor::Tensor;

/// Whose modeling file it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Norms stand before what they are for, and one behind all layers.
    pub is_pre_norm: bool,
    /// `layernorm_embedding`
    pub norms_embeddings: bool,
    pub positions: PositionTable,
    /// `final_logits_bias`
    pub biases_logits: bool,
    /// The language of a row is the token that it begins with (mBART).
    pub begins_with_language: bool,
    /// Whether the decoder's mask of its tokens, and their numbers, live as long as it runs: as Python's variables are called.
    pub keeps_mask: bool,
    pub keeps_numbers: bool,
    /// What else the config class has otherwise than `BartConfig`.
    defaults: Defaults,
}

/// What positions are rows of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PositionTable {
    /// A trained table, two rows longer than rows may be.
    Trained,
    /// A table of sines that is a parameter and not trained.
    Frozen,
    /// The same as a buffer, from the padding token's number on.
    Buffer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Defaults {
    vocab_size: u64,
    pad_token_id: u64,
    activation: &'static str,
    attention_dropout: Percent,
    layerdrop: Percent,
}

/// A probability, in hundredths.
type Percent = u8;

const BART: Form = Form {
    is_pre_norm: false,
    norms_embeddings: true,
    positions: PositionTable::Trained,
    biases_logits: true,
    begins_with_language: false,
    keeps_mask: false,
    keeps_numbers: true,
    defaults: Defaults { vocab_size: 50265, pad_token_id: 1, activation: "gelu", attention_dropout: 0, layerdrop: 0 },
};

/// By model type.
const FORMS: [(&str, Form); 5] = [
    ("bart", BART),
    (
        "m2m_100",
        Form {
            is_pre_norm: true,
            norms_embeddings: false,
            positions: PositionTable::Buffer,
            biases_logits: false,
            defaults: Defaults {
                vocab_size: 128_112,
                activation: "relu",
                attention_dropout: 10,
                layerdrop: 5,
                ..BART.defaults
            },
            ..BART
        },
    ),
    (
        "marian",
        Form {
            norms_embeddings: false,
            positions: PositionTable::Frozen,
            keeps_mask: true,
            keeps_numbers: false,
            defaults: Defaults { vocab_size: 58101, pad_token_id: 58100, ..BART.defaults },
            ..BART
        },
    ),
    ("mbart", Form { is_pre_norm: true, begins_with_language: true, keeps_mask: true, keeps_numbers: false, ..BART }),
    (
        "pegasus",
        Form {
            is_pre_norm: true,
            norms_embeddings: false,
            positions: PositionTable::Frozen,
            keeps_mask: true,
            defaults: Defaults { pad_token_id: 0, ..BART.defaults },
            ..BART
        },
    ),
];

/// What differs between encoder and decoder.
#[derive(Clone, Copy)]
pub(in crate::family::seq2seq) struct Half {
    pub layers: u64,
    pub heads: u64,
    pub ffn_dim: u64,
}

/// `BartConfig` and its kin (transformers 5.17), under their own names.
pub(in crate::family::seq2seq) struct Config {
    pub vocab_size: u64,
    pub d_model: u64,
    pub encoder: Half,
    pub decoder: Half,
    pub activation: Activation,
    pub dropout: f64,
    pub attention_dropout: f64,
    pub activation_dropout: f64,
    pub tie_word_embeddings: bool,
    pub init_std: f64,
    pub pad_token_id: Option<u64>,
    pub is_pre_norm: bool,
    /// What Whisper does otherwise: keys have no bias, queries are scaled before, and all are copied.
    pub is_whisper: bool,
    pub options: RunOptions,
}

/// What config classes have by default.
pub(in crate::family::seq2seq) struct Sizes {
    pub vocab_size: u64,
    pub d_model: u64,
    pub half: Half,
    pub pad_token_id: u64,
    pub activation: &'static str,
    /// `dropout`, `attention_dropout` and `layerdrop`
    pub dropouts: [f64; 3],
}

impl Form {
    pub(super) fn of(model_type: &str) -> Self {
        FORMS.iter().find(|(name, _)| *name == model_type).map_or(BART, |(_, form)| *form)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let of_hundred = |percent: Percent| f64::from(percent) / 100.0;
        let Defaults { vocab_size, pad_token_id, activation, attention_dropout, layerdrop } = self.defaults;
        Sizes {
            vocab_size,
            d_model: 1024,
            half: Half { layers: 12, heads: 16, ffn_dim: 4096 },
            pad_token_id,
            activation,
            dropouts: [0.1, of_hundred(attention_dropout), of_hundred(layerdrop)],
        }
    }
}

impl Config {
    pub(in crate::family::seq2seq) fn read(
        fields: &Fields,
        sizes: &Sizes,
        options: &RunOptions,
    ) -> Result<Self, FieldError> {
        let vocab_size = fields.size("vocab_size", sizes.vocab_size)?;
        let [dropout, attention_dropout, layerdrop] = sizes.dropouts;
        let half = |layers, heads, ffn_dim| -> Result<Half, FieldError> {
            Ok(Half {
                layers: fields.layers(layers, sizes.half.layers)?,
                heads: fields.size(heads, sizes.half.heads)?,
                ffn_dim: fields.size(ffn_dim, sizes.half.ffn_dim)?,
            })
        };
        let config = Self {
            vocab_size,
            d_model: fields.size("d_model", sizes.d_model)?,
            encoder: half("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim")?,
            decoder: half("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim")?,
            activation: Activation::from_name(
                "activation_function",
                fields.text("activation_function", sizes.activation)?,
            )?,
            dropout: fields.probability("dropout", dropout)?,
            attention_dropout: fields.probability("attention_dropout", attention_dropout)?,
            activation_dropout: fields.probability("activation_dropout", 0.0)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            init_std: fields.number("init_std", 0.02)?,
            pad_token_id: padding_row(fields, Some(sizes.pad_token_id), vocab_size),
            is_pre_norm: true,
            is_whisper: false,
            options: options.clone(),
        };
        config.check()?;
        for key in ["encoder_layerdrop", "decoder_layerdrop"] {
            if options.mode.is_training() && fields.probability(key, layerdrop)? > 0.0 {
                return Err(FieldError::unsimulated(
                    key,
                    "layers are left out at random; 0 has them all, the most that it takes",
                ));
            }
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), FieldError> {
        check_divides("encoder_attention_heads", self.encoder.heads, "d_model", self.d_model)?;
        check_divides("decoder_attention_heads", self.decoder.heads, "d_model", self.d_model)?;
        let (width, encoder, decoder) = (self.d_model, self.encoder, self.decoder);
        bound_weights(&[
            ("vocab_size", [self.vocab_size, width], 2),
            ("encoder_ffn_dim", [encoder.ffn_dim, width], 2 * encoder.layers),
            ("decoder_ffn_dim", [decoder.ffn_dim, width], 2 * decoder.layers),
            ("d_model", [width, width], 4 * encoder.layers + 8 * decoder.layers),
        ])
    }

    /// `nn.functional.dropout(states, p=self.dropout, training=self.training)`
    pub(in crate::family::seq2seq) fn drop_out(&self, states: &Tensor) -> Tensor {
        states.dropout(self.options.active_call(self.dropout), true)
    }
}
