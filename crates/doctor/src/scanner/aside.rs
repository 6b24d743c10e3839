//! Exceptions that a program goes on after: in threads and destructors, retried, or passed over.

use crate::exception::Exception;
use crate::text::has_phrase;
use crate::traceback::HEAD;

/// Whether the exception is one that Python itself says it ignores, of a destructor or of what is left at the end, or a warning.
pub(super) fn is_ignored(exception: &Exception, history: &str, back: u64) -> bool {
    // NumPy warns of a module that was built for an older one with the whole stack.
    if exception.message == "_ARRAY_API not found" {
        return true;
    }
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    const HEADS: &[&str] = &["Exception ignored in", "Error in atexit."];
    let before = history.lines().rev().skip(back).take(3);
    before.into_iter().any(|text| HEADS.iter().any(|head| has_phrase(text, head)))
}

/// Whether the lines before a traceback's head, `back` lines ago, say that the program goes on after it.
pub(super) fn is_aside(history: &str, back: u64) -> bool {
    const ASIDES: &[&str] = &[
        "Exception ignored in",
        "Exception in thread",
        "Error in atexit",
        "exception was never retrieved",
        "Exception in callback",
        "Exception in ASGI application",
        "--- Logging error ---",
        "Error in sys.excepthook",
        "Exception in worker process, retrying",
        "Retry attempt failed",
        "etrying in ",
        "will retry",
        "Will retry",
        "entering retry loop",
        // What serves requests: telegram's bots, Flask.
        "No error handlers are registered, logging exception",
        "TeleBot: \"Exception traceback:",
        " ERROR in app: Exception on /",
        // scikit-learn's search, of the parameters that did not work.
        "fits failed with the following error",
        // Optuna, which goes on to the next trial.
        "because of the following error",
    ];
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    let before = history.lines().rev().skip(back);
    const HANDLED: &[&str] = &["kipping", "gnoring ", "alling back", "fallback", ", trying "];
    let passed_over = before.clone().take(2).any(|text| HANDLED.iter().any(|words| has_phrase(text, words)));
    // Threads write at once: heads and blank lines of others stand between.
    let mut before = before.filter(|text| !text.trim().is_empty() && !has_phrase(text, HEAD));
    passed_over || before.by_ref().take(3).any(|text| ASIDES.iter().any(|aside| has_phrase(text, aside)))
}
