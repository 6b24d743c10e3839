//! Lines that call themselves errors: which they are, and which of them say nothing.

use crate::built;
use crate::code;
use crate::leftovers;
use crate::text::{has_phrase, places_of, text_after, text_before};

/// A longer line is no shell's, scheduler's or loader's.
pub(crate) const LONGEST: usize = 2000;

/// Lines that call themselves errors and mean nothing, or are a launcher's report of what others say.
pub(crate) fn is_noise(text: &str) -> bool {
    const NOISE: &[&str] = &[
        "torch/distributed/elastic",
        "torch.distributed.elastic",
        "sigkill_handler",
        "closing signal",
        "srun: Job step aborted",
        "Failures:",
        "observed failure",
        "NO_OTHER_FAILURES",
        "exitcode ",
        "error_file",
        "traceback :",
        "(local_rank: ",
        "bfc_allocator",
        "cuda_allocator",
        // absl's handler of a signal, after the signal's own line.
        "coredump_hook.cc",
        "] RAW: ",
        "wandb: ",
        "HYDRA_FULL_ERROR",
        "wandb_internal()",
        "Unable to register",
        "dependency resolver",
        "ld.so: ",
        "cuInit",
        "destroy_process_group",
        "Nothing to sync",
        "already completing or completed",
        "ACPI ",
        "rw-r-", // Lists of files.
        "rwxr-",
        "rw-rw-",
        "_inductor/select_algorithm.py",
        "Exception while deleting Spark temp dir",
        // A placeholder that somebody left at the end of a script.
        ": ...: command not found",
        // slurmstepd's, of a folder that the node does not have.
        ": going to /tmp instead",
        " cufio-",
        " hence not affinitizing",
    ];
    // Tasks that SLURM ends after another one.
    let is_torn_down = text.starts_with("srun: ") && text.ends_with(": Terminated");
    text.ends_with(" FAILED")
        || is_torn_down
        || code::is_of_debugger(text)
        || leftovers::is_leftover(text)
        || NOISE.iter().any(|words| has_phrase(text, words))
}

/// `[12/500] [done] a.mp4`: a row of a program that counts what it does, one after another.
pub(crate) fn is_counted(text: &str) -> bool {
    let count =
        text.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(count, _)| count.split_once('/'));
    count.is_some_and(
        |(done, of)| matches!((done.trim().parse::<u64>(), of.parse::<u64>()), (Ok(done), Ok(of)) if done <= of),
    )
}

/// Whether a line that calls itself an error says only that another one stands elsewhere.
pub(crate) fn is_empty_error(text: &str) -> bool {
    const EMPTY: &[&str] = &[
        "exit code",
        "exit status",
        "exited with",
        "error above",
        "errors above",
        "for details",
        "more information",
        "subprocess-exited",
        "Command failed",
        "ob failed",
        "job failed",
        "UserScriptError",
        "Error executing job with overrides",
        "containerExitType",
        "Execution halted",
    ];
    // TensorFlow's last word.
    if text.starts_with("F ") || text.get(..40).is_some_and(|head| has_phrase(head, ": F ")) {
        return false;
    }
    // What stands behind the code is what was wrong.
    let ends = |words: &&str| text_after(text, words).is_some_and(|rest| !has_phrase(rest, ": "));
    EMPTY.iter().any(ends) || built::is_builders_end(text)
}

/// `(1) INVALID_ARGUMENT:  text`: one of several root errors as TensorFlow lists them, by gRPC's codes.
pub(crate) fn is_status(text: &str) -> bool {
    const CODES: &[&str] = &[
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "NOT_FOUND",
        "UNAVAILABLE",
        "ABORTED",
        "DATA_LOSS",
        "RESOURCE_EXHAUSTED",
        "UNKNOWN",
        "Invalid argument",
        "Failed precondition",
        "Internal",
        "Not found",
        "Resource exhausted",
    ];
    let listed = text.strip_prefix('(').and_then(|rest| rest.split_once(") ")).filter(|(number, _)| number.len() == 1);
    listed.is_some_and(|(_, said)| {
        CODES.iter().any(|code| said.strip_prefix(code).is_some_and(|rest| rest.starts_with(": ")))
    })
}

/// What a line says that goes on about its error: none, left out, done again or without.
const ANSWERED: &[&str] = &[
    "0 errors",
    "no error",
    "No error",
    "ignored",
    "gnoring",
    "kipped ",
    "retry",
    "etrying",
    "Warning",
    ", using ",
    "; using ",
    "instead",
    "the default is",
    "default value",
];

