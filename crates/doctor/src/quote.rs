//! Whether a line that looks like a failure is only quoted: mail, Markdown, tables, code, git, data that is trained on.

use crate::line::Line;
use crate::text::{find_phrase, has_phrase, places_of};

/// Keys of a dataset's samples, as trainers and scripts print them.
const SAMPLES: &[&str] = &[
    "text",
    "prompt",
    "completion",
    "instruction",
    "input",
    "output",
    "content",
    "response",
    "question",
    "answer",
    "chosen",
    "rejected",
    "code",
    "body",
    "query",
    "target",
    "context",
    "description",
    "title",
    "labels",
    "sample",
    "generated",
];

const OPENING_MARK: &str = "\u{201c}";
const CLOSING_MARK: &str = "\u{201d}";

fn has_bytes(line: &[u8], mark: &str) -> bool {
    memchr::memmem::find(line, mark.as_bytes()).is_some()
}

/// What people put around a whole log when they send it: it is no quotation of something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapped {
    No,
    /// Every line begins with `>`.
    Mail,
    /// Between two backticks.
    Backticks,
    /// Between typographic quotation marks.
    Quotes,
}

impl Wrapped {
    /// By the first line that says anything.
    pub(crate) fn of_first_line(head: &[u8]) -> Self {
        let first = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        match first.trim_ascii() {
            [b'>', b' ', ..] | [b'>'] => Self::Mail,
            first if first.ends_with(b":") && is_told(head) => Self::Mail,
            [b'`', b'`', ..] => Self::No,
            // A log begins so that ends lines later, or is one line.
            [b'`', rest @ ..] if !rest.contains(&b'`') || rest.ends_with(b"`") => Self::Backticks,
            first => match first.strip_prefix(OPENING_MARK.as_bytes()) {
                Some(rest) if !has_bytes(rest, CLOSING_MARK) || rest.ends_with(CLOSING_MARK.as_bytes()) => Self::Quotes,
                _ => Self::No,
            },
        }
    }

    /// Whether the first two lines that say anything have come whole.
    pub(crate) fn has_two_lines(head: &[u8]) -> bool {
        let lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        lines.filter(|line| !line.trim_ascii().is_empty()).nth(1).is_some()
    }

    /// A line without it.
    pub(crate) fn inside(self, line: &[u8]) -> &[u8] {
        match self {
            Self::No => line,
            Self::Mail => {
                let rest = line.trim_ascii_start().strip_prefix(b">");
                rest.map_or(line, |rest| rest.strip_prefix(b" ").unwrap_or(rest))
            }
            Self::Backticks => {
                let line = line.strip_prefix(b"`").unwrap_or(line);
                let is_odd = line.iter().filter(|byte| **byte == b'`').count() % 2 == 1;
                line.strip_suffix(b"`").filter(|_| is_odd).unwrap_or(line)
            }
            Self::Quotes => {
                let line = line.strip_prefix(OPENING_MARK.as_bytes()).unwrap_or(line);
                let is_odd = !has_bytes(line, OPENING_MARK);
                line.strip_suffix(CLOSING_MARK.as_bytes()).filter(|_| is_odd).unwrap_or(line)
            }
        }
    }
}

/// Whether below the first sentence, of one's own job, a quotation with a traceback's head or a frame begins.
fn is_told(head: &[u8]) -> bool {
    const OWN: &[&str] = &["I ", " my ", "My ", " I'm ", "This is ", "Here is "];
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let sentence = lines.next().unwrap_or_default();
    let begins = lines.next().is_some_and(|line| line.starts_with("> ") && has_phrase(line, "Traceback (most recent"));
    begins && OWN.iter().any(|words| has_phrase(sentence, words)) && !has_phrase(sentence, "wrote")
}

/// Whether the line quotes by itself.
pub(crate) fn by_itself(line: &Line) -> bool {
    let text = line.text.as_str();
    // Loguru marks the frame where it caught with an angle.
    let is_javas = text.starts_with("# A fatal error has been detected by the Java");
    let mark = text.starts_with(['>', '#', '`']) && !text.starts_with("> File \"") && !is_javas
        || text.starts_with("\"quoted\":")
        || is_table(text);
    mark || has_phrase(text, "Ignoring this choice")
        || is_string(text)
        || is_sample(text)
        || is_spoken(text)
        || is_settings(text)
        || is_templated(text)
        || is_blame(text)
        || is_change(text)
        || is_grep(text)
}

