//! Reports in blocks that a log ends with: Kubernetes' events and states of pods, and what Hydra says in place of a traceback.

use tonnage_core::failure::{Class, Strength};

use super::{Scanner, headed, tools, workflows};
use crate::cause::{FailureCause, Worker};
use crate::error_words;
use crate::exception::{Exception, Files, exception_stated};
use crate::finding::Tone;
use crate::line::Line;
use crate::text::{has_phrase, integer_after};
use crate::traceback::cut_text;
use crate::wording;

/// Bytes of a report's words that are kept.
const LONGEST: usize = 200;
/// Lines of what Hydra says.
const HYDRA: usize = 16;

impl Scanner {
    /// Whether a report that the log ends with says what ended it.
    pub(super) fn reports_its_end(&mut self, closing: &[(Line, u64)]) -> bool {
        if self.kept.findings().iter().any(|finding| finding.strength() >= Strength::Death) {
            return false;
        }
        let found = of_hydra(closing)
            .or_else(|| of_kubernetes(closing))
            .or_else(|| of_trials(closing))
            .or_else(|| workflows::of_snakemake(closing))
            .or_else(|| workflows::of_nextflow(closing))
            .or_else(|| headed::of_head(closing))
            .or_else(|| headed::of_matlab(closing))
            .or_else(|| tools::of_vasp(closing))
            .or_else(|| tools::of_stata(closing))
            .or_else(|| tools::of_ruby(closing))
            .or_else(|| tools::of_go(closing));
        let Some((at, cause)) = found else { return false };
        let Some((line, number)) = closing.get(at) else { return false };
        self.keep_last_words(line, *number, cause);
        true
    }

    /// The exit code in LSF's report, or that a script tells last, where the job's own output says nothing.
    pub(super) fn has_its_exit_code(&mut self, tail: &str, closing: &[(Line, u64)]) {
        let report = tail.lines().rev().zip((1..=self.lines).rev()).take(lines_of_lsf(tail));
        let code = |text: &str| text.strip_prefix("Exited with exit code ")?.strip_suffix('.')?.parse().ok();
        let found = report.filter_map(|(text, number)| Some((text, number, code(text)?))).next();
        // Who warns of it goes on.
        let is_said = |(line, _): &&(Line, u64)| Tone::of_line(&line.text) == Tone::Said;
        let told = || {
            closing
                .iter()
                .take(LAST)
                .filter(is_said)
                .find_map(|(line, number)| Some((line.text.as_str(), *number, told_code(&line.text)?)))
        };
        if let Some((text, number, exit_code)) = found.or_else(told).filter(|(_, _, code)| *code != 0) {
            let worker = Worker { exit_code, ..Worker::default() };
            self.keep_last_words(&Line::new(text.as_bytes()), number, FailureCause::WorkerFailed(worker));
        }
    }
}

/// Closing lines in which a script tells the exit code.
const LAST: usize = 3;

/// `Job finished with exit code 1 at: Tue`: a shell's code of a signal is 128 and that.
fn told_code(text: &str) -> Option<i64> {
    const WORDS: &[&str] = &[
        "exit code ",
        "exit code: ",
        "exit status ",
        "exit status: ",
        "exited with code ",
        "exited with non-zero status ",
    ];
    let code = WORDS.iter().find_map(|words| integer_after(text, words)).filter(|code| *code < 256)?;
    let code = i64::try_from(code).ok()?;
    Some(if (129..=192).contains(&code) { 128 - code } else { code })
}

/// Lines of the report that a scheduler or a site's epilog puts behind a job's output.
pub(super) fn lines_of_scheduler(tail: &str) -> usize {
    const MOST: usize = 80;
    let of_site = tail.lines().rev().take(MOST).position(|text| text.starts_with("=== JOB_STATISTICS ==="));
    lines_of_lsf(tail).max(of_site.map_or(0, |head| head + 1))
}

