//! SIGSEGV: native code that touched an address it must not. Shells, Python and launchers say so for it.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::exception::{Exception, Raiser};
use crate::text::{has_phrase, text_after};
use crate::wording::cause_of;
use tonnage_core::failure::Class;

pub(super) const SEGMENTATION: Signature = Signature {
    name: "segmentation_fault",
    needles: &[
        "Segmentation fault",
        "egmentation fault encountered",
        "segmentation fault  ",
        "segmentation fault (core",
        "*** Error in `",
        "*** SIG",
        "received signal SIG",
        "forrtl: severe (174)",
        "段错误",
        "总线错误",
        "(core dumped)",
        "crash data gathering hook invoked",
        "RAW: Dumping core locally",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let alone = matches!(text, "Segmentation fault" | "Segmentation fault (core dumped)");
        let python = is_said(text, "Fatal Python error: Segmentation fault");
        let worker = has_phrase(text, "ERROR: Unexpected segmentation fault encountered in worker");
        let srun =
            has_phrase(text, "srun: error: ") && has_phrase(text, ": task") && has_phrase(text, ": Segmentation fault");
        let zsh = text.starts_with("zsh: segmentation fault ");
        let signal = is_said(text, "Signal: Segmentation fault (");
        // absl's and glog's handlers.
        let handler = ["*** SIGSEGV ", "*** SIGBUS ", "*** SIGILL ", "*** SIGFPE ", "*** SIGABRT "];
        if handler.iter().any(|start| text.starts_with(start)) {
            return Reading::whole(FailureCause::Crash { pid: None, aborted: text.starts_with("*** SIGABRT ") });
        }
        if text.starts_with("*** SIGTERM received at time=") {
            return Reading::whole(FailureCause::Stated { class: Class::Terminated, detail: None });
        }
        // absl's too, where the excerpt has no more of it.
        let hook = has_phrase(text, "coredump_hook.cc") && has_phrase(text, "] RAW: ");
        // glibc before 2.26.
        let heap = text.starts_with("*** Error in `") && text.ends_with(" ***");
        let pid = reported_pid(text).or_else(|| dumped_pid(text));
        // gdb; bash in Chinese, `run.sh: 行 3:  4711 段错误  python`.
        let debugged = has_phrase(text, " received signal SIGSEGV, Segmentation fault") || is_of_fortran(text);
        let chinese = is_of_shell(text) && SEGMENTATION_ELSEWHERE.iter().any(|words| has_phrase(text, words));
        if signal || debugged || chinese || hook || heap || alone || python || worker || srun || zsh || pid.is_some() {
            return Reading::whole(FailureCause::Crash { pid, aborted: false });
        }
        None
    },
};

/// What bash in Chinese calls SIGSEGV and SIGBUS: `run.sh: 行 3:  4711 段错误  python`.
const SEGMENTATION_ELSEWHERE: &[&str] = &[" 段错误", " 总线错误"];

/// Whether it is a shell's report of a process, in English or in Chinese.
pub(super) fn is_of_shell(text: &str) -> bool {
    [": line ", ": 行 ", "：行 "].iter().any(|words| has_phrase(text, words))
}

/// The process in a shell's report of it in any language: `run.sh: Zeile 3:  4711 Abgebrochen  (core dumped) fit`. What has
/// a signature of its own in English is left to that.
fn dumped_pid(text: &str) -> Option<u64> {
    let (report, _) = text.split_once(" (core dumped)")?;
    let is_english = ABORTS.iter().any(|abort| has_phrase(report, abort)) || has_phrase(report, "Bus error");
    let words: Vec<&str> = report.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    words.windows(2).filter(|_| !is_english).find_map(|pair| match pair {
        [line, pid] => line.strip_suffix(':').and_then(number).and_then(|_| number(pid)),
        _ => None,
    })
}

/// Java's, of its own death; a memory that it cannot have is told in one of the next lines.
pub(super) const JAVA: Signature = Signature {
    name: "java_died",
    needles: &["A fatal error has been detected by the Java Runtime Environment:"],
    also: &[],
    follow: 8,
    read: |text| {
        if !text.starts_with("A fatal error has been detected by") && !text.starts_with("# A fatal error") {
            return None;
        }
        let memory = ["OutOfMemoryError", "insufficient memory for the Java"].iter().any(|it| has_phrase(text, it));
        let crash = FailureCause::Crash { pid: None, aborted: false };
        if memory { Reading::whole(cause_of(Class::HostMemory)) } else { Reading::part(Some(crash)) }
    },
};

