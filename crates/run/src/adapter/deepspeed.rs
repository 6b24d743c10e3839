//! DeepSpeed's JSON config: a changed copy in the attempt's folder takes its place on the command line.

use std::path::Path;

use serde_json::{Map, Value};
use tonnage_core::job::keys::{GRADIENT_ACCUMULATION_STEPS, MICRO_BATCH_SIZE};
use tonnage_core::limit::HAND_WRITTEN_BYTES;

use super::{Adapter, flags};
use crate::RunError;
use crate::bounded::read_text;
use crate::store::write_for_now;

pub(super) static DEEPSPEED: Adapter =
    Adapter { name: "DeepSpeed", matches: is_deepspeed, set: set_in_config, finish: |_, _| {} };

/// The flags that name the config.
const FLAGS: [&str; 2] = ["--deepspeed_config", "--deepspeed"];

fn is_deepspeed(argv: &[String]) -> bool {
    config_flag(argv).is_some()
}

fn config_flag(argv: &[String]) -> Option<(&'static str, &str)> {
    FLAGS.iter().find_map(|flag| {
        let path = flags::flag_value(argv, flag)?;
        path.ends_with(".json").then_some((*flag, path))
    })
}

fn set_in_config(argv: &mut Vec<String>, key: &str, value: &str, folder: &Path) -> Result<bool, RunError> {
    let field = match key {
        MICRO_BATCH_SIZE => "train_micro_batch_size_per_gpu",
        GRADIENT_ACCUMULATION_STEPS => "gradient_accumulation_steps",
        _ => return Ok(false),
    };
    let Some((flag, path)) = config_flag(argv) else { return Ok(false) };
    let text = read_text(path, HAND_WRITTEN_BYTES).map_err(|error| RunError::file(Path::new(path), error))?;
    let mut fields: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| RunError::damaged(Path::new(path), error))?;
    // "auto" is filled in by the Trainer, which is told by its own flags.
    if fields.get(field).is_none_or(|now| now == "auto") {
        return Ok(false);
    }
    if folder.as_os_str().is_empty() {
        return Ok(true);
    }
    fields.insert(field.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into()));
    let copy = folder.join("deepspeed.json");
    write_for_now(&copy, format!("{:#}\n", Value::Object(fields)).as_bytes())?;
    flags::set_flag(argv, flag, &copy.display().to_string());
    Ok(true)
}
