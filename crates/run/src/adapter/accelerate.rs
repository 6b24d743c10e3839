//! `accelerate launch`: its own `--gradient_accumulation_steps`, which stands before the script.

use std::path::Path;
use tonnage_core::job::keys::GRADIENT_ACCUMULATION_STEPS;

use super::{Adapter, flags};
use crate::RunError;

pub(super) static ACCELERATE: Adapter =
    Adapter { name: "accelerate launch", matches: is_accelerate, set: set_flag, finish: |_, _| {} };

fn is_accelerate(argv: &[String]) -> bool {
    let is = |word: &String, name: &str| word.rsplit('/').next() == Some(name);
    argv.windows(2).any(|pair| is(&pair[0], "accelerate") && pair[1] == "launch")
        || argv.iter().any(|word| word == "accelerate.commands.launch")
}

fn set_flag(argv: &mut Vec<String>, key: &str, value: &str, _folder: &Path) -> Result<bool, RunError> {
    let script = argv.iter().position(|word| word.ends_with(".py")).unwrap_or(argv.len());
    let mut own: Vec<String> = argv[..script].to_vec();
    if key != GRADIENT_ACCUMULATION_STEPS || !flags::has_flag(&own, &["--gradient_accumulation_steps"]) {
        return Ok(false);
    }
    flags::set_flag(&mut own, "--gradient_accumulation_steps", value);
    argv.splice(..script, own);
    Ok(true)
}