/// Lines of the report that LSF puts behind a job's output, where the log ends with one; none where it says why it
/// ended the job.
pub(super) fn lines_of_lsf(tail: &str) -> usize {
    const MOST: usize = 200;
    let head = tail.lines().rev().take(MOST).position(|text| text.starts_with("Sender: LSF System <"));
    let report = || tail.lines().rev().take(head.unwrap_or(0));
    let says_why = report().any(|text| text.starts_with("TERM_"));
    // A log that is appended to has the output of the next job behind it.
    let is_whole = report().any(|text| text.starts_with("Resource usage summary:"));
    let is_last = report().take_while(|text| !text.starts_with("The output (if any) ")).count() < LSF_TRAILER;
    head.filter(|_| !says_why && is_whole && is_last).map_or(0, |head| head + 1)
}

/// Lines that LSF writes at most behind its figures: where the other stream of the job went.
const LSF_TRAILER: usize = 8;

/// Whether what Snakemake raises says only that a rule failed.
pub(super) fn is_of_a_rule(message: &str) -> bool {
    message.is_empty() || has_phrase(message, "At least one job did not complete")
}

/// What stands above Hydra's advice on its own variable: the first line of that block, and what it says.
fn of_hydra(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let advice = closing
        .iter()
        .position(|(line, _)| line.text.starts_with("Set the environment variable HYDRA_FULL_ERROR=1"))?;
    let block = closing.iter().enumerate().skip(advice + 1).take(HYDRA);
    let of_block = |(_, (line, _)): &(usize, &(Line, u64))| {
        let text = line.text.as_str();
        !text.starts_with("Error executing job with overrides") && !is_ordinary(text)
    };
    let block: Vec<(usize, &str)> =
        block.take_while(of_block).map(|(at, (line, _))| (at, line.text.as_str())).collect();
    // An exception's name with its arguments says more than Hydra's words of the target.
    let raised = block.iter().rev().find_map(|(at, text)| Some((*at, exception_of(text)?)));
    if let Some((at, exception)) = raised {
        let spoken = wording::of_exception(&exception.name, &exception.message);
        return Some((at, spoken.unwrap_or(FailureCause::Raised(exception))));
    }
    let (at, text) = block.last()?;
    let detail = Some(cut_text(text, LONGEST).to_owned());
    Some((*at, FailureCause::Stated { class: Class::Usage, detail }))
}

/// Whether a line is a program's rather than of an error's block.
fn is_ordinary(text: &str) -> bool {
    has_phrase(text, "INFO") || crate::progress::Progress::of_line(text, 1, None).is_some()
}

/// `KeyError: 'a'`, and as it prints itself: `KeyError('a')`.
fn exception_of(text: &str) -> Option<Exception> {
    let printed = || {
        let (name, rest) = text.split_once('(')?;
        let message = rest.strip_suffix(')')?;
        (name.ends_with("Error") || name.ends_with("Exception")).then_some(())?;
        exception_stated(name, true).map(|(name, _)| (name, message))
    };
    let (name, message) = exception_stated(text, true).filter(|(_, said)| !said.is_empty()).or_else(printed)?;
    Some(Exception::new(name, cut_text(message, 400), &Files::default()))
}

/// Reasons of Kubernetes' warnings after which a pod does not run, with what they are; the words say the rest.
const REASONS: &[(&str, Class)] = &[
    ("Failed", Class::Reported),
    ("FailedScheduling", Class::Reported),
    ("FailedMount", Class::Reported),
    ("FailedAttachVolume", Class::Reported),
    ("FailedCreate", Class::Reported),
    ("FailedCreatePodSandBox", Class::Reported),
    ("InspectFailed", Class::Reported),
    ("ErrImageNeverPull", Class::Reported),
    ("UnexpectedAdmissionError", Class::Reported),
    ("BackOff", Class::WorkerFailed),
    ("OOMKilling", Class::HostMemory),
    ("Evicted", Class::Evicted),
    ("Preempted", Class::Preempted),
    ("Preempting", Class::Preempted),
    ("NodeNotReady", Class::NodeFailure),
    ("NodeLost", Class::NodeFailure),
];
/// Reasons of events after which it does.
const WELL: &[&str] = &["Pulled", "Created", "Started", "SuccessfulAttachVolume", "Completed"];
/// States in a table of pods.
const STATES: &[(&str, Class)] = &[
    ("ImagePullBackOff", Class::Reported),
    ("ErrImagePull", Class::Reported),
    ("InvalidImageName", Class::Reported),
    ("ErrImageNeverPull", Class::Reported),
    ("CreateContainerConfigError", Class::Reported),
    ("CreateContainerError", Class::Reported),
    ("RunContainerError", Class::Reported),
    ("StartError", Class::Reported),
    ("ContainerCannotRun", Class::Reported),
    ("OOMKilled", Class::HostMemory),
    ("Evicted", Class::Evicted),
    ("CrashLoopBackOff", Class::WorkerFailed),
];

