//! What a line that is known to be fatal speaks of: what was raised at a traceback's end, or the last words of a log.
//!
//! Signatures are strict, for they read lines anywhere, most of which are talk. Of a line whose place already says that
//! it is fatal, its words are enough, in whatever form a library puts them.

mod rows;

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
    let small = small(&format!("{name}: {message}"));
    ROWS.iter().find(|row| row.is_raised && row.speaks(&small)).map(|row| row.cause(&small))
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
        opens || rest.ends_with(*word) || small.contains(&format!(": {word}"))
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
