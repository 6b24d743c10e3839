//! What each model type of transformers is, by name: what the generic decoder may stand in for, and what it must not.

use crate::job::JobErrorKind;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::error::REHEARSE;
use super::{Fields, JobError};
use crate::model_type::{is_mirrored, known_model_types};
use crate::nearest::nearest;

/// What a model type is, beside the ones that a family mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// A decoder that the generic one stands in for.
    Decoder,
    /// A wrapper round a language model in `text_config`, whose head is tied as this says.
    Multimodal(OuterTie),
    /// Anything else, which is refused.
    Refused(Refused),
}

/// Whether the head of a multimodal model is tied, by `tie_word_embeddings` of the outer and of the text config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterTie {
    /// The outer one says; true where it is absent.
    Tied,
    /// The outer one says; false where it is absent.
    Untied,
    /// Either says so.
    Either,
    /// The outer one says, or the text config where it is absent.
    Inner,
    /// The text config alone says.
    Text,
}

/// Why a model type is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A decoder of another structure.
    OtherDecoder,
    /// Experts in its layers.
    MixtureOfExperts,
    /// State-space, convolutional or recurrent layers.
    Recurrent,
    /// Keys and values are compressed.
    LatentAttention,
    /// Multimodal, round a language model that is not simulated.
    OtherMultimodal,
    /// An encoder and a decoder that attends to it (T5, BART).
    EncoderDecoder,
    /// No causal mask.
    Encoder,
    /// Two towers that embed.
    ImageText,
    /// A model of images alone (ViT, DINOv2).
    Vision,
    /// Sound in or out.
    Audio,
    /// Series in and out.
    TimeSeries,
    /// A part of another model.
    Part,
}

impl Refused {
    /// What the model is, after "it is".
    pub const fn is(self) -> &'static str {
        match self {
            Self::OtherDecoder => "a decoder whose layers no family and no generic decoder has",
            Self::MixtureOfExperts => "a mixture of experts",
            Self::Recurrent => "a state-space, convolutional or recurrent model, or a hybrid with such layers",
            Self::LatentAttention => "a decoder with latent attention",
            Self::OtherMultimodal => "a multimodal model whose language model is not simulated",
            Self::EncoderDecoder => "an encoder-decoder",
            Self::Encoder => "an encoder",
            Self::ImageText => "a pair of towers that embed text beside images or sound, and no language model",
            Self::Vision => "a vision model",
            Self::Audio => "a speech or audio model",
            Self::TimeSeries => "a model of time series",
            Self::Part => "a part of another model, no language model of its own",
        }
    }
}

/// The kinds of `architectures.txt`.
const KINDS: [(&str, Architecture); 18] = [
    ("decoder", Architecture::Decoder),
    ("other_decoder", Architecture::Refused(Refused::OtherDecoder)),
    ("mixture_of_experts", Architecture::Refused(Refused::MixtureOfExperts)),
    ("recurrent", Architecture::Refused(Refused::Recurrent)),
    ("latent_attention", Architecture::Refused(Refused::LatentAttention)),
    ("multimodal_tied", Architecture::Multimodal(OuterTie::Tied)),
    ("multimodal_untied", Architecture::Multimodal(OuterTie::Untied)),
    ("multimodal_either", Architecture::Multimodal(OuterTie::Either)),
    ("multimodal_inner", Architecture::Multimodal(OuterTie::Inner)),
    ("multimodal_text", Architecture::Multimodal(OuterTie::Text)),
    ("multimodal_other", Architecture::Refused(Refused::OtherMultimodal)),
    ("encoder_decoder", Architecture::Refused(Refused::EncoderDecoder)),
    ("encoder", Architecture::Refused(Refused::Encoder)),
    ("image_text", Architecture::Refused(Refused::ImageText)),
    ("vision", Architecture::Refused(Refused::Vision)),
    ("audio", Architecture::Refused(Refused::Audio)),
    ("time_series", Architecture::Refused(Refused::TimeSeries)),
    ("part", Architecture::Refused(Refused::Part)),
];

static BY_NAME: LazyLock<HashMap<&'static str, Architecture>> = LazyLock::new(|| {
    let mut kind = None;
    let mut by_name = HashMap::new();
    for line in include_str!("architectures.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            kind = KINDS.iter().find(|(known, _)| name.strip_suffix(']') == Some(known)).map(|(_, kind)| *kind);
        } else if let Some(kind) = kind {
            by_name.extend(line.split_whitespace().filter(|name| !is_mirrored(name)).map(|name| (name, kind)));
        }
    }
    by_name
});

