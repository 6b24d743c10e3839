//! A Hugging Face `config.json` becomes a [`ModelSpec`]: which family reads it, or why none does.

mod towers;

use crate::job::JobErrorKind;
use serde_json::{Map, Value};

use super::architecture::{Architecture, OuterTie, by_keys, find_architecture, refused_type, unknown_type};
use super::error::REHEARSE;
use super::stored::StoredWeights;
use super::{Beside, Fields, Head, JobError, ModelSpec, Place};
use crate::limit::CONFIG_BYTES;
use crate::model_type::{ModelKind, canonical_name, is_mirrored, known_model_types, text_type};
use crate::printable::printable;

/// A model as its config describes it, with what the config says beside the shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct HfModel {
    /// The model for its family to read.
    pub spec: ModelSpec,
    /// The dtype the weights were published in (`torch_dtype`): a hint, for a job states its own precision.
    pub published_dtype: Option<String>,
}

/// Reads the `text` of the file `file` as the config of the model called `name`.
///
/// # Errors
/// When the text is no JSON object (with line and column), the weights are quantized, or the model is none that a
/// family or the generic decoder simulates.
pub fn parse_config(name: &str, file: &str, text: &str) -> Result<HfModel, JobError> {
    if text.len() > CONFIG_BYTES {
        return Err(JobError::of_kind(
            JobErrorKind::Unreadable,
            format!("{file}: a config of {} bytes is no model config", text.len()),
        ));
    }
    // serde_json stops at 128 levels of nesting, so a hostile file cannot exhaust the stack.
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => read_model(name, fields).map_err(|error| in_file(error, file)),
        Ok(_) => {
            Err(JobError::of_kind(JobErrorKind::Unreadable, format!("{file}: a model config must be a JSON object")))
        }
        Err(error) => Err(broken_json(file, &error)),
    }
}

/// The model that already parsed config `fields` describe; they must say their `model_type`.
///
/// # Errors
/// As [`parse_config`].
pub fn read_model(name: &str, fields: Map<String, Value>) -> Result<HfModel, JobError> {
    let fields = Fields(fields);
    let stored = fields.get("quantization_config").map(StoredWeights::read).transpose()?;
    read_whole(name, fields).map(|mut model| {
        model.spec.beside.stored = stored.or(model.spec.beside.stored);
        model
    })
}

/// The same, whatever it says of how its weights are stored.
fn read_whole(name: &str, fields: Fields) -> Result<HfModel, JobError> {
    let published_dtype = config_dtype(&fields);
    let model_type = model_type(&fields)?;
    if is_mirrored(&model_type) {
        return Ok(HfModel { spec: model_spec(name, model_type, fields), published_dtype });
    }
    match find_architecture(&model_type) {
        Some(Architecture::Decoder) => match by_keys(&fields) {
            None => Ok(HfModel { spec: model_spec(name, model_type, fields), published_dtype }),
            Some(other) => Err(refused_type(&model_type, &format!("by its config it is {}", other.is()))),
        },
        Some(Architecture::Multimodal(tie)) => {
            let mut inner = text_model(name, &model_type, &fields, tie)?;
            inner.published_dtype = inner.published_dtype.or(published_dtype);
            Ok(inner)
        }
        Some(Architecture::Refused(kind)) => Err(refused_type(&model_type, &format!("it is {}", kind.is()))),
        None => Err(unknown_type(&model_type)),
    }
}

fn model_spec(name: &str, model_type: String, mut config: Fields) -> ModelSpec {
    config.0.remove("model_type");
    let beside = Beside { head: head_of(&config), ..Beside::default() };
    ModelSpec { name: printable(name), model_type, config, beside }
}

/// The text model inside a multimodal config; its other towers are not simulated, and are noted as left out.
fn text_model(name: &str, outer_type: &str, outer: &Fields, tie: OuterTie) -> Result<HfModel, JobError> {
    let mut text = match outer.get("text_config") {
        Some(Value::Object(text)) => text.clone(),
        // Before transformers 4.52 these were written flat.
        None if matches!(outer_type, "qwen2_vl" | "qwen2_5_vl") && outer.get("hidden_size").is_some() => outer
            .0
            .iter()
            .filter(|(key, _)| *key != "model_type")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        _ => return Err(refused_type(outer_type, "it is multimodal, and its config has no `text_config` to read")),
    };
    text.entry("model_type")
        .or_insert_with(|| text_type(outer_type).map_or_else(|| format!("{outer_type}_text"), str::to_owned).into());
    // One level only: a text_config inside a text_config is no published form.
    text.remove("text_config");
    if let Some(architectures) = outer.get("architectures") {
        text.insert("architectures".to_owned(), architectures.clone());
    }
    if let Some(tied) = tied_embeddings(tie, outer, &Fields(text.clone()))? {
        text.insert("tie_word_embeddings".to_owned(), tied.into());
    }
    let mut inner = read_model(name, text)
        .map_err(|error| JobError { problem: format!("`{outer_type}` is multimodal: {}", error.problem), ..error })?;
    inner.spec.beside.left_out = Some(towers::left_out(outer_type, outer));
    Ok(inner)
}

