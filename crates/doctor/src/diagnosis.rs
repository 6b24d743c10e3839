//! [`diagnose`]: of all that was found in one or several logs, what came first, what follows from it, and which rank it
//! was.

use crate::cause::{FailureCause, Worker};
use crate::choice::{SAME_EVENT, causes_since, choose_cause, last_events};
use crate::finding::{Finding, Scan, Tone};
use crate::phase::Phase;
use crate::progress::Progress;
use crate::ranks::{self, Ranks};
use crate::setting::Setting;
use crate::text::has_phrase;
use tonnage_core::failure::{Class, Strength};

/// Lines behind a log's last words: a shell's, a blank one.
pub(crate) const LAST_WORDS: u64 = 3;

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
}

/// A finding with the log it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    pub source: &'a Source,
    pub finding: &'a Finding,
}

impl Located<'_> {
    /// The rank that wrote it: what the line says, else the log's.
    pub fn rank(&self) -> Option<u32> {
        self.finding.rank.or(self.source.rank)
    }

    pub(crate) fn class(&self) -> Class {
        self.finding.class()
    }

    /// How much it explains where it stands: what is often printed and not fatal is what ended a log that ends with it.
    pub(crate) fn strength(&self) -> Strength {
        let is_last = self.finding.last_line + LAST_WORDS >= self.source.scan.lines;
        let raised = matches!(self.finding.tone, Tone::Raised { .. });
        if self.class() == Class::Protobuf && (is_last || raised) {
            Strength::Cause
        } else if self.is_torn_down() {
            Strength::Echo
        } else {
            self.finding.strength()
        }
    }

    /// Whether it is a process that was killed because another one had failed before: srun's of the other tasks, anybody's
    /// behind what MPI ends a job with.
    pub(crate) fn is_torn_down(&self) -> bool {
        let own = self.finding;
        let of_srun = has_phrase(&own.text, "srun: error: ");
        let ends_others = |it: &Finding| match &it.cause {
            FailureCause::WorkerFailed(worker) => (of_srun && worker.exit_code > 0) || it.signature == "mpi_abort",
            FailureCause::Cancelled { is_step: true } => of_srun,
            _ => matches!(it.signature, "mpi_fatal" | "ucx_error"),
        };
        let before = |it: &&Finding| it.line < own.line && own.line - it.line <= SAME_EVENT;
        own.signature == "shell_killed" && self.source.scan.findings.iter().filter(before).any(ends_others)
    }

    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.finding, other.finding)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis<'a> {
    /// What explains the rest; `None` where nothing was recognised, or all was survived.
    pub root: Option<Located<'a>>,
    /// The rank that failed first, where anything names it.
    pub first_rank: Option<u32>,
    /// Other causes, which explain as much.
    pub others: Vec<Located<'a>>,
    /// What follows from a rank's death: timeouts, broken connections, launchers' summaries.
    pub echoes: Vec<Located<'a>>,
    /// What is printed and often not fatal.
    pub warnings: Vec<Located<'a>>,
    /// What the job went on after.
    pub survived: Vec<Located<'a>>,
    /// What earlier attempts ended with.
    pub earlier: Vec<Located<'a>>,
    /// What is known of every rank.
    pub ranks: Ranks,
    /// What the program was doing.
    pub phase: Option<Phase>,
    /// The last step before.
    pub step: Option<Progress>,
    /// The machine to leave out, where one is at fault or is named.
    pub node: Option<String>,
    /// The GPU to leave out, as the driver names it.
    pub gpu: Option<String>,
    /// On what and with what it ran.
    pub setting: Setting,
    /// Lines of the root's log after its last repetition: many mean that the job may have gone on.
    pub lines_after: u64,
}

