//! What a log ends with, where nothing before explains it: fixed texts of programs that state no exception, a row each,
//! and the last line that calls itself an error.
//!
//! They are common words: in the middle of a log they are talk, as its last words they are what ended it.

use crate::cause::{FailureCause, Worker};
use crate::error_words::{LONGEST, is_error, is_setting};
use crate::exception::exception_stated as exception;
use crate::julia;
use crate::last_rows::{LINES, ROWS, Row};
use crate::text::{has_phrase, integer_after};
use crate::wording;
use tonnage_core::failure::Class;

/// Lines of a log's end that are read; what follows them is a launcher's or a shell's.
pub(crate) const READ: usize = 8;
/// Lines of a log's end whose words need no level to be grave.
pub(crate) const VERY_LAST: usize = 3;
/// Words of lines that tell of what is well, what may be done, or what is left out.
const TALKS: &[&str] = &[
    " INFO",
    "INFO:",
    "[INFO",
    "DEBUG",
    "WARN",
    "arning",
    " success",
    "uccessful",
    "if you",
    "If you",
    "you can",
    "ou may",
    "0 errors",
    "no error",
    "No error",
    "gnored",
    "gnoring",
    "etrying",
    "retry",
    "kipping",
    "alling back",
    "fallback",
    "cuInit",
    "NCCL version",
    "NCCL INFO",
    "Passed",
    "PASSED",
    " ok,",
    " OK",
    "ealthy",
    // Somebody writes of himself, or of what is over.
    " I ",
    " fixed",
    " solved",
    " resolved",
];

/// What a line says if it is among a log's last words.
pub(crate) fn stated_cause(text: &str) -> Option<FailureCause> {
    if let Some(class) = state_of_job(text) {
        return Some(wording::cause_of(class));
    }
    if let Some(cause) = end_in_condor(text) {
        return Some(cause);
    }
    if is_tests_failed(text) {
        return Some(wording::cause_of(Class::Reported));
    }
    if let Some((class, _)) = LINES.iter().find(|(_, line)| text == *line) {
        return Some(wording::cause_of(*class));
    }
    let said = |row: &&Row| {
        text.starts_with(row.starts) && text.ends_with(row.ends) && (row.has.is_empty() || has_phrase(text, row.has))
    };
    let row = ROWS
        .iter()
        .find(said)
        .filter(|row| text.len() <= LONGEST && (row.has.contains("token") || !text.contains('`')))?;
    Some(wording::cause_of(row.class))
}

/// What HTCondor writes of a job that has ended: `(1) Normal termination (return value 1)`, `(0) Abnormal termination
/// (signal 9)`, `Job terminated of its own accord at 2026-02-03T09:11:12Z with exit-code 1.`
fn end_in_condor(text: &str) -> Option<FailureCause> {
    let own = text.starts_with("Job terminated of its own accord at ");
    let code = integer_after(text, "(1) Normal termination (return value ")
        .or_else(|| integer_after(text, " with exit-code ").filter(|_| own));
    let signal = integer_after(text, "(0) Abnormal termination (signal ");
    let code = code.and_then(|code| i64::try_from(code).ok()).filter(|code| *code != 0);
    let exit_code = code.or(signal.and_then(|signal| i64::try_from(signal).ok()).map(|signal| -signal))?;
    Some(FailureCause::WorkerFailed(Worker { exit_code, ..Worker::default() }))
}

/// `=== 1 failed, 12 passed in 3.21s ===`: pytest's last line.
fn is_tests_failed(text: &str) -> bool {
    let inside = text.trim_matches('=').trim();
    let is_of_pytest = text.starts_with("==") && inside.ends_with('s') && has_phrase(inside, " in ");
    let (count, rest) = inside.split_once(' ').unwrap_or_default();
    is_of_pytest && count.parse::<u32>().is_ok() && (rest.starts_with("failed") || rest.starts_with("error"))
}

