//! What a log's closing lines show of a program that went on after one of them.

use crate::error_words::{self, is_error};
use crate::last_words;
use crate::life::{is_alive, is_logged, is_warned_of};
use crate::line::Line;
use crate::progress::Progress;
use crate::text::has_phrase;

/// Ordinary lines after which an exception without a traceback is long past.
const PAGE: usize = 12;
/// So many of a logger's, which have a time, show the same.
const LOGGED: usize = 6;

/// Whether what follows the exception in closing line `at` says that the program went on: it tries again or passes over
/// it in the next line, its bar gets to the end, or two steps are stated.
pub(super) fn is_passed_over(closing: &[(Line, u64)], at: usize) -> bool {
    const HANDLED: &[&str] = &["etry", "rying again", "kipping", "alling back", "fallback"];
    let next = at.checked_sub(1).and_then(|next| closing.get(next));
    let is_handled = next
        .is_some_and(|(line, _)| is_warned_of(&line.text) || HANDLED.iter().any(|words| has_phrase(&line.text, words)));
    let steps = closing.iter().take(at).filter_map(|(line, number)| Progress::of_line(&line.text, *number, line.rank));
    let (mut count, mut is_full) = (0, false);
    for step in steps {
        count += 1;
        is_full |= step.of == Some(step.step);
    }
    // A shell's or an installer's `Error: ` ends no program that is started after it.
    let is_other = closing.get(at).is_some_and(|(line, _)| line.text.starts_with("Error: "));
    let runs = is_other && closing.iter().take(at).any(|(line, _)| is_of_python(&line.text));
    is_handled || is_full || count > 1 || runs
}

/// Whether a program wrote a page of ordinary lines after the exception in closing line `at`: who states one without a
/// traceback and ends because of it has no more to say than launchers and shells have.
pub(super) fn is_long_past(closing: &[(Line, u64)], at: usize) -> bool {
    let is_ordinary = |(line, _): &&(Line, u64)| {
        let text = line.text.as_str();
        line.indent <= 1
            && line.rank.is_none()
            && text.starts_with(char::is_alphanumeric)
            && !error_words::is_noise(text)
            && !is_error(text)
            && !last_words::is_native_frame(text)
            && !has_phrase(text, "torch.distributed")
    };
    let is_logged = |(line, _): &&(Line, u64)| is_logged(line) && has_phrase(&line.text, "INFO") && is_alive(line);
    let after = || closing.iter().take(at);
    after().filter(is_ordinary).count() > PAGE || after().filter(is_logged).count() >= LOGGED
}

/// Whether the script went on after conda's exception in closing line `at`, as it did after an earlier one: another
/// program writes below what conda advises.
pub(super) fn is_gone_on_from(closing: &[(Line, u64)], at: usize) -> bool {
    const ADVICE: &[&str] = &[
        "To initialize your shell, run",
        "$ conda init ",
        "Currently supported shells are:",
        "- ",
        "See 'conda init --help' for more information",
        "IMPORTANT: You may need to close and restart your shell",
        "Run 'conda init' before",
    ];
    let head = closing.get(at).map_or("", |(line, _)| line.text.as_str());
    let is_others = |(line, _): &(Line, u64)| {
        let text = line.text.as_str();
        !text.is_empty() && text != head && !ADVICE.iter().any(|start| text.starts_with(start)) && !is_error(text)
    };
    let before = closing.iter().skip(at + 1).position(|(line, _)| line.text == head).unwrap_or(0);
    closing.iter().take(at).any(is_others) || closing.iter().skip(at + 1).take(before).any(is_others)
}

/// Whether the program had told of an error in the same words before closing line `at`, and gone on to tell of others.
pub(super) fn is_habit(closing: &[(Line, u64)], at: usize) -> bool {
    let part = closing.get(at).and_then(|(line, _)| error_words::spoken_part(&line.text));
    let says = |(line, _): &(Line, u64)| part.is_some_and(|part| has_phrase(&line.text, part));
    closing.iter().skip(at).skip_while(|it| says(it)).any(says)
}

/// Whether the program had said closing line `at` word for word before, and something else since: it went on after it.
pub(super) fn is_said_before(closing: &[(Line, u64)], at: usize) -> bool {
    let own = closing.get(at).map_or("", |(line, _)| line.text.as_str());
    let same = |(line, _): &(Line, u64)| line.text == own;
    let before = closing.iter().skip(at).skip_while(|it| same(it));
    let works = |it: &&(Line, u64)| has_phrase(&it.0.text, "%|") || Progress::of_line(&it.0.text, it.1, None).is_some();
    before.clone().next().is_some_and(|it| works(&it)) && before.clone().any(same)
}

/// Whether the program had said the line often before, between others: it goes on after what it fails to do.
pub(super) fn is_said_again(closing: &[(Line, u64)], at: usize) -> bool {
    const OFTEN: usize = 4;
    let own = closing.get(at).map_or("", |(line, _)| line.text.as_str());
    let alike = closing.iter().filter(|(line, _)| line.text == own).count();
    alike >= OFTEN && 2 * alike < closing.len()
}

/// The line up to which steps followed: of two different ones, the first. One alone may be a bar that is drawn once more
/// when it is closed.
pub(super) fn trained_up_to(closing: &[(Line, u64)]) -> u64 {
    let step = |(line, number): &(Line, u64)| Progress::of_line(&line.text, *number, line.rank);
    let mut steps = closing.iter().filter_map(step);
    let last = steps.next();
    let before = last.and_then(|last| steps.find(|step| step.step != last.step && step.is_epoch == last.is_epoch));
    before.map_or(0, |step| step.line)
}

/// Whether a program in Python writes it that runs: a bar that is full, a warning other than of its end.
fn is_of_python(text: &str) -> bool {
    has_phrase(text, "100%|") || (has_phrase(text, "Warning: ") && !has_phrase(text, "resource_tracker"))
}

/// Whether a program, not a launcher that ends others, writes after the closing line `at`.
pub(super) fn goes_on(closing: &[(Line, u64)], at: usize) -> bool {
    let lives = |(line, number): &(Line, u64)| {
        let launcher = has_phrase(&line.text, "[launch.py") || has_phrase(&line.text, "[runner.py");
        (has_phrase(&line.text, "INFO") && !launcher)
            || is_of_python(&line.text)
            || Progress::of_line(&line.text, *number, None).is_some()
    };
    closing.iter().take(at).any(lives)
}

#[cfg(test)]
mod tests {
    use crate::scanner::Scanner;

    #[test]
    fn an_error_that_is_said_over_and_over_ends_nothing() {
        let often =
            "writing the groups\nwriting the figures\nError: failed to delete the group members/copa\n".repeat(6);
        let found = |log: &str| {
            let mut scanner = Scanner::new();
            scanner.feed(log.as_bytes());
            scanner.finish().findings.len()
        };
        assert_eq!(found(&format!("{often}Total time: 411.7s\n")), 0);
        assert_eq!(
            found("writing the groups\nError: failed to delete the group members/copa\nTotal time: 411.7s\n"),
            1
        );
    }
}
