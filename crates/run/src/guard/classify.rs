//! Why an attempt failed: its log, its exit, what the kernel counted, and what was seen of it while it ran.

use nix::sys::signal::Signal;
use tonnage_core::failure::Class;
use tonnage_core::printable::printable;
use tonnage_core::progress::Progress;
use tonnage_core::record::{ExitRecord, FailureClass, FailureRecord};
use tonnage_doctor::{FailureCause, Figure, Scanner, Source, diagnose};

use crate::log::LogTail;

/// Lines of a program's last words, where nothing in them is known.
const LAST_LINES: usize = 2;

/// What is known besides the log.
#[derive(Clone, Debug, Default)]
pub struct ExitEvidence {
    /// How it ended.
    pub exit: ExitRecord,
    /// Seconds it ran.
    pub seconds: f64,
    /// Seconds within which a crash is a failure to start.
    pub startup_seconds: u64,
    /// The last step its log said, or `trainer_state.json` where that says none.
    pub step: Option<u64>,
    /// Where it was last, by the same.
    pub progress: Option<Progress>,
    /// Steps that its log showed one after the other, or that it saved.
    pub steps_made: Option<u64>,
    /// Where it was ended because it hung: what its processes did.
    pub stalled: Option<String>,
    /// How often the kernel's memory killer struck in its cgroup while it ran.
    pub oom_kills: u64,
    /// Whether it was ended because it had made the steps of a probe.
    pub is_probed: bool,
}

/// Classifies a failure.
pub fn classify_failure(tail: &LogTail, seen: &ExitEvidence) -> FailureRecord {
    let sources = [log_source("stderr", &tail.stderr), log_source("stdout", &tail.stdout)];
    let diagnosis = diagnose(&sources);
    let root = diagnosis.root.map(|root| root.finding).filter(|finding| !is_told_by_exit(finding.class()));
    let (class, mut evidence) = match root {
        // Whoever was ended for hanging, or by the kernel, died of that and not of what it said before.
        _ if seen.stalled.is_some() => (FailureClass::Stalled, vec![hung_words(seen)]),
        _ if seen.oom_kills > 0 && seen.exit.signal == Some(KILL) => {
            (Class::HostMemory.into(), vec![format!("memory.events: oom_kill rose by {}", seen.oom_kills)])
        }
        Some(finding) => (finding.cause.class().into(), vec![printable(finding.text.trim())]),
        None => of_exit(seen, tail),
    };
    evidence.push(seen.exit.words());
    let cause = root.filter(|finding| class == finding.cause.class().into()).map(|finding| &finding.cause);
    FailureRecord {
        class,
        evidence,
        numbers: cause.map(cause_numbers).unwrap_or_default(),
        seconds: seen.seconds,
        at_start: seen.seconds < seen.startup_seconds as f64 && seen.step.is_none(),
        step: seen.step,
        steps_made: seen.steps_made,
    }
}

/// Classes that say no more than how the program ended, which its exit says as well.
const fn is_told_by_exit(class: Class) -> bool {
    matches!(class, Class::Raised | Class::Interrupted | Class::Terminated | Class::Hangup | Class::Cancelled)
}

const KILL: i32 = 9;

/// What an end by `signal` is, where nothing else is known.
fn of_signal(signal: i32) -> Class {
    match Signal::try_from(signal) {
        Ok(Signal::SIGKILL) => Class::Killed,
        Ok(Signal::SIGHUP) => Class::Hangup,
        Ok(Signal::SIGINT) => Class::Interrupted,
        // Schedulers warn by SIGUSR1 and SIGUSR2; who takes neither is ended by them.
        Ok(Signal::SIGTERM | Signal::SIGUSR1 | Signal::SIGUSR2) => Class::Terminated,
        _ => Class::Crash,
    }
}

fn hung_words(evidence: &ExitEvidence) -> String {
    let state = evidence.stalled.as_deref().filter(|state| !state.is_empty());
    format!("no output and no work{}", state.map_or_else(String::new, |state| format!("; {state}")))
}

fn log_source(name: &str, text: &str) -> Source {
    let mut scanner = Scanner::new();
    scanner.feed(text.as_bytes());
    Source { name: name.to_owned(), scan: scanner.finish(), ..Source::default() }
}

/// What the exit says where the log says nothing. A shell, or a launcher, says 128 and the signal.
fn of_exit(evidence: &ExitEvidence, tail: &LogTail) -> (FailureClass, Vec<String>) {
    let exit = &evidence.exit;
    let signal = exit.signal.or(exit.code.filter(|code| (129..=192).contains(code)).map(|code| code - 128));
    let last: Vec<&str> = tail.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let words = last[last.len().saturating_sub(LAST_LINES)..].iter().map(|line| line.trim().to_owned());
    let evidence: Vec<String> = words.rev().collect();
    match signal {
        Some(signal) => (of_signal(signal).into(), evidence),
        None => (FailureClass::ProgramError, evidence),
    }
}

/// The sizes of a message, by name.
fn cause_numbers(cause: &FailureCause) -> Vec<(String, u64)> {
    let bytes = |(name, figure): (&'static str, Figure)| match figure {
        Figure::Bytes(bytes) => Some((name.to_owned(), bytes)),
        _ => None,
    };
    cause.figures().into_iter().filter_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: &str = "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a \
                       total capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 6.00 GiB is \
                       allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated. If reserved\n";

    fn classified(stderr: &str, evidence: &ExitEvidence) -> FailureRecord {
        classify_failure(&LogTail { stdout: String::new(), stderr: stderr.to_owned() }, evidence)
    }

    fn exit(code: Option<i32>, signal: Option<i32>) -> ExitEvidence {
        let exit = ExitRecord { code, signal };
        ExitEvidence { exit, seconds: 2.0, startup_seconds: 60, ..ExitEvidence::default() }
    }

    #[test]
    fn numbers_of_the_message_are_kept() {
        let failure = classified(OOM, &exit(Some(1), None));
        assert_eq!((failure.class.name(), failure.at_start), ("gpu_memory", true));
        let number = |name: &str| failure.numbers.iter().find(|(other, _)| other == name).unwrap().1 >> 20;
        assert_eq!(["requested", "total", "free", "allocated"].map(number), [3072, 8192, 1024, 6144]);
    }

    #[test]
    fn exits_without_words() {
        let cases = [
            (exit(None, Some(9)), "killed"),
            (exit(Some(137), None), "killed"),
            (exit(None, Some(15)), "terminated"),
            (exit(Some(130), None), "interrupted"),
            (exit(None, Some(1)), "hangup"),
            (exit(None, Some(11)), "crashed"),
            (exit(Some(1), None), "program_error"),
            (ExitEvidence { oom_kills: 1, ..exit(None, Some(9)) }, "host_memory"),
            (ExitEvidence { stalled: Some(String::new()), ..exit(None, Some(15)) }, "stalled"),
        ];
        for (evidence, class) in cases {
            assert_eq!(classified("ValueError: no\n", &evidence).class.name(), class, "{evidence:?}");
        }
    }
}
