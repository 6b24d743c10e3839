//! What a log ends with: its closing lines, read for words that are what ended it there and talk elsewhere.

use tonnage_core::failure::{Class, Strength};

use super::onward::{
    goes_on, is_gone_on_from, is_habit, is_long_past, is_passed_over, is_said_again, is_said_before, trained_up_to,
};
use super::{Scanner, prose, reports};
use crate::built;
use crate::cause::{FailureCause, Worker};
use crate::code;
use crate::error_words;
use crate::exception::{Exception, Files, Place, Raiser, exception_stated as stated_exception};
use crate::fences::is_document;
use crate::finding::{Finding, LastError, Tone};
use crate::history::lines_around;
use crate::julia;
use crate::last_words;
use crate::leftovers;
use crate::line::Line;
use crate::progress::{Progress, is_success, is_tests_end};
use crate::quote::{self, Wrapped};
use crate::signature::SIGNATURES;
use crate::text::{has_phrase, integer_after};
use crate::traceback::{CutOff, Ended, HEAD, cut_text, is_frame};
use crate::waiting::LONGEST_EVIDENCE;

/// Closing lines that are read for what a log ends with.
pub(super) const CLOSING: usize = 40;
/// What a finding's signature is called where its words count as a log's last ones alone.
const LAST_WORDS: &str = "last_words";
/// What was found in the last lines, this many, explains the end.
const SAME_END: u64 = 200;
/// An exception without a traceback and an error that are so many lines apart are two.
const APART: u64 = 8;
/// Lines of something else behind the error that a log ends with.
const MOST_OTHERS: usize = 3;
/// The same exception so few lines later is another thread's, whose traceback was written between the lines of the first.
const ECHO: u64 = 3;
/// Bytes of an error's own words that are kept beside the line.
const LONGEST_DETAIL: usize = 200;

impl Scanner {
    /// What ends the log without a traceback, as excerpts have it: an exception, fixed words of a shell or scheduler,
    /// or an error in words of a program's own.
    pub(super) fn last_words(&mut self, tail: &str) {
        let mut closing = closing_lines(tail, self.lines, self.around());
        prose::unquote_last(tail, &mut closing);
        let error = closing.iter().find(|(line, _)| {
            error_words::is_error(&line.text) && !quote::by_itself(line) && !code::is_code(&line.text)
        });
        self.last_error = error
            .map(|(line, number)| LastError { line: *number, text: cut_text(&line.text, LONGEST_EVIDENCE).to_owned() });
        let well = closing.iter().find(|(line, _)| is_good_end(line)).map(|(_, number)| *number);
        self.ended_well = well.filter(|well| self.last_error.as_ref().is_none_or(|error| error.line < *well));
        self.last_said = closing.first().map_or(0, |(_, number)| *number);
        let frames = closing.iter().filter(|(line, _)| last_words::is_native_frame(&line.text)).count();
        self.ends_in_dump = frames > CLOSING / 2;
        let is_document = is_document(&self.head);
        let mut weak = None;
        let is_said = self.records_its_end(tail)
            || self.states_its_end(&closing, &mut weak)
            || (!is_document && self.reports_its_end(&closing));
        if !is_said && !is_document {
            self.speaks_of_its_end(&closing);
        }
        self.tells_of_workers(&closing, weak);
        if !is_said {
            self.tells_of_its_end(&closing);
        }
        if self.kept.findings().is_empty() {
            self.has_its_exit_code(tail, &closing);
        }
    }

    /// Where the log ends within a traceback and nothing else explains its end: how far that had got.
    pub(super) fn cut_off(&mut self, cut_off: Option<&CutOff>, tail: &str) {
        let explains = self.kept.findings().iter().any(|finding| finding.strength() >= Strength::Death);
        let Some(cut) = cut_off.filter(|_| !explains && !is_document(&self.head)) else { return };
        let Place { file, line, function } = &cut.place;
        let at = |number: u64| {
            let back = usize::try_from(self.lines.saturating_sub(number)).unwrap_or(usize::MAX);
            Line::new(tail.lines().rev().nth(back).unwrap_or_default().as_bytes())
        };
        // Its last code says what was being done, or what was raised; a frame alone says neither.
        let code = (cut.line + 1..=self.lines).rfind(|number| !at(*number).text.is_empty());
        let number = code.unwrap_or(cut.head);
        let mut evidence = at(number);
        let raised = evidence.text.strip_prefix("raise ").and_then(last_words::shown_exception);
        let cause = if cut.files.launcher {
            FailureCause::WorkerFailed(Worker::default())
        } else if let Some((name, message)) = raised {
            FailureCause::Raised(Exception::new(name, cut_text(message, LONGEST_DETAIL), &cut.files))
        } else {
            let detail = Some(format!("the log ends within a traceback, at {file}:{line} in {function}"));
            FailureCause::Stated { class: Class::Reported, detail }
        };
        evidence.rank = cut.rank;
        // What stands in a traceback is indented by nature.
        evidence.indent = 0;
        self.keep_last_words(&evidence, number, cause);
    }

