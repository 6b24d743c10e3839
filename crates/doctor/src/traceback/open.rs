//! [`Open`]: a traceback that has begun: its frames, its place, and the line that ends it.

mod below;

use super::{CutOff, Ended, HEAD, LONGEST, LONGEST_MESSAGE, PATIENCE, cut_text};
use crate::exception::{Exception, Files, Place, exception_stated, is_library};
use crate::life::is_logged as is_logged_line;
use crate::line::Line;
use crate::phase::{Phase, phase_of, phase_of_code};
use crate::prefix::{PACKED, unescape_text};
use crate::text::{find_phrase, has_phrase, integer_after, text_after};

/// Lines that belong to a frame: itself, its code, the marks below.
const OF_A_FRAME: u64 = 2;
/// Lines of frames below `in user code:`.
const USER_CODE: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// In a box of rich.
    Boxed,
    /// In a notebook, which states the name before.
    Notebook,
}

pub(super) struct Open {
    style: Style,
    /// Of a notebook's head.
    name: String,
    pub(super) head: u64,
    pub(super) rank: Option<u32>,
    /// The rank that the head alone states.
    of_head: Option<u32>,
    /// What stood before the head.
    prefix: String,
    indent: usize,
    /// Blanks that frames have more than they should.
    shift: usize,
    pub(super) place: Option<Place>,
    own: Option<Place>,
    phase: Option<Phase>,
    files: Files,
    /// The last line was a frame: its code may follow.
    after_frame: bool,
    pub(super) frames: usize,
    strangers: usize,
    pub(super) lines: usize,
    is_warned: bool,
    is_of_exit: bool,
    is_original: bool,
    /// Whether it began with its head.
    is_headed: bool,
    /// The last line that is certainly its own: a frame, or one of a box.
    last_own: u64,
    /// Its last line, while the exception says more on the next.
    pub(super) ending: Option<Ended>,
    /// Whether the line before was one of several that are indented below it.
    is_listing: bool,
    /// Whether its head is the text of a logger's record, with level and time, whose further lines have neither.
    is_record: bool,
}

pub(super) enum Step {
    On,
    Ended(Ended),
    Lost,
}

/// How a line begins a traceback.
pub(super) struct Start {
    style: Style,
    name: String,
    prefix: String,
    pub(super) frame: bool,
}

pub(super) fn begins(line: &Line) -> Option<Start> {
    let text = line.text.as_str();
    let Some(at) = find_phrase(text, HEAD) else {
        let frame = is_frame(text) && line.indent >= 2;
        return frame.then(|| Start { style: Style::Plain, name: String::new(), prefix: String::new(), frame });
    };
    let before = text.get(..at)?;
    let behind = text.get(at + HEAD.len()..)?;
    let start = |style, name: &str, prefix: &str| {
        Some(Start { style, name: name.to_owned(), prefix: prefix.to_owned(), frame: false })
    };
    if before.contains('─') || before.starts_with(['╭', '┌', '+']) {
        return start(Style::Boxed, "", "");
    }
    if behind.is_empty() && before.ends_with("    ") {
        return start(Style::Notebook, before.trim(), "");
    }
    let fence = before.strip_prefix("```").unwrap_or(before);
    if behind != ":" || fence.contains(['`', '"', '\'']) {
        return None;
    }
    start(Style::Plain, "", before)
}

/// A traceback whose lines a page has joined: `Traceback (most recent call last): File "a.py", line 3, in f ... E: text`.
pub(super) fn flat(text: &str) -> Option<String> {
    let rest = text_after(text, HEAD)?.strip_prefix(':')?.trim_start();
    let frame = is_frame(rest).then_some(rest)?;
    let last = rest.rfind("File \"").and_then(|at| rest.get(at..))?;
    let mut starts = memchr::memchr_iter(b' ', last.as_bytes()).filter_map(|at| last.get(at + 1..));
    let raised = starts.find(|text| exception_stated(text, true).is_some_and(|(_, message)| !message.is_empty()))?;
    let end = frame.len() - raised.len();
    Some(format!("{HEAD}:\n  {}\n{raised}", frame.get(..end)?.replace(" File \"", "\n  File \"")))
}

/// A traceback within a JSON string.
pub(super) fn packed(text: &str) -> Option<String> {
    let at = find_phrase(text, PACKED)?;
    let rest = text.get(at..)?;
    let mut end = rest.len();
    let is_list = has_phrase(rest, "\\n', ");
    for quote in memchr::memchr_iter(b'"', rest.as_bytes()).filter(|_| !is_list) {
        let slashes = rest.as_bytes().get(..quote)?.iter().rev().take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            end = quote;
            break;
        }
    }
    Some(unescape_text(&listed(rest.get(..end)?)))
}

