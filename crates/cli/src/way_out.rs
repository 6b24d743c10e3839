//! Ways out of words that cannot be read: a script that stands where a command does, and the GPU that a rehearsal is shown with.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::rehearsed_on;

use crate::failure::Failure;

/// The GPU that was typed, where the catalog has it.
pub fn typed_gpu(words: &[OsString]) -> Option<String> {
    let ours = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    let ours: Vec<&str> = ours.collect();
    let name = ours.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--gpu") {
        Some("" | "s") => ours.get(at + 1).copied(),
        Some(rest) => rest.strip_prefix('=').or_else(|| rest.strip_prefix("s=")),
        None => None,
    })?;
    name.split(',').all(|gpu| Gpu::parse(gpu.trim()).is_ok()).then(|| name.to_owned())
}

/// clap's error with that GPU in its hint.
pub fn on_gpu(error: clap::Error, gpu: Option<&str>) -> clap::Error {
    let text = error.to_string();
    let said = gpu.map_or_else(|| text.clone(), |gpu| rehearsed_on(&text, gpu));
    if said == text {
        return error;
    }
    clap::Error::raw(error.kind(), format!("{}\n", said.trim_start_matches("error: ").trim_end()))
}

/// What is said instead of clap's words, where a program or a name stands that clap takes for something else.
pub fn of_words(words: &[OsString], error: &clap::Error) -> Option<Failure> {
    let invalid = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let script = invalid(ContextKind::InvalidSubcommand).filter(|name| name.ends_with(".py"))?;
            let hint =
                format!("`tonnage rehearse -- python {script}` runs your script without a GPU and says what it takes");
            Some(Failure::bad_input(format!("`{script}` is no command")).with_hint(hint))
        }
        ErrorKind::UnknownArgument => {
            let word = invalid(ContextKind::InvalidArg).filter(|word| !word.starts_with('-'))?;
            let command = words.get(1)?.to_str()?;
            let hint = match command {
                "rehearse" | "run" => {
                    format!("the program stands behind `--`: `tonnage {command} -- {}`", from(words, word))
                }
                _ => "a name with spaces stands in quotes".to_owned(),
            };
            Some(Failure::bad_input(format!("`tonnage {command}` has no place for `{word}`")).with_hint(hint))
        }
        _ => None,
    }
}

/// The words from `first` on.
fn from(words: &[OsString], first: &str) -> String {
    let said = words.iter().map(|word| word.to_string_lossy()).skip_while(|word| word != first);
    said.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::line::read_words;

    fn typed(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_rehearsal_is_shown_with_the_gpu_that_was_asked_for() {
        for (text, gpu) in [
            ("tonnage estimate gpt2 --gpu t4", Some("t4")),
            ("tonnage estimate gpt2 --gpu=t4", Some("t4")),
            ("tonnage fit gpt2 --gpus t4,l4", Some("t4,l4")),
            ("tonnage estimate gpt2 --gpus 8", None),
            ("tonnage estimate gpt2 --gpu h1000", None),
            ("tonnage run -- python t.py --gpu t4", None),
        ] {
            assert_eq!(typed_gpu(&typed(text)).as_deref(), gpu, "{text}");
        }
    }

    #[test]
    fn a_script_gets_its_rehearsal() {
        for (text, hint) in [
            ("tonnage train.py", "`tonnage rehearse -- python train.py`"),
            ("tonnage rehearse python train.py -x", "`tonnage rehearse -- python train.py -x`"),
            ("tonnage fit gpt2 --gpus 4090 Laptop", "in quotes"),
        ] {
            let words = typed(text);
            let failure = of_words(&words, &read_words(&words).err().unwrap()).unwrap();
            assert!(failure.hint.unwrap().contains(hint), "{text}");
        }
    }
}