/// Whether the head is tied; `None` where the text model's own class decides.
fn tied_embeddings(tie: OuterTie, outer: &Fields, text: &Fields) -> Result<Option<bool>, JobError> {
    let key = "tie_word_embeddings";
    let outer_says = outer.get(key).is_some();
    Ok(match tie {
        OuterTie::Tied => Some(outer.flag(key, true)?),
        OuterTie::Untied => Some(outer.flag(key, false)?),
        OuterTie::Either => Some(outer.flag(key, false)? || text.flag(key, false)?),
        OuterTie::Inner if outer_says => Some(outer.flag(key, false)?),
        OuterTie::Inner | OuterTie::Text => None,
    })
}

/// `model_type`, or, in the oldest configs, what the name of the architecture begins with.
fn model_type(fields: &Fields) -> Result<String, JobError> {
    let given = match fields.text("model_type", "")? {
        // Configs of diffusers name their class.
        "" => Some(fields.text("_class_name", "")?).filter(|class| is_mirrored(class)).unwrap_or_default(),
        given => given,
    };
    if !given.is_empty() {
        return Ok(canonical_name(given).to_owned());
    }
    let architecture = named_class(fields).unwrap_or_default();
    let begins = |family: &&str| {
        let lower = architecture.to_lowercase();
        let rest = lower.strip_prefix(&family.replace('_', "")).unwrap_or_default();
        ["for", "lmhead", "model"].iter().any(|next| rest.starts_with(next))
    };
    let named = known_model_types().into_iter().find(begins);
    named.map(str::to_owned).ok_or_else(|| untyped_config(fields))
}

/// A config without `model_type` is no language model's of transformers.
fn untyped_config(fields: &Fields) -> JobError {
    let missing = JobError::of_kind(JobErrorKind::Model, "config key `model_type` is missing");
    match fields.get("_class_name").and_then(Value::as_str) {
        Some(class) => JobError::of_kind(
            JobErrorKind::Unsimulated,
            format!(
                "`{}` of diffusers is not simulated, only the denoisers of Flux and Stable Diffusion are",
                clip_text(class)
            ),
        )
        .hint(REHEARSE),
        None => missing.hint(format!(
            "a trainer's config is read by --from FILE; of a model's say which of {} it is; for others {REHEARSE}",
            known_model_types().join(", ")
        )),
    }
}

/// The class whose weights were saved.
pub(super) fn named_class(fields: &Fields) -> Option<&str> {
    fields.get("architectures")?.as_array()?.first()?.as_str()
}

fn clip_text(text: &str) -> String {
    text.chars().take(60).collect()
}

fn config_dtype(fields: &Fields) -> Option<String> {
    let dtype = fields.get("dtype").or_else(|| fields.get("torch_dtype"))?.as_str()?;
    Some(dtype.trim_start_matches("torch.").to_owned())
}

/// What stands on the model by the class that its config names.
pub(super) fn head_of(config: &Fields) -> Head {
    named_class(config).and_then(Head::of_class).unwrap_or_default()
}