/// `4711.batch  batch  OUT_OF_ME+  0:125`: a row of sacct's table, by its state.
fn state_of_job(text: &str) -> Option<Class> {
    const STATES: &[(&str, Class)] = &[
        ("OUT_OF_ME", Class::HostMemory),
        ("TIMEOUT", Class::TimeLimit),
        ("CANCELLED", Class::Cancelled),
        ("PREEMPTED", Class::Preempted),
        ("NODE_FAIL", Class::NodeFailure),
        ("FAILED", Class::WorkerFailed),
    ];
    let mut words = text.split([' ', '|']).filter(|word| !word.is_empty());
    let job = words.next()?.split(['.', '_']).next()?;
    let is_job = job.len() > 1 && job.bytes().all(|byte| byte.is_ascii_digit());
    let rest: Vec<&str> = words.filter(|_| is_job).collect();
    let is_code = |word: &&str| {
        word.split_once(':').is_some_and(|(code, signal)| code.parse::<u8>().is_ok() && signal.parse::<u8>().is_ok())
    };
    let state = rest.iter().find_map(|word| STATES.iter().find(|(state, _)| word.starts_with(state)));
    state.filter(|_| rest.iter().any(is_code)).map(|(_, class)| *class)
}

/// What a line speaks of that is among a log's very last: by its words, where it is no step, no advice and no report
/// that all is well. `at` counts from the end.
pub(crate) fn spoken_cause(text: &str, at: usize) -> Option<FailureCause> {
    // NCCL warns of what it dies of.
    let is_talk = text.contains('`')
        || (TALKS.iter().any(|words| has_phrase(text, words)) && !has_phrase(text, "NCCL WARN"))
        || text.ends_with('?')
        || is_setting(text);
    let is_error = is_error(text);
    let is_grave = is_error || at < VERY_LAST;
    if is_grave && !is_talk && text.len() <= LONGEST { wording::of_line(text, is_error) } else { None }
}

/// Whether a line is of a program that goes on; that it shuts down is what it says after a failure too.
pub(crate) fn goes_on(text: &str) -> bool {
    const LIVES: &[&str] = &[
        " INFO ",
        "[INFO",
        "INFO:",
        "[info",
        "=info ",
        "\"info\"",
        "aved ",
        "aving ",
        "started",
        "omplete",
        "inished",
        "oaded ",
        "one.",
        "uccessful",
    ];
    let lives = LIVES.iter().any(|words| has_phrase(text, words)) && !has_phrase(text, "ncomplete");
    (lives || is_glog_info(text)) && !is_closing(text)
}

/// Whether a line is of a program that ends itself or others.
pub(crate) fn is_closing(text: &str) -> bool {
    const CLOSES: &[&str] = &[
        "hutting down",
        "hutdown",
        "xiting",
        "topping",
        "leaning up",
        "erminat",
        "illing",
        "losing",
        "bort",
        "xited with",
    ];
    CLOSES.iter().any(|words| has_phrase(text, words))
}

/// `I0304 08:00:00.000001  121 main.go:12] text`
fn is_glog_info(text: &str) -> bool {
    let day = text.strip_prefix('I').and_then(|rest| rest.get(..5));
    day.is_some_and(|day| day.ends_with(' ') && day.bytes().take(4).all(|byte| byte.is_ascii_digit()))
}

/// Whether a line is of a stack that glibc, glog, Java, Go, MXNet, Julia or gdb prints.
pub(crate) fn is_native_frame(text: &str) -> bool {
    const STARTS: &[&str] =
        &["at ", "@ ", "frame #", "goroutine ", "[bt]", "[C]: ", "*** Check failure stack trace", "stack traceback:"];
    let is_numbered = text.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    STARTS.iter().any(|start| text.starts_with(start))
        || is_numbered
        || text.ends_with("()")
        || has_phrase(text, " +0x")
        || has_phrase(text, ": in function '")
        || has_phrase(text, ": in main chunk")
        || is_of_intel(text)
        || julia::is_of_dump(text)
}

/// `solve.x            0000000000A1B2C3  Unknown               Unknown  Unknown`, and the head of that table.
fn is_of_intel(text: &str) -> bool {
    let place = text.split_whitespace().nth(1).unwrap_or_default();
    let is_place = place.len() == 16 && place.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_place || (text.starts_with("Image ") && text.ends_with(" Source"))
}

