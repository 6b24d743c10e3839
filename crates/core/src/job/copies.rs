//! Repositories that hold others' models under their names: whole, or with weights that are quantized already.

/// Publishers whose repositories of a built-in name have its config.
const MIRRORS: [&str; 2] = ["unsloth", "NousResearch"];

/// Names begin so of what Unsloth publishes as a model of another type (its Phi is a Llama).
const REWRITTEN: &str = "phi-";

/// How a copy's weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// Packed in so many bits, as checkpoints of this kind are: the key's word for it.
    Packed(&'static str, u64),
    /// As this word of the key stores a whole model's weights while it loads.
    Key(&'static str),
    /// As nothing here.
    Otherwise,
}

/// Ends of names that tell how weights are stored, the longest first: Unsloth's own 4 bits leave some layers whole.
const STORED: [(&str, Copied); 12] = [
    ("-unsloth-bnb-4bit", Copied::Otherwise),
    ("-GPTQ-Int4", Copied::Packed("gptqmodel", 4)),
    ("-GPTQ-Int8", Copied::Packed("gptqmodel", 8)),
    ("-bnb-4bit", Copied::Key("nf4")),
    ("-bnb-8bit", Copied::Key("int8")),
    ("-MXFP4", Copied::Otherwise),
    ("-4bit", Copied::Otherwise),
    ("-GPTQ", Copied::Packed("gptqmodel", 4)),
    ("-GGUF", Copied::Otherwise),
    ("-AWQ", Copied::Packed("awq", 4)),
    ("-FP8", Copied::Otherwise),
    ("-MLX", Copied::Otherwise),
];

/// The name without its publisher, where that only mirrors others' models.
pub(super) fn mirrored_name(name: &str) -> Option<&str> {
    let (publisher, short) = name.split_once('/')?;
    let is_mirror = MIRRORS.iter().any(|mirror| mirror.eq_ignore_ascii_case(publisher));
    let is_rewritten = short.to_ascii_lowercase().starts_with(REWRITTEN);
    (is_mirror && !is_rewritten && !short.contains('/')).then_some(short)
}

/// The whole model's name without its publisher, and how a copy of it is stored, where the end of `name` tells.
pub(super) fn stored_copy(name: &str) -> Option<(&str, Copied)> {
    let (whole, copied) = STORED.iter().find_map(|(end, copied)| Some((without_end(name, end)?, *copied)))?;
    Some((whole.rsplit('/').next().unwrap_or(whole), copied))
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
            ("unsloth/Qwen3-14B-unsloth-bnb-4bit", Some(("Qwen3-14B", Copied::Otherwise))),
            ("unsloth/gemma-2-9b-it-bnb-4bit", Some(("gemma-2-9b-it", Copied::Key("nf4")))),
            ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", Some(("Qwen2.5-7B-Instruct", Copied::Packed("gptqmodel", 4)))),
            ("Qwen/Qwen2.5-7B-Instruct-awq", Some(("Qwen2.5-7B-Instruct", Copied::Packed("awq", 4)))),
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
