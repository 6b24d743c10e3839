//! Every model type of transformers 5.17 under its default config: mirrored or stood in for with the class's own parameter
//! count, or refused with a reason. `testdata/architectures/walk.py` wrote what the classes are.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use tonnage_core::estimate::estimate;
use tonnage_core::job::hf::{self, HfModel};
use tonnage_core::job::{Architecture, JobError, find_architecture, from_case, generic_model_types};
use tonnage_core::step::parameter_count;

/// Encoders with a family of their own, of which some have a class for causal language models too.
const ENCODERS: &[&str] = &["bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"];

/// A text model that only stands within a multimodal one, without a name that says so.
const TEXT_PARTS: &[&str] = &["mistral4"];

/// Whose class cannot run by its defaults (experts of 1407 features, and no number of them for a token), or has experts there that are
/// not simulated.
const STOPS_BY_DEFAULT: [&str; 2] = ["deepseek_v2", "nemotron_h"];

/// Encoder-decoders, of which the walk counted the class with a causal mask alone, or none.
const ENCODER_DECODERS: &[&str] = &["bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "whisper"];

/// Families whose rows are images.
const IMAGES: &[&str] = &["dinov2", "vit"];

/// Families whose rows are images and their texts.
const PAIRS: &[&str] = &["clip", "siglip"];

/// A line of the walk.
struct Walked {
    model_type: String,
    config: Map<String, Value>,
    parameters: Option<u64>,
    text_parameters: Option<u64>,
    tasks: Vec<String>,
}

impl Walked {
    fn of(line: &str) -> Self {
        let row: Value = serde_json::from_str(line).unwrap();
        let mut config = row["config"].as_object().cloned().unwrap_or_default();
        let model_type = row["model_type"].as_str().unwrap().to_owned();
        config.insert("model_type".to_owned(), model_type.as_str().into());
        let tasks = row["tasks"].as_array().unwrap().iter().map(|task| task.as_str().unwrap().to_owned()).collect();
        let (parameters, text_parameters) = (row["parameters"].as_u64(), row["text_parameters"].as_u64());
        Self { model_type, config, parameters, text_parameters, tasks }
    }

    fn read(&self) -> Result<HfModel, JobError> {
        hf::read_model(&self.model_type, self.config.clone())
    }

    fn is(&self, task: &str) -> bool {
        self.tasks.iter().any(|own| own == task)
    }
}

fn walked() -> Vec<Walked> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/architectures/models.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let (versions, lines) = text.split_once('\n').unwrap();
    assert!(versions.contains("5.17"), "{versions}");
    lines.lines().map(Walked::of).collect()
}

#[test]
fn every_model_type_is_answered_with_its_own_parameters_or_refused_with_a_reason() {
    let mut answered = BTreeSet::new();
    for walked in walked() {
        let name = walked.model_type.as_str();
        match (find_architecture(name), walked.read()) {
            (None | Some(Architecture::Decoder), Ok(model)) => {
                answered.insert(name.to_owned());
                assert_eq!(model.spec.beside.left_out, None, "{name}");
                if STOPS_BY_DEFAULT.contains(&name) {
                    assert!(parameter_count(&model.spec).is_err());
                } else if let Some(parameters) = walked.parameters.filter(|_| !ENCODER_DECODERS.contains(&name)) {
                    assert_eq!(parameter_count(&model.spec), Ok(parameters), "{name}");
                }
            }
            (Some(Architecture::Multimodal(_)), Ok(model)) => {
                assert!(model.spec.beside.left_out.is_some(), "{name}");
                if let Some(parameters) = walked.text_parameters {
                    assert_eq!(parameter_count(&model.spec), Ok(parameters), "{name}");
                }
            }
            (Some(Architecture::Multimodal(_) | Architecture::Refused(_)), Err(error)) => {
                assert!(error.problem.contains("is not simulated: "), "{name}: {}", error.problem);
                let hint = error.hint.unwrap_or_default();
                assert!(hint.contains("tonnage rehearse") && !hint.contains("did you mean"), "{name}: {hint}");
            }
            (kind, read) => {
                panic!("{name} is {kind:?}, and reading it says {:?}", read.map(|model| model.spec.model_type))
            }
        }
    }
    for model_type in generic_model_types() {
        assert!(answered.contains(model_type), "{model_type} is not in the walk");
    }
}

#[test]
fn the_documents_count_the_stand_ins() {
    let stand_ins = generic_model_types().len();
    for (page, said) in [
        ("README.md", format!("| {stand_ins} more decoders (")),
        ("docs/accuracy.md", format!("\n{stand_ins} model types are answered by one decoder")),
    ] {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
        assert!(text.contains(&said), "{page} should say `{}`", said.trim());
    }
}

#[test]
fn nothing_but_a_causal_language_model_is_answered_as_one() {
    for walked in walked() {
        let name = walked.model_type.as_str();
        let is_text_part = name.ends_with("_text") || TEXT_PARTS.contains(&name);
        if ENCODER_DECODERS.contains(&name) {
            continue;
        }
        if PAIRS.contains(&name) {
            continue;
        }
        if IMAGES.contains(&name) {
            assert!(walked.is("image_classification"), "{name}: {:?}", walked.tasks);
            continue;
        }
        if !ENCODERS.contains(&name)
            && !is_text_part
            && matches!(find_architecture(name), None | Some(Architecture::Decoder))
        {
            assert!(walked.is("causal_lm") && !walked.is("masked_lm"), "{name}: {:?}", walked.tasks);
        }
        let is_other_encoder = walked.is("masked_lm") && !walked.is("causal_lm") && !ENCODERS.contains(&name);
        if walked.is("zero_shot_image_classification") || is_other_encoder {
            assert!(walked.read().is_err(), "{name}");
        }
    }
}

#[test]
fn a_config_without_its_sizes_is_refused_and_names_what_is_missing() {
    for model_type in generic_model_types() {
        let fields = Map::from_iter([("model_type".to_owned(), Value::from(model_type))]);
        let model = hf::read_model("bare", fields).unwrap();
        let error = parameter_count(&model.spec).unwrap_err().to_string();
        assert!(error.contains("is missing"), "{model_type}: {error}");
    }
}

/// Sizes under any name are bounded: none makes a product leave its range.
#[test]
fn huge_sizes_of_a_generic_decoder_are_refused_whatever_they_are_called() {
    let huge = 1_u64 << 31;
    let cases = [
        json!({"family": "opt", "hidden_size": 2, "ffn_dim": huge, "num_hidden_layers": 1, "num_attention_heads": 1,
            "vocab_size": 9, "max_position_embeddings": huge}),
        json!({"family": "bloom", "hidden_size": huge, "n_layer": 1, "n_head": 1, "vocab_size": 9}),
        json!({"family": "gpt_neo", "hidden_size": 64, "num_layers": 4000, "num_heads": 4, "vocab_size": 9,
            "max_position_embeddings": huge}),
        json!({"family": "falcon", "hidden_size": 2, "ffn_hidden_size": huge, "num_hidden_layers": 1,
            "num_attention_heads": 1, "vocab_size": 9}),
    ];
    for model in cases {
        let case = json!({"id": "huge", "model": model, "micro_batch": 1 << 20, "seq_len": 4096});
        let error = estimate(&from_case(&case).unwrap()).unwrap_err().to_string();
        // Rows beyond any GPU may be named before the size.
        assert!(error.contains("config key") || error.contains("`micro_batch_size`"), "{model}: {error}");
    }
}
