//! [`diagnose`]: of all that was found in one or several logs, what came first, what follows from it, and which rank it
//! was.

use super::cause::FailureCause;
use super::class::{Class, Strength};
use super::scanner::{Finding, Scan};
use super::traceback::Raised;

/// Findings further apart than this many lines are two events: whoever wrote so much in between was alive.
const SAME_EVENT: u64 = 1000;

/// A log with what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its name, for evidence.
    pub name: String,
    /// The rank that wrote it, where its name says so.
    pub rank: Option<u32>,
    /// The attempt of a launcher that restarts.
    pub attempt: Option<u32>,
    /// What was found.
    pub scan: Scan,
    /// The exception that it ends with, which explains a failure that no signature does.
    pub raised: Option<Raised>,
}

/// A finding with the log it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// The log.
    pub source: &'a Source,
    /// The finding.
    pub finding: &'a Finding,
}

impl Located<'_> {
    /// The rank that wrote it: what the line says, else the log's.
    pub fn rank(&self) -> Option<u32> {
        self.finding.rank.or(self.source.rank)
    }

    fn class(&self) -> Class {
        self.finding.cause.class()
    }
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis<'a> {
    /// What explains the rest; `None` where nothing was recognised but warnings.
    pub root: Option<Located<'a>>,
    /// The rank that failed first, where anything names it.
    pub first_rank: Option<u32>,
    /// Other causes, which explain as much.
    pub others: Vec<Located<'a>>,
    /// What follows from a rank's death: timeouts, broken connections, launchers' summaries.
    pub echoes: Vec<Located<'a>>,
    /// What is printed and often not fatal.
    pub warnings: Vec<Located<'a>>,
    /// Lines of the root's log after its last repetition: many mean that the job went on.
    pub lines_after: u64,
}

/// Weighs the findings of logs that belong to one job.
pub fn diagnose(sources: &[Source]) -> Diagnosis<'_> {
    let all = || {
        sources.iter().flat_map(|source| source.scan.findings.iter().map(move |finding| Located { source, finding }))
    };
    let causes: Vec<Located<'_>> = all().filter(|found| found.class().strength() > Strength::Warning).collect();
    let warnings = all().filter(|found| found.class().strength() == Strength::Warning).collect();
    let named = first_named(&causes);
    let Some(root) = root(&causes, named) else { return Diagnosis { warnings, ..Diagnosis::default() } };
    let first_rank = match root.class() {
        Class::NcclTimeout => slowest(&causes).or(root.rank()),
        _ => worker_rank(&root).or(root.rank()).or(named),
    };
    let rest = causes.iter().copied().filter(|found| found.finding != root.finding || found.source != root.source);
    let (others, echoes) = rest.partition(|found| found.class().strength() > Strength::Death);
    let lines_after = root.source.scan.lines.saturating_sub(root.finding.last_line);
    Diagnosis { root: Some(root), first_rank, others, echoes, warnings, lines_after }
}

/// The rank that a launcher's summary names as the first to fail.
fn first_named(causes: &[Located<'_>]) -> Option<u32> {
    let first = |found: &Located<'_>| match &found.finding.cause {
        FailureCause::WorkerFailed(worker) if worker.first => worker.rank.and_then(|rank| u32::try_from(rank).ok()),
        _ => None,
    };
    causes.iter().find_map(first)
}

fn worker_rank(found: &Located<'_>) -> Option<u32> {
    match &found.finding.cause {
        FailureCause::WorkerFailed(worker) => worker.rank.and_then(|rank| u32::try_from(rank).ok()),
        _ => None,
    }
}

/// The rank whose last completed collective has the lowest number.
fn slowest(causes: &[Located<'_>]) -> Option<u32> {
    let last = |found: &Located<'_>| match &found.finding.cause {
        FailureCause::NcclTimeout(collective) => Some((collective.last_completed?, found.rank()?)),
        _ => None,
    };
    let completed: Vec<(u64, u32)> = causes.iter().filter_map(last).collect();
    let (low, rank) = completed.iter().min()?;
    // Where all stopped at the same one, none is behind.
    completed.iter().any(|(other, _)| other > low).then_some(*rank)
}

/// The earliest of the strongest causes, in the last attempt, of the rank that is named where one is.
fn root<'a>(causes: &[Located<'a>], named: Option<u32>) -> Option<Located<'a>> {
    let attempt = causes.iter().map(|found| found.source.attempt).max()?;
    let latest = || causes.iter().filter(|found| found.source.attempt == attempt || found.source.attempt.is_none());
    let strength = latest().map(|found| found.class().strength()).max()?;
    let strongest: Vec<Located<'a>> = latest().filter(|found| found.class().strength() == strength).copied().collect();
    let of_rank = |found: &&Located<'a>| named.is_some() && found.rank() == named;
    let chosen = strongest.iter().find(of_rank).or_else(|| strongest.first())?;
    Some(start_of_event(&strongest, chosen))
}

