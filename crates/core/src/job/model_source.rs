//! Finding the model a job names: a config that the caller reads, a published model, or fields written in the job.

use crate::job::{JobErrorKind, keys};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::config_fields::{
    CONFIG_FIELDS, DIFFUSERS_FIELDS, DISTILBERT_FIELDS, ENCODER_DECODER_FIELDS, GPT2_FIELDS, HRM_FIELDS,
};
use super::copies::Copied;
use super::error::REHEARSE;
use super::hf::{self, HfModel};
use super::settings::{Origin, Provenance, Setting, Settings};
use super::{
    Beside, Counted, Fields, JobError, JobSource, ModelSpec, StoredWeights, TaskName, WeightsBeside, copies, hub,
    presets::Preset,
};
use crate::model_type::{ConfigWords, facts, is_mirrored};
use crate::nearest::nearest;

/// The model of a job, and what is known about it.
pub(super) struct Model {
    pub spec: ModelSpec,
    pub published_dtype: Option<String>,
    pub provenance: Vec<Provenance>,
    /// Name and text of the config that was read.
    pub config_file: Option<(String, String)>,
}

/// The model that the settings describe.
pub(super) fn load_model(settings: &Settings, source: &JobSource) -> Result<Model, JobError> {
    match settings.get(keys::MODEL) {
        Some(setting) => model_named(setting, settings, source),
        None if settings.model.contains_key("model_type") => written_out(settings),
        None if settings.model.is_empty() => Err(JobError::of_kind(JobErrorKind::Model, "no model is given")
            .about(&[keys::MODEL])
            .hint("name one, for example: model = \"Qwen/Qwen2.5-0.5B\"")),
        None => Err(JobError::of_kind(
            JobErrorKind::Model,
            "the model's fields are given, but not the model they belong to",
        )
        .about(&[keys::MODEL])
        .hint("add its `name`, or its `model_type` (llama, gpt2, ...)")),
    }
}

/// A model that has a name, with the fields that the job changes.
fn model_named(setting: &Setting, settings: &Settings, source: &JobSource) -> Result<Model, JobError> {
    let name = setting.value.as_str().unwrap_or_default();
    if let Some(model_type) = settings.model.get("model_type") {
        return Err(JobError::of_kind(
            JobErrorKind::Model,
            format!("`model_type` cannot be changed: `{name}` has its own"),
        )
        .hint("leave out `model_type`, or leave out the name and give every field")
        .at_place(place_of_origin(&model_type.origin)));
    }
    let Found { model: found, preset, config_file, weights } = find_config(name, source)
        .map_err(|error| error.about(&[keys::MODEL]).at_place(place_of_origin(&setting.origin)))?;
    let mut provenance = vec![Provenance {
        key: keys::MODEL.to_owned(),
        value: format!("\"{}\"", found.spec.name),
        origin: setting.origin.clone(),
    }];
    let mut model = found;
    for (field, changed) in &settings.model {
        check_field(field, changed, &model.spec)?;
        model.spec.config.0.insert(field.clone(), changed.value.clone());
        provenance.push(field_provenance(field, changed));
    }
    if settings.model.contains_key("architectures") {
        model.spec.beside.head = hf::head_of(&model.spec.config);
    }
    if !is_loaded_bare(settings) {
        hf::refuse_other_head(&model.spec).map_err(|error| error.at_place(place_of_origin(&setting.origin)))?;
    }
    if settings.model.is_empty() {
        model.spec.beside.counted = counted_parameters(preset, weights)?;
    }
    Ok(Model { spec: model.spec, published_dtype: model.published_dtype, provenance, config_file })
}

