//! Parameters of the families by their default config and by three odd ones, as transformers counts them
//! (`testdata/families/count_parameters.py`).

use std::path::Path;

use serde_json::Value;
use tonnage_core::job::{Preset, hf};
use tonnage_core::step::parameter_count;

#[test]
fn a_family_has_the_parameters_of_its_class_under_odd_configs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families/parameters.json");
    let counted: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for row in counted["models"].as_array().unwrap() {
        let mut fields = row["config"].as_object().unwrap().clone();
        fields.insert("model_type".to_owned(), row["model_type"].clone());
        let mut model = hf::read_model("counted", fields).unwrap_or_else(|error| panic!("{row}: {error}"));
        // Of a model with a tower all of it is counted.
        model.spec.see_images(1, Some([280, 280])).unwrap_or_else(|error| panic!("{row}: {error}"));
        assert_eq!(parameter_count(&model.spec).unwrap(), row["parameters"].as_u64().unwrap(), "{row}");
    }
}

/// Published models whole, with their towers: `testdata/presets/count_parameters.py`.
#[test]
fn published_models_with_towers_have_their_published_parameters() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/presets/parameters.json");
    let counted: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for (stem, parameters) in counted["with_towers"].as_object().unwrap() {
        let is_named = |preset: &Preset| preset.name.to_lowercase().ends_with(&format!("/{stem}"));
        let preset = Preset::all().iter().find(|preset| is_named(preset)).unwrap();
        let mut model = preset.model().unwrap().spec;
        model.see_images(1, Some([448, 448])).unwrap();
        assert_eq!(parameter_count(&model).unwrap(), parameters.as_u64().unwrap(), "{stem}");
    }
}
