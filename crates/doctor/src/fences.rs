//! [`Fences`]: blocks of Markdown, in which documents quote what logs say.

use crate::line::Line;

/// How many blocks have begun, and whether one is open.
#[derive(Default)]
pub(crate) struct Fences {
    begun: usize,
    first_line: u64,
    is_open: bool,
}

impl Fences {
    /// The number of the block that is open; 0 where none is.
    pub(crate) const fn current(&self) -> usize {
        if self.is_open { self.begun } else { 0 }
    }

    /// A line that has a fence somewhere.
    pub(crate) fn line(&mut self, line: &Line, number: u64) {
        // In a chat behind who says it.
        if !line.text.starts_with("```") && !line.text.ends_with(": ```") {
            return;
        }
        self.is_open = !self.is_open;
        if self.is_open {
            self.begun += 1;
        }
        if self.first_line == 0 {
            self.first_line = number;
        }
    }

    /// The last block whose contents are quoted: in a document all that are closed, in a log none.
    pub(crate) fn quoted(&self, head: &[u8]) -> usize {
        let closed = if self.is_open { self.begun.saturating_sub(1) } else { self.begun };
        if self.first_line > 1 && is_document(head) { closed } else { 0 }
    }
}

/// Lines of a chat, `[14:02] ann: text`, that make a text one.
const SAID: usize = 3;

/// Whether a text is a chat for the most part, of people who quote what a log said: `<ann> text` (IRC), or names with the
/// time above what they wrote (Slack, Teams).
pub(crate) fn is_only_chat(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let lines: Vec<&str> = head.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_name = |name: &str| {
        let first = name.chars().next().is_some_and(char::is_alphabetic);
        first && name.len() < 32 && name.chars().all(|c| c.is_alphanumeric() || "_.- ".contains(c))
    };
    let is_time = |text: &str| {
        let time = text.trim_matches(['[', ']', ' ']);
        let time = time.strip_suffix("AM").or_else(|| time.strip_suffix("PM")).unwrap_or(time).trim_end();
        time.split_once(':').is_some_and(|(hour, minute)| {
            (1..=2).contains(&hour.len())
                && minute.len() == 2
                && hour.parse::<u8>().is_ok()
                && minute.parse::<u8>().is_ok()
        })
    };
    let is_said = |line: &&&str| {
        let line = line.split_once(' ').filter(|(time, _)| is_time(time)).map_or(**line, |(_, rest)| rest);
        line.strip_prefix('<').and_then(|line| line.split_once("> ")).is_some_and(|(name, _)| is_name(name.trim()))
    };
    let is_head = |line: &&&str| {
        let half = line.split_once("  ").or_else(|| line.split_once(" [")).filter(|(name, _)| is_name(name));
        half.is_some_and(|(_, time)| is_time(time))
    };
    let said = lines.iter().filter(is_said).count();
    let heads = lines.iter().filter(is_head).count();
    let bracketed = lines.iter().filter(|line| is_bracketed(line)).count();
    (bracketed >= SAID && bracketed * 4 >= lines.len() * 3)
        || (said >= SAID && said * 2 >= lines.len())
        || (heads >= SAID && heads * 4 >= lines.len())
}

/// `[14:02] ann: text`
fn is_bracketed(line: &str) -> bool {
    let (time, rest) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).unwrap_or_default();
    let name = rest.split_once(": ").map_or("", |(name, _)| name);
    time.len() == 5 && time.contains(':') && !name.is_empty() && name.chars().all(char::is_alphanumeric)
}

fn is_chat(head: &str) -> bool {
    head.lines().filter(|line| is_bracketed(line)).count() >= SAID
}

/// Whether a text is a document rather than a log: a chat, or it begins with a heading of Markdown.
pub(crate) fn is_document(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    is_chat(&head)
        || head.lines().any(|line| {
            let rest = line.trim_start_matches('#');
            // Go's, above what it could not build.
            let is_package = rest.contains('/') && !rest.trim().contains(' ');
            let is_headed = (1..=4).contains(&(line.len() - rest.len())) && rest.starts_with(' ');
            is_headed && rest.trim().len() > 2 && !is_package
        })
}