/// Whether a line is what stands behind any program's end, however it ended: wandb's farewell, `time`'s figures, a shell's
/// prompt, a rule.
pub(crate) fn is_trailer(text: &str) -> bool {
    let is_time = ["real", "user", "sys"].iter().any(|name| {
        let rest = text.strip_prefix(name).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) && rest.ends_with('s'))
    });
    // GNU time's, in two lines.
    let is_time = is_time
        || (has_phrase(text, "elapsed ") && text.ends_with("maxresident)k"))
        || text.ends_with("pagefaults 0swaps");
    let is_windows = text.ends_with('>') && has_phrase(text, ":\\");
    let is_prompt = text.len() < 80 && (is_windows || (text.ends_with(['$', '#', '%']) && !text.contains(": ")));
    // What `set -x` shows.
    let is_traced = text.starts_with("+ ") && !has_phrase(text, "rror");
    let is_rule = text.len() > 3 && text.bytes().all(|byte| b"=-_*#".contains(&byte));
    // TensorFlow's, below the root errors that it found.
    let is_count = text.starts_with("0 successful operations") || has_phrase(text, " derived errors ignored");
    is_count || text.starts_with("wandb: ") || text == "wandb:" || is_time || is_prompt || is_traced || is_rule
}

/// What a logger says of an exception behind its own words: `CRITICAL [root] Uncaught ValueError: x`.
pub(crate) fn logged_words(text: &str) -> Option<(&str, &str)> {
    const LEVELS: &[&str] =
        &["CRITICAL", "FATAL", "ERROR", "Uncaught ", "Unhandled exception", "[E]", "[error]", "xception "];
    const BEFORE: &[&str] =
        &["nhandled exception. ", "Uncaught ", "] ", " - ", " | ", "exception: ", "xception ", "ERROR: "];
    let level = LEVELS.iter().any(|level| has_phrase(text, level));
    let behind = |words: &&str| exception(text.rsplit_once(*words)?.1, true).filter(|(_, said)| !said.is_empty());
    if level && text.len() <= LONGEST { BEFORE.iter().find_map(behind) } else { None }
}

/// An exception as Python shows the object: `ValueError('no such column')`.
pub(crate) fn shown_exception(text: &str) -> Option<(&str, &str)> {
    let (name, inside) = text.trim_end_matches(',').strip_suffix(')')?.split_once('(')?;
    let quote = inside.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let message = inside.get(1..)?.strip_suffix(quote)?;
    let is_one = !message.is_empty() && !has_phrase(message, "', ") && !has_phrase(message, "\", ");
    let is_name = name.ends_with("Error") || name.ends_with("Exception");
    let whole = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    (is_one && is_name && whole && text.len() <= LONGEST).then_some((name, message))
}

#[cfg(test)]
mod tests {
    use crate::{Scan, Scanner, Source, diagnose};

    fn scan(log: &str) -> Scan {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        scanner.finish()
    }