/// Weighs the findings of logs that belong to one job.
pub fn diagnose(sources: &[Source]) -> Diagnosis<'_> {
    let attempt = sources.iter().map(|source| source.attempt).max().flatten();
    let all = || {
        sources.iter().flat_map(|source| source.scan.findings.iter().map(move |finding| Located { source, finding }))
    };
    let is_earlier = |found: &Located<'_>| found.source.attempt.is_some() && found.source.attempt < attempt;
    let (earlier, latest): (Vec<_>, Vec<_>) = all().partition(is_earlier);
    let histories: Vec<u64> = sources.iter().map(end_of_history).collect();
    let is_history = |found: &Located<'_>| {
        let of_source = sources.iter().zip(&histories).find(|(source, _)| std::ptr::eq(*source, found.source));
        of_source.is_some_and(|(_, end)| found.finding.line > 0 && found.finding.last_line < *end)
    };
    let (survived, live): (Vec<_>, Vec<_>) =
        latest.into_iter().partition(|found| is_history(found) || found.is_survived());
    let (causes, warnings): (Vec<Located<'_>>, Vec<Located<'_>>) =
        live.into_iter().partition(|found| found.strength() > Strength::Warning);
    let mut setting = Setting::default();
    sources.iter().for_each(|source| setting.join(&source.scan.setting));
    let ranks = Ranks::of_sources(sources, &causes, &setting);
    let named = ranks::rank_named(&last_events(&causes), &setting, sources);
    let quiet = Diagnosis { warnings, survived, earlier, setting, ..Diagnosis::default() };
    let Some(root) = choose_cause(&causes, named) else { return quiet };
    let rest = causes.iter().copied().filter(|found| !found.is(&root));
    let (others, echoes) = rest.partition(|found: &Located<'_>| found.strength() > Strength::Death);
    Diagnosis {
        first_rank: ranks::first_failed(&root, &causes_since(&root, &causes), named, &ranks, &quiet.setting, sources),
        others,
        echoes,
        node: failed_node(&root, &causes, &ranks),
        ranks,
        phase: root.finding.phase(),
        step: root.finding.step(),
        gpu: failed_gpu(&root),
        lines_after: root.source.scan.lines.saturating_sub(last_line(&root, &causes)),
        root: Some(root),
        ..quiet
    }
}

/// The last line of a log of one process at a time that is known to be an earlier command's: what stands before it is too.
fn end_of_history(source: &Source) -> u64 {
    let all = source.scan.findings.iter().map(|finding| Located { source, finding });
    let earlier = all
        .rev()
        .find(|found| found.strength() > Strength::Warning && found.is_alone() && found.is_of_an_earlier_command());
    earlier.map_or(0, |found| found.finding.line)
}

/// The last line of the root's log that says anything about the failure: what echoes was not survived.
fn last_line(root: &Located<'_>, causes: &[Located<'_>]) -> u64 {
    let same = causes.iter().filter(|found| std::ptr::eq(found.source, root.source));
    same.map(|found| found.finding.last_line).max().unwrap_or(root.finding.last_line)
}

/// The machine of the worker that failed, as its launcher names it; not of one that waited for others.
fn failed_node(root: &Located<'_>, causes: &[Located<'_>], ranks: &Ranks) -> Option<String> {
    let has_waited = |worker: &Worker| {
        worker.rank.and_then(|rank| u32::try_from(rank).ok()).is_some_and(|rank| ranks.has_only_waited(rank))
    };
    let host = |found: &Located<'_>| match &found.finding.cause {
        FailureCause::WorkerFailed(worker) if !has_waited(worker) => worker.host.clone(),
        _ => None,
    };
    let of_line = || {
        let text = root.finding.text.as_str();
        let slurm = crate::text::text_after(text, " ON ").and_then(|rest| rest.split(' ').next());
        let gone = crate::text::text_after(text, "Node failure on ").map(|rest| rest.trim_end_matches('.'));
        let srun = crate::text::text_after(text, "srun: error: ").and_then(|rest| rest.split(':').next());
        let srun = gone.or(srun).filter(|name| !name.contains(' '));
        slurm.filter(|_| has_phrase(text, "CANCELLED AT")).or(srun).map(str::to_owned)
    };
    host(root).or_else(of_line).or_else(|| causes.iter().find_map(host)).filter(|node| !node.is_empty())
}