/// The first finding of the log's last event: an error that was caught and trained past is not what ended the job.
fn start_of_event<'a>(strongest: &[Located<'a>], chosen: &Located<'a>) -> Located<'a> {
    let same_log = |found: &&Located<'a>| std::ptr::eq(found.source, chosen.source);
    let mut start = *chosen;
    for found in strongest.iter().filter(same_log) {
        let apart = found.finding.line.saturating_sub(start.finding.last_line);
        if apart > SAME_EVENT {
            start = *found;
        }
    }
    start
}

/// The rank and the attempt that a log's path names: torchrun's `RUN/attempt_0/3/stderr.log`, or `rank_3.log`.
pub fn place_of(path: &str) -> (Option<u32>, Option<u32>) {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let attempt_at = parts.iter().rposition(|part| part.starts_with("attempt_"));
    let attempt = attempt_at.and_then(|at| parts.get(at)?.strip_prefix("attempt_")?.parse().ok());
    let folder = attempt_at.and_then(|at| parts.get(at + 1)?.parse().ok());
    let rank = folder.or_else(|| parts.iter().rev().find_map(|part| rank_in_name(part)));
    (rank, attempt)
}

/// `rank3.log`, `rank_3.err`, `train-rank-3.out`
fn rank_in_name(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let after = lower.get(lower.rfind("rank")? + 4..)?.trim_start_matches(['_', '-', '.', '=']);
    let end = after.find(|character: char| !character.is_ascii_digit()).unwrap_or(after.len());
    after.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Scanner;

    const MEMORY: &str = "RuntimeError: CUDA error: out of memory\n";
    const TIMEOUT: &str = "[rank0]:[E1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: \
        WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n";
    const DISK: &str = "OSError: [Errno 28] No space left on device\n";

    fn source(name: &str, log: &str) -> Source {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let (rank, attempt) = place_of(name);
        Source { name: name.to_owned(), rank, attempt, scan: scanner.finish(), raised: None }
    }

    fn root_class(sources: &[Source]) -> Option<(Class, Option<u32>)> {
        let diagnosis = diagnose(sources);
        Some((diagnosis.root?.class(), diagnosis.first_rank))
    }

    #[test]
    fn a_timeout_is_the_echo_of_another_ranks_death() {
        let sources = [source("rank_0.log", TIMEOUT), source("rank_1.log", MEMORY)];
        assert_eq!(root_class(&sources), Some((Class::GpuMemory, Some(1))));
        assert_eq!(diagnose(&sources).echoes.len(), 1);
        assert_eq!(root_class(&sources[..1]), Some((Class::NcclTimeout, Some(0))));
    }

    #[test]
    fn the_slowest_rank_is_behind() {
        let last = |rank, done| {
            format!(
                "[rank{rank}]:[E1 x.cpp:1] [PG 0 Rank {rank}] Exception (either an error or timeout) detected by \
                 watchdog at work: 9, last enqueued NCCL work: 9, last completed NCCL work: {done}.\n"
            )
        };
        let behind = source("all.log", &(last(0, 8) + &last(3, 5) + &last(1, 8)));
        assert_eq!(root_class(&[behind]), Some((Class::NcclTimeout, Some(3))));
    }

    #[test]
    fn what_was_trained_past_is_not_what_ended_it() {
        let log = format!("{MEMORY}{}{DISK}", "step 1 loss 2.0\n".repeat(3000));
        assert_eq!(root_class(&[source("log", &log)]), Some((Class::DiskFull, None)));
        let log = format!("{MEMORY}{}{DISK}", "  File x\n".repeat(30));
        assert_eq!(root_class(&[source("log", &log)]), Some((Class::GpuMemory, None)));
    }

    #[test]
    fn the_last_attempt_counts() {
        let sources = [source("l/run/attempt_0/1/stderr.log", DISK), source("l/run/attempt_1/0/stderr.log", MEMORY)];
        assert_eq!(root_class(&sources), Some((Class::GpuMemory, Some(0))));
    }

    #[test]
    fn paths_name_ranks() {
        let cases = [
            ("logs/none_x/attempt_0/3/stderr.log", (Some(3), Some(0))),
            ("out/rank_12.log", (Some(12), None)),
            ("out/train-Rank=2.err", (Some(2), None)),
            ("frank.log", (None, None)),
            ("attempt_x/y", (None, None)),
        ];
        for (path, place) in cases {
            assert_eq!(place_of(path), place, "{path}");
        }
    }
}
