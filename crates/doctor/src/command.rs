//! Whether a finding is of an earlier command of the same log: several programs may write one after another, and what
//! ended the last of them counts.

use crate::cause::FailureCause;
use crate::choice::raises_exception;
use crate::diagnosis::{LAST_WORDS, Located};
use crate::exception::{Files, Raiser};
use crate::finding::{Finding, Tone};
use crate::julia;
use crate::text::has_phrase;
use tonnage_core::failure::{Class, Strength};

/// Lines of torchrun's report below its head.
const OF_A_REPORT: u64 = 10;
/// So many lines after a launcher's last words are of another command; a script's own last words are fewer.
const OF_A_COMMAND: u64 = 100;
/// So many lines, with more bytes than a program holds back and writes when it ends, are of another command.
const PAST: u64 = 60;

/// torchrun's report, at its end.
const REPORT: &str = "torchrun_root_cause";
/// What launchers say when all their processes are gone.
const CLOSINGS: &[&str] = &[REPORT, "launcher_exit", "mpi_exit", "mpi_bad_termination"];

impl Located<'_> {
    pub(crate) fn is_of_an_earlier_command(&self) -> bool {
        self.finding.line > 0
            && (self.is_launched_before()
                || self.begins_again()
                || self.is_written_past()
                || self.is_another_command()
                || self.is_before_julia()
                || self.is_of_another_launch())
    }

    /// Whether a command that could not be run, which ends at once, stands before what another one died of.
    fn is_another_command(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let alone = scan.findings.iter().all(|it| it.rank.is_none() && !is_worker(it) && !is_of_launcher(it));
        let dies = |it: &Finding| {
            it.line > own.last_line && it.strength() > Strength::Warning && !has_phrase(&it.text, "SystemExit")
        };
        self.class() == Class::Usage && alone && scan.findings.iter().any(dies)
    }

    /// Whether a program in Python raised it, and one in Julia, which came after it, ended with an error.
    fn is_before_julia(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let is_julias = |it: &Finding| it.line > own.last_line && it.text.starts_with(julia::ERROR);
        own.place().is_some() && own.rank.is_none() && scan.findings.iter().any(is_julias)
    }

    /// Whether a launcher could not have its port, before it had any process, and ranks of another one failed later.
    fn is_of_another_launch(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let is_launchers = |it: &Finding| {
            let in_launcher = it.place().is_some_and(|place| Files::of(&place.file).launcher);
            it.class() == Class::PortInUse && it.last_line >= own.last_line && in_launcher
        };
        let of_rank = |it: &Finding| it.line > own.last_line && it.rank.is_some() && it.class() != Class::PortInUse;
        self.class() == Class::PortInUse && scan.findings.iter().any(is_launchers) && scan.findings.iter().any(of_rank)
    }

    /// Whether its launcher had ended, and another one's processes failed, or went on to the log's end.
    fn is_launched_before(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        if scan.setting.several_nodes {
            return false;
        }
        let after = |it: &&Finding| it.last_line >= line;
        let report = scan.findings.iter().filter(after).find(|it| it.signature == REPORT);
        let fails_again = report.is_some_and(|report| {
            let same_host = |it: &Finding| it.signature != REPORT || host(it) == host(report);
            let is_cause = |it: &Finding| {
                it.line > report.line + OF_A_REPORT && it.strength() == Strength::Cause && !is_of_launcher(it)
            };
            scan.findings.iter().all(same_host) && scan.findings.iter().any(is_cause)
        });
        let last = scan.findings.iter().filter(after).rfind(|it| CLOSINGS.contains(&it.signature));
        let ends_otherwise = last.is_some_and(|closing| {
            let is_later = |it: &Finding| it.line > closing.last_line && it.strength() > Strength::Warning;
            scan.lines > closing.last_line + OF_A_COMMAND
                && scan.last_error.is_none()
                && !scan.findings.iter().any(is_later)
        });
        fails_again || ends_otherwise
    }

    /// Whether the log's first lines come again after it: where ranks write together, after their launcher had ended.
    fn begins_again(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let is_launchers = |it: &&Finding| it.class() == Class::WorkerFailed || it.rank.is_some();
        let alone = !scan.findings.iter().any(|it| is_launchers(&it));
        scan.again.iter().filter(|again| **again > line).any(|again| {
            let closed = |it: &Finding| CLOSINGS.contains(&it.signature) && it.line >= line && it.line < *again;
            scan.lines > *again + LAST_WORDS && (alone || scan.findings.iter().any(closed))
        })
    }

    /// Whether the only process of the log had died of it, or caught it, and more was written after it than a program
    /// holds back until it ends.
    fn is_written_past(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let is_death = matches!(self.class(), Class::Killed | Class::Usage | Class::Terminated | Class::DriverMismatch)
            || matches!(own.tone, Tone::Raised { .. })
            || raises_exception(self.class());
        let alone = scan.findings.iter().all(|it| it.rank.is_none() && !is_worker(it));
        let late = scan.late.max(scan.past);
        let is_later = |it: &Finding| it.last_line > own.last_line.max(late) && it.strength() > Strength::Warning;
        // NCCL warns of a driver that it then does without.
        let warned = self.class() == Class::DriverMismatch && has_phrase(&own.text, "NCCL WARN");
        let is_past = (own.last_line < late && scan.lines > own.last_line + PAST)
            || (warned && scan.lines > own.last_line + OF_A_COMMAND);
        is_death && alone && is_past && scan.last_error.is_none() && !scan.findings.iter().any(is_later)
    }
}

fn host(finding: &Finding) -> Option<&str> {
    match &finding.cause {
        FailureCause::WorkerFailed(worker) => worker.host.as_deref(),
        _ => None,
    }
}

/// Whether another process, which may live, tells of it.
fn is_worker(finding: &Finding) -> bool {
    matches!(finding.class(), Class::WorkerFailed | Class::NcclError | Class::NcclTimeout)
}

fn is_of_launcher(finding: &Finding) -> bool {
    matches!(&finding.cause, FailureCause::Raised(exception) if exception.raiser == Raiser::Launcher)
}