    /// What somebody says in a sentence that his job ended with: `it died with the error "KeyError: 'a'"`.
    fn tells_of_its_end(&mut self, closing: &[(Line, u64)]) {
        if !self.kept.findings().is_empty() {
            return;
        }
        for (line, number) in closing.iter().take(last_words::READ) {
            let Some(said) = prose::told_error(&line.text) else { continue };
            let mut inner = Self::new();
            inner.feed(said.as_bytes());
            let found = inner.finish().findings.into_iter().max_by_key(Finding::strength);
            if let Some(finding) = found.filter(|finding| finding.strength() >= Strength::Ending) {
                self.keep_finding(Finding { line: *number, last_line: *number, ..finding });
                return;
            }
        }
    }

    /// The last line of what explains the log's end so far.
    fn known_up_to(&self, least: Strength) -> u64 {
        let explains = |finding: &&Finding| finding.strength() >= least;
        let found = self.kept.findings().iter().filter(explains).map(|finding| finding.last_line).max();
        found.unwrap_or(0).max(self.ignored)
    }

    /// That processes failed, as mpirun says in the closing line of `weak`, where none says what of.
    fn tells_of_workers(&mut self, closing: &[(Line, u64)], weak: Option<(usize, FailureCause)>) {
        let explains = self.known_up_to(Strength::Ending) > 0;
        let Some((at, cause)) = weak.filter(|_| !explains) else { return };
        if let Some((line, number)) = closing.get(at) {
            self.keep_last_words(line, *number, cause);
        }
    }

    /// An exception or fixed words; whether there were any. What mpirun says of its processes is `weak` beside
    /// what one of them says.
    fn states_its_end(&mut self, closing: &[(Line, u64)], weak: &mut Option<(usize, FailureCause)>) -> bool {
        let known = self.known_up_to(Strength::Ending);
        let last_error = last_error(closing);
        for (at, (line, number)) in closing.iter().enumerate() {
            if *number <= known || is_good_end(line) {
                return false;
            }
            // LSF writes a page of figures behind what it did, scontrol within what it knows of a job.
            let begins = |starts: &[&str]| starts.iter().any(|start| line.text.starts_with(start));
            let is_sure = begins(&["JobState=", "TERM_"]);
            // HTCondor's, below the event.
            let is_below = begins(&["Error from slot", "(1) Normal term", "(0) Abnormal term", "via condor_rm "]);
            let is_inside = line.indent > 1 && !is_sure && !is_below && !is_output(closing, at);
            let is_noise = leftovers::is_of_a_helper(&line.text);
            if is_inside || is_noise || quote::by_itself(line) || code::is_code(&line.text) {
                continue;
            }
            let stated = (at < last_words::READ || is_sure).then(|| last_words::stated_cause(&line.text)).flatten();
            // Who goes on to say something did without the command.
            let stated = stated.filter(|cause| !(cause.class() == Class::Usage && goes_on(closing, at)));
            if let Some(cause) = stated {
                // mpirun's.
                if begins(&["Primary job"]) {
                    weak.get_or_insert((at, cause));
                    continue;
                }
                self.keep_last_words(line, *number, cause);
                return true;
            }
            let Some((name, message)) = exception_of(&line.text, at == 0) else { continue };
            if name == "CommandNotFoundError" && is_gone_on_from(closing, at) {
                continue;
            }
            let is_habitual = name == "Error" && is_said_again(closing, at);
            if is_habitual || is_passed_over(closing, at) || is_long_past(closing, at) {
                return false;
            }
            let near = |it: &Finding| it.last_line < *number && it.last_line + ECHO >= *number;
            if self.kept.findings().iter().any(|it| it.text == line.text && near(it)) {
                return true;
            }
            let message = if message.is_empty() { said_below(closing, at).unwrap_or(message) } else { message };
            let exception = Exception::new(name, cut_text(message, 400), &Files::default());
            // What was written long before another error did not end it.
            if last_error.is_some_and(|error| error > *number + APART) {
                return false;
            }
            // What a launcher says is of a failure that another line may state; a script that could not go into an
            // environment goes on without.
            let is_of_shell = message.starts_with("Run 'conda init' before 'conda ") || name == "CommandNotFoundError";
            if (exception.raiser == Raiser::Launcher || is_of_shell) && !self.kept.findings().is_empty() {
                continue;
            }
            let mut ended = Ended::without_traceback(exception, line, *number);
            ended.rank = ended.rank.or_else(|| spawned_rank(closing, at));
            self.raised(ended, b"");
            return true;
        }
        false
    }

