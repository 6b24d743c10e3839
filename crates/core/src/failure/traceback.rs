//! [`Tracebacks`]: reads the tracebacks of a log as they come, each rank's by itself, wherever they stand.
//!
//! Plain ones, those in a box (rich), those of notebooks, and those that a logger or a container puts a prefix before.

use super::exception::{Exception, Files, Phase, Place, is_library, phase_of, phase_of_code, stated};
use super::line::Line;
use super::prefix::unescaped;
use super::text::{after, find, has, integer_after};

/// What every traceback begins with.
pub(super) const HEAD: &str = "Traceback (most recent call last)";
/// Tracebacks that are open at one time.
const MOST_OPEN: usize = 64;
/// Lines that belong to no traceback, as other ranks write them in between, before one is given up.
const PATIENCE: usize = 60;
/// Lines of a traceback; recursion makes thousands, which Python shortens.
const LONGEST: usize = 3000;
/// Bytes of what an exception says that are kept.
const LONGEST_MESSAGE: usize = 400;

/// A traceback with its end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) exception: Exception,
    /// The line that states it.
    pub(super) line: u64,
    /// The line of its head.
    pub(super) head: u64,
    pub(super) rank: Option<u32>,
    /// The exception's line.
    pub(super) text: String,
    pub(super) place: Option<Place>,
    pub(super) phase: Option<Phase>,
    /// Whether its head said that it is a warning or was logged on the way.
    pub(super) is_warned: bool,
    /// What the innermost frame's file says.
    pub(super) files: Files,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    /// In a box of rich.
    Boxed,
    /// In a notebook, which states the name before.
    Notebook,
}

struct Open {
    style: Style,
    /// Of a notebook's head.
    name: String,
    head: u64,
    rank: Option<u32>,
    /// What stood before the head.
    prefix: String,
    indent: usize,
    place: Option<Place>,
    own: Option<Place>,
    phase: Option<Phase>,
    files: Files,
    /// The last line was a frame: its code may follow.
    after_frame: bool,
    frames: usize,
    strangers: usize,
    lines: usize,
    is_warned: bool,
    /// Its last line, while the exception says more on the next.
    ending: Option<Ended>,
}

/// Tracebacks that have begun.
#[derive(Default)]
pub(super) struct Tracebacks {
    open: Vec<Open>,
    /// The rank of a worker that a launcher is about to quote.
    quoted_rank: Option<u32>,
}

impl Tracebacks {
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Reads a line; what has ended with it.
    pub(super) fn read(&mut self, line: &Line, number: u64) -> Option<Ended> {
        if let Some(packed) = packed(&line.text) {
            return self.packed(&packed, line.rank, number);
        }
        self.quoted(&line.text);
        if let Some(before) = self.begins(line, number) {
            return before.map(|ended| self.of_quoted(ended));
        }
        let at = self.open.iter().rposition(|open| open.rank == line.rank)?;
        self.go_on(at, line, number)
    }

    /// What is open when the log ends.
    pub(super) fn finish(&mut self) -> Vec<Ended> {
        self.open.drain(..).filter_map(|open| open.ending).collect()
    }

    /// A whole traceback in one line, as JSON has it.
    fn packed(&mut self, text: &str, rank: Option<u32>, number: u64) -> Option<Ended> {
        let mut inner = Self::default();
        let mut ended = None;
        for line in text.lines() {
            let found = inner.read(&Line::new(line.as_bytes()), number);
            ended = found.or(ended);
        }
        let mut ended = inner.finish().pop().or(ended)?;
        ended.rank = ended.rank.or(rank);
        Some(ended)
    }

    /// `-- Process 3 terminated with the following error:` (torch.multiprocessing.spawn)
    fn quoted(&mut self, text: &str) {
        if text.starts_with("-- Process ") && has(text, "terminated with the following error") {
            self.quoted_rank = integer_after(text, "-- Process ").and_then(|rank| u32::try_from(rank).ok());
        }
    }

    /// Opens a traceback where the line begins one; what of the same rank had ended by then.
    fn begins(&mut self, line: &Line, number: u64) -> Option<Option<Ended>> {
        let start = begins(line)?;
        let rank = line.rank;
        let known = self.open.iter().position(|open| open.rank == rank);
        // A frame without a head belongs to what is open.
        if start.frame && known.is_some() {
            return None;
        }
        let before = known.and_then(|at| self.open.remove(at).ending);
        if self.open.len() >= MOST_OPEN {
            self.open.remove(0);
        }
        let mut open = Open::new(start, line, number);
        if open.frames == 0 && open.place.is_none() {
            open.read_frame(&line.text);
        }
        self.open.push(open);
        Some(before)
    }

