//! Julia's stack traces: below an error, and what it dumps when a signal ends it.

use crate::text::has_phrase;

/// The head of a stack trace, which errors of Julia have below their words.
const HEAD: &str = "Stacktrace:";

/// What Julia calls an error that ends a script.
pub(crate) const ERROR: &str = "ERROR: LoadError: ";

/// Whether a log's end has a stack trace.
pub(crate) fn has_stack(tail: &str) -> bool {
    tail.lines().any(|text| text == HEAD)
}

/// ` [12] copyto!`, `@ ./broadcast.jl:972 [inlined]`, ` [1] top-level scope at /home/u/a.jl:250`: a line of a stack trace
/// below an error, or its head.
pub(crate) fn is_of_stack(text: &str) -> bool {
    let numbered = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let is_numbered = numbered.is_some_and(|(number, _)| number.parse::<u16>().is_ok());
    is_numbered || (text.starts_with("@ ") && has_phrase(text, ".jl:")) || text == HEAD
}

/// `uv_cond_wait at /workspace/srcdir/libuv/src/unix/thread.c:822`, `unknown function (ip: (nil))`: of what it dumps.
pub(crate) fn is_of_dump(text: &str) -> bool {
    let place = text.split_once(" at ").and_then(|(_, place)| place.rsplit_once(':'));
    let is_placed = place.is_some_and(|(file, line)| file.contains('/') && line.parse::<u32>().is_ok());
    is_placed || text.ends_with("(unknown line)") || text.starts_with("unknown function (ip: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_stacks_and_dumps_are_told() {
        let stack =
            ["[12] copyto!", "@ Base.Math ./math.jl:33", "[1] top-level scope at /home/u/a.jl:250", "Stacktrace:"];
        assert!(stack.iter().all(|text| is_of_stack(text)));
        assert!(!is_of_stack("[rank1] KeyError: 'a'") && !is_of_stack("@ is not a name"));
        assert!(
            is_of_dump("uv_cond_wait at /workspace/libuv/src/unix/thread.c:822")
                && is_of_dump("poptask at ./task.jl:1012")
        );
        assert!(!is_of_dump("saved at 12:30:05") && !is_of_dump("loss at step 3: 2.1"));
    }
}