/// `| a | b |`; fairseq's `| WARNING: text` is none.
fn is_table(text: &str) -> bool {
    text.starts_with('|') && (text.ends_with('|') || text.bytes().filter(|byte| *byte == b'|').count() > 2)
}

/// `"RuntimeError: ...",`: a string of a list.
fn is_string(text: &str) -> bool {
    text.len() > 2 && text.starts_with('"') && (text.ends_with("\",") || text.ends_with('"'))
}

/// `{'text': 'RuntimeError: ...`: what is said is data.
fn is_sample(text: &str) -> bool {
    places_of(text, ":").any(|colon| is_sample_at(text, colon).unwrap_or(false))
}

/// Whether a sample's key ends at the colon: `'text':` at the beginning of a record or behind another value.
fn is_sample_at(text: &str, colon: usize) -> Option<bool> {
    let (before, value) = (text.get(..colon)?, text.get(colon + 1..)?);
    let quote = before.chars().next_back().filter(|quote| matches!(quote, '"' | '\''))?;
    let (head, key) = before.get(..colon - 1)?.rsplit_once(quote)?;
    let head = head.trim_end();
    let is_key = SAMPLES.contains(&key) && (head.is_empty() || head.ends_with(['{', ',', '[']));
    Some(is_key && value.trim_start().starts_with(['"', '\'', '[', '{']))
}

/// Who speaks in a sample that a trainer prints: chats, translations.
const SPEAKERS: &[&str] = &[
    "user",
    "assistant",
    "human",
    "prompt",
    "completion",
    "response",
    "hyp",
    "ref",
    "src",
    "tgt",
    "hypothesis",
    "reference",
    "generated",
    "instruction",
    "question",
    "answer",
    "sample",
    "generation",
    "tool",
    "agent",
    "observation",
    "q",
    "a",
];

/// `User: text`, `hyp 3: text`, `prompt> text`
fn is_spoken(text: &str) -> bool {
    let end = text.find([':', '>']).filter(|end| *end > 0 && *end < 20);
    end.and_then(|end| text.get(..end)).is_some_and(is_speaker)
}

fn is_speaker(name: &str) -> bool {
    // A template's mark stands before who speaks.
    let name = name.strip_prefix("<|im_start|>").unwrap_or(name);
    let name = name.trim_matches(['[', ']', '<', '>', '|', '#', ' ']);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || " #/".contains(c));
    SPEAKERS.iter().any(|speaker| name.eq_ignore_ascii_case(speaker))
}

/// Whether the line above a traceback's head, `back` lines ago, opens a sample: somebody speaks, or `=== generated ===`.
pub(crate) fn in_sample(history: &str, back: u64) -> bool {
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    let above = history.lines().rev().skip(back + 1).find(|line| !line.trim().is_empty()).unwrap_or_default();
    let text = above.trim();
    // `[2/4] output:`
    let text = text.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(text, |(_, rest)| rest);
    text == "output:" || is_spoken(text) || is_speaker(text.trim_matches(['=', '-', '*', ' ']))
}

/// Lines above a traceback's head that are read for a sample's opening.
const OF_A_SAMPLE: usize = 24;

/// Whether a sample was opened some lines above a traceback's head, `back` lines ago, and no step was made since.
pub(crate) fn may_be_in_sample(history: &str, back: u64) -> bool {
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    let above = history.lines().rev().skip(back + 1).take(OF_A_SAMPLE).map(str::trim);
    let is_step =
        |text: &&str| crate::progress::Progress::of_line(text, 1, None).is_some() || has_phrase(text, " INFO ");
    let opens =
        |text: &str| text.ends_with([']', '=', '-', '>']) && is_speaker(text.trim_matches(['=', '-', '*', ' ']));
    above.take_while(|text| !is_step(text)).any(opens)
}

