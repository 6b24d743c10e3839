//! [`choose`]: which of all findings explains the others.
//!
//! In one process only the last exception that nobody caught ends it; of several processes the first that failed does.

use crate::cause::FailureCause;
use crate::diagnosis::Located;
use crate::error_words::is_error;
use crate::exception::Raiser;
use crate::finding::{Finding, Tone};
use crate::last_words::is_trailer;
use crate::text::{has_phrase, integer_after, text_before};
use tonnage_core::failure::{Class, Strength};

/// Findings further apart than this many lines are two events: whoever wrote so much in between was alive.
pub(crate) const SAME_EVENT: u64 = 1000;

/// Who says the same so often goes on after it.
const HABIT: u64 = 8;

/// A shorter message is no account of an error.
const SAYS_WHAT: usize = 20;

/// Words of exceptions that come of an error that was swallowed.
const AFTERMATH: &[&str] = &[
    "'NoneType' object",
    "referenced before assignment",
    "cannot access local variable",
    "is not defined",
    "errors above",
    "root cause above",
    "DNN library initialization failed",
];

/// The root, of the rank that is named where one is.
pub(crate) fn choose_cause<'a>(causes: &[Located<'a>], named: Option<u32>) -> Option<Located<'a>> {
    let causes: Vec<Located<'a>> = causes.iter().filter(|found| !is_ended(found, causes)).copied().collect();
    let causes = causes.as_slice();
    let strength = causes.iter().map(Located::strength).max()?;
    let strongest: Vec<Located<'a>> = causes.iter().filter(|found| found.strength() == strength).copied().collect();
    let strongest = last_events(&strongest);
    let several = is_of_several(causes);
    let mut candidates: Vec<Located<'a>> =
        by_process(&strongest).into_iter().filter_map(|process| of_process(&process, several, strength)).collect();
    let of_rank = |found: &Located<'a>| named.is_some() && found.rank() == named;
    if candidates.iter().any(of_rank) {
        candidates.retain(of_rank);
    }
    // A step is cancelled, and its tasks are killed, because one of them has failed.
    if strength == Strength::Echo && candidates.iter().any(|found| !follows_a_failure(found)) {
        candidates.retain(|found| !follows_a_failure(found));
    }
    let root = candidates.into_iter().reduce(|first, other| if is_first(&other, &first) { other } else { first })?;
    Some(who_sent_it(&root, causes).unwrap_or(root))
}

/// Of a signal that ends a job, and of what its processes write as they go down, what the scheduler says of it, in the
/// same log.
fn who_sent_it<'a>(root: &Located<'a>, causes: &[Located<'a>]) -> Option<Located<'a>> {
    let is_scheduler = |found: &&Located<'a>| {
        matches!(found.class(), Class::Cancelled | Class::TimeLimit | Class::Preempted | Class::Requeued)
    };
    let near = |found: &&Located<'a>| {
        std::ptr::eq(found.source, root.source) && found.finding.line.abs_diff(root.finding.line) <= SAME_EVENT
    };
    // A step is cancelled when one of its tasks has failed too.
    let sent = |found: &&Located<'a>| {
        let is_before = found.finding.line < root.finding.line && !is_step(found);
        root.class() == Class::Terminated
            || is_of_a_signal(root)
            || is_of_another_script(root, found)
            || (is_before && goes_down(root))
            || (!is_of_several(causes) && (is_cancelled_alive(root, found) || is_lived_with(root, found)))
    };
    causes.iter().filter(near).filter(is_scheduler).find(sent).copied()
}

/// Whether the script of one SLURM job, as the shell names it, lacks a command, and another job was cancelled: the log
/// is of several.
fn is_of_another_script(root: &Located<'_>, found: &Located<'_>) -> bool {
    let script = text_before(&root.finding.text, "/slurm_script: line ").and_then(|path| path.rsplit_once("/job"));
    let cancelled = integer_after(&found.finding.text, ": *** JOB ");
    let other = script.and_then(|(_, job)| job.parse::<u64>().ok()).zip(cancelled);
    root.class() == Class::Usage && other.is_some_and(|(own, cancelled)| own != cancelled)
}

/// Whether commands of a script said so again and again, as `sleep: write error: Disk quota exceeded`, before somebody
/// cancelled the job.
fn is_lived_with(root: &Located<'_>, found: &Located<'_>) -> bool {
    let own = root.finding;
    let alike = |it: &&Finding| it.signature == own.signature && it.cause == own.cause;
    let told: u64 = root.source.scan.findings.iter().filter(alike).map(|it| it.count).sum();
    let is_write = has_phrase(&own.text, ": write error: ") && matches!(own.tone, Tone::Said);
    is_write && told >= HABIT && found.finding.line > own.line && has_phrase(&found.finding.text, ": *** JOB ")
}

