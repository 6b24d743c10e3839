//! [`Again`]: a log's first lines, known when they come again: a program is started once more, by a script's loop or by
//! hand. And which lines a program cannot have held back until it ended.

use std::collections::HashSet;

use crate::error_words::is_error;
use crate::last_words::is_native_frame;
use crate::life::{has_fraction, letters_of};
use crate::line::Line;
use crate::progress::Progress;
use crate::text::has_phrase;
use crate::traceback::{HEAD, is_frame};

/// First lines that are known again.
const MOST_KNOWN: usize = 32;
/// Lines that a log of many runs begins each of them with.
const VERY_FIRST: usize = 8;
/// Letters of a line that is known by them.
const SHORTEST: usize = 10;
/// Lines between two that come again together.
const NEAR: u64 = 12;
/// More bytes than C and Python hold back of an output that goes to a file: 8 KiB.
const HELD_BACK: usize = 12 << 10;
/// Places that are kept.
const MOST_PLACES: usize = 64;

/// What a log began with, and where that came again.
#[derive(Default)]
pub(crate) struct Again {
    /// The letters of the first lines, each of which stood once; `None` before anything was found.
    known: Option<Vec<String>>,
    /// Whether the very first lines are known, however often they stood: a log of many runs.
    is_loose: bool,
    /// The first two lines, figures included.
    opening: Vec<String>,
    /// The line in which the first of them came again.
    opened: Option<u64>,
    /// The last one that came again: which, and in what line.
    last: Option<(usize, u64)>,
    /// Lines in which two of them came again, in their order.
    pub(crate) lines: Vec<u64>,
}

impl Again {
    /// One that knows the very first lines, however often they stood.
    pub(crate) fn loose() -> Self {
        Self { is_loose: true, ..Self::default() }
    }

    /// Learns what stood before `line`, in which the first finding stands, of a log that begins with `head`.
    pub(crate) fn learn(&mut self, head: &[u8], line: u64) {
        let is_loose = self.is_loose;
        if self.known.is_none() && !is_loose {
            self.opening = opening_lines(head, line);
        }
        self.known.get_or_insert_with(|| first_lines(head, line, is_loose));
    }

    /// Whether the first two lines come again, one below the other and figures included: a count begins anew.
    fn opens(&mut self, text: &str, number: u64) -> bool {
        let [first, second] = self.opening.as_slice() else { return false };
        let is_second = *second == text && self.opened.is_some_and(|opened| opened + 1 == number);
        self.opened = if *first == text { Some(number) } else { None };
        is_second
    }

    /// A line after a finding.
    pub(crate) fn line(&mut self, text: &str, number: u64) {
        if self.opens(text, number) {
            keep(&mut self.lines, number - 1);
            return;
        }
        let Some(known) = self.known.as_ref().filter(|known| !known.is_empty() && text.len() >= SHORTEST) else {
            return;
        };
        let start: String = letters(text).take(4).collect();
        if !known.iter().any(|known| known.starts_with(&start)) {
            return;
        }
        let own = letters_of(text);
        let Some(at) = known.iter().position(|known| *known == own) else { return };
        let follows = self.last.is_some_and(|(before, line)| before < at && number > line && number <= line + NEAR);
        if let Some((_, line)) = self.last.filter(|_| follows) {
            keep(&mut self.lines, line);
        }
        self.last = Some((at, number));
    }
}

/// Of more places, the last ones count.
fn keep(lines: &mut Vec<u64>, line: u64) {
    if lines.len() >= MOST_PLACES {
        lines.remove(0);
    }
    lines.push(line);
}

/// The first two lines that say anything, where they stand before `line`; what nohup says comes first and says nothing.
fn opening_lines(head: &[u8], line: u64) -> Vec<String> {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let text = String::from_utf8_lossy(head);
    let said = text.lines().take(before).map(|text| Line::new(text.as_bytes()).text);
    let said = said.filter(|text| !text.is_empty() && !text.starts_with("nohup: "));
    let opening: Vec<String> = said.take(2).collect();
    let is_usable = |text: &String| text.len() >= SHORTEST && !is_error(text) && !has_phrase(text, HEAD);
    if opening.len() == 2 && opening.iter().all(is_usable) { opening } else { Vec::new() }
}

fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|letter| letter.is_alphabetic())
}