/// `PCI:0000:44:00` of the driver's lines.
fn failed_gpu(root: &Located<'_>) -> Option<String> {
    let text = root.finding.text.as_str();
    let hardware = matches!(root.class(), Class::Xid | Class::GpuHardware);
    let starts = ["(PCI:", "NVRM: GPU at PCI:", "NVRM: GPU ", "NVRM: The NVIDIA GPU ", "handle for GPU"];
    let name = starts.iter().find_map(|start| crate::text::text_after(text, start)).filter(|_| hardware)?;
    let end =
        name.find(|character: char| !character.is_ascii_hexdigit() && !":.".contains(character)).unwrap_or(name.len());
    let name = name.get(..end)?.trim_end_matches([':', '.']);
    (name.len() > 5).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scanner;
    use crate::place::place_of;

    const MEMORY: &str = "RuntimeError: CUDA error: out of memory\n";
    const TIMEOUT: &str = "[rank0]:[E1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: \
        WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n";
    const DISK: &str = "OSError: [Errno 28] No space left on device\n";

    fn source(name: &str, log: &str) -> Source {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let (rank, attempt) = place_of(name);
        Source { name: name.to_owned(), rank, attempt, scan: scanner.finish() }
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
        // Who reports a timeout is its victim.
        assert_eq!(root_class(&sources[..1]), Some((Class::NcclTimeout, None)));
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
    fn a_run_that_is_appended_to_a_log_is_a_run_of_its_own() {
        let first = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 3, in f\n[rank1]: KeyError: 'a'\n\
            [2026-02-03 04:05:06,123] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) \
            local_rank: 1 (pid: 4711) of binary: python\n";
        let second = "  File \"a.py\", line 3\n    x = =\n        ^\nSyntaxError: invalid syntax\n";
        let log = format!("{first}{}{second}", "reading a row\n".repeat(1100));
        let sources = [source("log", &log)];
        let diagnosis = diagnose(&sources);
        let root = diagnosis.root.map(|root| root.finding.text.as_str());
        assert_eq!((root, diagnosis.first_rank), (Some("SyntaxError: invalid syntax"), None));
    }

    #[test]
    fn a_log_that_begins_again_is_another_run() {
        let opening = |time| format!("2026-02-03 {time},000 - main - INFO - reading the table of speakers\n");
        let failed = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'a'\n";
        let under_way = "2026-02-03 04:09:01,000 - main - INFO - building the model\nready\nwaiting\n";
        let log = format!("{}{failed}{}{under_way}", opening("04:05:06"), opening("04:09:00"));
        assert_eq!(root_class(&[source("log", &log)]), None);
        // Of ranks that start together every one writes it.
        let ranks = format!("{}{failed}{}{under_way}", opening("04:05:06"), opening("04:05:07"));
        assert_eq!(root_class(&[source("log", &ranks)]), Some((Class::Raised, None)));
        // Of many alike the last one's time is known too.
        let many = format!("{}{}{}{under_way}", opening("04:05:06"), failed.repeat(9), opening("04:09:00"));
        assert_eq!(root_class(&[source("log", &many)]), None);
    }

    #[test]
    fn who_writes_on_for_minutes_went_on() {
        let failed =
            "[04:05:06] asks\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'a'\n";
        let on = |rank: &str, minute| format!("{rank}[04:{minute:02}:00] one\n").repeat(200);
        let log = format!("{failed}{}{}", on("", 6), on("", 9));
        assert_eq!(root_class(&[source("log", &log)]), None);
        assert!(root_class(&[source("log", &format!("{failed}{}{}", on("", 5), on("", 6)))]).is_some());
        // Ranks that wait for one that died write on as well.
        let ranks = format!("[rank1]: x\n{}{}{}", failed.replace("Key", "[rank1]: Key"), on("", 6), on("", 9));
        assert!(
            root_class(&[source(
                "log",
                &ranks.replace("  File", "[rank1]:   File").replace("Trace", "[rank1]: Trace")
            )])
            .is_some()
        );
    }

    #[test]
    fn what_a_signal_interrupted_is_no_cause() {
        let frames = "  File \"/usr/lib/python3.8/logging/__init__.py\", line 7, in f\n";
        let head = "Traceback (most recent call last):\n";
        let next = "\nDuring handling of the above exception, another exception occurred:\n\n";
        let log = format!(
            "step 1\n{head}{frames}KeyError: 30\n{next}{head}{frames}\
             torch.distributed.elastic.multiprocessing.api.SignalException: Process 47 got signal: 1\n"
        );
        assert_eq!(root_class(&[source("log", &log)]), Some((Class::Hangup, None)));
        let stopped = "[2026-02-03 04:05:06,123] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 47\n\
            [2026-02-03 04:05:06,223] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting\n";
        assert_eq!(root_class(&[source("log", stopped)]), Some((Class::Interrupted, None)));
    }

    #[test]
    fn a_head_that_is_cut_off_says_less_than_what_it_follows_from() {
        let log = "TypeError      Traceback (most recent call last)\n<ipython-input-5> in <module>\n\
            ----> 2 f(x)\nTypeError: x is no tensor\n\nThe above exception was the direct cause of the following exception:\n\n\
            RuntimeError      Traceback (most recent call last)\n<ipython-input-5> in <module>\n----> 2 f(x)\n";
        let sources = [source("log", log)];
        assert_eq!(diagnose(&sources).root.map(|root| root.finding.text.as_str()), Some("TypeError: x is no tensor"));
    }

    #[test]
    fn a_traceback_that_is_cut_off_tells_its_last_code() {
        let text = |log: &str| {
            let sources = [source("log", log)];
            diagnose(&sources).root.map(|root| (root.class(), root.finding.text.clone()))
        };
        let head = "step 1\nTraceback (most recent call last):\n";
        let frame = "  File \"fit.py\", line 93, in forward\n";
        let said = |class: Class, line: &str| Some((class, line.to_owned()));
        let code = text(&format!("{head}{frame}    x = rows[k](\n"));
        assert_eq!(code, said(Class::Reported, "x = rows[k]("));
        let raised = text(&format!("{head}{frame}    raise KeyError(\"no such fold\")\n"));
        assert_eq!(raised, said(Class::Raised, "raise KeyError(\"no such fold\")"));
        assert_eq!(text(&format!("{head}{frame}")), said(Class::Reported, "Traceback (most recent call last):"));
    }

    #[test]
    fn a_config_that_hydra_does_not_find_is_of_the_last_command() {
        let refused = "Cannot find primary config 'walk'. Check that it's in your config search path.\n\nConfig search path:\n\
            \tprovider=hydra, path=pkg://hydra.conf\n\tprovider=main, path=file:///a/config\n\tprovider=schema, path=structured://\n\n\
            Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n";
        let raised = "Traceback (most recent call last):\n  File \"fit.py\", line 88, in fold\n    x = rows[k]\nKeyError: 'fold'\n";
        assert_eq!(root_class(&[source("log", &format!("{raised}{refused}"))]), Some((Class::Usage, None)));
    }

    #[test]
    fn exceptions_of_tasks_that_go_on_are_asides_however_many_there_are() {
        let task = "[04:05:06] ERROR: Task exception was never retrieved\nfuture: <Task>\nTraceback (most recent call last):\n  \
            File \"a.py\", line 3, in f\nTypeError: f() got an unexpected argument 'i'\n";
        let log = format!("{}[04:05:07] asks again\n[04:05:08] has the answer\n[04:05:09] done\n", task.repeat(40));
        assert_eq!(root_class(&[source("log", &log)]), None);
    }

    #[test]
    fn the_last_attempt_counts() {
        let sources = [source("l/run/attempt_0/1/stderr.log", DISK), source("l/run/attempt_1/0/stderr.log", MEMORY)];
        assert_eq!(root_class(&sources), Some((Class::GpuMemory, Some(0))));
    }
}