    fn go_on(&mut self, at: usize, line: &Line, number: u64) -> Option<Ended> {
        let open = self.open.get_mut(at)?;
        open.lines += 1;
        if let Some(ended) = open.with_more(line) {
            self.open.remove(at);
            return Some(self.of_quoted(ended));
        }
        match open.read(line, number) {
            Step::On => {}
            Step::Ended(ended) if line.text.ends_with(':') => {
                open.ending = Some(ended);
                open.lines = 0;
            }
            Step::Ended(ended) => {
                let wraps = has(&ended.exception.name, "RayTaskError(");
                let rank = open.rank;
                self.open.remove(at);
                if wraps {
                    // Ray's frames of the worker follow without a head.
                    self.open.push(Open::wrapped(rank, number));
                }
                return Some(self.of_quoted(ended));
            }
            Step::Lost => {
                self.open.remove(at);
            }
        }
        None
    }

    /// Gives the rank that a launcher named to what it quotes.
    fn of_quoted(&mut self, mut ended: Ended) -> Ended {
        let launcher = ended.exception.raiser == super::exception::Raiser::Launcher;
        if let Some(rank) = self.quoted_rank.filter(|_| !launcher) {
            ended.rank = ended.rank.or(Some(rank));
            self.quoted_rank = None;
        }
        ended
    }
}

enum Step {
    On,
    Ended(Ended),
    Lost,
}

/// How a line begins a traceback.
struct Start {
    style: Style,
    name: String,
    prefix: String,
    frame: bool,
}