/// How many parameters somebody else counts in the model, whose fields the job leaves as they are.
fn counted_parameters(preset: Option<&Preset>, weights: &WeightsBeside) -> Result<Option<Counted>, JobError> {
    let of_preset = |preset: &Preset| Counted { parameters: preset.parameters, who: "its publisher counts" };
    match weights {
        WeightsBeside::Counted(parameters) => {
            let who = "the safetensors file beside its config holds";
            Ok(Some(Counted { parameters: *parameters, who }))
        }
        WeightsBeside::Unreadable { problem, hint } => {
            Err(JobError { hint: hint.clone(), ..JobError::of_kind(JobErrorKind::Unreadable, problem.clone()) })
        }
        WeightsBeside::Absent | WeightsBeside::Incomplete(_) => Ok(preset.map(of_preset)),
    }
}

/// Whether the task loads the bare model, whichever class the config names.
fn is_loaded_bare(settings: &Settings) -> bool {
    let task = settings.get(keys::TASK).and_then(|setting| TaskName::deserialize(&setting.value).ok());
    task == Some(TaskName::Embedding)
}

/// A model beside the job's own, by its name or a path.
pub(super) fn second_model(key: &'static str, setting: &Setting, source: &JobSource) -> Result<ModelSpec, JobError> {
    let name = setting.value.as_str().unwrap_or_default();
    let found =
        find_config(name, source).map_err(|error| error.about(&[key]).at_place(place_of_origin(&setting.origin)))?;
    hf::refuse_other_head(&found.model.spec).map_err(|error| error.at_place(place_of_origin(&setting.origin)))?;
    let mut spec = found.model.spec;
    if spec.beside.stored.is_some() {
        let problem = "its config says that its weights are packed, which is not simulated of a second model";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, format!("`{key}`: {problem}"))
            .about(&[key])
            .or_rehearse()
            .at_place(place_of_origin(&setting.origin)));
    }
    spec.beside.counted = counted_parameters(found.preset, &WeightsBeside::Absent)?;
    Ok(spec)
}

/// A model, and whether it was built in or read.
struct Found<'a> {
    model: HfModel,
    preset: Option<&'static Preset>,
    config_file: Option<(String, String)>,
    weights: &'a WeightsBeside,
}

/// As transformers does, a local config goes before a published name.
fn find_config<'a>(name: &str, source: &'a JobSource) -> Result<Found<'a>, JobError> {
    match source.configs.get(name).map(|config| (&config.text, &config.weights)) {
        Some((Ok(text), weights)) => {
            if !text.trim_start().starts_with('{')
                && let Some(hint) = other_programs_file(name)
            {
                let problem = format!("`{name}` is no model's config.json");
                return Err(JobError::of_kind(JobErrorKind::Unreadable, problem).hint(hint));
            }
            let file = if name.ends_with(".json") {
                name.to_owned()
            } else {
                format!("{}/config.json", name.trim_end_matches('/'))
            };
            let model = hf::parse_config(name, &file, text)?;
            let config_file = Some((name.to_owned(), text.clone()));
            return Ok(Found { model, preset: None, config_file, weights });
        }
        Some((Err(problem), _)) => {
            return Err(JobError::of_kind(
                JobErrorKind::Unreadable,
                format!("cannot read the config of `{name}`: {problem}"),
            ));
        }
        None => {}
    }
    match Preset::find(name) {
        Some(preset) => {
            let mut model = preset.model()?;
            model.spec.name = preset.full_name(name).to_owned();
            Ok(Found { model, preset: Some(preset), config_file: None, weights: &WeightsBeside::Absent })
        }
        None => packed_copy(name).transpose()?.ok_or_else(|| unknown_model(name)),
    }
}

/// The built-in model of which `name` is a copy with packed weights, as its end tells.
fn packed_copy(name: &str) -> Option<Result<Found<'static>, JobError>> {
    let (whole, Copied::Packed(word, bits)) = copies::stored_copy(name)? else { return None };
    let preset = Preset::find(whole)?;
    Some(preset.model().map(|mut model| {
        model.spec.beside.stored = Some(StoredWeights::by_name(word, bits, preset.full_name(whole)));
        model.spec.name = name.to_owned();
        Found { model, preset: Some(preset), config_file: None, weights: &WeightsBeside::Absent }
    }))
}

