//! Lines that state no failure: of programs, what they would say if they ran; rows of figures; answers of a debugger.

use crate::exception::exception_stated;
use crate::text::has_phrase;

/// How a line begins that prints, logs or raises what stands in its quotation marks.
const STARTS: &[&str] = &[
    "raise ",
    "print(",
    "echo ",
    "printf ",
    "printf(",
    "fprintf(",
    "throw std::",
    "throw new ",
    "logger.",
    "logging.",
    "log.",
    "sys.exit(",
    "warnings.warn(",
    "console.",
    "std::cerr",
    "self.assert",
    "pytest.",
    "die(",
    "exit_with(",
];
/// What follows a command in a shell's script where it fails.
const BETWEEN: &[&str] = &["|| echo ", "|| exit", "|| { echo", "&& echo ", "|| printf ", "; echo \""];
/// Where a shell's script writes to.
const ENDS: &[&str] = &[">&2", "1>&2", "> /dev/stderr"];

/// Whether a line is code that would say something.
pub(crate) fn is_code(text: &str) -> bool {
    let quotes = memchr::memchr2(b'"', b'\'', text.as_bytes()).is_some();
    // `raise ValueError` without words says nothing either way.
    let opens = || STARTS.iter().any(|start| text.starts_with(start)) && (quotes || text.ends_with(')'));
    let of_shell = || BETWEEN.iter().any(|words| has_phrase(text, words)) || ENDS.iter().any(|end| text.ends_with(end));
    // `if "out of memory" in str(error):`, `except KeyError as error:`
    let of_block = || {
        let begins = ["if ", "elif ", "except ", "while ", "with "].iter().any(|start| text.starts_with(start));
        begins && text.ends_with([':', '{']) && (quotes || has_phrase(text, " as "))
    };
    opens() || (quotes && of_shell()) || of_block()
}

/// What Python's debugger answers to what somebody types: `*** NameError: name 'xit' is not defined`.
pub(crate) fn is_of_debugger(text: &str) -> bool {
    let answer = text.strip_prefix("*** ").and_then(|said| exception_stated(said, true));
    let is_prompt = ["(Pdb) ", "ipdb> "].iter().any(|prompt| text.starts_with(prompt));
    is_prompt || answer.is_some_and(|(name, message)| name != "Error" && !message.is_empty())
}

/// Whether what follows `Error:` is a number beside others that have names: `1.31e-01, time: 51.2`.
pub(crate) fn is_row_of_figures(said: &str) -> bool {
    let mut parts = said.split([',', ';', '|']).map(str::trim);
    let is_number = |word: &str| word.trim_end_matches('%').parse::<f64>().is_ok();
    let has_name = |part: &str| part.rsplit([' ', ':', '=']).next().is_some_and(is_number);
    parts.next().is_some_and(is_number) && parts.clone().next().is_some() && parts.all(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_what_it_says() {
        let code = [
            "raise RuntimeError(\"CUDA error: out of memory\")",
            "python train.py || echo \"ERROR: the training failed\"",
            "echo \"Error: no checkpoint\" >&2",
            "logger.error(\"no space left on device\")",
            "if \"out of memory\" in str(error):",
            "except KeyError as error:",
        ];
        assert!(code.iter().all(|text| is_code(text)));
        let said = [
            "RuntimeError('CUDA error: out of memory')",
            "log.txt: No space left on device",
            "print failed: no such printer",
            "if CUDA runs out of memory: lower the batch size",
            "./run.sh: line 3: 4711 Killed  python train.py && echo done",
            "raise the limit: [Errno 24] Too many open files",
        ];
        assert!(said.iter().all(|text| !is_code(text)));
    }
}
