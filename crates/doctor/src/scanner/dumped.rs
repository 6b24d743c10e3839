//! Where Python was when native code crashed, as its fault handler dumps the stack below `Fatal Python error`.

use super::Scanner;
use crate::exception::{Place, is_library};
use crate::line::Line;
use crate::text::{has_phrase, integer_after, text_after};

/// What the fault handler begins with.
const FATAL: &str = "Fatal Python error: ";
/// The thread that crashed; others stand above it.
const CURRENT: &str = "Current thread 0x";
/// Threads have a hundred frames each at most, and there are as many as loaders.
const LONGEST: usize = 4000;

impl Scanner {
    /// Gives crashes the innermost line of the program, else a library's, in the stack of the thread that crashed.
    pub(super) fn place_crashes(&mut self, tail: &str) {
        let lines = self.lines;
        let crashed = self.kept.findings_mut().iter_mut().filter(|finding| has_phrase(&finding.text, FATAL));
        for finding in crashed {
            let behind = usize::try_from(lines.saturating_sub(finding.last_line)).unwrap_or(usize::MAX);
            let Some(before) = tail.lines().count().checked_sub(behind) else { continue };
            let below = tail.lines().skip(before).take(LONGEST).map(|text| Line::new(text.as_bytes()));
            let own = below.filter(|line| line.rank == finding.rank);
            let stack = own.skip_while(|line| !line.text.starts_with(CURRENT)).skip(1);
            let mut frames = stack.map_while(|line| frame_of(&line.text)).peekable();
            let innermost = frames.peek().cloned();
            finding.crashed_at = frames.find(|place| !is_library(&place.file)).or(innermost);
        }
    }
}

/// `File "train.py", line 31 in forward`: the fault handler has no comma behind the number.
fn frame_of(text: &str) -> Option<Place> {
    let (file, _) = text.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let line = integer_after(text, "\", line ")?;
    let function = text_after(text, &format!("line {line} in "))?;
    Some(Place { file: file.to_owned(), line, function: function.trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use crate::Scanner;

    fn places(log: &str) -> Vec<Option<String>> {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let of = |place: &crate::Place| format!("{}:{} {}", place.file, place.line, place.function);
        scanner.finish().findings.iter().map(|finding| finding.place().map(of)).collect()
    }

    #[test]
    fn a_crash_has_the_place_that_the_fault_handler_dumps() {
        let dump = "step 3 loss 2.0\nFatal Python error: Segmentation fault\n\n\
            Thread 0x00007f21 (most recent call first):\n  File \"/home/u/load.py\", line 7 in fetch\n\n\
            Current thread 0x00007f22 (most recent call first):\n\
            \x20 File \"/opt/lib/python3.12/site-packages/ext/ops.py\", line 90 in run\n\
            \x20 File \"/home/u/net.py\", line 52 in forward\n  File \"/home/u/fit.py\", line 9 in <module>\n\n\
            Extension modules: numpy.core (total: 1)\nSegmentation fault (core dumped)\n";
        assert_eq!(places(dump), [Some("/home/u/net.py:52 forward".to_owned()), None]);
        let of_ranks: String = dump.lines().map(|line| format!("[rank1]: {line}\n")).collect();
        assert_eq!(places(&of_ranks)[0].as_deref(), Some("/home/u/net.py:52 forward"));
        let library = "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n\
            \x20 File \"/opt/lib/python3.12/site-packages/ext/ops.py\", line 90 in run\n";
        assert_eq!(places(library), [Some("/opt/lib/python3.12/site-packages/ext/ops.py:90 run".to_owned())]);
        assert_eq!(places("Fatal Python error: Segmentation fault\n\nCurrent thread 0x1\n  <no frame>\n"), [None]);
    }
}