/// Words by which loggers, compilers and package managers call a line an error.
const LEVELS: &[&str] = &[
    "ERROR",
    "FATAL",
    "CRITICAL",
    "fatal error",
    "Fatal error",
    "panic: ",
    "***  Error",
    "panicked at ",
    "Check failed: ",
    "[E ",
    "[F ",
    "] E ",
    "rror! ",
    "terminate called",
    "make: *** ",
    "CMake Error at ",
    "Error is not recoverable",
    "npm ERR! ",
    "npm error ",
    "forrtl: ",
    "Fortran runtime error: ",
    "nvcc fatal ",
    "ASSERT FAILED",
    "[Fatal]",
    "OMP: Error #",
    "Exception in thread \"main\"",
    "luajit: ",
    "/ld: cannot find ",
    "Error(s) in loading state_dict for ",
    "CUresult error",
    "cuda error ",
    "CUDA error ",
    // docker build's last line.
    "' returned a non-zero code: ",
];

/// Whether the line calls itself an error, as loggers, compilers and package managers do.
pub(crate) fn is_error(text: &str) -> bool {
    // Losses are errors too, and numbers; what stands in backticks is talked of.
    let stated = ["Error: ", "error: ", "fatal: "].iter().any(|words| {
        let head = text_before(text, words).unwrap_or_default();
        let own = words.starts_with('E') || !head.ends_with(char::is_alphabetic);
        let is_code = head.bytes().filter(|byte| *byte == b'`').count() % 2 == 1;
        text_after(text, words).is_some_and(|said| own && !is_code && !is_quoted(head) && !is_value(said))
    });
    // `hipErrorNoDevice: text`
    let named = text
        .split_once(": ")
        .is_some_and(|(name, said)| has_phrase(name, "Error") && !name.contains([' ', '`']) && !is_value(said));
    text.len() <= LONGEST
        && (stated
            || named
            || (text.starts_with("Error ") && has_phrase(text, " at line "))
            || text.starts_with("error in setup command: ")
            || (text.starts_with("Error in ") && has_phrase(text, " : "))
            || has_level(text)
            || built::is_unlinked(text)
            || is_status(text)
            || LEVELS.iter().any(|level| has_phrase(text, level)))
        && !ANSWERED.iter().any(|answer| has_phrase(text, answer))
        && !begins_line(text)
        && !is_setting(text)
        && !is_of_level_info(text)
        && !is_valued(text)
        && !tries_again(text)
}

/// Whether its logger says that it is no error.
fn is_of_level_info(text: &str) -> bool {
    let head = crate::traceback::cut_text(text, 60);
    ["INFO: ", "[INFO] ", " INFO ", " INFO] ", "DEBUG"].iter().any(|level| has_phrase(head, level))
        && !has_phrase(head, "ERROR")
}

/// Whether TensorFlow or XLA logged it at level `E`: what is fatal they raise as well.
pub(crate) fn is_of_tensorflow(text: &str) -> bool {
    let stated = |at: usize| text.get(at + 2..).is_some_and(|file| FILES.iter().any(|start| file.starts_with(start)));
    const FILES: &[&str] =
        &["tensorflow/", "external/local_xla/", "external/local_tsl/", "external/xla/", "external/org_tensorflow/"];
    places_of(text, "E ").take(4).any(stated)
}

/// Whether a line says what a sample was worth.
fn is_valued(text: &str) -> bool {
    ["reward ", "reward=", "reward:", " score ", " score=", " score:"].iter().any(|word| has_phrase(text, word))
}

/// Whether a line tells how many failed: a program counts what it goes on after.
fn is_figure(text: &str) -> bool {
    const COUNTED: &[&str] = &[" failed", " errors", " error,", " timed out", " aborted"];
    // `12`, `(3.5`, `12/164`
    let is_number = |word: &str| word.split('/').all(|part| part.trim_start_matches(['(', '[']).parse::<f64>().is_ok());
    let last_word = |head: &str| head.rsplit([' ', ',']).next().is_some_and(is_number);
    let counted = COUNTED.iter().any(|words| places_of(text, words).any(|at| text.get(..at).is_some_and(last_word)));
    // `failed on 31 of 1200 samples`
    let part = places_of(text, " of ").any(|at| {
        let (head, rest) = text.split_at_checked(at).unwrap_or_default();
        last_word(head) && rest.get(4..).and_then(|rest| rest.split(' ').next()).is_some_and(is_number)
    });
    counted || part
}

/// Whether a line says that what failed is done again later.
fn tries_again(text: &str) -> bool {
    has_phrase(text, " again") && !["ry again", "run again", "un again"].iter().any(|advice| has_phrase(text, advice))
}

/// Whether what is left of `head` is inside a quotation of a sentence; a value of a record is none.
fn is_quoted(head: &str) -> bool {
    let is_open = head.bytes().filter(|byte| *byte == b'"').count() % 2 == 1;
    let before = head.rsplit_once('"').map_or("", |(before, _)| before);
    is_open && before.ends_with(' ') && !before.trim_end().ends_with(['=', ':', ','])
}