/// Refuses a model whose config names a class without a simulated head: logits that do not exist would be counted.
///
/// # Errors
/// When it does.
pub(super) fn refuse_other_head(model: &ModelSpec) -> Result<(), JobError> {
    let Some(class) = named_class(&model.config) else { return Ok(()) };
    let facts = model.facts();
    let classifies = model.can_have(Head::SequenceClassification) || facts.kind == ModelKind::Image;
    let is_simulated = Head::of_class(class).is_some_and(|head| model.can_have(head));
    let is_whole = facts.kind == ModelKind::ImageText && class.ends_with("Model");
    if !model.is_in_transformers() || is_simulated || is_whole {
        return Ok(());
    }
    let class = clip_text(class);
    if classifies {
        let endings = match (facts.kind, model.can_have(Head::TokenClassification)) {
            (ModelKind::Image, _) => "...ForImageClassification",
            (ModelKind::MaskedLm, _) => "...ForMaskedLM, ...ForSequenceClassification or ...ForTokenClassification",
            (_, true) => "...ForCausalLM, ...ForSequenceClassification or ...ForTokenClassification",
            (_, false) => "...ForCausalLM or ...ForSequenceClassification",
        };
        let problem = format!("config key `architectures`: the head of `{class}` is not simulated");
        return Err(JobError::of_kind(JobErrorKind::Model, problem).hint(format!(
            "{REHEARSE}; if you train another head on it, take `architectures` out of the config, or set model.architectures to a \
             {endings} class"
        )));
    }
    Err(JobError::of_kind(
        JobErrorKind::Model,
        format!("config key `architectures`: `{class}` has no language-model head, the only one that is simulated"),
    )
    .hint(format!(
        "{REHEARSE}; if you train a language-model head on it, take `architectures` out of the config, or set \
             model.architectures to a ...ForCausalLM class"
    )))
}

fn in_file(error: JobError, file: &str) -> JobError {
    JobError { problem: format!("{file}: {}", error.problem), ..error }
}