    /// What the last lines speak of by their words, else the last error among them; also where a process aborted and
    /// did not say why.
    fn speaks_of_its_end(&mut self, closing: &[(Line, u64)]) {
        let known = self.known_up_to(Strength::Cause);
        let waited = |finding: &Finding| matches!(finding.class(), Class::NcclTimeout | Class::NcclError);
        let near = known > 0 && self.lines.saturating_sub(known) < SAME_END;
        if near || self.kept.findings().iter().any(waited) {
            return;
        }
        let found: Vec<u64> = self.kept.findings().iter().map(|finding| finding.line).collect();
        let known = known.max(trained_up_to(closing));
        let is_read = |line: &Line, number: u64| found.contains(&number) || self.is_counted(line);
        let unread = closing.iter().filter(|(line, number)| !is_read(line, *number) && !is_below(line));
        let mut errors: Vec<(&Line, u64)> = Vec::new();
        // Lines of something else, and those of them that are not of a program that ends.
        let (mut others, mut ordinary) = (0, 0);
        for (at, (line, number)) in unread.enumerate().take(last_words::READ) {
            let steps = || Progress::of_line(&line.text, *number, None).is_some();
            let counts = error_words::is_counted(&line.text) && !error_words::is_error(&line.text);
            if *number <= known || is_good_end(line) || counts || steps() {
                break;
            }
            // What a library says before it aborts may stand in quotation marks.
            let bare = line.text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            let text = bare.unwrap_or(&line.text);
            let is_quoted = quote::by_itself(&Line { text: text.to_owned(), ..line.clone() }) || code::is_code(text);
            if Tone::of_line(text) == Tone::Warned || is_quoted || error_words::is_noise(text) {
                continue;
            }
            if let Some(cause) = last_words::spoken_cause(text, at) {
                return self.keep_last_words(line, *number, cause);
            }
            let may_be = found.is_empty()
                && !is_habit(closing, place(closing, *number))
                && ((at < last_words::VERY_LAST
                    && (ordinary == 0 || has_phrase(text, " failed: "))
                    && error_words::may_be_error(text))
                    || (at == 0 && error_words::lacks(text) && !is_said_before(closing, place(closing, *number))));
            let at_line = place(closing, *number);
            let is_passed_over =
                text.starts_with("Error: ") && (is_passed_over(closing, at_line) || is_said_again(closing, at_line));
            if is_passed_over || error_words::is_of_tensorflow(text) {
                others += 1;
            } else if may_be || error_words::is_error(text) {
                errors.push((line, *number));
            } else {
                others += 1;
                ordinary += usize::from(!last_words::is_closing(text));
            }
            // Who has something else to say went on after the error.
            let is_hollow =
                !errors.is_empty() && errors.iter().all(|(line, _)| error_words::is_empty_error(&line.text));
            if others > MOST_OTHERS || (last_words::goes_on(text) && !is_hollow) {
                break;
            }
        }
        self.keep_last_error(&errors);
    }

    /// Whether the line is one of many alike that a signature reads, of which only the first and the last are kept.
    fn is_counted(&self, line: &Line) -> bool {
        let read = self.signatures(line, self.needles.signatures(line.text.as_bytes()));
        read.is_some_and(|(at, _)| SIGNATURES.get(at).is_some_and(|it| self.kept.is_full(it.name, line.rank)))
    }

    /// Of errors, the last first, one that says what went wrong; else that something failed.
    fn keep_last_error(&mut self, errors: &[(&Line, u64)]) {
        if errors.iter().any(|(line, _)| built::is_builders_end(&line.text)) && self.keep_first_of_build() {
            return;
        }
        let full = errors.iter().find(|(line, _)| !error_words::is_empty_error(&line.text));
        if let Some((line, number)) = full {
            let detail = Some(cut_text(&line.text, LONGEST_DETAIL).to_owned());
            self.keep_last_words(line, *number, FailureCause::Stated { class: Class::Reported, detail });
        } else if let Some((line, number)) = errors.first().filter(|_| self.kept.findings().is_empty()) {
            self.keep_last_words(line, *number, FailureCause::WorkerFailed(Worker::default()));
        }
    }

    /// What a compiler says first, where a builder ends because of it.
    fn keep_first_of_build(&mut self) -> bool {
        let tail = self.history.text(b"");
        let Some((text, number)) = built::first_error(&tail, self.lines) else { return false };
        let line = Line::new(text.as_bytes());
        let detail = Some(cut_text(&line.text, LONGEST_DETAIL).to_owned());
        self.keep_last_words(&line, number, FailureCause::Stated { class: Class::Reported, detail });
        true
    }