/// What to do with a file of another program that stands where the model does, as its ending tells.
fn other_programs_file(name: &str) -> Option<String> {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_lowercase())?;
    let from =
        format!("a trainer's config is read by `--from [KIND] {name}`, behind the model's name where it says none");
    match ending.as_str() {
        "py" => Some(format!(
            "`tonnage rehearse -- python {name}` runs your script without a GPU and says what it takes; {from}"
        )),
        "yaml" | "yml" | "sh" | "slurm" | "sbatch" | "ipynb" | "md" | "txt" => Some(from),
        _ => None,
    }
}

fn unknown_model(name: &str) -> JobError {
    let stored = hint_for_stored(name);
    if let Some(error) = hub::not_built_in(name).filter(|_| stored.is_none()) {
        return error;
    }
    let otherwise = hub::how_to_get(name);
    let hint = match (stored, Preset::nearest(name)) {
        (None, _) if other_programs_file(name).is_some() => other_programs_file(name).unwrap_or_default(),
        (Some(hint), _) => format!("{hint}. Otherwise {otherwise}"),
        (None, Some(meant)) => format!("did you mean `{meant}`? Otherwise {otherwise}"),
        (None, None) => format!("{otherwise}; what transformers does not have: {REHEARSE}"),
    };
    JobError::of_kind(JobErrorKind::Model, format!("model `{name}` is no config file and no built-in model")).hint(hint)
}

/// What to say of a name whose end tells that a built-in model's weights are stored quantized.
fn hint_for_stored(name: &str) -> Option<String> {
    let (whole, copied) = copies::stored_copy(name)?;
    let base = Preset::find(whole)?.full_name(whole);
    Some(match copied {
        Copied::Key(word) => {
            format!("`{base}` is built in, and `--quantization {word}` with `--lora-r` trains adapters on it so")
        }
        Copied::Packed(..) | Copied::Otherwise => {
            format!("`{base}` is built in, but training on weights that are stored like this is not simulated")
        }
    })
}

/// A model that only the job describes.
fn written_out(settings: &Settings) -> Result<Model, JobError> {
    let fields = settings.model_fields();
    let model_type = fields.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let unread = ModelSpec {
        name: String::new(),
        model_type: model_type.clone(),
        config: Fields(Map::new()),
        beside: Beside::default(),
    };
    for (field, setting) in &settings.model {
        check_field(field, setting, &unread)?;
    }
    let at = settings.model.get("model_type").and_then(|setting| place_of_origin(&setting.origin));
    let model = hf::read_model(&format!("custom {model_type}"), fields).map_err(|error| error.at_place(at))?;
    if !is_loaded_bare(settings) {
        hf::refuse_other_head(&model.spec)?;
    }
    Ok(Model {
        spec: model.spec,
        published_dtype: None,
        provenance: settings.model.iter().map(|(field, setting)| field_provenance(field, setting)).collect(),
        config_file: None,
    })
}

fn field_provenance(field: &str, setting: &Setting) -> Provenance {
    Provenance { key: format!("model.{field}"), value: setting.value.to_string(), origin: setting.origin.clone() }
}

/// Where a job file sets a value; `None` for what comes from elsewhere.
pub(super) fn place_of_origin(origin: &Origin) -> Option<super::Place> {
    match origin {
        Origin::JobFile(place) => Some(place.clone()),
        _ => None,
    }
}

/// A field that a person writes must be one that configs have, and this one's: a typing error, or another family's word,
/// would silently change nothing.
fn check_field(field: &str, setting: &Setting, model: &ModelSpec) -> Result<(), JobError> {
    let (config, model_type) = (&model.config.0, model.model_type.as_str());
    if config.contains_key(field) || has_field(model_type, field) || (!is_mirrored(model_type) && is_a_field(field)) {
        return Ok(());
    }
    let field: String = field.chars().take(60).collect();
    let (problem, meant) = if is_a_field(&field) {
        let other_word = SYNONYMS.iter().find_map(|(gpt2, others)| match field.as_str() {
            name if name == *gpt2 => Some(*others),
            name if name == *others => Some(*gpt2),
            _ => None,
        });
        let meant = other_word.filter(|word| has_field(model_type, word));
        (format!("the config of a `{model_type}` has no field `{field}`"), meant)
    } else {
        let known = config
            .keys()
            .map(String::as_str)
            .chain(CONFIG_FIELDS.iter().copied())
            .chain(HRM_FIELDS)
            .chain(DIFFUSERS_FIELDS);
        (
            format!("no model config has a field `{field}`"),
            nearest(&field, known.filter(|name| has_field(model_type, name))),
        )
    };
    let hint = match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "its name must be as in config.json".to_owned(),
    };
    Err(JobError::of_kind(JobErrorKind::Model, problem)
        .about(&[format!("model.{field}")])
        .hint(hint)
        .at_place(place_of_origin(&setting.origin)))
}

