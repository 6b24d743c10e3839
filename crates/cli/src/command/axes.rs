//! Lists in flags: `--seq-len 256,512` stands for a job of each value.

use std::path::Path;
use tonnage_core::job::keys;

use tonnage_core::job::{Key, Kind, Override};

use crate::failure::Failure;

/// Takes the keys that were given a list out of `overrides`, each with its values.
///
/// # Errors
/// When a list names no value.
pub fn take_axes(overrides: &mut Vec<Override>) -> Result<Vec<Vec<Override>>, Failure> {
    let (lists, others): (Vec<_>, Vec<_>) = overrides.drain(..).partition(is_list);
    *overrides = others;
    lists.iter().map(listed_values).collect()
}

/// Whether a comma separates values: not in texts, of which some have commas themselves.
fn is_list(given: &Override) -> bool {
    let kind = Key::find(&given.key).map(|key| key.kind);
    let of_key = matches!(kind, Some(Kind::Size { .. } | Kind::Number { .. } | Kind::Choice(_) | Kind::Switch));
    let of_gpus = given.key == keys::GPU && !given.value.contains("sm") && !given.value.contains("multiprocessors");
    let of_field = given.key.starts_with("model.") && !given.value.starts_with(['[', '{', '"']);
    // A path may have commas.
    let of_models = matches!(given.key.as_str(), keys::MODEL | keys::JUDGE_MODEL) && !Path::new(&given.value).exists();
    given.value.contains(',') && (of_key || of_gpus || of_field || of_models)
}

fn listed_values(list: &Override) -> Result<Vec<Override>, Failure> {
    let value = |text: &str| Override { value: text.trim().to_owned(), ..list.clone() };
    let values: Vec<_> = list.value.split(',').filter(|text| !text.trim().is_empty()).map(value).collect();
    if values.is_empty() {
        return Err(
            Failure::bad_input(format!("`{}` names no value", list.origin.said())).with_hint("write them as `a,b,c`")
        );
    }
    values.iter().try_for_each(Override::check)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_told_from_texts_with_commas() {
        let cases = [
            ("seq_len=1,2", true),
            ("precision=bf16,fp32", true),
            ("model.H_cycles=1,2", true),
            ("model.rope_scaling={\"a\": 1, \"b\": 2}", false),
            ("gpu=h100,l4", true),
            ("gpu=24GiB,sm_86", false),
            ("lora.targets=q_proj,v_proj", false),
            ("model=gpt2,gpt2-medium", true),
            ("seq_len=1", false),
        ];
        for (text, expected) in cases {
            assert_eq!(is_list(&Override::assignment(text).unwrap()), expected, "{text}");
        }
    }
}
