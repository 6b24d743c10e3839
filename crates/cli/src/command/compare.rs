//! What `--compare` asks for: lists of changes to the job.

use tonnage_core::job::{KEYS, Kind, Origin, Override};

use crate::failure::Failure;

/// More variants than this are a sweep, not a comparison.
const MOST: usize = 64;
const FORM: &str = "write it as `key=a,b,c`, for example `--compare micro_batch_size=4,8,16`";

/// Every combination of the values of the `lists`, each `key=a,b,c` or words of one key.
///
/// # Errors
/// When a list names no key, or there are too many combinations.
pub fn read_variants(lists: &[String]) -> Result<Vec<Vec<Override>>, Failure> {
    let mut variants = vec![Vec::new()];
    for list in lists {
        let changes = read_changes(list)?;
        let with = |variant: &Vec<Override>| {
            changes.iter().map(|change| [variant.as_slice(), std::slice::from_ref(change)].concat()).collect::<Vec<_>>()
        };
        variants = variants.iter().flat_map(with).collect();
        if variants.len() > MOST {
            return Err(Failure::bad_input(format!("`--compare` makes more than {MOST} jobs"))
                .with_hint("compare fewer values"));
        }
    }
    Ok(variants)
}

fn read_changes(list: &str) -> Result<Vec<Override>, Failure> {
    let (key, values) = match list.split_once('=') {
        Some((key, values)) => (key.trim(), values),
        None => (key_of_words(list)?, list),
    };
    let change = |value: &str| Override::new(key, value.trim(), Origin::Flag(format!("--compare {key}=")));
    let changes: Vec<_> = values.split(',').filter(|value| !value.trim().is_empty()).map(change).collect();
    if changes.is_empty() {
        return Err(Failure::bad_input(format!("`--compare {list}` names no value")).with_hint(FORM));
    }
    changes.iter().try_for_each(Override::check)?;
    Ok(changes)
}

/// The key that knows all words of `list`.
fn key_of_words(list: &str) -> Result<&'static str, Failure> {
    let plain = |word: &str| word.trim().to_lowercase().replace('-', "_");
    let knows = |kind: &Kind, word: &str| match kind {
        Kind::Choice(words) => words.iter().any(|(known, _)| plain(known) == plain(word)),
        _ => false,
    };
    let key = KEYS.iter().find(|key| list.split(',').all(|word| knows(&key.kind, word)));
    key.map(|key| key.name)
        .ok_or_else(|| Failure::bad_input(format!("`--compare {list}` names no key")).with_hint(FORM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lists: &[&str]) -> Vec<String> {
        let lists: Vec<_> = lists.iter().map(|list| (*list).to_owned()).collect();
        let text = |change: &Override| format!("{}={}", change.key, change.value);
        let variants = read_variants(&lists).unwrap();
        variants.iter().map(|changes| changes.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn words_find_their_key_and_lists_combine() {
        assert_eq!(texts(&["fp32,amp_fp16"]), ["precision=fp32", "precision=amp_fp16"]);
        assert_eq!(texts(&["seq_len=8, 16"]), ["seq_len=8", "seq_len=16"]);
        assert_eq!(texts(&["sdpa,eager", "seq_len=1"]), ["attention=sdpa seq_len=1", "attention=eager seq_len=1"]);
    }

    #[test]
    fn refuses_what_names_no_key_and_what_is_too_much() {
        assert!(read_changes("fp32,eager").unwrap_err().problem.contains("names no key"));
        for empty in ["seq_len=", "seq_len= , "] {
            assert!(read_changes(empty).unwrap_err().problem.contains("names no value"), "{empty}");
        }
        let many = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(read_variants(&[format!("seq_len={many}")]).is_err());
    }
}