fn begins(line: &Line) -> Option<Start> {
    let text = line.text.as_str();
    let Some(at) = find(text, HEAD) else {
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

/// A traceback within a JSON string.
fn packed(text: &str) -> Option<String> {
    let at = find(text, "Traceback (most recent call last):\\n")?;
    let rest = text.get(at..)?;
    let mut end = rest.len();
    for quote in memchr::memchr_iter(b'"', rest.as_bytes()) {
        let slashes = rest.as_bytes().get(..quote)?.iter().rev().take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            end = quote;
            break;
        }
    }
    Some(unescaped(rest.get(..end)?))
}

fn is_frame(text: &str) -> bool {
    text.starts_with("File \"") && has(text, "\", line ")
}

impl Open {
    fn new(start: Start, line: &Line, number: u64) -> Self {
        let indent = if start.frame { line.indent.saturating_sub(2) } else { line.indent };
        let is_warned = has(&start.prefix, "WARN") || has(&start.prefix, "arning");
        Self {
            style: start.style,
            name: start.name,
            head: number,
            rank: line.rank,
            prefix: start.prefix,
            indent,
            place: None,
            own: None,
            phase: None,
            files: Files::default(),
            after_frame: false,
            frames: 0,
            strangers: 0,
            lines: 0,
            is_warned,
            ending: None,
        }
    }

    fn wrapped(rank: Option<u32>, number: u64) -> Self {
        let line = Line { text: String::new(), rank, indent: 0 };
        let start = Start { style: Style::Plain, name: String::new(), prefix: String::new(), frame: false };
        Self::new(start, &line, number)
    }

    /// The line behind an exception that says nothing on its own.
    fn with_more(&mut self, line: &Line) -> Option<Ended> {
        let ended = self.ending.as_mut()?;
        let others = ["===", "During handling", "The above exception"];
        let is_rest = !line.text.is_empty() && !others.iter().any(|other| line.text.starts_with(other));
        if is_rest {
            let message = &mut ended.exception.message;
            *message = format!("{message} {}", cut(&line.text, LONGEST_MESSAGE)).trim().to_owned();
        } else if line.text.is_empty() && self.lines < 2 {
            return None;
        }
        self.ending.take()
    }

    fn read(&mut self, line: &Line, number: u64) -> Step {
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
    fn without_prefix<'a>(&self, line: &'a Line) -> (&'a str, usize) {
        let same = |(a, b): (u8, u8)| a == b || (a.is_ascii_digit() && b.is_ascii_digit());
        let bytes = line.text.as_bytes();
        let has_it = !self.prefix.is_empty()
            && bytes.len() >= self.prefix.trim_end().len()
            && self.prefix.trim_end().bytes().zip(bytes.iter().copied()).all(same);
        let rest = has_it.then(|| line.text.get(self.prefix.len()..).unwrap_or_default());
        rest.map_or((line.text.as_str(), line.indent.saturating_sub(self.indent)), |rest| {
            (rest.trim_start(), rest.len() - rest.trim_start().len())
        })
    }

    fn plain(&mut self, text: &str, indent: usize, line: &Line, number: u64) -> Step {
        if is_frame(text) {
            self.read_frame(text);
            self.after_frame = true;
            return Step::On;
        }
        let marks = text.is_empty() || text.chars().all(|c| "^~ ".contains(c)) || text.starts_with("[Previous line");
        let was_frame = std::mem::take(&mut self.after_frame);
        if marks || indent > 0 {
            if was_frame {
                self.phase = phase_of_code(text).or(self.phase);
            }
            return Step::On;
        }
        // Where blanks were lost, the line of code looks like anything.
        if was_frame && stated(text, true).is_none() {
            return Step::On;
        }
        let strict = self.frames == 0 || self.strangers > 0;
        if let Some((name, message)) = stated(text, strict) {
            return Step::Ended(self.ended(name, message, line, number));
        }
        self.stranger()
    }

    fn boxed(&mut self, text: &str, line: &Line, number: u64) -> Step {
        if text.starts_with(['│', '╭', '╰', '┌', '└', '|', '+', '┃']) || text.is_empty() {
            let inside = text.trim_matches(['│', '|', ' ']);
            if let Some((file, rest)) = inside.split_once(".py:")
                && let Some(number) = integer_after(rest, "")
                && has(rest, " in ")
            {
                let function = after(rest, " in ").unwrap_or_default().trim();
                self.frame(&format!("{file}.py"), number, function);
            }
            return Step::On;
        }
        match stated(text, false) {
            Some((name, message)) => Step::Ended(self.ended(name, message, line, number)),
            None => self.stranger(),
        }
    }

    fn notebook(&mut self, text: &str, line: &Line, number: u64) -> Step {
        match stated(text, false).filter(|(name, _)| *name == self.name || name.ends_with(&format!(".{}", self.name))) {
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
    fn read_frame(&mut self, text: &str) {
        let Some((file, rest)) = text.strip_prefix("File \"").and_then(|text| text.split_once("\", line ")) else {
            return;
        };
        let Some(line) = integer_after(rest, "") else { return };
        let function = after(rest, ", in ").unwrap_or_default();
        self.frame(file, line, function);
    }

    fn frame(&mut self, file: &str, line: u64, function: &str) {
        self.frames += 1;
        self.strangers = 0;
        self.files = Files::of(file);
        self.phase = phase_of(function, file).or(self.phase);
        let place = Place { file: cut(file, 300).to_owned(), line, function: cut(function, 100).to_owned() };
        if is_library(file) {
            self.place = Some(place);
        } else {
            self.own = Some(place);
        }
    }

    fn ended(&mut self, name: &str, message: &str, line: &Line, number: u64) -> Ended {
        let exception = Exception::new(name, cut(message, LONGEST_MESSAGE), &self.files);
        Ended {
            exception,
            line: number,
            head: self.head,
            rank: self.rank.or(line.rank),
            text: format!("{name}{}{message}", if message.is_empty() { "" } else { ": " }),
            place: self.own.take().or(self.place.take()),
            phase: self.phase,
            is_warned: self.is_warned,
            files: self.files,
        }
    }
}

/// At most `length` bytes of the text, whole characters.
pub(super) fn cut(text: &str, length: usize) -> &str {
    if text.len() <= length {
        return text;
    }
    let end = (0..=length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Vec<Ended> {
        let mut tracebacks = Tracebacks::default();
        let lines = log.lines().zip(1..);
        let mut all: Vec<Ended> =
            lines.filter_map(|(text, number)| tracebacks.read(&Line::new(text.as_bytes()), number)).collect();
        all.extend(tracebacks.finish());
        all
    }

    fn one(log: &str) -> (String, u64, Option<u32>, Option<String>) {
        let all = read(log);
        assert_eq!(all.len(), 1, "{log}\n{all:#?}");
        let place = all[0].place.as_ref().map(|place| format!("{}:{}", place.file, place.line));
        (all[0].text.clone(), all[0].line, all[0].rank, place)
    }

    #[test]
    fn the_program_s_own_line_is_the_place() {
        let log = "[rank5]: Traceback (most recent call last):\n[rank5]:   File \"train.py\", line 31, in main\n\
            [rank5]:     loss = f(batch)\n[rank5]:            ^^^^^^^\n\
            [rank5]:   File \"/opt/lib/python3.11/site-packages/torch/x.py\", line 9, in f\n[rank5]:     raise\n\
            step 3 of another rank\n[rank5]: KeyError: 'labels'\n";
        let place = Some("train.py:31".to_owned());
        assert_eq!(one(log), ("KeyError: 'labels'".to_owned(), 8, Some(5), place));
    }

    #[test]
    fn loggers_boxes_notebooks_and_records_are_read() {
        let logged = "ERROR 05-05 10:11:13 [core.py:396] Traceback (most recent call last):\n\
            ERROR 05-05 10:11:13 [core.py:396]   File \"a.py\", line 3, in f\n\
            ERROR 05-05 10:11:13 [core.py:396]     g()\nERROR 05-05 10:11:14 [core.py:396] ValueError: no\n";
        assert_eq!(one(logged).0, "ValueError: no");
        let own = "2024-05-05 10:11:13,111 - app - ERROR - Traceback (most recent call last):\n\
            2024-05-05 10:11:13,112 - app - ERROR -   File \"a.py\", line 3, in f\n\
            2024-05-05 10:11:13,113 - app - ERROR - ValueError: no\n";
        assert_eq!(one(own).0, "ValueError: no");
        let boxed = "╭──── Traceback (most recent call last) ────╮\n│ /home/u/a.py:12 in main │\n│ ❱ 12   f()   │\n\
            ╰─────╯\nTypeError: f() missing\n";
        assert_eq!(one(boxed), ("TypeError: f() missing".to_owned(), 5, None, Some("/home/u/a.py:12".to_owned())));
        let notebook = "ValueError      Traceback (most recent call last)\n<ipython-input-5> in <module>\n\
            ----> 2 f(x)\nValueError: bad x\n";
        assert_eq!(one(notebook).0, "ValueError: bad x");
        let json = r#"{"message": {"message": "x", "py_callstack": "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nKeyError: 'a'\n"}}"#;
        assert_eq!(one(json).0, "KeyError: 'a'");
        let docker = r#"{"log":"Traceback (most recent call last):\n","stream":"stderr","time":"t"}
{"log":"  File \"a.py\", line 3, in f\n","stream":"stderr","time":"t"}
{"log":"KeyError: 'b'\n","stream":"stderr","time":"t"}"#;
        assert_eq!(one(docker).0, "KeyError: 'b'");
    }

    #[test]
    fn ranks_in_between_do_not_disturb() {
        let log = "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n\
            [rank0]:   File \"a.py\", line 3, in f\n[rank1]:   File \"b.py\", line 4, in g\n[rank0]: KeyError: 'a'\n\
            [rank1]: IndexError: b\n";
        let found: Vec<_> = read(log).into_iter().map(|ended| (ended.rank, ended.text)).collect();
        assert_eq!(found, [(Some(0), "KeyError: 'a'".to_owned()), (Some(1), "IndexError: b".to_owned())]);
    }

    #[test]
    fn what_spawn_and_ray_quote_is_the_worker_s() {
        let spawn = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n\
            torch.multiprocessing.spawn.ProcessRaisedException: \n\n\
            -- Process 3 terminated with the following error:\nTraceback (most recent call last):\n\
            \x20 File \"t.py\", line 9, in work\n    x()\nKeyError: 'a'\n";
        let found: Vec<_> =
            read(spawn).into_iter().map(|ended| (ended.rank, ended.exception.short_name().to_owned())).collect();
        assert_eq!(found.last(), Some(&(Some(3), "KeyError".to_owned())), "{found:?}");
        let ray = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n\
            ray.exceptions.RayTaskError(KeyError): ray::work() (pid=1, ip=10.0.0.1)\n\
            \x20 File \"w.py\", line 2, in work\n    return d['a']\nKeyError: 'a'\n";
        let found: Vec<_> = read(ray).into_iter().map(|ended| ended.place.map(|place| place.file)).collect();
        assert_eq!(found.last(), Some(&Some("w.py".to_owned())));
    }

    #[test]
    fn what_is_cut_off_is_none_and_a_missing_head_does_not_matter() {
        assert!(read("Traceback (most recent call last):\n  File \"a\", line 1\n    f()\n").is_empty());
        assert!(read("the words \"Traceback (most recent call last):\" begin one\n").is_empty());
        assert_eq!(one("  File \"a.py\", line 3, in f\n    g()\nKeyError: 'x'\n").0, "KeyError: 'x'");
        assert_eq!(
            one("Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nKeyError: 'x'").1,
            3
        );
    }
}