/// What the model type `name` of transformers 5.17 is; `None` for the ones that a family mirrors, and for unknown names.
pub fn find_architecture(name: &str) -> Option<Architecture> {
    BY_NAME.get(name).copied()
}

/// The model types that the generic decoder stands in for, sorted.
pub fn generic_model_types() -> Vec<&'static str> {
    let mut names: Vec<_> =
        BY_NAME.iter().filter(|(_, kind)| **kind == Architecture::Decoder).map(|(name, _)| *name).collect();
    names.sort_unstable();
    names
}

/// Keys that only configs of other architectures have, whatever their model type says.
const OTHER_ARCHITECTURES: [(&str, Refused); 18] = [
    ("num_experts", Refused::MixtureOfExperts),
    ("num_local_experts", Refused::MixtureOfExperts),
    ("n_routed_experts", Refused::MixtureOfExperts),
    ("moe_num_experts", Refused::MixtureOfExperts),
    ("moe_intermediate_size", Refused::MixtureOfExperts),
    ("num_experts_per_tok", Refused::MixtureOfExperts),
    ("kv_lora_rank", Refused::LatentAttention),
    ("state_size", Refused::Recurrent),
    ("ssm_state_size", Refused::Recurrent),
    ("mamba_d_state", Refused::Recurrent),
    ("mamba_d_conv", Refused::Recurrent),
    ("mamba_d_ssm", Refused::Recurrent),
    ("conv_L_cache", Refused::Recurrent),
    ("conv1d_width", Refused::Recurrent),
    ("linear_num_key_heads", Refused::Recurrent),
    ("linear_conv_kernel_dim", Refused::Recurrent),
    ("hidden_size_per_layer_input", Refused::OtherDecoder),
    ("num_kv_shared_layers", Refused::OtherDecoder),
];

/// What a config's own keys say it is, where that is no plain decoder.
pub(super) fn by_keys(fields: &Fields) -> Option<Refused> {
    if fields.get("is_encoder_decoder") == Some(&Value::Bool(true)) {
        return Some(Refused::EncoderDecoder);
    }
    // 0 and 1 turn most of them off.
    let is_on = |key: &str| fields.get(key).is_some_and(|value| value.as_f64().is_none_or(|value| value > 1.0));
    OTHER_ARCHITECTURES.iter().find(|(key, _)| is_on(key)).map(|(_, refused)| *refused)
}

/// A model type that is not simulated, and the way out.
pub(super) fn refused_type(model_type: &str, why: &str) -> JobError {
    JobError::of_kind(JobErrorKind::Unsimulated, format!("model type `{model_type}` is not simulated: {why}"))
        .hint(REHEARSE)
}

/// A model type that transformers 5.17 does not have either.
pub(super) fn unknown_type(model_type: &str) -> JobError {
    let (known, generic) = (known_model_types(), generic_model_types());
    let meant = nearest(model_type, known.iter().copied().chain(generic.iter().copied()));
    let meant = meant.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    JobError::of_kind(
        JobErrorKind::Model,
        format!("model type `{model_type}` is not known: transformers 5.17 has none of this name"),
    )
    .hint(format!(
        "{meant}known model types: {}, and others by a generic decoder; for the rest {REHEARSE}",
        known.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_belongs_to_a_kind_and_every_name_to_one() {
        let text = include_str!("architectures.txt");
        let headers: Vec<_> = text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).collect();
        assert_eq!(headers, KINDS.map(|(name, _)| name));
        let names = text.lines().filter(|line| !line.starts_with(['#', '['])).flat_map(str::split_whitespace);
        let own = names.filter(|name| !is_mirrored(name));
        assert_eq!(own.count(), BY_NAME.len(), "a name stands twice");
    }

    #[test]
    fn keys_of_other_architectures_are_seen_whatever_the_name() {
        let by = |text: &str| by_keys(&Fields(serde_json::from_str(text).unwrap()));
        assert_eq!(by(r#"{"num_local_experts": 8}"#), Some(Refused::MixtureOfExperts));
        assert_eq!(by(r#"{"num_local_experts": 0, "num_experts_per_tok": null}"#), None);
        assert_eq!(by(r#"{"mamba_d_state": 64}"#), Some(Refused::Recurrent));
        assert_eq!(by(r#"{"is_encoder_decoder": true}"#), Some(Refused::EncoderDecoder));
        assert_eq!(by(r#"{"hidden_size": 64}"#), None);
    }
}