/// Whether the only process of a job wrote on after what it raised, or what a library said that it did without, or dumped
/// its stacks as it was ended, and somebody cancelled the job then.
fn is_cancelled_alive(root: &Located<'_>, found: &Located<'_>) -> bool {
    let (own, other, setting) = (root.finding, found.finding, &root.source.scan.setting);
    let alone = setting.world.is_none_or(|world| world < 2) && root.rank().is_none();
    let of_end = |line: &str| {
        const WORDS: &[&str] = &["arning", "xception ", "resource_tracker"];
        let of_slurm = ["srun: ", "slurmstepd"].iter().any(|start| line.starts_with(start));
        of_slurm || is_trailer(line) || is_error(line) || WORDS.iter().any(|words| has_phrase(line, words))
    };
    let last = other.context.iter().rfind(|line| !of_end(line));
    let head = crate::traceback::cut_text(&own.text, SAYS_WHAT);
    let writes_on = other.line > own.last_line + 1 && last.is_some_and(|line| !has_phrase(line, head));
    let is_of_job = has_phrase(&other.text, ": *** JOB ") && found.class() == Class::Cancelled;
    // As an exception it had ended the process; said without one it was not what the job died of.
    let is_only_said = matches!(own.tone, Tone::Said) && raises_exception(root.class());
    let is_caught = root.class() == Class::Raised || is_only_said;
    alone && is_of_job && is_caught && (writes_on || root.source.scan.ends_in_dump)
}

fn follows_a_failure(found: &Located<'_>) -> bool {
    is_step(found) || found.is_torn_down()
}

fn is_step(found: &Located<'_>) -> bool {
    matches!(found.finding.cause, FailureCause::Cancelled { is_step: true })
}

/// Whether a process says that a signal ended it, or its launcher that one did.
fn is_of_a_signal(found: &Located<'_>) -> bool {
    const WORDS: &[&str] = &["SIGTERM", "signal: 15", "signal 15", "by signal: Terminated", "Signals.SIGTERM"];
    let torn_down = |code: i64| matches!(code, -15 | 143);
    match &found.finding.cause {
        FailureCause::WorkerFailed(worker) => torn_down(worker.exit_code),
        _ => WORDS.iter().any(|words| has_phrase(&found.finding.text, words)),
    }
}

/// Whether it is what a process writes that loses the others or its pipes.
fn goes_down(found: &Located<'_>) -> bool {
    const LOST: &[&str] =
        &["BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError", "EOFError", "exited unexpectedly"];
    let is_victim = match &found.finding.cause {
        FailureCause::Raised(exception) => matches!(exception.raiser, Raiser::Victim | Raiser::Launcher),
        _ => false,
    };
    is_victim
        || LOST.iter().any(|words| has_phrase(&found.finding.text, words))
        || matches!(
            found.class(),
            Class::Interrupted
                | Class::WorkerFailed
                | Class::NcclError
                | Class::NcclTimeout
                | Class::Killed
                | Class::Crash
        )
}

/// Whether an exception stands in a chain of tracebacks that a signal ended: it was being handled, or is the signal's.
fn is_ended(found: &Located<'_>, causes: &[Located<'_>]) -> bool {
    let chain = found.finding.chain().filter(|_| found.class() == Class::Raised);
    let is_signal =
        |other: &&Located<'_>| matches!(other.class(), Class::Hangup | Class::Interrupted | Class::Terminated);
    let same =
        |other: &Located<'_>| std::ptr::eq(other.source, found.source) && other.finding.line > found.finding.line;
    chain.is_some() && causes.iter().filter(is_signal).any(|other| same(other) && other.finding.chain() == chain)
}

/// The findings of each log's last event: a log that is appended to has those of earlier runs.
pub(crate) fn last_events<'a>(findings: &[Located<'a>]) -> Vec<Located<'a>> {
    let mut kept = Vec::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let of_source = rest.iter().take_while(|found| std::ptr::eq(found.source, first.source)).count();
        let (source, others) = rest.split_at(of_source);
        kept.extend_from_slice(last_event(source));
        rest = others;
    }
    kept
}

