//! What a config says beside its model type: a class of somebody's own, code of its own, towers, and sizes that it leaves open.

use super::hf::named_class;
use super::{Allowance, FieldError, LeftOpen, ModelSpec};
use crate::model_type::{ConfigWords, ModelKind};

/// Keys of towers that forks of text models have (LLaVA's began with Llama's model type).
const TOWERS: [&str; 5] = ["mm_vision_tower", "vision_tower", "mm_audio_tower", "vision_config", "audio_config"];

/// Refuses a text model whose config has a tower beside it that nothing here reads.
///
/// # Errors
/// With the tower's key.
pub(super) fn refuse_towers(model: &ModelSpec) -> Result<(), FieldError> {
    let is_read = model.beside.left_out.is_some() || model.beside.vision.is_some();
    if is_read || model.facts().kind != ModelKind::Decoder || !model.is_in_transformers() {
        return Ok(());
    }
    let tower = TOWERS.iter().find(|key| model.config.get(key).is_some_and(|value| value.as_bool() != Some(false)));
    tower.map_or(Ok(()), |key| {
        let problem = format!("a tower beside a `{}` is not simulated", model.model_type);
        Err(FieldError::unsimulated(key, problem))
    })
}

/// What nobody knows of a model whose config names a class that is not its model type's own.
pub(super) fn other_class(model: &ModelSpec) -> Option<LeftOpen> {
    let class = other_class_of(model)?;
    let text = format!(
        "the config names the class `{class}`, which is not `{}`'s own: its layers may be others than those that are simulated, \
         and the range has no upper bound",
        model.model_type
    );
    Some(LeftOpen { text, allowance: Allowance::Unknown })
}

fn other_class_of(model: &ModelSpec) -> Option<String> {
    let is_of_text = matches!(model.facts().kind, ModelKind::Decoder | ModelKind::MaskedLm);
    let is_read = model.beside.left_out.is_some() || model.beside.vision.is_some();
    let class = named_class(&model.config)?;
    (is_of_text && !is_read && model.is_in_transformers() && !is_own_class(class, &model.model_type))
        .then(|| class.chars().take(60).collect())
}

/// Whether the class begins with the letters of the model type, in whichever order (`HunYuanDenseV1ForCausalLM` is
/// `hunyuan_v1_dense`'s).
fn is_own_class(class: &str, model_type: &str) -> bool {
    let ends = ["For", "LMHead", "With", "Model", "PreTrain", "DoubleHeads"];
    let end = ends.iter().filter_map(|end| class.find(end).filter(|at| *at > 0)).min().unwrap_or(class.len());
    let letters = |text: &str| {
        let mut letters: Vec<char> =
            text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        letters.sort_unstable();
        letters
    };
    let (typed, own) = (letters(&class[..end]), model_type.trim_end_matches("_text"));
    typed == letters(own) || typed == letters(model_type)
}

/// What the answer must say of a config: code that is not read, and sizes that nobody said.
pub(super) fn notes(model: &ModelSpec) -> impl Iterator<Item = String> {
    let has_code = model.config.get("auto_map").is_some() && other_class_of(model).is_none();
    let code = has_code.then(|| {
        format!(
            "the config's `auto_map` names code of its own, which is not read: simulated is transformers' `{}`",
            model.model_type
        )
    });
    code.into_iter().chain(unsaid_sizes(model))
}

fn unsaid_sizes(model: &ModelSpec) -> Option<String> {
    let facts = model.facts();
    let width = match facts.config {
        ConfigWords::Gpt2 => "n_embd",
        ConfigWords::DistilBert => "dim",
        ConfigWords::EncoderDecoder => "d_model",
        ConfigWords::Llama => "hidden_size",
        ConfigWords::Hrm | ConfigWords::Diffusers => return None,
    };
    let is_said = |key: &str| model.of_tokens().get(key).is_some();
    if is_said(facts.layers_key) || is_said(width) || !model.is_in_transformers() {
        return None;
    }
    let unsaid: Vec<String> = [facts.layers_key, width, "vocab_size"]
        .iter()
        .filter(|key| !is_said(key))
        .map(|key| format!("`{key}`"))
        .collect();
    Some(format!(
        "the config says no {}: the sizes are the defaults of `{}`'s class",
        unsaid.join(", "),
        model.model_type
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSource;
    use crate::job::hf::parse_config;

    fn model(text: &str) -> ModelSpec {
        parse_config("m", "config.json", text).unwrap().spec
    }

    fn class(model_type: &str, class: &str) -> ModelSpec {
        model(&format!(r#"{{"model_type": "{model_type}", "hidden_size": 64, "architectures": ["{class}"]}}"#))
    }

    #[test]
    fn a_class_of_somebodys_own_has_no_upper_bound() {
        for (model_type, own) in [
            ("llama", "LlamaForCausalLM"),
            ("llama", "LLaMAForCausalLM"),
            ("gpt2", "GPT2LMHeadModel"),
            ("gemma3_text", "Gemma3ForCausalLM"),
            ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
            ("xlm-roberta", "XLMRobertaForMaskedLM"),
        ] {
            assert_eq!(other_class(&class(model_type, own)), None, "{own}");
        }
        for other in ["LlavaLlamaForCausalLM", "DeciLMForCausalLM", "MyOwnForCausalLM"] {
            let open = other_class(&class("llama", other)).unwrap();
            assert!(open.text.contains(other) && open.allowance == Allowance::Unknown, "{open:?}");
        }
    }

    /// The classes of transformers 5.17 are all their types' own.
    #[test]
    fn no_type_is_strange_to_its_own_class() {
        let walked = include_str!("../../../../testdata/architectures/models.jsonl");
        let mut asked = 0;
        for line in walked.lines().skip(1) {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let (Some(class), Some(mut config)) = (row["class"].as_str(), row["config"].as_object().cloned()) else {
                continue;
            };
            config.insert("model_type".to_owned(), row["model_type"].clone());
            config.insert("architectures".to_owned(), serde_json::json!([class]));
            let Ok(read) = crate::job::hf::read_model("m", config) else { continue };
            assert_eq!(other_class(&read.spec), None, "{}", row["model_type"]);
            assert_eq!(refuse_towers(&read.spec), Ok(()), "{}", row["model_type"]);
            asked += 1;
        }
        assert!(asked > 50, "{asked}");
    }

    #[test]
    fn towers_beside_a_text_model_are_refused() {
        for key in ["mm_vision_tower", "vision_config"] {
            let with = |value: &str| model(&format!(r#"{{"model_type": "llama", "{key}": {value}}}"#));
            assert_eq!(refuse_towers(&with("\"clip\"")).unwrap_err().key, key);
            assert_eq!(refuse_towers(&with("null")), Ok(()));
        }
    }

    #[test]
    fn what_a_config_leaves_open_is_said() {
        let notes = |text: &str| notes(&model(text)).collect::<Vec<_>>();
        let bare = notes(r#"{"model_type": "llama"}"#);
        assert!(bare[0].contains("`num_hidden_layers`, `hidden_size`, `vocab_size`"), "{bare:?}");
        let coded = notes(r#"{"model_type": "gpt2", "n_embd": 64, "auto_map": {"AutoModel": "x.X"}}"#);
        assert!(coded.len() == 1 && coded[0].contains("auto_map"), "{coded:?}");
        let resolved = JobSource::model("gpt2").resolve(&[]).unwrap();
        assert!(!resolved.notes.iter().any(|note| note.contains("the config")), "{:?}", resolved.notes);
    }
}
