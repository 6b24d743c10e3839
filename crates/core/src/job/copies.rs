//! Repositories that hold others' models under their names: whole, or with weights that are quantized already.

/// Publishers whose repositories of a built-in name have its config.
const MIRRORS: [&str; 2] = ["unsloth", "NousResearch"];

/// Names begin so of what Unsloth publishes as a model of another type (its Phi is a Llama).
const REWRITTEN: &str = "phi-";

/// Ends of names that tell how weights are stored, the longest first, and the key's word for it, if it has one: Unsloth's own 4 bits leave
/// some layers whole.
const STORED: [(&str, Option<&str>); 12] = [
    ("-unsloth-bnb-4bit", None),
    ("-GPTQ-Int4", Some("gptq")),
    ("-GPTQ-Int8", None),
    ("-bnb-4bit", Some("nf4")),
    ("-bnb-8bit", Some("int8")),
    ("-MXFP4", None),
    ("-4bit", None),
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

/// The whole model's name without its publisher, and the key's word for how a copy of it is stored, where the end of `name` tells.
pub(super) fn stored_copy(name: &str) -> Option<(&str, Option<&'static str>)> {
    let (whole, word) = STORED.iter().find_map(|(end, word)| Some((without_end(name, end)?, *word)))?;
    Some((whole.rsplit('/').next().unwrap_or(whole), word))
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
    fn mirrors_are_told_from_other_publishers() {
        assert_eq!(mirrored_name("unsloth/Llama-3.2-1B-Instruct"), Some("Llama-3.2-1B-Instruct"));
        assert_eq!(mirrored_name("nousresearch/Meta-Llama-3-8B"), Some("Meta-Llama-3-8B"));
        for other in ["somebody/Llama-3.2-1B", "unsloth/Phi-4", "gpt2", "unsloth/unsloth/gpt2"] {
            assert_eq!(mirrored_name(other), None, "{other}");
        }
    }

    #[test]
    fn ends_tell_how_weights_are_stored() {
        for (name, told) in [
            ("unsloth/Qwen3-14B-unsloth-bnb-4bit", Some(("Qwen3-14B", None))),
            ("unsloth/gemma-2-9b-it-bnb-4bit", Some(("gemma-2-9b-it", Some("nf4")))),
            ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", Some(("Qwen2.5-7B-Instruct", Some("gptq")))),
            ("Qwen/Qwen2.5-7B-Instruct-awq", Some(("Qwen2.5-7B-Instruct", None))),
            ("gpt2", None),
            ("é4bit", None),
        ] {
            assert_eq!(stored_copy(name), told, "{name}");
        }
    }

    #[test]
    fn longer_ends_come_first() {
        assert!(STORED.is_sorted_by(|one, other| one.0.len() >= other.0.len()));
    }
}
