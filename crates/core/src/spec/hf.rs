//! A Hugging Face `config.json` becomes a [`ModelSpec`]: which family reads it, or how a decoder of no known family is
//! described so that the generic one can.

use serde_json::{Map, Value};

use super::{Fields, ModelSpec, Place, SpecError};
use crate::failure::printable;
use crate::nearest::nearest;

/// The `model_type` of a decoder that no family mirrors; its fields have llama's names.
pub const GENERIC_DECODER: &str = "generic_decoder";
/// The largest config read; published ones are a few KiB.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;

/// A model as its config describes it, with what the config says beside the shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct HfModel {
    /// The model for its family to read.
    pub spec: ModelSpec,
    /// The dtype the weights were published in (`torch_dtype`): a hint, for a job states its own precision.
    pub published_dtype: Option<String>,
    /// Why the model is taken for a generic decoder; `None` when its own family reads it.
    pub reason: Option<String>,
    /// What the answer must say about the model.
    pub notes: Vec<String>,
}

/// Reads the `text` of the file `file` as the config of the model called `name`; `known` are the model types that
/// families read.
///
/// # Errors
/// When the text is no JSON object (with line and column), the weights are quantized, or the model is neither of a
/// known type nor a plain decoder.
pub fn parse_config(name: &str, file: &str, text: &str, known: &[&str]) -> Result<HfModel, SpecError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(SpecError::new(format!("{file}: a config of {} bytes is no model config", text.len())));
    }
    // serde_json stops at 128 levels of nesting, so a hostile file cannot exhaust the stack.
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => model(name, fields, known).map_err(|error| in_file(error, file)),
        Ok(_) => Err(SpecError::new(format!("{file}: a model config must be a JSON object"))),
        Err(error) => Err(broken_json(file, &error)),
    }
}

/// The model that already parsed config `fields` describe; they must say their `model_type`.
///
/// # Errors
/// As [`parse_config`].
pub fn model(name: &str, fields: Map<String, Value>, known: &[&str]) -> Result<HfModel, SpecError> {
    let fields = Fields(fields);
    refuse_quantized(&fields)?;
    let published_dtype = dtype(&fields);
    let model_type = model_type(&fields, known)?;
    if known.contains(&model_type.as_str()) {
        let notes = head_note(&fields).into_iter().collect();
        return Ok(HfModel { spec: spec(name, model_type, fields), published_dtype, reason: None, notes });
    }
    if let Some(Value::Object(text)) = fields.get("text_config") {
        return text_model(name, &model_type, text.clone(), published_dtype, known);
    }
    let reason = format!("no family mirrors `{model_type}`: estimated as a generic decoder of its sizes");
    let generic = generic_decoder(&fields).map_err(|missing| unknown_type(&model_type, &missing, known))?;
    let spec = spec(name, GENERIC_DECODER.to_owned(), generic);
    let mut notes = vec![reason.clone()];
    if OTHER_TOWERS.iter().any(|key| fields.get(key).is_some()) {
        notes.push(text_only_note(&model_type));
    }
    Ok(HfModel { spec, published_dtype, notes, reason: Some(reason) })
}

fn spec(name: &str, model_type: String, mut config: Fields) -> ModelSpec {
    config.0.remove("model_type");
    ModelSpec { name: printable(name), model_type, config }
}

/// The text model inside a multimodal config; its other towers are not simulated.
fn text_model(
    name: &str,
    outer_type: &str,
    mut text: Map<String, Value>,
    published_dtype: Option<String>,
    known: &[&str],
) -> Result<HfModel, SpecError> {
    text.entry("model_type").or_insert_with(|| format!("{outer_type}_text").into());
    // One level only: a text_config inside a text_config is no published form.
    text.remove("text_config");
    let mut inner = model(name, text, known)?;
    inner.published_dtype = inner.published_dtype.or(published_dtype);
    inner.notes.push(text_only_note(outer_type));
    Ok(inner)
}

fn text_only_note(model_type: &str) -> String {
    format!("`{model_type}` is multimodal: only its text model is estimated")
}