/// `text<|im_end|>`: a template's marks stand in what a model is trained on or says.
fn is_templated(text: &str) -> bool {
    has_phrase(text, "<|")
        && ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<|assistant|>", "<|user|>"]
            .iter()
            .any(|mark| has_phrase(text, mark))
}

/// `Namespace(a=1, b='text')`: settings, whatever they say.
fn is_settings(text: &str) -> bool {
    let Some((name, rest)) = text.split_once('(').filter(|_| text.ends_with(')')) else { return false };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let values = rest.split(", ").filter(|value| {
        let key = value.split_once('=').map_or("", |(key, _)| key);
        !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_')
    });
    is_name && values.count() > 1
}

/// `a1b2c3d4 (Name 2024-05-05 10:11:13 +0000 12) text`
fn is_blame(text: &str) -> bool {
    let Some((commit, rest)) = text.split_once(' ') else { return false };
    let commit = commit.trim_start_matches('^');
    let is_commit = (7..=40).contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit
        && find_phrase(rest, "(").is_some_and(|at| at < 60)
        && (has_phrase(rest, " +0") || has_phrase(rest, " -0") || has_phrase(rest, " +1"))
}

/// `- fixed: RuntimeError: text`: a list of changes.
fn is_change(text: &str) -> bool {
    let item = text.trim_start_matches(['-', '*', '\u{2022}', ' ']);
    item.len() < text.len()
        && ["fixed", "Fixed", "fixes", "Fixes", "fix ", "Fix ", "fix:", "Fix:"]
            .iter()
            .any(|word| item.starts_with(word))
}

/// `docs/faq.md:12:text`
fn is_grep(text: &str) -> bool {
    let Some((file, rest)) = text.split_once(':') else { return false };
    let ends = [".md", ".py", ".rst", ".cpp", ".cu", ".h", ".rs", ".ipynb", ".html", ".jsonl", ".json", ".yaml"];
    let number = rest.split([':', '-']).next().unwrap_or_default();
    let is_file = ends.iter().any(|end| file.ends_with(end)) && !file.contains(' ');
    // Compilers begin so too, with a column: `ops.cu:12:3: error: text`.
    let behind = rest.splitn(3, ':').nth(2).unwrap_or_default().trim_start();
    let is_compiler = ["error: ", "fatal error: "].iter().any(|words| behind.starts_with(words));
    is_file
        && !is_compiler
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !rest.contains("Warning: ")
        && rest.as_bytes().get(number.len()).is_some_and(|byte| b":-".contains(byte))
        && rest.as_bytes().get(number.len() + 1) != Some(&b' ')
}

/// Whether the lines before make it a quotation: a commit's message, a patch, a document's indented block.
pub(crate) fn by_context(before: &str, raw_indent: usize, text: &str) -> bool {
    in_patch(before, text) || (raw_indent >= 4 && (in_commit(before) || in_document(before)))
}

fn in_patch(before: &str, text: &str) -> bool {
    let marked = text.starts_with(['+', '-']) || text.starts_with(' ');
    let mut lines = before.lines().rev().take(200);
    marked && lines.any(|line| line.starts_with("@@ -") || line.starts_with("diff --git "))
}

/// `commit`, `Author:` and `Date:` above lines that are all indented.
pub(crate) fn in_commit(before: &str) -> bool {
    let mut lines = before.lines().rev().take(400).skip_while(|line| line.is_empty() || line.starts_with("    "));
    lines.next().is_some_and(|line| line.starts_with("Date: ") || line.starts_with("CommitDate: "))
}

/// An indented block below a sentence of what may happen: what a guide or a README shows, not what happened to who writes.
pub(crate) fn in_advice(before: &str) -> bool {
    const MAY: &[&str] =
        &["if you", "may ", "might ", "you see", "you get", "example", "looks like", "such as", "e.g."];
    const OWN: &[&str] = &["I ", "I'm ", "my ", "My ", "our ", "we "];
    let mut above = before.lines().rev().skip_while(|line| line.starts_with("    ") || line.trim().is_empty());
    let sentence = above.next().unwrap_or_default().trim();
    let small = sentence.to_lowercase();
    let own = OWN.iter().any(|word| sentence.starts_with(word) || sentence.contains(&format!(" {word}")));
    (sentence.ends_with([':', '.']) || sentence.ends_with(" like"))
        && !own
        && MAY.iter().any(|words| small.contains(words))
}

