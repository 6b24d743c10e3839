//! Repositories that hold others' models under their names: whole, or with weights that are quantized already.

use super::presets::Preset;

/// Publishers whose repositories of a built-in name have its config.
const MIRRORS: [&str; 2] = ["unsloth", "NousResearch"];

/// Names begin so of what Unsloth publishes as a model of another type (its Phi is a Llama).
const REWRITTEN: &str = "phi-";

/// Ends of names that tell how weights are stored, the longest first, and the key's word for it.
const STORED: [(&str, Option<&str>); 12] = [
    ("-unsloth-bnb-4bit", Some("nf4")),
    ("-GPTQ-Int4", Some("gptq")),
    ("-GPTQ-Int8", None),
    ("-bnb-4bit", Some("nf4")),
    ("-bnb-8bit", Some("int8")),
    ("-MXFP4", None),
    ("-4bit", Some("nf4")),
    ("-GPTQ", Some("gptq")),
    ("-GGUF", None),
    ("-AWQ", None),
    ("-FP8", None),
    ("-MLX", None),
];

/// The name without its publisher, where that only mirrors others' models.
pub(super) fn mirrored_name(name: &str) -> Option<&str> {
    let (publisher, short) = name.split_once('/')?;
    let is_mirror = MIRRORS.iter().any(|mirror| mirror.eq_ignore_ascii_case(publisher));
    let is_rewritten = short.to_ascii_lowercase().starts_with(REWRITTEN);
    (is_mirror && !is_rewritten && !short.contains('/')).then_some(short)
}

/// What to say of a name whose end tells that a built-in model's weights are stored quantized.
pub(super) fn hint_for_stored(name: &str) -> Option<String> {
    let (whole, quantization) = STORED.iter().find_map(|(end, word)| Some((without_end(name, end)?, word)))?;
    let short = whole.rsplit('/').next().unwrap_or(whole);
    let base = Preset::find(short)?.full_name(short);
    Some(match quantization {
        Some(word) => {
            format!("`{base}` is built in, and `--quantization {word}` with `--lora-r` trains adapters on it so")
        }
        None => format!("`{base}` is built in, but training on weights that are stored like this is not simulated"),
    })
}

fn without_end<'a>(name: &'a str, end: &str) -> Option<&'a str> {
    let at = name.len().checked_sub(end.len())?;
    let (whole, tail) = name.split_at_checked(at)?;
    tail.eq_ignore_ascii_case(end).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_config_of_the_same_name() {
        let found = |name| Preset::find(name).map(|preset| preset.name);
        assert_eq!(found("unsloth/Llama-3.2-1B-Instruct"), Some("meta-llama/Llama-3.2-1B"));
        assert_eq!(found("nousresearch/Meta-Llama-3-8B"), Some("meta-llama/Meta-Llama-3-8B"));
        for other in [
            "somebody/Llama-3.2-1B",
            "unsloth/Phi-4",
            "unsloth/Qwen2.5-7B-bnb-4bit",
            "unsloth/unsloth/gpt2",
            "unsloth/",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn weights_that_are_stored_quantized_are_told_by_the_name() {
        let hint = |name: &str| hint_for_stored(name).unwrap_or_default();
        for (name, said) in [
            ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "`Qwen/Qwen3-14B` is built in, and `--quantization nf4`"),
            ("unsloth/gemma-2-9b-it-bnb-4bit", "`google/gemma-2-9b-it` is built in"),
            ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "`--quantization gptq`"),
            ("Qwen/Qwen2.5-7B-Instruct-awq", "is not simulated"),
        ] {
            assert!(hint(name).contains(said), "{name}: {}", hint(name));
        }
        for other in ["a-model-nobody-has-GGUF", "-AWQ", "gpt2", "é-4bit"] {
            assert_eq!(hint_for_stored(other), None, "{other}");
        }
        assert!(STORED.iter().all(|(end, _)| hint(&format!("gpt2{end}")).contains("gpt2")));
    }

    #[test]
    fn longer_ends_come_first() {
        assert!(STORED.is_sorted_by(|one, other| one.0.len() >= other.0.len()));
    }
}