/// `model_type`, or, in the oldest configs, what the name of the architecture begins with.
fn model_type(fields: &Fields, known: &[&str]) -> Result<String, SpecError> {
    let given = fields.text("model_type", "")?;
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    let architecture = architecture(fields).unwrap_or_default().to_lowercase();
    let named = known.iter().filter(|family| architecture.starts_with(&family.replace('_', "")));
    named.max_by_key(|family| family.len()).map(|family| (*family).to_owned()).ok_or_else(|| {
        SpecError::new("config key `model_type` is missing")
            .hint(format!("say which of {} the model is", known.join(", ")))
    })
}

fn architecture(fields: &Fields) -> Option<&str> {
    fields.get("architectures")?.as_array()?.first()?.as_str()
}

fn dtype(fields: &Fields) -> Option<String> {
    let dtype = fields.get("dtype").or_else(|| fields.get("torch_dtype"))?.as_str()?;
    Some(dtype.trim_start_matches("torch.").to_owned())
}

fn refuse_quantized(fields: &Fields) -> Result<(), SpecError> {
    let Some(quantization) = fields.get("quantization_config") else { return Ok(()) };
    let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("quantized");
    Err(SpecError::new(format!("config key `quantization_config`: {method} weights are not simulated"))
        .hint("give the config of the model before quantization"))
}

/// Published heads that are not the language-model head which is simulated.
fn head_note(fields: &Fields) -> Option<String> {
    let architecture = architecture(fields)?;
    let simulated = ["ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration"];
    let other = !simulated.iter().any(|head| architecture.ends_with(head));
    other.then(|| format!("the config is of `{architecture}`: estimated with its language-model head"))
}

/// Llama's name of each field that a generic decoder needs or uses, and the other names it goes by.
const GENERIC_FIELDS: [(&str, &[&str]); 10] = [
    ("hidden_size", &["n_embd", "d_model", "dim"]),
    ("num_hidden_layers", &["n_layer", "n_layers", "num_layers"]),
    ("num_attention_heads", &["n_head", "n_heads", "num_heads"]),
    ("vocab_size", &["padded_vocab_size"]),
    ("num_key_value_heads", &["num_kv_heads", "n_head_kv", "multi_query_group_num"]),
    ("intermediate_size", &["n_inner", "ffn_dim", "ffn_hidden_size"]),
    ("max_position_embeddings", &["n_positions", "n_ctx", "max_seq_len", "seq_length"]),
    ("head_dim", &["kv_channels"]),
    ("tie_word_embeddings", &[]),
    ("attention_bias", &["add_qkv_bias"]),
];
/// How many of [`GENERIC_FIELDS`] a decoder cannot be described without.
const NEEDED: usize = 4;

/// Fields that change what a layer holds: a generic decoder would be wrong by far, not by a little.
const OTHER_ARCHITECTURES: [(&str, &str); 7] = [
    ("num_experts", "a mixture of experts"),
    ("num_local_experts", "a mixture of experts"),
    ("n_routed_experts", "a mixture of experts"),
    ("moe_num_experts", "a mixture of experts"),
    ("kv_lora_rank", "latent attention"),
    ("state_size", "a state-space model"),
    ("ssm_state_size", "a state-space model"),
];

/// Configs of the parts of a multimodal model that are not its text model.
const OTHER_TOWERS: [&str; 2] = ["vision_config", "audio_config"];
/// What the class names of decoders end with.
const DECODER_HEADS: [&str; 3] = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration"];

/// The fields of a plain decoder under llama's names, or why it is none.
fn generic_decoder(fields: &Fields) -> Result<Fields, String> {
    if fields.flag("is_encoder_decoder", false) != Ok(false) {
        return Err("it is an encoder-decoder".to_owned());
    }
    if let Some((_, what)) = OTHER_ARCHITECTURES.iter().find(|(key, _)| fields.get(key).is_some()) {
        return Err(format!("it is {what}"));
    }
    if let Some(name) = architecture(fields).filter(|name| !DECODER_HEADS.iter().any(|head| name.ends_with(head))) {
        return Err(format!("its `{name}` is no decoder"));
    }
    let mut generic = Map::new();
    for (index, (key, others)) in GENERIC_FIELDS.iter().enumerate() {
        let value = [key].into_iter().chain(*others).find_map(|name| fields.get(name));
        match value {
            Some(value) => drop(generic.insert((*key).to_owned(), value.clone())),
            None if index < NEEDED => return Err(format!("it has no `{key}`, so it is no plain decoder")),
            None => (),
        }
    }
    Ok(Fields(generic))
}

