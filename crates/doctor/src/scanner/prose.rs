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

/// A longer text is no page of a thread.
const LONGEST_PAGE: u64 = 80;

/// What says that a text advises or proposes.
const ADVISES: &[&str] = &[
    "the error you get",
    "try a smaller",
    "if you",
    "if any",
    "when you",
    "you can",
    "you should",
    "you need",
    "to fix",
    "to avoid",
    "to solve",
    "workaround",
    "this pr",
    "this patch",
    "this change",
    "pull request",
    "adds ",
    "added ",
    "add `",
    "add '",
    "set `",
    "instead of",
    "retries ",
    "would be",
    "should be",
    "we should",
    "feature",
    "propos",
];
/// What says that it is over.
const OVER: &[&str] = &["fixed", "solved", "resolved", "no longer", "worked for me", "works now", "works fine now"];

/// The lines in which a text that advises, proposes or tells of what is mended quotes what logs say: all within its
/// blocks, and its sentences. It begins and ends with sentences, and what is no sentence is in blocks.
pub(super) fn talked_of(text: &str, lines: u64) -> Option<Vec<u64>> {
    if lines > LONGEST_PAGE || text.lines().count() as u64 + 1 < lines || raises_below(text) {
        return None;
    }
    let mut is_open = false;
    let mut places: Vec<(bool, &str)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_open ^= is_fence;
        places.push((is_open || is_fence, line));
    }
    let said = || places.iter().filter(|(inside, line)| !inside && !line.is_empty()).map(|(_, line)| *line);
    let small = said().collect::<Vec<&str>>().join("\n").to_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| has_phrase(&small, words));
    let of_oneself = said().any(|line| {
        line.starts_with("I ") || has_phrase(line, " I ") || OF_ONESELF.iter().any(|words| has_phrase(line, words))
    });
    let ends = places.iter().rev().find(|(_, line)| !line.is_empty()).is_some_and(|(inside, _)| !inside);
    let opens = places.iter().find(|(_, line)| !line.is_empty()).is_some_and(|(inside, _)| !inside);
    // An exception that stands between blank lines is shown as a block is.
    let is_apart = |at: usize| {
        let blank = |at: Option<usize>| at.and_then(|at| places.get(at)).is_some_and(|(_, line)| line.is_empty());
        blank(at.checked_sub(1)) && blank(at.checked_add(1)) && !of_oneself
    };
    let is_shown = |at: usize, line: &str| is_talk(line) || (is_apart(at) && exception_stated(line, true).is_some());
    let outside = || places.iter().enumerate().filter(|(_, (inside, line))| !inside && !line.is_empty());
    let is_prose = said().next().is_some_and(is_talk)
        && said().next_back().is_some_and(is_talk)
        && outside().all(|(at, (_, line))| is_shown(at, line));
    let is_of_others = has(OVER) || (has(ADVISES) && !of_oneself && !has_phrase(&small, "?"));
    let quoted = (1..).zip(&places).filter(|(_, (_, line))| !line.is_empty()).map(|(number, _)| number);
    (!is_open && opens && ends && is_prose && is_of_others).then(|| quoted.collect())
}

/// Whether a line is an exception's name and a colon, and what it says stands indented in the next, as Python prints a
/// message that begins with a line's end.
fn raises_below(text: &str) -> bool {
    let is_head = |line: &str| {
        let stated = exception_stated(line, true).filter(|(name, _)| name.ends_with("Error"));
        line.trim_end().ends_with(':') && stated.is_some_and(|(_, message)| message.is_empty())
    };
    let is_indented = |line: &str| line.starts_with([' ', '\t']) && !line.trim().is_empty();
    text.lines().zip(text.lines().skip(1)).any(|(head, below)| is_head(head) && is_indented(below))
}

/// Words as people write them, with or without a stop; no line of a log.
fn is_talk(line: &str) -> bool {
    let line = line.trim_start_matches(['\u{2022}', '-', '*', '#', '>', ' ']);
    let is_word = |word: &&str| {
        let word = word.trim_matches(|c: char| ",.;:'()!?\u{2019}\"`*".contains(c));
        word.is_empty() || word.chars().all(|c| c.is_alphabetic() || "-'\u{2019}/_".contains(c))
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let plain = words.iter().filter(|word| is_word(word)).count();
    let level = ["ERROR", "INFO", "WARN", "FATAL", "CRITICAL", "[rank"].iter().any(|level| has_phrase(line, level));
    let is_head = line.starts_with(char::is_alphabetic) || line.starts_with('`') || line.starts_with('@');
    let states = exception_stated(line, true).is_some_and(|(_, message)| !message.is_empty());
    let short = words.len() <= 3 && line.ends_with([':', '.', '!']);
    (words.len() >= 4 || short)
        && plain * 10 >= words.len() * 7
        && is_head
        && !level
        && !states
        && Stamp::of_line(line).is_none()
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

/// How a question begins that is not about what happened.
const ASKS: &[&str] = &["what ", "why ", "how ", "does ", "do ", "is ", "has ", "have "];
/// What is said behind a quotation of what is expected, wished for or over.
const OVER_NOW: &[&str] = &[
    "would be",
    "feature",
    "workaround",
    "expected",
    "normal",
    "fine",
    "fixed",
    "solved",
    "gone",
    "resolved",
    "usually",
];

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
    let behind = line.rsplit_once(['"', '\u{201d}', '`', '\u{bb}']).map_or("", |(_, behind)| behind).to_lowercase();
    let is_asked = ASKS.iter().any(|word| small.starts_with(word));
    let is_over = OVER_NOW.iter().any(|words| has_phrase(&behind, words));
    let is_now = !NOT_NOW.iter().any(|words| has_phrase(&small, words)) && !is_asked && !is_over;
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
    fn a_page_that_advises_or_tells_of_what_is_over_is_no_log() {
        let quiet = [
            "If any of you meets this in the second stage\n\n```\nValueError: the scale is too small\n```\n\nadd '--scale 2' to the script.\n",
            "I had this error on two nodes too. After setting `NCCL_SOCKET_IFNAME` as the page says the NCCL error got fixed.\n",
            "This PR retries the download of the weights\n```\nrequests.exceptions.ConnectionError: read timed out\n```\nand adds a test for it.\n",
        ];
        for text in quiet {
            assert_eq!(class(text), None, "{text}");
        }
        let own =
            "My training ends like this:\n```\nValueError: the scale is too small\n```\nWhat should I do about it?\n";
        assert_eq!(class(own), Some("raised"));
    }

    #[test]
    fn a_message_below_its_exception_is_no_talk() {
        let raised = "The setup of the kernels did not find a library.\nRuntimeError: \n    Look at the lines above to fix your paths!\n";
        assert_eq!(class(raised), Some("raised"));
        let page = "RuntimeError:\nLook at the lines above to fix your paths!\n";
        assert_eq!(class(&format!("The page says how to fix your paths.\n{page}")), None);
    }

    #[test]
    fn an_error_told_in_a_sentence_is_what_ended_the_job() {
        let said = [
            ("My job died with the error \"RuntimeError: rows of 3 and 4 cannot be stacked\"", Some("raised")),
            (
                "It ends each night with \"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\".",
                Some("time_limit"),
            ),
            (
                "The jobs are ended with \"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\". A hook would be nice.",
                None,
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