/// The text of a list of lines (`traceback.format_exception`, printed as it is): `'one\\n', '  two\\n'`.
fn listed(text: &str) -> String {
    let text = text.split_once("\\n']").or_else(|| text.split_once("\\n\"]")).map_or(text, |(list, _)| list);
    ["', '", "', \"", "\", '", "\", \""]
        .iter()
        .fold(text.to_owned(), |text, between| text.replace(&format!("\\n{between}"), "\\n"))
}

pub(crate) fn is_frame(text: &str) -> bool {
    // Python's handler of a fatal signal writes no comma behind the line: what follows it is no exception.
    let is_of_signal = || {
        let rest = text_after(text, "\", line ").unwrap_or_default();
        rest.trim_start_matches(|character: char| character.is_ascii_digit()).starts_with(" in ")
    };
    text.trim_start_matches("> ").starts_with("File \"") && has_phrase(text, "\", line ") && !is_of_signal()
}

/// What Python's `logging` ends its report of a record with that could not be formatted: the frames before it are those of
/// the call, and nothing was raised there.
fn is_logged(text: &str) -> bool {
    text.strip_prefix("Message: ").is_some_and(|message| message.starts_with(['\'', '"', '<', '(']))
}

impl Open {
    pub(super) fn new(start: Start, line: &Line, number: u64) -> Self {
        let indent = if start.frame { line.indent.saturating_sub(2) } else { line.indent };
        let is_warned = has_phrase(&start.prefix, "WARN") || has_phrase(&start.prefix, "arning");
        let is_headed = !start.frame;
        let is_original = start.prefix.ends_with("Original ");
        let is_record = has_phrase(&start.prefix, "ERROR") && is_logged_line(&Line::new(start.prefix.as_bytes()));
        Self {
            style: start.style,
            name: start.name,
            head: number,
            rank: line.rank,
            of_head: None,
            prefix: start.prefix,
            indent,
            shift: 0,
            place: None,
            own: None,
            phase: None,
            files: Files::default(),
            after_frame: false,
            frames: 0,
            strangers: 0,
            lines: 0,
            is_warned,
            is_of_exit: false,
            is_original,
            is_headed,
            last_own: number,
            ending: None,
            is_listing: false,
            is_record,
        }
    }

    pub(super) fn wrapped(rank: Option<u32>, number: u64) -> Self {
        let line = Line { text: String::new(), rank, indent: 0, stamp: None };
        let start = Start { style: Style::Plain, name: String::new(), prefix: String::new(), frame: false };
        Self::new(start, &line, number)
    }

    /// Whether a frame without a rank is its first: then only the head was logged with one.
    pub(super) fn loses_its_rank(&mut self, line: &Line) -> bool {
        let is_first = self.frames == 0 && self.rank.is_some() && line.rank.is_none() && is_frame(&line.text);
        if is_first {
            self.of_head = self.rank.take();
        }
        is_first
    }

    pub(super) fn read(&mut self, line: &Line, number: u64) -> Step {
        if self.lines > LONGEST {
            return Step::Lost;
        }
        let (text, indent) = self.without_prefix(line);
        match self.style {
            Style::Plain => self.plain(text, indent, line, number),
            Style::Boxed => self.boxed(text, line, number),
            Style::Notebook => self.notebook(text, line, number),
        }
    }