/// What a key has in a table of figures or settings: a number, a switch, nothing.
fn is_value(said: &str) -> bool {
    let said = said.trim_start();
    let word = said.split([' ', ',', ';']).next().unwrap_or_default();
    let is_switch =
        ["true", "false", "none", "null", "nan", "off", "on"].iter().any(|it| word.eq_ignore_ascii_case(it));
    // A dictionary that somebody prints; what servers answer says that it is an error.
    let is_object = said.starts_with('{') && !["rror", "essage", "etail"].iter().any(|key| has_phrase(said, key));
    said.is_empty() || is_switch || is_object || said.starts_with(|c: char| c.is_ascii_digit() || "-+.[(".contains(c))
}

/// A variable of the environment, as `env` and `export -p` print it: `NCCL_ASYNC_ERROR_HANDLING=1`.
pub(crate) fn is_setting(text: &str) -> bool {
    let bare = ["export ", "declare -x "].iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text);
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    bare.split_once('=').is_some_and(|(name, value)| is_name(name) && !value.contains(' '))
}

/// Whether a line says that something begins; some write so at any level.
fn begins_line(text: &str) -> bool {
    let said = text.rsplit_once(':').map_or(text, |(_, said)| said).trim_start();
    ["Starting ", "Loading ", "Running ", "Beginning ", "Started ", "Using "].iter().any(|word| said.starts_with(word))
}

/// `E0224 22:35:53.165575  26868 a.cc:31] text` (glog), `2021-12-26 14:31:20.360912: E external/a.cc:20] text`.
fn has_level(text: &str) -> bool {
    let glog = text.starts_with(['E', 'F'])
        && text
            .get(1..6)
            .is_some_and(|day| day.ends_with(' ') && day.bytes().take(4).all(|byte| byte.is_ascii_digit()));
    // PyTorch's: `[E624 04:14:29.2 a.cpp:1] text`.
    let torch = text.strip_prefix("[E").or_else(|| text.strip_prefix("[F")).is_some_and(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (3..=4).contains(&digits) && rest.get(digits..).is_some_and(|rest| rest.starts_with(' '))
    });
    glog || torch || [": E ", ": F "].iter().any(|level| text.get(..40).is_some_and(|head| has_phrase(head, level)))
}

/// Whether a log's very last line says what could not be had: nothing follows that did without.
pub(crate) fn lacks(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "ould not find a version",
        "' not found (required by ",
        "nput/output error",
        "o such file",
        "ermission denied",
        "annot find ",
        "annot open ",
        "nable to ",
        "ould not resolve host",
        "Execution halted",
    ];
    const ANSWERS: &[&str] = &["using", "default", "skip", "gnor", "arning", "WARN", "INFO", "etry"];
    text.len() <= LONGEST
        && (WORDS.iter().any(|words| has_phrase(text, words)) || built::is_of_compiler(text))
        && !ANSWERS.iter().any(|answer| has_phrase(text, answer))
}

/// What a line says beside such words that does not end a job.
const NOT_GRAVE: &[&str] = &[
    "0 failed",
    "failed: 0",
    "no fail",
    "0 error",
    "no error",
    "No error",
    "ignored",
    "gnoring",
    "retry",
    "etrying",
    "Warning",
    "WARN",
    "inished",
    "omplete",
    "uccess",
    // Training that stops because nothing gets better.
    "early",
    "arly stop",
    "not improve",
    // Figures that are not what they should be.
    "converge",
    " better",
    "baseline",
    " beat ",
    // People who ask.
    " I ",
    "nybody",
    "nyone",
    "omeone",
    // What is left behind does not end a job.
    "to delete",
    "to remove",
    "emporary",
    "xcluded",
];

/// How a line speaks of an error that has no level.
const SPEAKS: &[&str] = &[
    " error,",
    "rror code",
    "rror occurred",
    "Error during ",
    " failed",
    "ailed to ",
    "FAILED: ",
    " aborted",
    "borting",
    "timed out",
    "times out",
];

/// The first words by which a line speaks of an error, with some letters before them.
pub(crate) fn spoken_part(text: &str) -> Option<&str> {
    const BEFORE: usize = 8;
    let (at, words) = SPEAKS.iter().filter_map(|words| Some((places_of(text, words).next()?, words))).min()?;
    text.get(at.saturating_sub(BEFORE)..at + words.len())
}

/// Whether a line speaks of an error though it has no level: enough for the very last.
pub(crate) fn may_be_error(text: &str) -> bool {
    // `failed requests: 3`
    let is_number = |(_, said): (&str, &str)| said.trim_end_matches('%').parse::<f64>().is_ok();
    let is_stated = text.rsplit_once(": ").is_some_and(is_number) && !has_phrase(text, "rror code");
    text.len() <= LONGEST
        && !is_stated
        && !is_figure(text)
        && !tries_again(text)
        && !text.ends_with(':')
        && SPEAKS.iter().any(|word| has_phrase(text, word))
        && !NOT_GRAVE.iter().any(|answer| has_phrase(text, answer))
}
