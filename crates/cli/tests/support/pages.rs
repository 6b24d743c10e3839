//! The commands of README.md and docs/*.md, as they stand in blocks of `sh` and `console`.

use std::path::{Path, PathBuf};

/// A command of a page.
pub struct Line {
    /// The page's file name.
    pub page: String,
    /// File and line.
    pub place: String,
    /// As it is typed, with its remark.
    pub text: String,
    /// What the page shows of its output.
    pub shown: Vec<String>,
}

impl Line {
    /// The words of a command of `tonnage`, up to a remark, a pipe or a second command; none of another program's.
    pub fn words(&self) -> Vec<String> {
        self.text.strip_prefix("tonnage ").map_or_else(Vec::new, split_words)
    }
}

/// Where README.md, `docs` and `examples` lie.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// README.md and the pages.
pub fn pages() -> Vec<PathBuf> {
    let pages =
        std::fs::read_dir(repository().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.push(repository().join("README.md"));
    pages.sort();
    pages
}

/// All commands of all pages, in their order.
pub fn all_lines() -> Vec<Line> {
    pages().iter().flat_map(|page| lines_of(page)).collect()
}

fn lines_of(page: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(page).expect("a page");
    let name = page.file_name().expect("a name").to_string_lossy().into_owned();
    let mut lines: Vec<Line> = Vec::new();
    let mut block = "";
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            block = if block.is_empty() { if fence.is_empty() { "text" } else { fence } } else { "" };
            continue;
        }
        let typed = match block {
            "sh" | "bash" | "shell" => Some(line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#')),
            "console" => line.strip_prefix("$ "),
            _ => continue,
        };
        match typed {
            Some(typed) => lines.push(Line {
                page: name.clone(),
                place: format!("{}:{}", page.display(), number + 1),
                text: typed.to_owned(),
                shown: Vec::new(),
            }),
            None => {
                lines
                    .last_mut()
                    .filter(|_| block == "console")
                    .into_iter()
                    .for_each(|it| it.shown.push(line.to_owned()));
            }
        }
    }
    lines
}

/// Quotes hold words together.
pub fn split_words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ' ') => {
                if matches!(word.as_str(), "#" | "|" | "||" | ">" | "<" | "&&" | "2>&1") {
                    return words;
                }
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}