    /// The line behind what a logger put before the head, where it is put before every line.
    fn without_prefix<'a>(&mut self, line: &'a Line) -> (&'a str, usize) {
        let same = |(a, b): (u8, u8)| a == b || (a.is_ascii_digit() && b.is_ascii_digit());
        let bytes = line.text.as_bytes();
        let has_it = !self.prefix.is_empty()
            && bytes.len() >= self.prefix.trim_end().len()
            && self.prefix.trim_end().bytes().zip(bytes.iter().copied()).all(same);
        let rest = has_it.then(|| line.text.get(self.prefix.len()..).unwrap_or_default());
        self.is_record &= rest.is_none();
        rest.map_or((line.text.as_str(), line.indent.saturating_sub(self.indent)), |rest| {
            (rest.trim_start(), rest.len() - rest.trim_start().len())
        })
    }

    fn plain(&mut self, text: &str, indent: usize, line: &Line, number: u64) -> Step {
        if is_frame(text) {
            if self.frames == 0 {
                // Pages move the blanks of all but the head.
                self.shift = indent.saturating_sub(2);
            }
            self.read_frame(text);
            self.after_frame = true;
            self.last_own = number;
            return Step::On;
        }
        let indent = indent.saturating_sub(self.shift);
        let marks = text.is_empty() || text.chars().all(|c| "^~ ".contains(c)) || text.starts_with("[Previous line");
        let was_frame = std::mem::take(&mut self.after_frame);
        if marks || indent > 0 {
            if was_frame {
                self.phase = phase_of_code(text).or(self.phase);
            }
            return Step::On;
        }
        if is_logged(text) {
            return Step::Lost;
        }
        // Where blanks were lost, the line of code looks like anything.
        let is_dotted =
            || exception_stated(text, false).is_some_and(|(name, message)| name.contains('.') && !message.is_empty());
        if was_frame && exception_stated(text, true).is_none() && !is_dotted() {
            return Step::On;
        }
        let strict = self.frames == 0 || self.strangers > 0;
        if let Some((name, message)) = exception_stated(text, strict) {
            return Step::Ended(self.ended(name, message, line, number));
        }
        self.stranger()
    }

    fn boxed(&mut self, text: &str, line: &Line, number: u64) -> Step {
        if text.starts_with(['│', '╭', '╰', '┌', '└', '|', '+', '┃']) || text.is_empty() {
            self.last_own = number;
            let inside = text.trim_matches(['│', '|', ' ']);
            if let Some((file, rest)) = inside.split_once(".py:")
                && let Some(number) = integer_after(rest, "")
                && has_phrase(rest, " in ")
            {
                let function = text_after(rest, " in ").unwrap_or_default().trim();
                self.frame(&format!("{file}.py"), number, function);
            }
            return Step::On;
        }
        match exception_stated(text, false) {
            Some((name, message)) => Step::Ended(self.ended(name, message, line, number)),
            None => self.stranger(),
        }
    }

    fn notebook(&mut self, text: &str, line: &Line, number: u64) -> Step {
        match exception_stated(text, false)
            .filter(|(name, _)| *name == self.name || name.ends_with(&format!(".{}", self.name)))
        {
            Some((name, message)) => Step::Ended(self.ended(name, message, line, number)),
            None if self.lines > 600 => Step::Lost,
            None => Step::On,
        }
    }

    fn stranger(&mut self) -> Step {
        self.strangers += 1;
        if self.strangers > PATIENCE { Step::Lost } else { Step::On }
    }

    /// `File "train.py", line 3, in main`
    pub(super) fn read_frame(&mut self, text: &str) {
        let Some((file, rest)) =
            text.trim_start_matches("> ").strip_prefix("File \"").and_then(|text| text.split_once("\", line "))
        else {
            return;
        };
        let Some(line) = integer_after(rest, "") else { return };
        let function = text_after(rest, ", in ").unwrap_or_default();
        self.frame(file, line, function);
    }

    fn frame(&mut self, file: &str, line: u64, function: &str) {
        self.frames += 1;
        self.strangers = 0;
        // Nobody calls a destructor but Python, which ignores what it raises.
        self.is_of_exit |= matches!(function, "_run_finalizers" | "_exit_function" | "_run_exitfuncs" | "_exitfunc")
            || (self.frames == 1 && self.is_headed && function == "__del__")
            || has_phrase(file, "multiprocessing/resource_tracker.py");
        self.files = Files::of(file);
        self.phase = phase_of(function, file).or(self.phase);
        let place = Place { file: cut_text(file, 300).to_owned(), line, function: cut_text(function, 100).to_owned() };
        if is_library(file) {
            self.place = Some(place);
        } else {
            self.own = Some(place);
        }
    }

    fn ended(&mut self, name: &str, message: &str, line: &Line, number: u64) -> Ended {
        let exception = Exception::new(name, cut_text(message, LONGEST_MESSAGE), &self.files);
        Ended {
            exception,
            line: number,
            last_line: number,
            head: self.head,
            rank: self.rank.or(self.of_head).or(line.rank),
            text: format!("{name}{}{message}", if message.is_empty() { "" } else { ": " }),
            place: self.own.take().or(self.place.take()),
            phase: self.phase,
            is_warned: self.is_warned,
            is_record: self.is_record,
            files: self.files,
            indent: self.indent,
            is_of_exit: self.is_of_exit,
            is_original: self.is_original,
        }
    }

    /// Where it had got to, if the log ends within it: of `lines` all that came after its last frame is that frame's code.
    pub(super) fn place_cut_off(&self, lines: u64) -> Option<CutOff> {
        let is_last = lines.saturating_sub(self.last_own) <= if self.style == Style::Boxed { 1 } else { OF_A_FRAME };
        let is_open = self.ending.is_none() && self.style != Style::Notebook && self.strangers == 0;
        let (is_warned, files) = (self.is_warned || self.is_of_exit, self.files);
        let place = self.own.clone().or_else(|| self.place.clone()).filter(|_| is_last && is_open && self.is_headed)?;
        (!is_warned).then(|| CutOff {
            place,
            head: self.head,
            line: self.last_own,
            rank: self.rank.or(self.of_head),
            files,
        })
    }

    /// What is known where the log ends before it does: a notebook states the name of the exception first.
    pub(super) fn cut_off(mut self) -> Option<Ended> {
        let name = std::mem::take(&mut self.name);
        let is_named = self.style == Style::Notebook && exception_stated(&name, true).is_some();
        let line = Line { text: String::new(), rank: self.rank, indent: 0, stamp: None };
        let head = self.head;
        self.ending.take().or_else(|| is_named.then(|| self.ended(&name, "", &line, head)))
    }
}
