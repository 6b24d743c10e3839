//! No module of these crates knows one that knows it: the folders and files directly below `src` name each other one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::rust_files;

/// Crates whose modules are in order; `core` has its floors, see ARCHITECTURE.md.
const ORDERED: &[&str] = &["crates/run/src", "crates/watch/src", "crates/report/src"];

/// What each module names of the others.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Every circle of the crates above, in words.
pub fn found() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for root in ORDERED.iter().map(Path::new) {
        let edges = edges(root)?;
        let words = |(from, to): (&String, &String)| format!("{}: `{from}` and `{to}` know each other", root.display());
        problems.extend(circles(&edges).into_iter().map(words));
    }
    Ok(problems)
}

fn edges(root: &Path) -> Result<Edges> {
    let files = rust_files(root)?;
    let module = |file: &Path| {
        let first = file.strip_prefix(root).ok()?.components().next()?;
        Path::new(first.as_os_str()).file_stem()?.to_str().map(str::to_owned)
    };
    let modules: BTreeSet<String> = files.iter().filter_map(|file| module(file)).collect();
    let mut edges = Edges::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let Some(own) = module(file).filter(|own| own != "lib") else { continue };
        let named = named(&text).into_iter().filter(|name| *name != own && modules.contains(name));
        edges.entry(own.clone()).or_default().extend(named);
    }
    Ok(edges)
}

/// What follows `crate::` outside of comments and tests, also in braces.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let code: String =
        code.filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let list = rest.strip_prefix('{').and_then(|list| list.split_once('}')).map_or(rest, |(list, _)| list);
        let of_word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if rest.starts_with('{') {
            names.extend(list.split(',').map(|word| of_word(word.trim())));
        } else {
            names.insert(of_word(list));
        }
    }
    names
}

/// Pairs that reach each other, each once.
fn circles(edges: &Edges) -> Vec<(&String, &String)> {
    let reaches = |from: &String, to: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(edges.get(at).into_iter().flatten().filter(|next| seen.insert(*next)));
        }
        seen.contains(to)
    };
    let direct = edges.iter().flat_map(|(from, names)| names.iter().map(move |to| (from, to)));
    direct.filter(|(from, to)| reaches(to, from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_and_a_ladder_is_none() {
        let edges = |pairs: &[(&str, &str)]| {
            let mut edges = Edges::new();
            for (from, to) in pairs {
                edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            edges
        };
        assert!(circles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]);
        assert_eq!(circles(&found).len(), 3);
    }

    #[test]
    fn what_comments_and_tests_name_does_not_count() {
        let text = "use crate::os;\n// crate::screen\nuse crate::{RunError, home};\n#[cfg(test)]\nmod tests { use crate::store; }";
        let expected = ["RunError", "home", "os"].map(str::to_owned);
        assert_eq!(named(text).into_iter().collect::<Vec<_>>(), expected);
    }
}