    fn class(log: &str) -> Option<&'static str> {
        let sources = [Source { scan: scan(log), ..Source::default() }];
        diagnose(&sources).root.map(|root| root.finding.class().name())
    }

    const SAID: &[(&str, &str)] = &[
        ("To avoid data inconsistency, we are taking the entire process down.", "nccl_error"),
        ("/lib64/libc.so.6: version `GLIBC_2.28' not found (required by /x/y.so)", "reported"),
        ("/usr/bin/ld: cannot find -lcuda\ncollect2: error: ld returned 1 exit status", "reported"),
        ("=>> PBS: job killed: mem 67112345kb exceeded limit 67108864kb", "host_memory"),
        ("rsync: write failed on \"/out/x\": No space left on device (28)", "disk_full"),
        ("ssh: connect to host worker-1 port 22: Connection refused", "unreachable"),
        ("malloc(): corrupted top size", "crashed"),
        ("'accelerate' is not recognized as an internal or external command,", "usage"),
        ("sh: 1: nvcc: not found", "usage"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "usage"),
        (
            "\tError from slot1_2@n7: Job has gone over cgroup memory limit of 4096 megabytes. Peak usage: 4097 megabytes.",
            "host_memory",
        ),
        (
            "2026-02-03 09:13:01 MaxRuntimeExceeded - Training job runtime exceeded MaxRuntimeInSeconds provided",
            "time_limit",
        ),
        ("srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification", "usage"),
        ("docker: exec: \"torchrun\": executable file not found in $PATH: unknown.", "usage"),
    ];

    #[test]
    fn they_are_a_cause_at_the_end_and_talk_elsewhere() {
        for (text, expected) in SAID {
            assert_eq!(class(&format!("step 1 loss 2.0\n{text}\n")), Some(*expected), "{text}");
            let early = format!("{text}\n{}", "cloning the repository\n".repeat(20));
            assert_eq!(class(&early), None, "{text}");
        }
    }

    #[test]
    fn an_exception_behind_a_loggers_words_is_one() {
        let said = [
            "[2026-02-03 09:09:04] CRITICAL [root, rank=2] Uncaught ValueError: tensors on cuda:0 and meta",
            "02/03 18:54:31 [ERROR] trainer - KeyError: 'labels'",
        ];
        for text in said {
            assert_eq!(class(&format!("step 1 loss 2.0\n{text}\n")), Some("raised"), "{text}");
        }
        assert_eq!(class("[INFO] retry - KeyError: 'labels'\n"), None);
        let sources = [Source { scan: scan(said[0]), ..Source::default() }];
        assert_eq!(diagnose(&sources).first_rank, Some(2));
    }

    #[test]
    fn an_error_in_words_of_its_own_is_what_a_log_ends_with() {
        let said = [
            ("E0224 22:35:53.165575 268 loop.cc:31] halt is unexpected, all programs fail", "reported"),
            (
                "trainer: error: the shard index is not sorted\nsrun: error: n1: task 0: Exited with exit code 1",
                "reported",
            ),
            ("ERROR: command exited with status 3", "worker_failed"),
            ("driver error, error code is 1070", "reported"),
            ("n1:12:34 [0] NCCL WARN Call to bind failed : Address already in use", "port_in_use"),
            ("Error invalid configuration argument at line 3 in file ops.cu", "kernel_limit"),
            ("[ERROR] the pipe of gpu 3: no space left on device", "disk_full"),
            ("the launcher: worker 3 ended by signal 9", "killed"),
            ("\"hipErrorNoBinaryForGpu: no code object for these devices!\"\nAborted (core dumped)", "no_kernel_image"),
            ("I a.cc:3] ok\nF a.cc:4] Check failed: rows == columns\nAborted (core dumped)", "reported"),
        ];
        for (text, expected) in said {
            assert_eq!(class(&format!("step 1 loss 2.0\n{text}\n")), Some(expected), "{text}");
        }
        let quiet = [
            "[ERROR] one row is unreadable, ignoring it",
            "validation error: 0.031",
            "Error while fetching part 3, next mirror\nError while fetching part 3, next mirror",
            "CRITICAL:root:Starting the training",
            "ERROR: the hub does not answer\n[INFO] using the cache\n[INFO] saved the model",
            "RuntimeError: expected by a test\n=== 12 passed in 3.21s ===",
            "RuntimeError: expected by a test\n.\nRan 3 tests in 0.2s\n\nOK",
            "2026-01-01 00:00:00.1: E external/xla/cuda_dnn.cc:9] Unable to register cuDNN factory",
        ];
        for text in quiet {
            assert_eq!(class(&format!("step 1 loss 2.0\n{text}\n")), None, "{text}");
        }
    }

    #[test]
    fn an_exception_long_before_another_error_is_not_the_last_word() {
        let help = "to set it up run this\n".repeat(12);
        let log = format!(
            "CommandNotFoundError: the shell is not set up\n{help}Lmod has detected the following error: no such module\n\"python\"\n"
        );
        assert_eq!(class(&log), Some("reported"));
        assert_eq!(class("KeyError: 'a'\nERROR: the job of rank 0 is over\n"), Some("raised"));
    }

    #[test]
    fn the_last_error_is_kept_where_nothing_explains() {
        let log = "collecting\nERROR: No matching distribution found for torch==9.9\nbye\n";
        let found = scan(log);
        assert_eq!(class(log), Some("reported"));
        let last = found.last_error.map(|error| (error.line, error.text));
        assert_eq!(last, Some((2, "ERROR: No matching distribution found for torch==9.9".to_owned())));
        assert_eq!(scan("step 1 loss 2.0\n0 errors, 3 warnings\n").last_error, None);
    }
}
