//! What a line that is known to be fatal speaks of: what was raised at a traceback's end, or the last words of a log.
//!
//! Signatures are strict, for they read lines anywhere, most of which are talk. Of a line whose place already says that
//! it is fatal, its words are enough, in whatever form a library puts them.

mod rows;

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use tonnage_core::failure::Class;

use self::rows::{ROWS, Row};
use crate::cause::{Collective, FailureCause, Worker};
use crate::memory::GpuMemory;
use crate::signature::is_quota;
use crate::text::has_phrase;

/// A longer text is read up to here.
const READ: usize = 1500;

/// What an exception's words speak of, where its name and place say nothing but that it was raised.
pub(crate) fn of_exception(name: &str, message: &str) -> Option<FailureCause> {
    if !may_speak(name) && !may_speak(message) {
        return None;
    }
    let small = small(&format!("{name}: {message}"));
    ROWS.iter().find(|row| row.is_raised && row.speaks(&small)).map(|row| row.cause(&small))
}

/// Whether any word of a row stands in the text: one pass, for most exceptions speak of nothing known.
fn may_speak(text: &str) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = || {
        let raised =
            ROWS.iter().filter(|row| row.is_raised).flat_map(|row| row.groups.first().copied().unwrap_or_default());
        AhoCorasick::builder().ascii_case_insensitive(true).build(raised).ok()
    };
    WORDS.get_or_init(words).as_ref().is_none_or(|words| words.is_match(text))
}

/// What a line speaks of that is among a log's last words; where nothing else says that it is an error, the words
/// stand where programs put an error's: at an end, or behind a colon.
pub(crate) fn of_line(text: &str, is_error: bool) -> Option<FailureCause> {
    let small = small(text);
    let row = ROWS.iter().find(|row| row.speaks(&small))?;
    let stated = |word: &&str| {
        let rest = small.trim_end_matches(['.', '!', ')']);
        // A sentence of a document begins with it too, and goes on.
        let opens = small.strip_prefix(*word).is_some_and(|after| !after.trim_start().starts_with(char::is_alphabetic));
        opens || rest.ends_with(*word) || small.contains(&format!(": {word}")) || small.contains(&format!(" {word}, "))
    };
    let is_stated = row.groups.iter().flat_map(|words| *words).any(stated);
    (is_error || is_stated).then(|| row.cause(&small))
}

fn small(text: &str) -> String {
    crate::traceback::cut_text(text, READ).to_lowercase()
}

impl Row {
    fn cause(&self, small: &str) -> FailureCause {
        match cause_of(self.class) {
            FailureCause::DiskFull { .. } => FailureCause::DiskFull { is_quota: is_quota(small) },
            cause => cause,
        }
    }

    fn speaks(&self, small: &str) -> bool {
        self.groups.iter().all(|words| words.iter().any(|word| has_phrase(small, word)))
    }
}

/// A cause of the class, of which nothing else is known.
pub(crate) fn cause_of(class: Class) -> FailureCause {
    match class {
        Class::GpuMemory => FailureCause::GpuMemory(GpuMemory { backend: "CUDA", ..GpuMemory::default() }),
        Class::HostMemory => FailureCause::HostMemory { requested: None, resident: None, pid: None },
        Class::SharedMemory => FailureCause::SharedMemory { pid: None },
        Class::DiskFull => FailureCause::DiskFull { is_quota: false },
        Class::NoGpu => FailureCause::NoGpu,
        Class::DriverMismatch => FailureCause::DriverMismatch,
        Class::KernelLimit => FailureCause::KernelLimit,
        Class::CudaFault => FailureCause::CudaFault { assertion: None },
        Class::PortInUse => FailureCause::PortInUse { port: None },
        Class::NcclTimeout => FailureCause::NcclTimeout(Collective::default()),
        Class::NcclError => FailureCause::NcclError,
        Class::TimeLimit => FailureCause::TimeLimit,
        Class::WorkerFailed => FailureCause::WorkerFailed(Worker::default()),
        Class::Xid => FailureCause::Xid { code: None, hardware: false },
        Class::Killed => FailureCause::Killed { pid: None, data_loader: false },
        Class::Crash => FailureCause::Crash { pid: None, aborted: false },
        class => FailureCause::Stated { class, detail: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_letter_beyond_ascii_changes_with_its_case() {
        // The first pass knows small and capital letters of ASCII alone.
        for word in ROWS.iter().filter(|row| row.is_raised).flat_map(|row| row.groups[0]) {
            assert!(may_speak(&word.to_ascii_uppercase()) && may_speak(word), "{word}");
        }
        assert!(!may_speak("expected sequence of length 512 at dim 1 (got 498)"));
    }

    #[test]
    fn words_are_small_and_in_any_form_tell_the_class() {
        for row in ROWS {
            assert!(row.groups.iter().flat_map(|words| *words).all(|word| word.to_lowercase() == *word));
        }
        let cases = [
            (
                "RuntimeError",
                "merge: failed: cudaErrorIllegalAddress: an illegal memory access",
                Some(Class::CudaFault),
            ),
            ("SafetensorError", "IoError(Os { code: 122, kind: FilesystemQuotaExceeded })", Some(Class::DiskFull)),
            ("XpuError", "XPU memory allocation failed, asked 3 GiB", Some(Class::GpuMemory)),
            ("AssertionError", "CUDA unavailable, invalid device 0 requested", Some(Class::NoGpu)),
            ("ConnectionError", "hub: Connection refused", None),
            ("RuntimeError", "worker 3 is killed by signal:killed", Some(Class::Killed)),
            ("KeyError", "'labels'", None),
        ];
        for (name, message, class) in cases {
            assert_eq!(of_exception(name, message).map(|cause| cause.class()), class, "{message}");
        }
        let class = |text: &str| of_line(text, false).map(|cause| cause.class());
        assert_eq!(class("write: No space left on device"), Some(Class::DiskFull));
        assert_eq!(class("launcher: worker 3 got signal 9"), Some(Class::Killed));
        assert_eq!([class("epoch 3 ends"), class("grep \"out of memory\" log | wc")], [None, None]);
        assert!(of_line("worker 3: signal 9 came", true).is_some());
    }
}
