//! No module of these crates knows one that knows it: the folders and files directly below `src`, and directly below each
//! room of the core, name each other one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::{code_of, rust_files};

/// Crates whose modules are in order.
const ORDERED: &[&str] = &[
    "crates/alloc/src",
    "crates/tensor/src",
    "crates/core/src",
    "crates/run/src",
    "crates/watch/src",
    "crates/report/src",
];
/// The crates whose rooms are in order too.
const ROOMS_OF: [&str; 2] = ["crates/tensor/src", "crates/core/src"];
/// What each module names of the others.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Modules that are to name each other one way.
struct Room {
    folder: PathBuf,
    /// Its path from inside the crate.
    path: String,
}

/// Every circle of the crates above, in words.
pub(super) fn find_circles() -> Result<Vec<String>> {
    let mut rooms: Vec<_> = ORDERED.iter().map(|root| Room { folder: root.into(), path: "crate".to_owned() }).collect();
    for root in ROOMS_OF {
        for entry in fs::read_dir(root).context(root)? {
            let folder = entry?.path();
            let has_files = folder.join("mod.rs").exists();
            if let Some(name) = folder.file_name().and_then(|name| name.to_str()).filter(|_| has_files) {
                rooms.push(Room { path: format!("crate::{name}"), folder: folder.clone() });
            }
        }
    }
    let mut problems = Vec::new();
    for room in &rooms {
        let edges = room_edges(room)?;
        let place = room.folder.display().to_string();
        let words = |(from, to): (&String, &String)| format!("{place}: `{from}` and `{to}` know each other");
        problems.extend(circles_in(&edges).into_iter().map(words));
    }
    Ok(problems)
}

fn room_edges(room: &Room) -> Result<Edges> {
    let files = rust_files(&room.folder)?;
    let module = |file: &Path| {
        let first = file.strip_prefix(&room.folder).ok()?.components().next()?;
        Path::new(first.as_os_str()).file_stem()?.to_str().map(str::to_owned)
    };
    let modules: BTreeSet<String> = files.iter().filter_map(|file| module(file)).collect();
    let mut edges = Edges::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let Some(own) = module(file).filter(|own| own != "lib" && own != "mod") else { continue };
        let depth = file.strip_prefix(&room.folder)?.components().count() - usize::from(file.ends_with("mod.rs"));
        let named = named_modules(&code_of(&text), &room.path, depth);
        let named = named.into_iter().filter(|name| *name != own && modules.contains(name));
        edges.entry(own.clone()).or_default().extend(named);
    }
    Ok(edges)
}

/// The modules of the room at `path` that `code` names, in a file from which so many `super` lead to the room.
fn named_modules(code: &str, path: &str, depth: usize) -> BTreeSet<String> {
    let prefix = format!("{path}::");
    let from_crate = code.split(&prefix).skip(1);
    let from_here = code.match_indices("super::").filter_map(|(at, _)| {
        let is_first = !code[..at].ends_with("super::");
        let rest = code[at..].trim_start_matches("super::");
        (is_first && code[at..].len() - rest.len() == depth * "super::".len()).then_some(rest)
    });
    from_crate.chain(from_here).flat_map(path_heads).collect()
}

/// The first words of a path, or of each in braces.
fn path_heads(rest: &str) -> Vec<String> {
    let word = |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut heads, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                heads.push(word(&list[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(word(&list[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    heads
}

/// Pairs that reach each other, each once.
fn circles_in(edges: &Edges) -> Vec<(&String, &String)> {
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
        assert!(circles_in(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]);
        assert_eq!(circles_in(&found).len(), 3);
    }

    #[test]
    fn what_comments_and_tests_name_does_not_count() {
        let text = "use crate::os;\n// crate::screen\nuse crate::{RunError, home};\n#[cfg(test)]\nmod tests { use crate::store; }";
        let expected = ["RunError", "home", "os"].map(str::to_owned);
        assert_eq!(named_modules(&code_of(text), "crate", 1).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_room_is_named_from_inside_by_super() {
        let code = "use super::super::handle::Tensor;\nuse super::{sibling::{A, B}, own};\nuse crate::tensor::{edge, scope::X};";
        assert_eq!(
            named_modules(code, "crate::tensor", 2).into_iter().collect::<Vec<_>>(),
            ["edge", "handle", "scope"]
        );
        assert_eq!(
            named_modules("use super::{a::{X, Y}, b};", "crate::tensor", 1).into_iter().collect::<Vec<_>>(),
            ["a", "b"]
        );
    }
}
