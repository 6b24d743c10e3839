//! What tools beside Python end with, where its words stand in a block: VASP, Stata, Ruby, Go.

use tonnage_core::failure::Class;

use crate::cause::FailureCause;
use crate::exception::{Exception, Files};
use crate::line::Line;
use crate::text::{has_phrase, integer_after, text_before};
use crate::traceback::cut_text;
use crate::wording;

/// Bytes of the words that are kept.
const LONGEST: usize = 200;
/// Lines of a box, or of frames.
const OF_A_BLOCK: usize = 16;

fn said(text: &str) -> FailureCause {
    let detail = Some(cut_text(text, LONGEST).to_owned());
    wording::of_line(text, true).unwrap_or(FailureCause::Stated { class: Class::Reported, detail })
}

/// The first sentence of the box in which VASP refuses to go on, or what stands below its bad news.
pub(super) fn of_vasp(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let inside = |at: usize| closing.get(at).map_or("", |(line, _)| line.text.trim_matches(['|', ' ']));
    let refuses = |(line, _): &(Line, u64)| has_phrase(&line.text, "I REFUSE TO CONTINUE WITH THIS SICK JOB");
    if let Some(end) = closing.iter().position(refuses) {
        let is_box = |at: &usize| closing.get(*at).is_some_and(|(line, _)| line.text.starts_with('|'));
        // Its head is written in large letters that are made of small signs.
        let is_said = |at: &usize| inside(*at).bytes().any(|byte| byte.is_ascii_lowercase());
        let at = (end + 1..closing.len()).take(OF_A_BLOCK).take_while(is_box).filter(is_said).last()?;
        return Some((at, said(inside(at))));
    }
    let news =
        closing.iter().position(|(line, _)| line.text.starts_with("VERY BAD NEWS! internal error in subroutine "))?;
    let head = inside(news);
    Some((news, said(&format!("{head} {}", news.checked_sub(1).map_or("", inside)))))
}

/// What stands above Stata's first code, `r(601);`.
pub(super) fn of_stata(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let is_code = |text: &str| {
        let code = text.strip_prefix("r(").and_then(|rest| rest.strip_suffix(");"));
        code.is_some_and(|code| (1..=4).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let last = closing.first().filter(|(line, _)| is_code(&line.text))?;
    let words = closing.iter().position(|(line, _)| !is_code(&line.text) && line.text != "end of do-file")?;
    let text = closing.get(words)?.0.text.as_str();
    let cause = if last.0.text == "r(1);" { wording::cause_of(Class::Interrupted) } else { said(text) };
    Some((words, cause))
}

/// `fit.rb:14:in `fit': undefined local variable (NameError)`, above its frames.
pub(super) fn of_ruby(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let named = |text: &str| {
        let (place, rest) = text.split_once(":in ")?;
        let (file, line) = place.rsplit_once(':')?;
        let (words, name) = rest.strip_suffix(')')?.rsplit_once(" (")?;
        let message = words.split_once(": ")?.1;
        let is_place = (file.ends_with(".rb") || file.starts_with('/')) && line.parse::<u32>().is_ok();
        (is_place && name.starts_with(char::is_uppercase) && !name.contains(' '))
            .then(|| Exception::new(name, cut_text(message, LONGEST), &Files::default()))
    };
    let is_frame = |(line, _): &&(Line, u64)| line.indent > 0 || line.text.starts_with("from ");
    let at = closing.iter().take(OF_A_BLOCK).take_while(is_frame).count();
    let exception = named(&closing.get(at)?.0.text)?;
    let spoken = wording::of_exception(&exception.name, &exception.message);
    Some((at, spoken.unwrap_or(FailureCause::Raised(exception))))
}

/// The first line below the name of the package that Go could not build, or the first of its tests that failed.
pub(super) fn of_go(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let is_place = |text: &str| {
        let file = text_before(text, ".go:").filter(|file| !file.contains(' '));
        file.is_some() && integer_after(text, ".go:").is_some()
    };
    let is_tools = |(line, _): &&(Line, u64)| {
        let text = line.text.as_str();
        is_place(text)
            || line.indent > 0
            || text.starts_with("FAIL")
            || text.starts_with("note: module requires Go")
            || text.starts_with("exit status ")
            || text == "too many errors"
    };
    let is_test = |(line, _): &(Line, u64)| line.text.starts_with("--- FAIL: ");
    let ends_tests = closing.first().is_some_and(|(line, _)| line.text.starts_with("FAIL"));
    if let Some(at) = closing.iter().rposition(is_test).filter(|_| ends_tests) {
        return Some((at, said(&closing.get(at)?.0.text)));
    }
    let head = closing.iter().take(OF_A_BLOCK).take_while(is_tools).count();
    let is_package = closing.get(head)?.0.text.starts_with("# ");
    let at = head.checked_sub(1).filter(|_| is_package)?;
    let text = closing.get(at)?.0.text.as_str();
    is_place(text).then(|| (at, said(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(log: &str) -> Vec<(Line, u64)> {
        let numbered = log.lines().zip(1..).filter(|(text, _)| !text.is_empty());
        let mut lines: Vec<(Line, u64)> = numbered.map(|(text, number)| (Line::new(text.as_bytes()), number)).collect();
        lines.reverse();
        lines
    }

    #[test]
    fn other_tools_words_are_found_in_their_blocks() {
        let stata = |log: &str| of_stata(&last(log)).map(|(at, cause)| (at, cause.class()));
        assert_eq!(
            stata(". use a\nfile a.dta not found\nr(601);\n\nend of do-file\nr(601);\n"),
            Some((3, Class::Reported))
        );
        assert_eq!(stata("--Break--\nr(1);\n"), Some((1, Class::Interrupted)));
        assert_eq!(stata("call(12);\nanswer(601);\n"), None);
        let ruby = |log: &str| of_ruby(&last(log)).map(|(at, cause)| (at, cause.class()));
        assert_eq!(ruby("a.rb:3:in `f': no rate (NameError)\n\tfrom a.rb:9:in `<main>'\n"), Some((1, Class::Raised)));
        assert_eq!(ruby("a.rb:3: warning: no rate (see NameError)\n"), None);
        let go = |log: &str| of_go(&last(log)).map(|(at, cause)| (at, cause.class()));
        assert_eq!(go("# x.org/fit\n./fit.go:7:2: undefined: rate\nFAIL\n"), Some((1, Class::Reported)));
        assert_eq!(
            go("--- FAIL: TestFit (0.01s)\n    fit_test.go:12: got 3\nFAIL\nexit status 1\nFAIL\tx.org/fit\t0.01s\n"),
            Some((4, Class::Reported))
        );
        assert_eq!(go("# a note\nsee fit.go:7 for more\n"), None);
    }
}