/// Those of the event in which the root stands, and of what came after it; of other logs all.
pub(crate) fn causes_since<'a>(root: &Located<'a>, causes: &[Located<'a>]) -> Vec<Located<'a>> {
    let same = |found: &&Located<'a>| std::ptr::eq(found.source, root.source);
    let up_to: Vec<Located<'a>> =
        causes.iter().filter(same).filter(|found| found.finding.line <= root.finding.line).copied().collect();
    let start = last_event(&up_to).first().map_or(0, |found| found.finding.line);
    causes.iter().filter(|found| !same(found) || found.finding.line >= start).copied().collect()
}

/// Whether several processes write into these logs: ranks, or a launcher that speaks of workers.
fn is_of_several(causes: &[Located<'_>]) -> bool {
    let mut ranks: Vec<u32> = causes.iter().filter_map(Located::rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len() > 1
        || causes
            .iter()
            .any(|found| matches!(found.class(), Class::WorkerFailed | Class::NcclError | Class::NcclTimeout))
}

/// The findings of each log and rank, in the order of lines.
fn by_process<'a>(findings: &[Located<'a>]) -> Vec<Vec<Located<'a>>> {
    let mut all: Vec<Vec<Located<'a>>> = Vec::new();
    for found in findings {
        let same = |process: &&mut Vec<Located<'a>>| {
            process
                .first()
                .is_some_and(|first| std::ptr::eq(first.source, found.source) && first.rank() == found.rank())
        };
        match all.iter_mut().find(same) {
            Some(process) => process.push(*found),
            None => all.push(vec![*found]),
        }
    }
    all
}

/// What ended one process.
fn of_process<'a>(findings: &[Located<'a>], several: bool, strength: Strength) -> Option<Located<'a>> {
    let event = last_event(findings);
    if strength < Strength::Cause {
        // That a worker failed, as a launcher says, says less than how it lost the others.
        let says_how = event.iter().find(|found| !is_of_launcher(found) && !follows_a_failure(found));
        return says_how.or(event.first()).copied();
    }
    let known = known_of(event, several);
    if let Some(last) = event.last().filter(|found| !several && is_command_not_read(found)) {
        return Some(*last);
    }
    let raised: Vec<Located<'a>> = event.iter().filter(|found| found.class() == Class::Raised).copied().collect();
    let raised = without_lost(raised);
    let (Some(first), Some(last)) = (raised.first(), raised.last()) else { return known };
    let thrown = if several { end_of_chain(&raised, first) } else { *last };
    let Some(known) = known.filter(|known| !is_of_no_import(known, &thrown)) else { return Some(thrown) };
    let in_chain =
        |found: &&Located<'a>| found.class() != Class::Raised && found.finding.chain() == last.finding.chain();
    if let Some(chained) = event.iter().find(in_chain) {
        return Some(*chained);
    }
    // A job whose only process had died of it would not have run until its time was over.
    if let Some(ended) = event.iter().rfind(|found| !several && is_end_of_the_job(found, &thrown)) {
        return Some(*ended);
    }
    let outweighs = if known.finding.line < thrown.finding.line {
        // What was only logged was caught; a traceback before another one of the same process was too.
        let caught =
            !matches!(known.finding.tone, Tone::Said) || raises_exception(known.class()) || is_of_shell(&known);
        let is_aftermath = follows_another(&thrown) && (several || !raises_anew(&known, &thrown));
        caught && !is_aftermath && !(several && matches!(known.finding.tone, Tone::Raised { .. }))
    } else {
        // Of one process what was raised before was caught, or another start's.
        let is_last = !several && matches!(known.finding.tone, Tone::Raised { .. });
        !is_generic(&thrown) && !is_last
    };
    Some(if outweighs { thrown } else { known })
}

/// Without those that say that the process at the other end of a pipe is gone, where others say what went wrong.
fn without_lost(mut raised: Vec<Located<'_>>) -> Vec<Located<'_>> {
    const LOST: &[&str] = &["BrokenPipeError", "ConnectionResetError", "EOFError"];
    let is_lost = |found: &Located<'_>| match &found.finding.cause {
        FailureCause::Raised(it) => LOST.contains(&it.short_name()),
        _ => false,
    };
    if raised.iter().any(|found| !is_lost(found)) {
        raised.retain(|found| !is_lost(found));
    }
    raised
}

/// Whether one process raised both, and the later one says what it is of: the log goes on with another start of the program.
fn raises_anew(known: &Located<'_>, thrown: &Located<'_>) -> bool {
    const OF_ANOTHER: &[&str] = &["ailed", "rror", "above", "bort", "nable to", "annot ", "exited", "stopped"];
    let is_raised = |found: &Located<'_>| matches!(found.finding.tone, Tone::Raised { .. });
    let FailureCause::Raised(exception) = &thrown.finding.cause else { return false };
    let says_what =
        exception.message.len() >= SAYS_WHAT && !OF_ANOTHER.iter().any(|words| has_phrase(&exception.message, words));
    let is_aftermath =
        exception.short_name() != "RuntimeError" || AFTERMATH.iter().any(|words| has_phrase(&exception.message, words));
    is_raised(known) && is_raised(thrown) && says_what && !is_aftermath
}