fn unknown_type(model_type: &str, why: &str, known: &[&str]) -> SpecError {
    let meant = nearest(model_type, known.iter().copied()).map(|near| format!("did you mean `{near}`? "));
    SpecError::new(format!("model type `{model_type}` is not known, and {why}")).hint(format!(
        "{}known model types: {}",
        meant.unwrap_or_default(),
        known.join(", ")
    ))
}

fn in_file(error: SpecError, file: &str) -> SpecError {
    SpecError { problem: format!("{file}: {}", error.problem), ..error }
}

fn broken_json(file: &str, error: &serde_json::Error) -> SpecError {
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or(&text);
    let place = Place { file: file.to_owned(), line: error.line(), column: error.column() };
    SpecError::new(format!("broken JSON: {problem}")).at(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["gpt2", "llama", "gemma3_text", "bert"];

    fn parse(text: &str) -> Result<HfModel, SpecError> {
        parse_config("m", "config.json", text, &KNOWN)
    }

    #[test]
    fn keeps_the_fields_of_a_known_type() {
        let model =
            parse(r#"{"model_type": "llama", "hidden_size": 64, "torch_dtype": "bfloat16", "x": null}"#).unwrap();
        assert_eq!(model.spec.model_type, "llama");
        assert_eq!(model.spec.config.size("hidden_size", 1), Ok(64));
        assert_eq!(model.published_dtype.as_deref(), Some("bfloat16"));
        assert_eq!((model.reason, model.notes), (None, vec![]));
    }

    #[test]
    fn takes_the_text_model_of_a_multimodal_config() {
        let text =
            r#"{"model_type": "gemma3", "dtype": "bfloat16", "text_config": {"hidden_size": 64}, "vision_config": {}}"#;
        let model = parse(text).unwrap();
        assert_eq!(model.spec.model_type, "gemma3_text");
        assert_eq!(model.published_dtype.as_deref(), Some("bfloat16"));
        assert_eq!(model.notes, ["`gemma3` is multimodal: only its text model is estimated"]);
    }

    #[test]
    fn infers_the_type_of_the_oldest_configs() {
        let model = parse(r#"{"architectures": ["BertForSequenceClassification"]}"#).unwrap();
        assert_eq!(model.spec.model_type, "bert");
        assert!(model.notes[0].contains("BertForSequenceClassification"));
    }

    #[test]
    fn describes_other_decoders_in_llamas_words() {
        let text = r#"{"model_type": "mpt", "d_model": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 100, "foo": 1}"#;
        let model = parse(text).unwrap();
        assert_eq!(model.spec.model_type, GENERIC_DECODER);
        let config = serde_json::to_string(&model.spec.config.0).unwrap();
        let expected = r#"{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":100}"#;
        assert_eq!(config, expected);
        assert!(model.reason.unwrap().contains("`mpt`"));
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
                r#"{"model_type": "t5", "is_encoder_decoder": true}"#,
                "config.json: model type `t5` is not known, and it is an encoder-decoder",
            ),
            (
                r#"{"model_type": "mixtral", "num_local_experts": 8}"#,
                "config.json: model type `mixtral` is not known, and it is a mixture of experts",
            ),
            (
                r#"{"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": 768}"#,
                "config.json: model type `roberta` is not known, and its `RobertaForMaskedLM` is no decoder",
            ),
            (
                r#"{"model_type": "resnet"}"#,
                "config.json: model type `resnet` is not known, and it has no `hidden_size`, so it is no plain decoder",
            ),
            (
                r#"{"model_type": "llama", "quantization_config": {"quant_method": "bitsandbytes"}}"#,
                "config.json: config key `quantization_config`: bitsandbytes weights are not simulated",
            ),
        ];
        for (text, problem) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), problem);
        }
        let hint = parse(r#"{"model_type": "lama"}"#).unwrap_err().hint.unwrap();
        assert_eq!(hint, "did you mean `llama`? known model types: gpt2, llama, gemma3_text, bert");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = "[".repeat(100_000);
        assert!(parse(&text).unwrap_err().to_string().contains("recursion limit exceeded"));
    }
}
