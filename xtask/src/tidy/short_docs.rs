//! Doc comments of one or two words ("The device.", "Why."): they say no unit, no range and no source, only the name again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::rust_files;

/// Fewer words say nothing.
const LEAST_WORDS: usize = 3;

/// Every such comment, with its line.
pub(super) fn find_short() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for root in ["crates", "xtask"] {
        for file in rust_files(Path::new(root))? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let problem =
                |(line, doc)| format!("{}:{line}: `{doc}` says unit, range or source, or goes", file.display());
            problems.extend(short_docs(&text).into_iter().map(problem));
        }
    }
    Ok(problems)
}

/// Sentences of fewer words that stand alone, with their lines from 1, up to the tests at the end. One with a name in
/// backticks says a source, "In bytes." a unit, "From 1." a range; one without a full stop is help of a flag.
fn short_docs(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).map(str::trim).collect();
    let doc = |at: usize| lines.get(at).and_then(|line| line.strip_prefix("///"));
    let is_alone = |at: usize| (at == 0 || doc(at - 1).is_none()) && doc(at + 1).is_none();
    let is_unit = |doc: &str| ["In ", "From "].iter().any(|begin| doc.starts_with(begin));
    let is_short = |doc: &str| {
        let is_sentence = doc.ends_with('.') && !doc.contains('`') && !is_unit(doc);
        is_sentence && doc.split_whitespace().count() < LEAST_WORDS
    };
    let found = (0..lines.len()).filter(|at| is_alone(*at)).filter_map(|at| Some((at + 1, doc(at)?.trim())));
    found.filter(|(_, doc)| is_short(doc)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_of_two_words_is_found_and_a_source_is_none() {
        let text = "/// The device.\nfn a() {}\n/// `torch.device`.\nfn b() {}\n/// Prints JSON\njson: bool,\n/// In bytes.\n\
                    size: u64,\n/// Twice.\n/// Or thrice.\nfn c() {}\n#[cfg(test)]\nmod tests {\n/// A test.\nfn d() {}\n}";
        assert_eq!(short_docs(text), [(1, "The device.")]);
    }
}