/// What is known of the event: the first of it, but of one process, which an exception ends, the last that was raised.
fn known_of<'a>(event: &[Located<'a>], several: bool) -> Option<Located<'a>> {
    let known = || event.iter().filter(|found| found.class() != Class::Raised);
    let first = known().next().copied()?;
    let is_raised = |found: &Located<'a>| matches!(found.finding.tone, Tone::Raised { .. });
    let is_other = |found: &&Located<'a>| is_raised(found) && found.finding.chain() != first.finding.chain();
    let last = known().rfind(is_other).filter(|_| !several && (is_raised(&first) || is_of_shell(&first)));
    Some(last.copied().unwrap_or(first))
}

/// Whether a library warns of what GPUs it is not built for, and a module was what was lacking.
fn is_of_no_import(known: &Located<'_>, thrown: &Located<'_>) -> bool {
    const IMPORTS: &[&str] = &["ModuleNotFoundError", "ImportError"];
    let lacks = matches!(&thrown.finding.cause, FailureCause::Raised(it) if IMPORTS.contains(&it.short_name()));
    lacks && known.class() == Class::NoKernelImage && matches!(known.finding.tone, Tone::Said)
}

/// Whether a shell tells of a program that is no more, or a program that it does not know its arguments: what raises
/// after it is another one.
fn is_of_shell(found: &Located<'_>) -> bool {
    found.class() == Class::Usage || found.finding.signature == "shell_killed"
}

/// Whether the scheduler ended the whole job after what was thrown, because its time was over.
fn is_end_of_the_job(found: &Located<'_>, thrown: &Located<'_>) -> bool {
    found.class() == Class::TimeLimit
        && found.finding.line > thrown.finding.line
        && has_phrase(&found.finding.text, ": *** JOB ")
}

/// Whether Python, Hydra or a program says that it cannot read the command that started it: whatever was raised before
/// was another command's.
pub(crate) fn is_command_not_read(found: &Located<'_>) -> bool {
    const WORDS: &[&str] =
        &[": error: ", "can't open file", "Cannot find primary config '", "Could not override '", "' is not in struct"];
    found.class() == Class::Usage && WORDS.iter().any(|words| has_phrase(&found.finding.text, words))
}

fn is_of_launcher(found: &Located<'_>) -> bool {
    matches!(&found.finding.cause, FailureCause::Raised(exception) if exception.raiser == Raiser::Launcher)
}

/// The findings of the last event.
fn last_event<'a, 'b>(findings: &'b [Located<'a>]) -> &'b [Located<'a>] {
    let mut start = 0;
    let mut reached = 0;
    for (at, found) in findings.iter().enumerate() {
        if at > 0 && found.finding.line.saturating_sub(reached) > SAME_EVENT {
            start = at;
        }
        reached = reached.max(found.finding.last_line);
    }
    findings.get(start..).unwrap_or_default()
}

/// The last exception of the chain that begins with `first`.
fn end_of_chain<'a>(raised: &[Located<'a>], first: &Located<'a>) -> Located<'a> {
    raised.iter().rev().find(|found| found.finding.chain() == first.finding.chain()).copied().unwrap_or(*first)
}

/// Classes whose messages are exceptions' where they are fatal: a line without a traceback was logged by who caught it.
pub(crate) const fn raises_exception(class: Class) -> bool {
    matches!(
        class,
        Class::GpuMemory
            | Class::Neighbour
            | Class::Fragmentation
            | Class::AllocatorCap
            | Class::OutsideAllocator
            | Class::DiskFull
            | Class::IoError
            | Class::HostMemory
            | Class::NoGpu
            | Class::PortInUse
            | Class::Protobuf
            | Class::KernelLimit
    )
}

/// Whether an exception says too little to be a cause beside a known one.
fn is_generic(found: &Located<'_>) -> bool {
    matches!(&found.finding.cause, FailureCause::Raised(exception) if exception.is_generic())
}

/// Whether an exception is what comes of an error that was swallowed, or of a wrapper.
fn follows_another(found: &Located<'_>) -> bool {
    let FailureCause::Raised(exception) = &found.finding.cause else { return false };
    exception.is_generic() || AFTERMATH.iter().any(|words| has_phrase(&exception.message, words))
}

/// Whether `other` came before `first`: by the clock between logs, by the line within one; where neither tells, what is
/// known comes before what is only raised.
fn is_first(other: &Located<'_>, first: &Located<'_>) -> bool {
    if std::ptr::eq(other.source, first.source) {
        return other.finding.line < first.finding.line;
    }
    if let (Some(stamp), Some(first_stamp)) = (other.finding.stamp, first.finding.stamp) {
        if stamp.is_before(first_stamp) {
            return true;
        }
        if first_stamp.is_before(stamp) {
            return false;
        }
    }
    first.class() == Class::Raised && other.class() != Class::Raised
}
