//! `tonnage models`: the published models that are built in.

use clap::Args;
use serde_json::json;
use tonnage_core::job::Preset;
use tonnage_core::model_type::known_model_types;
use tonnage_report::text::{self, ModelRow};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Lists the published models that are built in; any other is read from its config.json
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage models\n  tonnage models qwen\n  tonnage models --json")]
pub struct ModelsArgs {
    /// Lists only names that contain this
    filter: Option<String>,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl ModelsArgs {
    /// Lists them.
    ///
    /// # Errors
    /// When none has such a name.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let wanted = self.filter.unwrap_or_default().to_lowercase();
        let presets: Vec<_> =
            Preset::all().iter().filter(|preset| preset.name.to_lowercase().contains(&wanted)).collect();
        if presets.is_empty() {
            return Err(Failure::bad_input(format!("no built-in model is called `{wanted}`"))
                .with_hint("download its config.json and give the path to `tonnage estimate`"));
        }
        let types: Vec<_> = presets.iter().map(|preset| model_type(preset)).collect();
        let known = known_model_types();
        let rows: Vec<_> = presets
            .iter()
            .zip(&types)
            .map(|(preset, model_type)| ModelRow {
                name: preset.name,
                parameters: preset.parameters,
                model_type,
                simulated: known.contains(&model_type.as_str()),
            })
            .collect();
        let models = || rows.iter().map(row_json).collect::<Vec<_>>();
        let document = || Ok(format!("{:#}\n", json!({"version": 1, "models": models()})));
        terminal.show(self.json, document, || text::model_table(&rows, &terminal.look))?;
        Ok(Exit::Done)
    }
}

fn row_json(row: &ModelRow<'_>) -> serde_json::Value {
    json!({
        "name": row.name,
        "parameters": row.parameters,
        "model_type": row.model_type,
        "simulated": row.simulated,
    })
}

/// A preset of a multimodal model keeps only its text model; an unknown type is shown as it stands in the config.
fn model_type(preset: &Preset) -> String {
    if let Ok(model) = preset.model() {
        return model.spec.model_type;
    }
    let config: serde_json::Value = serde_json::from_str(preset.config).unwrap_or_default();
    config["model_type"].as_str().unwrap_or("?").to_owned()
}
