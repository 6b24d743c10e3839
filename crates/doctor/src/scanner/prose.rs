//! Texts about failures that are no logs: guides, questions and answers, reports in sentences.

use super::{HEAD as LONGEST_HEAD, Scanner};
use crate::exception::exception_stated;
use crate::line::Line;
use crate::quote::Wrapped;
use crate::stamp::Stamp;
use crate::text::has_phrase;
use crate::traceback::HEAD;

/// A longer text is a log.
const LONGEST: u64 = 300;
/// Sentences that make a text prose, and words that make a sentence.
const SENTENCES: usize = 3;
const WORDS: usize = 6;
const PARAGRAPHS: usize = 3;
/// Who writes of himself shows what happened to him.
const OF_ONESELF: &[&str] = &[" my ", " our ", "My ", "I'm ", " me ", " we ", "We ", "anks", "Hi", "Hello", "help"];

impl Scanner {
    /// What is put around the whole log, by its first lines that say anything.
    pub(super) fn around(&mut self) -> Wrapped {
        if let Some(around) = self.around {
            return around;
        }
        let around = Wrapped::of_first_line(&self.head);
        // What follows a first sentence may not have come yet.
        let is_known = self.head.len() >= LONGEST_HEAD || Wrapped::has_two_lines(&self.head);
        self.around = is_known.then_some(around);
        around
    }
}

/// Whether a whole text of so many lines is sentences for the most part, and ends with one: a line of a log in it is
/// quoted.
pub(super) fn is_document(text: &str, lines: u64) -> bool {
    if lines > LONGEST || text.lines().count() as u64 + 1 < lines {
        return false;
    }
    let said: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let sentences = said.iter().filter(|line| is_sentence(line)).count();
    let ends = said.last().is_some_and(|line| is_sentence(line));
    let of_oneself = said.iter().any(|line| {
        line.starts_with("I ") || has_phrase(line, " I ") || OF_ONESELF.iter().any(|words| has_phrase(line, words))
    });
    let raised = said.iter().any(|line| has_phrase(line, HEAD) || exception_stated(line, true).is_some());
    let paragraphs = text.trim().split("\n\n").count();
    ends && paragraphs >= PARAGRAPHS && sentences >= SENTENCES && sentences * 2 >= said.len() && !of_oneself && !raised
}

/// Takes the backticks off the last line of a text in which somebody writes of himself: that is what his log said.
pub(super) fn unquote_last(text: &str, closing: &mut [(Line, u64)]) {
    let Some((line, _)) = closing.first_mut() else { return };
    let inside = line.text.strip_prefix('`').and_then(|text| text.strip_suffix('`')).filter(|text| !text.contains('`'));
    let stated = inside.filter(|text| exception_stated(text, true).is_some_and(|(_, said)| !said.is_empty()));
    let own = || text.lines().any(|line| line.starts_with("I ") || has_phrase(line, " I ") || has_phrase(line, " my "));
    if let Some(stated) = stated.filter(|_| own()) {
        line.text = stated.to_owned();
    }
}