/// What GNU's and Intel's runtimes say of a signal: `Program received signal SIGSEGV: Segmentation fault - invalid memory
/// reference.`, `forrtl: severe (174): SIGSEGV, segmentation fault occurred`.
fn is_of_fortran(text: &str) -> bool {
    let signal = text.strip_prefix("Program received signal ").and_then(|rest| rest.split_once(": "));
    let is_death =
        signal.is_some_and(|(name, _)| matches!(name, "SIGSEGV" | "SIGBUS" | "SIGFPE" | "SIGILL" | "SIGABRT"));
    is_death || text.starts_with("forrtl: severe (174): SIGSEGV")
}

/// What ends native code beside SIGSEGV, as shells and Python name it. `abort()` follows a C++ exception or a check that
/// did not hold; what those say stands in lines of their own.
const ABORTS: &[&str] = &["Aborted", "Illegal instruction", "Floating point exception"];

pub(super) const ABORTED: Signature = Signature {
    name: "aborted",
    needles: &["Aborted ", "Illegal instruction", "loating point exception", ": Aborted"],
    also: &["(core dumped)", "srun: error: ", "Fatal Python error: ", "] Signal: ", ": line "],
    follow: 0,
    read: |text| {
        let python = ABORTS.iter().any(|abort| is_said(text, &format!("Fatal Python error: {abort}")));
        let dumped = text.strip_suffix("(core dumped)").is_some_and(|abort| ABORTS.contains(&abort.trim_end()));
        let srun = has_phrase(text, "srun: error: ") && ABORTS.iter().any(|abort| text.trim_end().ends_with(abort));
        let report = has_phrase(text, ": line ") || text.starts_with('[');
        // `run.sh: line 3: 4711 Aborted  python train.py`, with `(core dumped)` or without.
        let pid = ABORTS.iter().filter(|_| report).find_map(|abort| {
            let (before, after) = text.split_once(abort)?;
            let apart = after.is_empty() || after.starts_with("  ") || after.trim_start().starts_with("(core dumped)");
            before.split_whitespace().last()?.parse().ok().filter(|_| apart)
        });
        let signal = ABORTS.iter().any(|abort| is_said(text, &format!("Signal: {abort} (")));
        if signal || python || dumped || srun || pid.is_some() {
            let aborted = has_phrase(text, "Aborted");
            return Reading::whole(FailureCause::Crash { pid, aborted });
        }
        None
    },
};

/// `run.sh: line 3:  4711 Segmentation fault  python`, `[1]    4711 segmentation fault (core dumped)  python`
fn reported_pid(text: &str) -> Option<u64> {
    if !has_phrase(text, ": line ") && !text.starts_with('[') {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().take(8).collect();
    let report = words.windows(3).find(|words| matches!(words, [_, "Segmentation" | "segmentation", "fault"]))?;
    report.first()?.parse().ok()
}

/// A C++ exception that nobody caught; what signatures know of it stands in lines of their own.
pub(super) const THROWN: Signature = Signature {
    name: "native_exception",
    needles: &["terminate called after throwing an instance of"],
    also: &[],
    follow: 2,
    read: |text| {
        let name = text_after(text, "terminate called after throwing an instance of '")?.split('\'').next()?;
        let message =
            text_after(text, "what():").map_or("", |message| message.trim().lines().next().unwrap_or_default());
        // The watchdog's words are of another rank's death, and memory has signatures of its own.
        // Thrust runs on GPUs alone.
        if name.starts_with("thrust::") && ["out of memory", "bad_alloc"].iter().any(|words| has_phrase(message, words))
        {
            return Reading::whole(cause_of(Class::GpuMemory));
        }
        let known = ["NCCL", "Watchdog", "out of memory", "bad_alloc"].iter().any(|words| has_phrase(message, words));
        if known {
            return Some(Reading { cause: None, complete: true });
        }
        let (name, message) = (name.chars().take(100).collect(), message.chars().take(300).collect());
        let cause = FailureCause::Raised(Exception { name, message, raiser: Raiser::Aside });
        let complete = has_phrase(text, "what():");
        Some(Reading { cause: complete.then_some(cause), complete })
    },
};
