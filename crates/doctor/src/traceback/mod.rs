//! [`Tracebacks`]: reads the tracebacks of a log as they come, each rank's by itself, wherever they stand.
//!
//! Plain ones, those in a box (rich), those of notebooks, and those that a logger or a container puts a prefix before.

mod open;

pub(crate) use self::open::is_frame;
use self::open::{Open, Step, begins, flat, packed};
use super::exception::{Exception, Files, Place};
use super::line::Line;
use super::phase::Phase;
use super::text::{has_phrase, integer_after};

/// What every traceback begins with.
pub(crate) const HEAD: &str = "Traceback (most recent call last)";
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
pub(crate) struct Ended {
    pub(crate) exception: Exception,
    /// The line that states it.
    pub(crate) line: u64,
    /// The last line of what it says, where that is another one.
    pub(crate) last_line: u64,
    /// The line of its head.
    pub(crate) head: u64,
    pub(crate) rank: Option<u32>,
    /// The exception's line.
    pub(crate) text: String,
    pub(crate) place: Option<Place>,
    pub(crate) phase: Option<Phase>,
    /// Whether its head said that it is a warning or was logged on the way.
    pub(crate) is_warned: bool,
    /// Whether it was the text of a logger's record: who writes it there has caught it.
    pub(crate) is_record: bool,
    /// What the innermost frame's file says.
    pub(crate) files: Files,
    /// Blanks before its head.
    pub(crate) indent: usize,
    /// Whether Python raised it while it tidied up at its end, which changes nothing: not even the exit status.
    pub(crate) is_of_exit: bool,
    /// Whether it is what another process had raised, quoted in the message of the exception before.
    pub(crate) is_original: bool,
}

impl Ended {
    /// Of an exception that a line states without a traceback.
    pub(crate) fn without_traceback(exception: Exception, line: &Line, number: u64) -> Self {
        Self {
            exception,
            line: number,
            last_line: number,
            head: number,
            rank: line.rank,
            text: line.text.clone(),
            place: None,
            phase: None,
            is_warned: false,
            is_record: false,
            files: Files::default(),
            indent: 0,
            is_of_exit: false,
            is_original: false,
        }
    }
}

/// A traceback in which the log ends.
#[derive(Clone, Debug)]
pub(crate) struct CutOff {
    /// The program's innermost frame, else a library's.
    pub(crate) place: Place,
    pub(crate) head: u64,
    /// The line of its last frame.
    pub(crate) line: u64,
    pub(crate) rank: Option<u32>,
    pub(crate) files: Files,
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
        if let Some(packed) = packed(&line.text).or_else(|| flat(&line.text)) {
            let mut ended = self.packed(&packed, line.rank, number)?;
            // The record's own level.
            ended.is_warned |= ["\"WARN", "\"warn"].iter().any(|level| has_phrase(&line.text, level));
            return Some(ended);
        }
        self.quoted(&line.text);
        if let Some(before) = self.begins(line, number) {
            return before.map(|ended| self.of_quoted(ended));
        }
        let at = self.open.iter().rposition(|open| open.rank == line.rank)?;
        self.go_on(at, line, number)
    }

    /// The traceback within which a log of so many lines ends.
    pub(super) fn cut_off(&self, lines: u64) -> Option<CutOff> {
        self.open.iter().rev().find_map(|open| open.place_cut_off(lines))
    }

    /// What is open when the log ends.
    pub(super) fn finish(&mut self) -> Vec<Ended> {
        self.open.drain(..).filter_map(Open::cut_off).collect()
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
        if text.starts_with("-- Process ") && has_phrase(text, "terminated with the following error") {
            self.quoted_rank = integer_after(text, "-- Process ").and_then(|rank| u32::try_from(rank).ok());
        }
    }

    /// Opens a traceback where the line begins one; what of the same rank had ended by then.
    fn begins(&mut self, line: &Line, number: u64) -> Option<Option<Ended>> {
        let start = begins(line)?;
        let rank = line.rank;
        let known = self.open.iter().position(|open| open.rank == rank);
        // A frame without a head belongs to what is open.
        if start.frame && (known.is_some() || self.open.iter_mut().any(|open| open.loses_its_rank(line))) {
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
        if let Some(ended) = open.with_more(line, number) {
            self.open.remove(at);
            return Some(self.of_quoted(ended));
        }
        match open.read(line, number) {
            Step::On => {}
            Step::Ended(ended) if says_more_below(&line.text) => {
                open.ending = Some(ended);
                open.lines = 0;
            }
            Step::Ended(ended) => {
                let wraps = has_phrase(&ended.exception.name, "RayTaskError(");
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

/// Whether an exception's line names only where it was raised: what it says stands in the next, as Keras has it of layers.
fn says_more_below(text: &str) -> bool {
    text.ends_with(':') || has_phrase(text, "Error: Exception encountered when calling ")
}

/// At most `length` bytes of the text, whole characters.
pub(super) fn cut_text(text: &str, length: usize) -> &str {
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
    fn pages_that_move_blanks_do_not_hide_what_was_raised() {
        let indented =
            "Traceback (most recent call last):\n      File \"a.py\", line 3, in f\n        g()\n    KeyError: 'a'\n";
        assert_eq!(one(indented).0, "KeyError: 'a'");
        let flat = "WARN Traceback (most recent call last): File \"a.py\", line 3, in f g() File \"b.py\", line 4, in g raise KeyError( KeyError: 'a is not in b: c'";
        assert_eq!(one(flat).0, "KeyError: 'a is not in b: c'");
        // Frames of compiled modules have no code.
        let compiled = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\n  File \"b.pyx\", line 9, in b.check\n\
            lib.b.ArrowInvalid: no such column\n";
        assert_eq!(one(compiled).0, "lib.b.ArrowInvalid: no such column");
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
