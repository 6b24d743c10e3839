//! Names of published models that are not built in: what they are, so that a name alone gets an answer.

use crate::job::JobErrorKind;
use crate::job::keys;
use crate::small_sort::SmallSort;
use std::sync::LazyLock;

use super::JobError;
use super::architecture::{Architecture, find_architecture};
use super::error::REHEARSE;
use crate::model_type::is_mirrored;

/// How names begin, with the model type of what is called so; the longest first.
static BEGINNINGS: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let mut model_type = "";
    let mut beginnings = Vec::new();
    for line in include_str!("hub_models.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(name) => model_type = name,
            None => beginnings.extend(line.split_whitespace().map(|name| (name, model_type))),
        }
    }
    beginnings.small_sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    beginnings
});

/// The longest name that is looked for.
const LONGEST: usize = 200;

/// The model type of what is published as `name`, with or without its publisher.
pub fn published_type(name: &str) -> Option<&'static str> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let plain = short.get(..short.len().min(LONGEST))?.to_lowercase();
    // `Meta-Llama-3.1-405B` and `Llama-3.1-405B` are the same.
    let plain = plain.strip_prefix("meta-").unwrap_or(&plain);
    BEGINNINGS.iter().find(|(begin, _)| plain.starts_with(begin)).map(|(_, model_type)| *model_type)
}

/// What to say to somebody who names a model that is not built in.
pub(super) fn not_built_in(name: &str) -> Option<JobError> {
    let model_type = published_type(name)?;
    let refused = |what: &str| {
        JobError::of_kind(JobErrorKind::Unsimulated, format!("`{name}` is known and not simulated: it is {what}"))
            .about(&[keys::MODEL])
            .hint(REHEARSE)
    };
    let is = match find_architecture(model_type) {
        Some(Architecture::Refused(kind)) => return Some(refused(kind.is())),
        Some(Architecture::Multimodal(_)) => "a multimodal model of which the text model is estimated",
        Some(Architecture::Decoder) => "a decoder that is estimated from its config",
        None if is_mirrored(model_type) => "simulated from its config",
        None => return Some(refused("no language model of transformers")),
    };
    let problem = format!("the config of `{name}` is not built in; it is known as model type `{model_type}`, {is}");
    Some(JobError::of_kind(JobErrorKind::Model, problem).hint(format!("{}; or {REHEARSE}", how_to_get(name))))
}

/// How the config of a model comes to this machine.
pub(super) fn how_to_get(name: &str) -> String {
    match is_full_name(name) {
        true => format!("`hf download {name} config.json` puts it into the hub cache, where it is found; or give the path of a config.json"),
        false => "name it as on the hub (publisher/name), which is looked for in the hub cache, or give the path of its config.json".to_owned(),
    }
}

/// Whether `name` is a name as the hub has them, with its publisher (huggingface_hub 1.33, `utils/_validators.py`).
pub fn is_full_name(name: &str) -> bool {
    let part = |part: &str| {
        let is_edge = |c: char| c == '-' || c == '.';
        let allowed = part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        !part.is_empty() && allowed && !part.starts_with(is_edge) && !part.ends_with(is_edge)
    };
    let twice = name.contains("--") || name.contains("..");
    name.len() <= 96 && !twice && name.split_once('/').is_some_and(|(publisher, name)| part(publisher) && part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_one_of_transformers() {
        for (name, model_type) in BEGINNINGS.iter() {
            let is_known = find_architecture(model_type).is_some() || is_mirrored(model_type);
            assert!(is_known || *model_type == "none", "{name}: {model_type}");
            assert_eq!(*name, name.to_lowercase());
            assert_eq!(BEGINNINGS.iter().filter(|(other, _)| other == name).count(), 1, "{name} twice");
        }
    }

    #[test]
    fn names_that_people_type_have_their_type() {
        for (name, model_type) in [
            ("mixtral-8x7b", "mixtral"),
            ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral"),
            ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),
            ("deepseek-ai/DeepSeek-V3", "deepseek_v3"),
            ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v32"),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2"),
            ("openai/gpt-oss-20b", "gpt_oss"),
            ("meta-llama/Llama-4-Scout-17B-16E", "llama4"),
            ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
            ("Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3_vl_moe"),
            ("google/gemma-7b", "gemma"),
            ("EleutherAI/pythia-1.4b", "gpt_neox"),
            ("meta-llama/Meta-Llama-3.1-405B", "llama"),
            ("allenai/OLMo-2-1124-7B", "olmo2"),
        ] {
            assert_eq!(published_type(name), Some(model_type), "{name}");
        }
        assert!(is_full_name("org/a-b_c.d") && is_full_name("Qwen/Qwen2.5-7B"));
        for hostile in ["a", "../b", "a/..", "a/b/c", "/a", "a/", "a--b/c", "a/b\n", "a/.b", "a/b c", &"a/b".repeat(50)]
        {
            assert!(!is_full_name(hostile), "{hostile}");
        }
        assert_eq!(published_type("somebody/a-model-nobody-has"), None);
        assert_eq!(published_type(&"é".repeat(300)), None);
    }

    #[test]
    fn what_is_no_dense_decoder_says_so_at_once() {
        for (name, what) in [
            ("microsoft/Phi-3.5-MoE-instruct", "mixture of experts"),
            ("google/t5gemma-2b-2b-ul2", "encoder-decoder"),
            ("RWKV/rwkv-4-169m-pile", "state-space"),
            ("stabilityai/stable-diffusion-2", "no language model"),
        ] {
            let error = not_built_in(name).unwrap();
            assert!(error.problem.contains(what), "{error}");
            assert!(error.hint.unwrap().contains("tonnage rehearse"), "{name}");
        }
        let dense = not_built_in("google/gemma-7b").unwrap();
        assert!(dense.hint.unwrap().contains("hf download google/gemma-7b config.json"));
    }
}
