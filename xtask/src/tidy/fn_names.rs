//! Words of function names. A name of one word seldom says what is read, made or counted, and cannot be grepped for: half of
//! the names that we choose have two words or more. Names that others chose are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::rust_files;

/// Words that Rust's own library has made known, for what they do there.
const FAMILIAR: &[&str] = &[
    "clear", "contains", "default", "drop", "extend", "from", "get", "insert", "into", "iter", "len", "main", "new",
    "next", "parse", "pop", "push",
];
/// Folders whose functions are PyTorch's operators and the methods of Hugging Face's modeling files, under their names.
const NAMED_BY_OTHERS: &[&str] = &["crates/tensor/src/op/", "crates/core/src/model/", "crates/train/src/op/"];
/// PyTorch's name of what a module does.
const FORWARD: &str = "forward";
/// Folders of what is no part of a program.
const BESIDE: &[&str] = &["tests", "benches", "examples"];

/// The names of one crate.
#[derive(Default)]
struct Names {
    /// By how many words they have, those of more than three with those of three.
    by_words: [usize; 3],
    /// Those of one word, with how often.
    single: BTreeMap<String, usize>,
}

/// Prints for every crate how many words its function names have, and the commonest of one word.
pub fn print_words() -> Result<()> {
    println!("{:16} {:>6} {:>6} {:>6} {:>6}  commonest of one word", "crate", "all", "one", "two", "more");
    for (name, names) in by_crate()? {
        let mut single: Vec<_> = names.single.iter().collect();
        single.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        let commonest: Vec<_> = single.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect();
        let [one, two, more] = names.by_words;
        println!("{name:16} {:>6} {one:>6} {two:>6} {more:>6}  {}", one + two + more, commonest.join(", "));
    }
    let [one, more] = one_or_more(&by_crate()?);
    println!("{:.1} % have one word", 100.0 * one as f64 / (one + more).max(1) as f64);
    Ok(())
}

/// What is wrong with the names of all crates together: that most have one word.
pub(super) fn too_many_single() -> Result<Option<String>> {
    let [one, more] = one_or_more(&by_crate()?);
    let words = format!("{one} of {} function names have one word: half at most (`cargo xtask names`)", one + more);
    Ok((one > more).then_some(words))
}

fn one_or_more(crates: &BTreeMap<String, Names>) -> [usize; 2] {
    crates.values().fold([0, 0], |[one, more], names| {
        let [single, two, longer] = names.by_words;
        [one + single, more + two + longer]
    })
}

fn by_crate() -> Result<BTreeMap<String, Names>> {
    let mut crates: BTreeMap<String, Names> = BTreeMap::new();
    for root in ["crates", "xtask"] {
        for file in rust_files(Path::new(root))? {
            let path = file.display().to_string();
            let parts: Vec<&str> = path.split('/').collect();
            let is_beside = parts.iter().any(|part| BESIDE.contains(part)) || path.ends_with("tests.rs");
            if is_beside || NAMED_BY_OTHERS.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            let text = fs::read_to_string(&file).with_context(|| path.clone())?;
            let name = if root == "xtask" { root } else { parts[1] };
            let names = crates.entry(name.to_owned()).or_default();
            for function in own_names(&text) {
                let words = function.split('_').filter(|word| !word.is_empty()).count();
                names.by_words[words.clamp(1, 3) - 1] += 1;
                if words == 1 {
                    *names.single.entry(function).or_default() += 1;
                }
            }
        }
    }
    Ok(crates)
}

/// The names of functions that a file chooses itself: none of tests, of other programs' traits and interfaces, no familiar
/// words, no methods that hand out the field of their name.
fn own_names(text: &str) -> Vec<String> {
    let is_test = |line: &&str| !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test");
    let lines: Vec<&str> = text.lines().take_while(is_test).collect();
    let mut names = Vec::new();
    let mut trait_impl: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if trait_impl == Some(indent) && line.trim_start().starts_with('}') {
            trait_impl = None;
        } else if is_trait_impl(&lines[at..]) && !line.trim_end().ends_with('}') {
            trait_impl = Some(indent);
        }
        let Some(name) = declared_name(line).filter(|_| trait_impl.is_none()) else { continue };
        let is_others = line.contains("extern \"C\"") || name == FORWARD || FAMILIAR.contains(&name);
        if !is_others && !hands_out_field(&lines[at..], name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The function that a line declares.
fn declared_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let begins = ["fn ", "pub", "const ", "async ", "unsafe ", "extern "].iter().any(|word| line.starts_with(word));
    let rest = line.split_once("fn ").filter(|(before, _)| begins && (before.is_empty() || before.ends_with(' ')))?.1;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    matches!(rest.as_bytes()[end], b'(' | b'<').then_some(&rest[..end])
}

/// Whether the first of `lines` begins the implementation of a trait.
fn is_trait_impl(lines: &[&str]) -> bool {
    let first = lines.first().map_or("", |line| line.trim_start());
    if !first.starts_with("impl") && !first.starts_with("unsafe impl") {
        return false;
    }
    let head = lines.iter().take(8).scan(false, |ended, line| {
        let goes_on = !*ended;
        *ended = line.contains('{');
        goes_on.then_some(*line)
    });
    head.collect::<Vec<_>>().join(" ").replace("for<", "").contains(" for ")
}

/// Whether the method that begins here is one line: the field of its name.
fn hands_out_field(lines: &[&str], name: &str) -> bool {
    let Some(opens) = lines.iter().position(|line| line.trim_end().ends_with('{')) else { return false };
    let body = lines.get(opens + 1).map_or("", |line| line.trim());
    let is_all = lines.get(opens + 2).is_some_and(|line| line.trim() == "}");
    let field = body.trim_start_matches(['&', '*']).trim_start_matches("mut ").strip_prefix("self.");
    let rest = field.and_then(|field| field.strip_prefix(name));
    is_all && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_chooses_are_counted() {
        let text = "impl Table {\n    pub fn new() -> Self {\n        Self {}\n    }\n    pub(crate) const fn rows(&self) -> &[Row] {\n        \
                    &self.rows\n    }\n    fn draw(&self) -> String {\n        self.rows.join()\n    }\n}\nimpl Iterator for Table {\n    \
                    fn size_hint(&self) {}\n}\nfn read_rows() {}\npub unsafe extern \"C\" fn cuInit() {}\n// fn gone() {}\n#[cfg(test)]\nmod \
                    tests { fn tested() {} }";
        assert_eq!(own_names(text), ["draw", "read_rows"]);
    }
}