/// The letters of the lines before `line` that stand there once and are of no table, or of the very first; a traceback
/// begins nothing.
fn first_lines(head: &[u8], line: u64, is_loose: bool) -> Vec<String> {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let text = String::from_utf8_lossy(head);
    let starts = text.lines().take(before).take_while(|text| !has_phrase(text, HEAD));
    let read = starts.map(|text| Line::new(text.rsplit('\r').next().unwrap_or(text).as_bytes()).text);
    let all: Vec<(String, bool)> = read.map(|text| (letters_of(&text), is_of_a_start(&text))).collect();
    let once = |own: &String| all.iter().filter(|(other, _)| other == own).count() == 1;
    let read = if is_loose { VERY_FIRST } else { all.len() };
    let usable = all
        .iter()
        .take(read)
        .filter(|(own, is_usable)| *is_usable && own.chars().count() >= SHORTEST && (is_loose || once(own)));
    let mut known: Vec<String> = usable.map(|(own, _)| own.clone()).take(MOST_KNOWN).collect();
    known.dedup();
    known
}

/// Whether a line may be of a program's start: no row with figures, no error, nothing that a site's prolog and its epilog
/// both say of the job.
pub(crate) fn is_of_a_start(text: &str) -> bool {
    const OF_A_JOB: &[&str] =
        &["job", "user", "account", "partition", "qos", "queue", "node", "host", "cluster", "resource", "director"];
    let key = text.split_once(':').map(|(key, _)| key.to_lowercase()).unwrap_or_default();
    let is_of_a_job = key.len() < SHORTEST * 2 && OF_A_JOB.iter().any(|word| has_phrase(&key, word));
    // LSF's report of a job stands above the next one's where a log is appended to; its figures are `CPU time :    187.00 sec.`
    let begins_end = ["Exited with ", "TERM_", "Read file <"].iter().any(|start| text.starts_with(start));
    let is_of_an_end = begins_end || has_phrase(text, " :  ");
    !is_of_a_job
        && !is_of_an_end
        && !has_fraction(text)
        && !is_error(text)
        && Progress::of_line(text, 1, None).is_none()
}

/// The first of the last lines that have more than [`HELD_BACK`] bytes, where a third of them at least are told once and no debugger
/// or library in the background writes them; else 0.
pub(crate) fn late_line(tail: &str, lines: u64) -> u64 {
    let Some(cut) = tail.len().checked_sub(HELD_BACK) else { return 0 };
    let late = String::from_utf8_lossy(tail.as_bytes().get(cut..).unwrap_or_default());
    let mut told: Vec<&str> = late.lines().filter(|line| is_of_work(line)).collect();
    let count = late.lines().count();
    told.sort_unstable();
    told.dedup();
    if 3 * told.len() < count { 0 } else { lines.saturating_sub(count as u64) }
}

/// What is written after a finding, up to more bytes than a program holds back.
#[derive(Default)]
pub(crate) struct Written {
    bytes: usize,
    count: usize,
    told: HashSet<String>,
}

impl Written {
    /// A line; whether, with it, more was written than was held back, of which a third at least was told once.
    pub(crate) fn line(&mut self, line: &Line) -> bool {
        let text = line.text.as_str();
        let of_an_end =
            line.indent > 1 || is_error(text) || is_native_frame(text) || is_frame(text) || !is_of_work(text);
        if of_an_end || self.bytes > HELD_BACK {
            return false;
        }
        self.bytes += text.len() + 1;
        self.count += 1;
        self.told.insert(text.to_owned());
        self.bytes > HELD_BACK && 3 * self.told.len() >= self.count
    }
}

/// Whether no debugger or library in the background writes the line.
fn is_of_work(line: &str) -> bool {
    !["DEBUG", "NCCL INFO"].iter().any(|words| has_phrase(line, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_the_first_lines_in_their_order_are_a_new_start() {
        let found = |head: &[u8], first: u64, after: &[&str]| {
            let mut again = Again::default();
            again.learn(head, first - 1);
            after.iter().zip(first..).for_each(|(text, number)| again.line(text, number));
            again.lines
        };
        let head = b"==== seed 1 begins ====\nreading the corpus of plays\nbuilding a small model\nepoch 1 loss 2.31\nKeyError\n";
        let lines_of = |after: &[&str]| found(head, 6, after);
        assert_eq!(lines_of(&["x", "==== seed 2 begins ====", "reading the corpus of plays"]), [7]);
        assert!(lines_of(&["building a small model", "reading the corpus of plays", "epoch 1 loss 2.31"]).is_empty());
        let counts = |after: &[&str]| found(b"has read 0 rows\nhas read 1000 rows\nhas read 2000 rows\n", 5, after);
        assert_eq!(counts(&["x", "has read 0 rows", "has read 1000 rows"]), [6]);
        assert!(counts(&["has read 3000 rows", "has read 4000 rows", "has read 1000 rows"]).is_empty());
        // Of many the last ones are kept.
        let many = ["==== seed 2 begins ====", "reading the corpus of plays"].repeat(90);
        assert_eq!(lines_of(&many).last(), Some(&184));
    }
}