    pub(super) fn keep_last_words(&mut self, line: &Line, number: u64, cause: FailureCause) {
        let history = self.history.text(b"");
        if quote::by_context(&history, line.indent, &line.text) {
            return;
        }
        let mut draft = self.draft(number, line.rank, &line.text, Tone::of_line(&line.text));
        draft.around = lines_around(&history, number, &line.text);
        self.keep_finding(draft.into_finding(cause, LAST_WORDS));
    }
}

/// Whether a line is of a traceback, a stack, a commit or a help text: those are indented.
fn is_below(line: &Line) -> bool {
    (line.indent > 1 && !error_words::is_status(&line.text))
        || has_phrase(&line.text, HEAD)
        || is_frame(&line.text)
        || last_words::is_native_frame(&line.text)
}

/// The last line that calls itself an error, of itself and not of another.
fn last_error(closing: &[(Line, u64)]) -> Option<u64> {
    let own = |(line, _): &&(Line, u64)| {
        let text = line.text.as_str();
        line.indent <= 1
            && error_words::is_error(text)
            && !error_words::is_noise(text)
            && !error_words::is_empty_error(text)
    };
    closing.iter().find(own).map(|(_, number)| *number)
}

/// Whether the line says that all ended well: a training, or a run of tests.
fn is_good_end(line: &Line) -> bool {
    // nbconvert's last words.
    let written = has_phrase(&line.text, "[NbConvertApp] Writing ");
    is_tests_end(&line.text) || is_success(line) || written
}

/// The exception that a closing line states, in any of the forms in which programs do.
fn exception_of(text: &str, is_last: bool) -> Option<(&str, &str)> {
    stated_exception(text.trim_start_matches('*'), true)
        .filter(|(name, _)| text.contains(':') || (is_last && name.ends_with("Error")))
        // `Error: exit status 1` is of who waited for the command.
        .filter(|(name, _)| *name != "Error" || !error_words::is_empty_error(text))
        // `Timeout:      120s` is a setting.
        .filter(|(name, message)| *name != "Timeout" || !message.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        // `Error: 1.31e-01, time: 51.2` is a row of figures.
        .filter(|(name, message)| *name != "Error" || !code::is_row_of_figures(message))
        // Snakemake's, of a rule that it has told of before.
        .filter(|(name, message)| !(name.ends_with("WorkflowError") && reports::is_of_a_rule(message)))
        .or_else(|| last_words::logged_words(text))
        .or_else(|| last_words::shown_exception(text))
}

/// What stands indented below the exception in closing line `at` that says nothing in its own line.
fn said_below(closing: &[(Line, u64)], at: usize) -> Option<&str> {
    let (below, number) = closing.get(at.checked_sub(1)?)?;
    let near = closing.get(at).is_some_and(|(_, own)| *number <= own + ECHO);
    (near && below.indent > 1 && !is_frame(&below.text)).then_some(below.text.as_str())
}

/// Whether closing line `at` is of what a program wrote that pip started, which pip indents.
fn is_output(closing: &[(Line, u64)], at: usize) -> bool {
    let marks = |(line, _): &&(Line, u64)| line.text.ends_with("lines of output]") || line.text == "[end of output]";
    closing.iter().take(at).rev().find(marks).is_some_and(|(line, _)| line.text == "[end of output]")
}

/// The rank that torch.multiprocessing.spawn names above the exception in closing line `at`.
fn spawned_rank(closing: &[(Line, u64)], at: usize) -> Option<u32> {
    let head = |(line, _): &(Line, u64)| integer_after(line.text.strip_prefix("-- Process ")?, "");
    u32::try_from(closing.iter().skip(at).find_map(head)?).ok()
}

/// The closing lines that say anything, the last first, with their numbers.
fn closing_lines(tail: &str, lines: u64, around: Wrapped) -> Vec<(Line, u64)> {
    let numbered = tail.lines().rev().zip((1..=lines).rev()).skip(reports::lines_of_scheduler(tail));
    let last = |text: &str| text.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default().to_owned();
    let read = numbered.map(|(text, number)| (Line::new(around.inside(last(text).as_bytes())), number));
    let has_stack = julia::has_stack(tail);
    let is_frame = |text: &str| has_stack && julia::is_of_stack(text);
    let says = |text: &str| !text.is_empty() && !last_words::is_trailer(text) && !is_frame(text);
    read.filter(|(line, _)| says(&line.text)).take(CLOSING).collect()
}

/// Which of the closing lines has the number.
fn place(closing: &[(Line, u64)], number: u64) -> usize {
    closing.iter().position(|(_, own)| *own == number).unwrap_or(0)
}
