//! What a log ends with: its closing lines, read for words that are what ended it there and talk elsewhere.

use tonnage_core::failure::{Class, Strength};

use super::Scanner;
use crate::exception::{Exception, Raiser, stated as stated_exception};
use crate::finding::{Finding, LastError, Tone};
use crate::history::around;
use crate::last_words;
use crate::line::Line;
use crate::progress::Progress;
use crate::quote;
use crate::text::has;
use crate::traceback::{Ended, cut};
use crate::waiting::LONGEST_EVIDENCE;

/// Closing lines that are read for what a log ends with.
const CLOSING: usize = 40;
/// What a finding's signature is called where its words count as a log's last ones alone.
const LAST_WORDS: &str = "last_words";

impl Scanner {
    /// What ends the log without a traceback, as excerpts have it: an exception, or fixed words of a shell or scheduler.
    pub(super) fn last_words(&mut self, tail: &str) {
        let explains = |finding: &&Finding| finding.strength() > Strength::Echo;
        let known = self.kept.findings().iter().filter(explains).map(|finding| finding.last_line).max().unwrap_or(0);
        let closing = closing_lines(tail, self.lines);
        let error = closing.iter().find(|(line, _)| last_words::is_error(&line.text) && !quote::by_itself(line));
        self.last_error =
            error.map(|(line, number)| LastError { line: *number, text: cut(&line.text, LONGEST_EVIDENCE).to_owned() });
        for (at, (line, number)) in closing.iter().enumerate() {
            if *number <= known {
                return;
            }
            if line.indent > 1 || quote::by_itself(line) {
                continue;
            }
            let stated = (at < last_words::READ).then(|| last_words::stated(&line.text)).flatten();
            // Who goes on to say something did without the command.
            let stated = stated.filter(|cause| !(cause.class() == Class::Usage && goes_on(&closing, at)));
            if let Some(cause) = stated {
                let history = self.history.text(b"");
                let mut draft = self.draft(*number, line.rank, &line.text, Tone::of_line(&line.text));
                draft.around = around(&history, *number, &line.text);
                return self.keep_finding(draft.into_finding(cause, LAST_WORDS));
            }
            let Some((name, message)) = stated_exception(line.text.trim_start_matches('*'), true)
                .filter(|_| line.text.contains(':'))
                .or_else(|| last_words::logged(&line.text))
            else {
                continue;
            };
            let exception = Exception::new(name, cut(message, 400), &Default::default());
            // What a launcher says is of a failure that another line may state.
            if exception.raiser == Raiser::Launcher && !self.kept.findings().is_empty() {
                continue;
            }
            return self.raised(Ended::without_traceback(exception, line, *number), b"");
        }
    }
}

/// The closing lines that say anything, the last first, with their numbers.
fn closing_lines(tail: &str, lines: u64) -> Vec<(Line, u64)> {
    let numbered = tail.lines().rev().zip((1..=lines).rev()).take(CLOSING);
    let last = |text: &str| text.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default().to_owned();
    let read = numbered.map(|(text, number)| (Line::new(last(text).as_bytes()), number));
    read.filter(|(line, _)| !line.text.is_empty()).collect()
}

/// Whether a program, not a launcher that ends others, writes after the closing line `at`.
fn goes_on(closing: &[(Line, u64)], at: usize) -> bool {
    let lives = |(line, number): &(Line, u64)| {
        let launcher = has(&line.text, "[launch.py") || has(&line.text, "[runner.py");
        (has(&line.text, "INFO") && !launcher) || Progress::of_line(&line.text, *number, None).is_some()
    };
    closing.iter().take(at).any(lives)
}