/// What stands in quotation marks in a sentence about how a job ended: not in one about what may happen, or happened once.
pub(super) fn told_error(line: &str) -> Option<&str> {
    const ENDED: &[&str] =
        &["fail", "die", "crash", "stop", "end", "abort", "kill", "exit", "get", "got", "throw", "rais"];
    const BEFORE: &[&str] =
        &["error", "errors", "message", "with", "says", "saying", "exception", "following", "is", "by"];
    const NOT_NOW: &[&str] = &[
        "if ",
        "when ",
        "may ",
        "might ",
        "can ",
        "could ",
        "would ",
        "should ",
        "will ",
        "sometimes",
        "fixed",
        "solved",
        "no longer",
        "used to",
        "previous",
        "earlier",
        "example",
        "retr",
        "ignor",
        "not ",
        "n't ",
        "avoid",
        "prevent",
        "handle",
        "caught",
        "catch",
        "e.g.",
        "such as",
        "warning",
        "instead of",
        "whether",
    ];
    const MARKS: [(char, char); 4] = [('"', '"'), ('\u{201c}', '\u{201d}'), ('`', '`'), ('\u{ab}', '\u{bb}')];
    let places = MARKS.iter().filter_map(|(open, close)| {
        let (head, rest) = line.split_once(*open)?;
        Some((head, rest.rsplit_once(*close)?.0))
    });
    let (head, said) = places.min_by_key(|(head, _)| head.len())?;
    let small = head.to_lowercase();
    let last = small.trim_end_matches([':', ',', ' ']).rsplit(' ').next().unwrap_or_default();
    let ended = small.split(' ').any(|word| ENDED.iter().any(|start| word.starts_with(start)));
    let is_told = small.split_whitespace().count() >= 3 && ended && BEFORE.contains(&last);
    let is_now = !NOT_NOW.iter().any(|words| has_phrase(&small, words)) && !line.trim_end().ends_with('?');
    (is_told && is_now).then_some(said)
}

/// Words without times, levels and numbers between them, up to a stop.
fn is_sentence(line: &str) -> bool {
    let line = line.trim_start_matches(['\u{2022}', '-', '*', '#', ' ']);
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphabetic() || ",.;:'()-!?\u{2019}\"".contains(c));
    let words: Vec<&str> = line.split_whitespace().collect();
    let plain = words.iter().filter(|word| is_word(word)).count();
    let stops = line.ends_with(['.', ':', ';', '?', '!']);
    let level = ["ERROR", "INFO", "WARN", "rror: ", "FATAL"].iter().any(|level| has_phrase(line, level));
    let opens = line.starts_with(char::is_alphabetic);
    words.len() >= WORDS && plain * 10 >= words.len() * 8 && stops && opens && !level && Stamp::of_line(line).is_none()
}

#[cfg(test)]
mod tests {
    use crate::{Scanner, Source, diagnose};

    fn class(text: &str) -> Option<&'static str> {
        let mut scanner = Scanner::new();
        scanner.feed(text.as_bytes());
        let sources = [Source { scan: scanner.finish(), ..Source::default() }];
        diagnose(&sources).root.map(|root| root.finding.class().name())
    }

    const LINE: &str = "slurmstepd: error: Detected 1 oom-kill event(s) in step 7.batch cgroup\n";

    #[test]
    fn an_error_told_in_a_sentence_is_what_ended_the_job() {
        let said = [
            ("My job died with the error \"RuntimeError: rows of 3 and 4 cannot be stacked\"", Some("raised")),
            (
                "It ends each night with \"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\".",
                Some("time_limit"),
            ),
            ("If the job died with the error \"RuntimeError: rows of 3\"", None),
            ("The job no longer fails with the error \"RuntimeError: rows of 3\"", None),
            ("The log of the tokenizer says \"all rows are read\"", None),
        ];
        for (text, expected) in said {
            assert_eq!(class(&format!("step 1 loss 2.0\n{text}\n")), expected, "{text}");
        }
    }

    #[test]
    fn a_guide_that_shows_a_line_of_a_log_is_no_log() {
        let guide = format!(
            "What the scheduler may print\n\nA job that takes too much of a node's memory is ended with such a line:\n\n{LINE}\n\
             It means that more was taken than had been asked for.\n\nAsk for more in the job's script, or load the data in parts.\n"
        );
        assert_eq!(class(&guide), None);
        let question = format!(
            "Hello, my job ends at the second epoch with this line each time:\n\n{LINE}\nWhat can I do about it?\n"
        );
        assert_eq!(class(&question), Some("host_memory"));
        assert_eq!(
            class(&format!("loading the rows of the first part now.\nepoch 1 of 3 begins\n{LINE}")),
            Some("host_memory")
        );
    }
}
