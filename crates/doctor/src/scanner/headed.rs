//! Errors whose head stands alone in a line, their words in the next: GROMACS, OpenFOAM, Quantum ESPRESSO; and MATLAB's,
//! whose places stand below.

use tonnage_core::failure::Class;

use crate::cause::FailureCause;
use crate::error_words;
use crate::line::Line;
use crate::text::has_phrase;
use crate::traceback::cut_text;
use crate::wording;

/// Bytes of the words that are kept.
const LONGEST: usize = 200;

fn said(text: &str) -> FailureCause {
    let detail = Some(cut_text(text, LONGEST).to_owned());
    wording::of_line(text, true).unwrap_or(FailureCause::Stated { class: Class::Reported, detail })
}

/// The last head, and what stands below it.
pub(super) fn of_head(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let at = closing.iter().position(|(line, _)| is_head(&line.text))?;
    let words = closing.get(at.checked_sub(1)?)?.0.text.as_str();
    (!error_words::is_noise(words)).then(|| (at, said(words)))
}

/// `Fatal error:`, `--> FOAM FATAL IO ERROR:`, `Error in routine electrons (1):`.
fn is_head(text: &str) -> bool {
    let Some(head) = text.trim_end().strip_suffix(':') else { return false };
    let routine = head.strip_prefix("Error in routine ").is_some_and(|rest| rest.ends_with(')'));
    routine
        || head.ends_with(" FATAL ERROR")
        || head.ends_with(" FATAL IO ERROR")
        || head.eq_ignore_ascii_case("fatal error")
}

/// What stands above MATLAB's first place, `Error in fit (line 38)`.
pub(super) fn of_matlab(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let is_place = |(line, _): &(Line, u64)| {
        line.text.starts_with("Error in ") && has_phrase(&line.text, " (line ") && line.text.ends_with(')')
    };
    let at = closing.iter().rposition(is_place)? + 1;
    let words = closing.get(at)?.0.text.trim_start_matches(['{', ' ']);
    Some((at, said(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(log: &str) -> Vec<(Line, u64)> {
        let mut lines: Vec<(Line, u64)> =
            log.lines().zip(1..).map(|(text, number)| (Line::new(text.as_bytes()), number)).collect();
        lines.reverse();
        lines
    }

    #[test]
    fn the_words_of_a_head_are_in_the_next_line() {
        let found = |log: &str| of_head(&last(log)).map(|(at, cause)| (at, cause.class()));
        assert_eq!(found("Fatal error:\nToo few ranks for the domains.\nsee the manual\n"), Some((2, Class::Reported)));
        assert_eq!(found("--> FOAM FATAL ERROR: \nNo space left on device\n"), Some((1, Class::DiskFull)));
        assert_eq!(found("Error in routine scf (1):\ncharge is wrong\nstopping ...\n"), Some((2, Class::Reported)));
        assert_eq!(found("absolute error:\n0.12\nFatal error: in one line\n"), None);
    }
}