/// The last event that says whether a pod runs, or the state of a pod that does not.
fn of_kubernetes(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let mut found: Option<(usize, Class, &str)> = None;
    for (at, (line, _)) in closing.iter().enumerate() {
        let Some((is_warning, reason, message)) = event(&line.text).or_else(|| state(&line.text)) else { continue };
        if !is_warning && WELL.contains(&reason) {
            // Events are of the newest last: what failed before was done again.
            break;
        }
        let class =
            REASONS.iter().chain(STATES).find(|(name, _)| *name == reason).filter(|_| is_warning).map(|row| row.1);
        let Some(class) = class else { continue };
        // Of one failure several events tell; the one with the most words says why.
        let says_more = found.is_none_or(|(_, known, said)| {
            known == Class::WorkerFailed || (class == known && message.len() > said.len())
        });
        if says_more {
            found = Some((at, class, message));
        }
    }
    let (at, class, message) = found?;
    let detail = Some(cut_text(message, LONGEST).to_owned());
    let spoken =
        wording::of_line(message, true).filter(|cause| class == Class::Reported && is_of_the_machine(cause.class()));
    Some((
        at,
        spoken.unwrap_or_else(|| match class {
            Class::Reported => FailureCause::Stated { class, detail },
            class => wording::cause_of(class),
        }),
    ))
}

/// Ray Tune's last table, where it lists trials that failed and none runs: what they raised stands in files of their own.
fn of_trials(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let runs = |(line, _): &(Line, u64)| {
        line.text.starts_with("Number of trials: ")
            && (has_phrase(&line.text, " RUNNING") || has_phrase(&line.text, " PENDING"))
    };
    let failed = |(line, _): &(Line, u64)| line.text.starts_with("Number of errored trials: ");
    let at = closing.iter().position(failed).filter(|_| !closing.iter().any(runs))?;
    let detail = closing.get(at).map(|(line, _)| line.text.clone());
    Some((at, FailureCause::Stated { class: Class::Reported, detail }))
}

/// What the words of an event may be read for; a registry that does not answer is none of the ranks'.
const fn is_of_the_machine(class: Class) -> bool {
    matches!(class, Class::HostMemory | Class::DiskFull | Class::NoGpu | Class::Evicted)
}

/// `Warning  Failed  3s (x4 over 2m)  kubelet  Error: ErrImagePull`: whether it warns, the reason, what it says.
fn event(text: &str) -> Option<(bool, &str, &str)> {
    let mut words = text.split_whitespace();
    // `kubectl get events` puts the time first.
    let kind = words.by_ref().take(2).find(|word| matches!(*word, "Warning" | "Normal"))?;
    let reason = words.next()?;
    let is_reason = reason.starts_with(char::is_uppercase) && reason.chars().all(char::is_alphanumeric);
    let sources = [" kubelet", "-scheduler ", "-controller ", " pod/", " job/", "-autoscaler "];
    let source =
        sources.iter().filter_map(|source| crate::text::text_after(text, source)).next().filter(|_| is_reason)?;
    let message = source.split_once(' ').map_or("", |(_, message)| message).trim_start();
    Some((kind == "Warning", reason, message))
}

/// `train-0  0/1  ImagePullBackOff  0  4m`, or the reason of a container that waits.
fn state(text: &str) -> Option<(bool, &str, &str)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_ready =
        |word: &&str| word.split_once('/').is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok());
    let of_table = words.get(1).filter(|word| is_ready(word)).and_then(|_| words.get(2));
    let of_container = (words.len() == 2 && words.first() == Some(&"Reason:")).then(|| words.get(1)).flatten();
    let state = of_table.or(of_container)?;
    let known = STATES.iter().any(|(name, _)| name == state) && !error_words::is_setting(text);
    known.then_some((true, *state, text))
}
