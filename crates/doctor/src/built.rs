//! What builders say: compilers and linkers, which tell what is wrong, and make, which tells only that something is.

use crate::text::has_phrase;

/// `cmd/main.go:12:2: undefined: fit`: a compiler's, which ends with what it does not accept.
pub(crate) fn is_of_compiler(text: &str) -> bool {
    const SOURCES: &[&str] = &["go", "c", "cc", "cpp", "cu", "h", "hpp", "rs", "f90", "F90", "java", "kt", "ts", "zig"];
    let mut parts = text.splitn(4, ':');
    let file = parts.next().and_then(|file| file.rsplit_once('.'));
    let is_source = file.is_some_and(|(name, end)| !name.contains(' ') && SOURCES.contains(&end));
    let numbers = parts.by_ref().take(2).filter(|part| part.parse::<u32>().is_ok()).count();
    is_source
        && numbers == 2
        && parts.next().is_some_and(|said| ![" note: ", "warning"].iter().any(|word| has_phrase(said, word)))
}

/// Whether a builder ends because a command of it failed.
pub(crate) fn is_builders_end(text: &str) -> bool {
    is_makes_end(text)
        || text == "ninja: build stopped: subcommand failed."
        || text.starts_with("error: could not compile `")
}

/// The first line in which a compiler or linker says what it does not accept, of a log of `lines` lines that ends with
/// `tail`; the others follow from it.
pub(crate) fn first_error(tail: &str, lines: u64) -> Option<(&str, u64)> {
    const WORDS: &[&str] = &[": error: ", ": fatal error: ", ": Error: ", "): error #"];
    let says = |text: &str| {
        // rustc's have codes.
        WORDS.iter().any(|words| has_phrase(text, words)) || text.starts_with("error[E") || is_unlinked(text)
    };
    let numbered = tail.lines().rev().zip((1..=lines).rev());
    numbered.filter(|(text, _)| says(text.trim_start())).last()
}

/// `make[1]: *** [Makefile:8: main] Error 1`: that a command failed, which has said why.
fn is_makes_end(text: &str) -> bool {
    let said = text.split_once("make").filter(|(before, _)| before.is_empty() || *before == "g");
    let code = text.rsplit_once("] Error ").is_some_and(|(_, code)| code.bytes().all(|byte| byte.is_ascii_digit()));
    said.is_some_and(|(_, rest)| has_phrase(rest, ": *** [")) && (code || text.ends_with("] Aborted"))
}

/// `main.cpp:(.text+0x1c): undefined reference to `f'': a linker's.
pub(crate) fn is_unlinked(text: &str) -> bool {
    const WORDS: &[&str] = &["): undefined reference to `", ": undefined reference to `", ": multiple definition of `"];
    WORDS.iter().any(|words| has_phrase(text, words))
}