/// Whether any model's config has `field`.
fn is_a_field(field: &str) -> bool {
    [CONFIG_FIELDS, &HRM_FIELDS, &ENCODER_DECODER_FIELDS, &DIFFUSERS_FIELDS]
        .iter()
        .any(|fields| fields.contains(&field))
}

/// Whether configs of `model_type` have `field`, as far as fields are one family's alone.
pub fn has_field(model_type: &str, field: &str) -> bool {
    let of_gpt2 = SYNONYMS.iter().any(|(gpt2, _)| *gpt2 == field) || GPT2_FIELDS.contains(&field);
    let of_others = SYNONYMS.iter().any(|(_, others)| *others == field);
    let of_hrm = HRM_FIELDS.contains(&field);
    match facts(model_type).config {
        ConfigWords::Gpt2 => CONFIG_FIELDS.contains(&field) && !of_others,
        ConfigWords::Hrm => {
            of_hrm || field == "hidden_size" || (CONFIG_FIELDS.contains(&field) && !of_gpt2 && !of_others)
        }
        ConfigWords::EncoderDecoder => {
            ENCODER_DECODER_FIELDS.contains(&field) || (CONFIG_FIELDS.contains(&field) && !of_gpt2 && !of_others)
        }
        ConfigWords::Diffusers => DIFFUSERS_FIELDS.contains(&field) || field == "model_type",
        ConfigWords::DistilBert => DISTILBERT_FIELDS.contains(&field) || (CONFIG_FIELDS.contains(&field) && !of_gpt2),
        ConfigWords::Llama => CONFIG_FIELDS.contains(&field) && !of_gpt2,
    }
}

/// What GPT-2's config calls what others call otherwise.
const SYNONYMS: [(&str, &str); 6] = [
    ("activation_function", "hidden_act"),
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_inner", "intermediate_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_positions", "max_position_embeddings"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::generic_model_types;

    #[test]
    fn a_field_belongs_to_its_family() {
        for (model_type, field, has) in [
            ("gpt2", "n_layer", true),
            ("gpt2", "num_hidden_layers", false),
            ("agi2", "attn_pdrop", true),
            ("llama", "n_layer", false),
            ("llama", "num_hidden_layers", true),
            ("phi3", "resid_pdrop", true),
            ("gpt2", "H_cycles", false),
            ("hrm", "H_cycles", true),
            ("hrm", "hidden_size", true),
            ("hrm", "n_embd", false),
            ("distilbert", "n_layers", true),
            ("llama", "n_layers", false),
        ] {
            assert_eq!(has_field(model_type, field), has, "{model_type} {field}");
        }
    }

    #[test]
    fn presets_use_known_fields() {
        let generic = generic_model_types();
        for preset in Preset::all() {
            let config: Map<String, Value> = serde_json::from_str(preset.config).unwrap();
            let Some(model_type) = config.get("model_type").and_then(Value::as_str) else { continue };
            // What is stood in for is read under the names of its own config.
            let has_family = !config.contains_key("text_config") && !generic.contains(&model_type);
            for field in config.keys().filter(|_| has_family) {
                let of_its_type = has_field(model_type, field);
                assert!(is_a_field(field) || of_its_type, "{}: {field}", preset.name);
            }
        }
    }
}