/// A block of Markdown that is indented, below a sentence that ends with a colon or a heading.
fn in_document(before: &str) -> bool {
    let mut lines =
        before.lines().rev().take(200).skip_while(|line| line.starts_with("    ") || line.trim().is_empty());
    let Some(above) = lines.next() else { return false };
    let blank = before.lines().rev().take_while(|line| line.starts_with("    ") || line.trim().is_empty());
    let apart = blank.into_iter().any(|line| line.trim().is_empty());
    let stops = above.ends_with([':', '.']) || above.ends_with(" like");
    let sentence = above.split_whitespace().count() >= 4 && stops && !above.contains("Traceback");
    apart && (above.starts_with("# ") || above.starts_with("## ") || above.starts_with("### ") || sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_around_a_whole_log_is_taken_off() {
        let inside = |head: &str, line: &str| {
            String::from_utf8(Wrapped::of_first_line(head.as_bytes()).inside(line.as_bytes()).to_vec()).unwrap()
        };
        assert_eq!(inside("\n> a\n> b\n", ">   b"), "  b");
        assert_eq!(inside("`a: b`\n", "`a: b`"), "a: b");
        assert_eq!(inside("`a\nb`\n", "b `c` d`"), "b `c` d");
        assert_eq!(inside("\u{201c}a\nb\u{201d}\n", "b\u{201d}"), "b");
        assert_eq!(inside("\u{201c}a\u{201d} is b\n", "\u{201c}a\u{201d}"), "\u{201c}a\u{201d}");
        assert_eq!(inside("a\n> b\n", "> b"), "> b");
        assert_eq!(inside("This is what I get:\n\n> Traceback (most recent call last):\n", ">   b"), "  b");
        assert_eq!(inside("Ann wrote:\n> Traceback (most recent call last):\n", "> b"), "> b");
        assert_eq!(inside("```\n`a`\n", "`a`"), "`a`");
        assert_eq!(inside("`a` is b\n", "`a` is b"), "`a` is b");
    }

    #[test]
    fn quotations_are_told_from_logs() {
        let quoted = [
            "> RuntimeError: CUDA error: out of memory",
            "| RuntimeError: CUDA error: out of memory | 3 |",
            "{'text': 'RuntimeError: CUDA error: out of memory', 'label': 1}",
            "a1b2c3d4 (Ann 2024-05-05 10:11:13 +0000 12) RuntimeError: CUDA error: out of memory",
            "docs/faq.md:12:RuntimeError: CUDA error: out of memory",
            "- fixed: RuntimeError: CUDA error: out of memory",
        ];
        for text in quoted {
            assert!(by_itself(&Line::new(text.as_bytes())), "{text}");
        }
        let said = [
            "| WARNING: ran out of memory with exception: CUDA out of memory.",
            "{\"message\": \"RuntimeError: CUDA error: out of memory\", \"level\": \"error\"}",
            "train.py:12: UserWarning: x",
            "ops.cu:12:3: fatal error: torch/torch.h: No such file or directory",
            "RuntimeError: CUDA error: out of memory",
        ];
        for text in said {
            assert!(!by_itself(&Line::new(text.as_bytes())), "{text}");
        }
        assert!(by_context("commit a\nAuthor: A\nDate:   Mon\n\n    Fix it\n\n", 4, "RuntimeError: x"));
        assert!(by_context("diff --git a b\n@@ -1 +1 @@\n x\n", 0, "+RuntimeError: x"));
        assert!(by_context("# Help\n\nThe job may print:\n\n", 4, "Killed"));
        assert!(by_context("# Help\n\nIt may print something like\n\n", 4, "Killed"));
        assert!(!by_context("Traceback (most recent call last):\n", 4, "Killed"));
    }
}