fn broken_json(file: &str, error: &serde_json::Error) -> JobError {
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or(&text);
    let place = Place { file: file.to_owned(), line: error.line(), column: error.column() };
    JobError::of_kind(JobErrorKind::Unreadable, format!("broken JSON: {problem}")).at_place(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HfModel, JobError> {
        parse_config("m", "config.json", text)
    }

    #[test]
    fn keeps_the_fields_of_a_known_type() {
        let model =
            parse(r#"{"model_type": "llama", "hidden_size": 64, "torch_dtype": "bfloat16", "x": null}"#).unwrap();
        assert_eq!(model.spec.model_type, "llama");
        assert_eq!(model.spec.config.size("hidden_size", 1), Ok(64));
        assert_eq!(model.published_dtype.as_deref(), Some("bfloat16"));
        assert_eq!(model.spec.beside, Beside::default());
    }

    #[test]
    fn takes_the_text_model_of_a_multimodal_config_and_notes_what_is_left_out() {
        let text = r#"{"model_type": "gemma3", "dtype": "bfloat16", "text_config": {"hidden_size": 64},
            "vision_config": {"hidden_size": 10, "num_hidden_layers": 2, "intermediate_size": 30}}"#;
        let model = parse(text).unwrap();
        assert_eq!(model.spec.model_type, "gemma3_text");
        assert_eq!(model.published_dtype.as_deref(), Some("bfloat16"));
        let left_out = model.spec.beside.left_out.unwrap();
        assert_eq!((left_out.model_type.as_str(), left_out.parameters), ("gemma3", Some(2000)));
    }

    /// What `config.tie_word_embeddings` is for each class, by transformers 5.17.
    #[test]
    fn the_outer_config_says_whether_a_multimodal_head_is_tied() {
        let tied = |model_type: &str, outer: &str, inner: &str| {
            let text = format!(
                r#"{{"model_type": "{model_type}"{outer}, "text_config": {{"model_type": "llama"{inner}}}, "vision_config": {{}}}}"#
            );
            parse(&text).unwrap().spec.config.0.get("tie_word_embeddings").and_then(Value::as_bool)
        };
        let (yes, no) = (r#", "tie_word_embeddings": true"#, r#", "tie_word_embeddings": false"#);
        // Outer absent, false, true; each with the inner absent, false, true.
        let cases = [
            ("mistral3", [true, true, true, false, false, false, true, true, true]),
            ("internvl", [true, true, true, false, false, false, true, true, true]),
            ("idefics3", [false, false, false, false, false, false, true, true, true]),
            ("llava", [false, false, true, false, false, true, true, true, true]),
        ];
        for (model_type, expected) in cases {
            let found: Vec<_> = ["", no, yes]
                .iter()
                .flat_map(|outer| ["", no, yes].map(|inner| tied(model_type, outer, inner)))
                .collect();
            assert_eq!(found, expected.map(Some), "{model_type}");
        }
        assert_eq!(tied("qwen2_audio", "", ""), None);
        assert_eq!(tied("qwen2_audio", "", yes), Some(true));
    }

    #[test]
    fn infers_the_type_of_the_oldest_configs() {
        let model = parse(r#"{"architectures": ["BertForMaskedLM"]}"#).unwrap();
        assert_eq!(model.spec.model_type, "bert");
        for other in ["BertweetForMaskedLM", "LlamaMoeForCausalLM", "Gpt2dForCausalLM"] {
            assert!(parse(&format!(r#"{{"architectures": ["{other}"]}}"#)).is_err(), "{other}");
        }
        assert_eq!(parse(r#"{"model_type": "gpt-sw3"}"#).unwrap().spec.model_type, "gpt2");
    }

    #[test]
    fn a_class_without_a_simulated_head_is_refused() {
        let head = |class: &str| {
            let text = format!(r#"{{"model_type": "llama", "architectures": ["{class}"]}}"#);
            refuse_other_head(&parse(&text).unwrap().spec)
        };
        for class in ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForPreTraining", "LlamaForSequenceClassification"] {
            assert_eq!(head(class), Ok(()), "{class}");
        }
        for class in ["LlamaForQuestionAnswering", "Qwen2ForRewardModel", "LlamaModel"] {
            let error = head(class).unwrap_err();
            assert!(error.problem.contains(class) && error.hint.unwrap().contains("tonnage rehearse"), "{class}");
        }
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let cases = [
            ("{\n \"a\": }", "config.json:2:7: broken JSON: expected value"),
            ("[]", "config.json: a model config must be a JSON object"),
            ("", "config.json:1:0: broken JSON: EOF while parsing a value"),
            ("{}", "config.json: config key `model_type` is missing"),
            (r#"{"model_type": 3}"#, "config.json: config key `model_type`: must be a string, found 3"),
            (
                r#"{"_class_name": "AutoencoderKL"}"#,
                "config.json: `AutoencoderKL` of diffusers is not simulated, only the denoisers of Flux and Stable Diffusion are",
            ),
            (
                r#"{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}"#,
                "config.json: config key `quantization_config`: fp8 weights are not simulated",
            ),
            (
                r#"{"model_type": "gemma3", "text_config": {"model_type": "phimoe"}}"#,
                "config.json: `gemma3` is multimodal: model type `phimoe` is not simulated: it is a mixture of experts",
            ),
            (
                r#"{"model_type": "llava", "hidden_size": 64}"#,
                "config.json: model type `llava` is not simulated: it is multimodal, and its config has no `text_config` to read",
            ),
            (
                r#"{"model_type": "helium", "num_local_experts": 8}"#,
                "config.json: model type `helium` is not simulated: by its config it is a mixture of experts",
            ),
        ];
        for (text, problem) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn a_refusal_says_what_the_model_is_and_never_suggests_another_for_a_name_that_exists() {
        let cases = [
            ("led", "an encoder-decoder"),
            ("phimoe", "a mixture of experts"),
            ("camembert", "an encoder"),
            ("albert", "an encoder"),
            ("altclip", "a pair of towers"),
            ("siglip2", "a pair of towers"),
            ("blip-2", "a pair of towers"),
            ("zamba", "a hybrid"),
            ("qwen4_exp_text", "a hybrid"),
            ("xlstm", "a hybrid"),
            ("rwkv", "a hybrid"),
            ("chameleon", "a multimodal model"),
            ("gemma4_assistant", "a decoder whose layers"),
            ("trocr", "an encoder-decoder"),
            ("qwen2_5_omni", "a multimodal model"),
            ("resnet", "a vision model"),
            ("wav2vec2", "a speech or audio model"),
        ];
        for (model_type, what) in cases {
            // Llama's fields make no Llama of it.
            let text = format!(
                r#"{{"model_type": "{model_type}", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "vocab_size": 100, "architectures": ["XForCausalLM"]}}"#
            );
            let error = parse(&text).unwrap_err();
            assert!(error.problem.contains(what), "{model_type}: {}", error.problem);
            let hint = error.hint.unwrap();
            assert!(hint.contains("tonnage rehearse") && !hint.contains("did you mean"), "{model_type}: {hint}");
        }
        let unknown = parse(r#"{"model_type": "lama"}"#).unwrap_err();
        let hint = unknown.hint.unwrap();
        let mirrored = known_model_types().join(", ");
        assert!(hint.starts_with(&format!("did you mean `llama`? known model types: {mirrored}, and")), "{hint}");
        assert!(hint.contains("tonnage rehearse") && !hint.contains("generic_decoder"), "{hint}");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = "[".repeat(100_000);
        assert!(parse(&text).unwrap_err().to_string().contains("recursion limit exceeded"));
    }
}
