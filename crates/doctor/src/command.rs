//! Whether a finding is of an earlier command of the same log: several programs may write one after another, and what
//! ended the last of them counts.

use crate::cause::FailureCause;
use crate::choice::{is_command_not_read, raises_exception};
use crate::diagnosis::{LAST_WORDS, Located};
use crate::exception::{Files, Raiser};
use crate::finding::{Finding, Tone};
use crate::julia;
use crate::setting::Framework;
use crate::starts::Starts;
use crate::text::has_phrase;
use tonnage_core::failure::{Class, Strength};

/// Lines of torchrun's report below its head.
const OF_A_REPORT: u64 = 10;
/// So many lines after a launcher's last words are of another command; a script's own last words are fewer.
const OF_A_COMMAND: u64 = 100;
/// So many lines, with more bytes than a program holds back and writes when it ends, are of another command.
const PAST: u64 = 60;

/// Lines that a launcher, or who lost the others, writes below the exception that ended it.
const OF_AN_END: u64 = 16;
/// Warnings of Python that only another program writes after an exception.
const WARNED: usize = 3;
/// Lines with figures that only another program writes.
const FIGURES: usize = 2;
/// Lines like those before.
const FAMILIAR: usize = 3;
/// Lines with figures of a script's loop that goes on.
const OF_A_CYCLE: usize = 12;
/// A program imports what it needs in its first lines.
const OF_IMPORTS: u64 = 40;
const IMPORTS: &[&str] = &["ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError"];

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
                || self.is_of_another_launch()
                || self.is_before_a_start()
                || self.is_reopened()
                || self.never_began()
                || self.is_left_by_its_script()
                || self.is_before_what_was_shown())
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

    /// Whether only one process is known to write the log.
    pub(crate) fn is_alone(&self) -> bool {
        let scan = &self.source.scan;
        let is_others = |it: &Finding| it.rank.is_some() || is_worker(it) || is_of_launcher(it);
        self.source.rank.is_none()
            && scan.setting.world.is_none_or(|world| world < 2)
            && !scan.findings.iter().any(is_others)
    }

    /// Whether another program begins after it: with words that are written once and at once, of which what a dead program
    /// had held back is none; where ranks write together, after their launcher had ended.
    fn is_before_a_start(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let alone = self.is_alone();
        let begins = |start: &u64| {
            let closed = |it: &Finding| closes(it) && it.last_line + OF_AN_END >= line && it.line < *start;
            *start > line && (alone || scan.findings.iter().any(closed))
        };
        let warned = Starts::after(&scan.starts.warned, line) >= WARNED;
        // Ray shows what its workers warn of.
        let warned = warned && !scan.setting.has(Framework::Ray);
        // A terminal interrupts all processes of a command.
        let imports = self.class() != Class::Interrupted && Starts::after(&scan.starts.importing, line) > 0;
        scan.starts.begun.iter().any(begins) || (alone && self.is_raised() && (warned || imports))
    }

    /// Whether the very first lines come again after what no interpreter wrote, which may have held back its output.
    fn is_reopened(&self) -> bool {
        // Ranks that start together write the same first lines.
        let begins = |line: &u64| *line > self.finding.last_line.max(OF_A_COMMAND);
        !self.is_raised() && self.is_alone() && self.source.scan.reopened.iter().any(begins)
    }

    /// Whether a command that could not be read, or that lacks a module which it begins with, wrote nothing itself, and
    /// figures come after it.
    fn never_began(&self) -> bool {
        let scan = &self.source.scan;
        let lacks_module =
            matches!(&self.finding.cause, FailureCause::Raised(it) if IMPORTS.contains(&it.short_name()));
        // A file that cannot be read has no function yet.
        let begins = self.finding.place().is_some_and(|place| {
            place.function.is_empty() || (place.function == "<module>" && place.line <= OF_IMPORTS)
        });
        let unread = is_command_not_read(self) && !self.is_raised();
        let never = unread || (lacks_module && begins);
        never && self.is_alone() && Starts::after(&scan.starts.figures, self.finding.last_line) >= FIGURES
    }

    /// Whether a shell told of the death of one command, or PBS of a job's, and what follows is like what stood before:
    /// the script's loop goes on, or the next job.
    fn is_left_by_its_script(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let of_shell = (has_phrase(&own.text, ": line ") || own.text == "Terminated")
            && matches!(self.class(), Class::Killed | Class::Terminated | Class::Crash);
        let of_pbs = has_phrase(&own.text, "=>> PBS: job killed: ");
        (of_shell || of_pbs) && !scan.ends_in_dump && Starts::after(&scan.starts.familiar, own.last_line) >= FAMILIAR
    }

    /// Whether the only process of the log died of it before it had written as much as is held back of an output, and lines
    /// like those before come after it: those had been shown at once, so that these are of another process. Later in a log
    /// they must follow at once, whole, and be many: what was held back goes on where the last piece was cut.
    fn is_before_what_was_shown(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let familiar = Starts::after(&scan.starts.begun_anew, line);
        let figures = Starts::after(&scan.starts.figures, line);
        let goes_on = familiar >= FAMILIAR || (familiar > 0 && figures >= FIGURES);
        // Threads and processes that a program started write on for a while.
        let is_main = self.is_raised() && self.class() != Class::Interrupted;
        let is_later = scan.last_error.as_ref().is_some_and(|error| error.line > line);
        let resumed = scan.starts.resumed.contains(&(line + 1));
        let is_cycle = resumed && familiar >= 2 * FAMILIAR && figures >= OF_A_CYCLE;
        is_main && self.is_alone() && (is_cycle || line <= scan.starts.shown) && goes_on && !is_later
    }

    fn is_raised(&self) -> bool {
        matches!(self.finding.tone, Tone::Raised { .. })
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
        // A program that had held its output back begins it with the same first lines, and ends with them.
        let is_late = line > scan.starts.shown && scan.lines <= line + OF_A_COMMAND;
        let is_held_back = self.is_raised() && is_late && {
            let goes_on = |it: &Finding| it.line > line && it.strength() > Strength::Warning;
            scan.steps.iter().all(|step| step.line < line) && scan.past <= line && !scan.findings.iter().any(goes_on)
        };
        scan.again.iter().filter(|again| **again > line && !is_held_back).any(|again| {
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
        // Who was killed or interrupted later had lived on.
        let tells_of_life = |it: &Finding| matches!(it.class(), Class::Killed | Class::Interrupted | Class::Terminated);
        let is_later = |it: &Finding| {
            it.last_line > own.last_line.max(late) && it.strength() > Strength::Warning && !tells_of_life(it)
        };
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

/// Whether a launcher, or the program that had started the others, ends with it.
fn closes(finding: &Finding) -> bool {
    let is_lost = matches!(&finding.cause, FailureCause::Raised(it) if it.raiser == Raiser::Victim && it.name.starts_with("ray."));
    CLOSINGS.contains(&finding.signature) || is_lost
}

fn is_of_launcher(finding: &Finding) -> bool {
    matches!(&finding.cause, FailureCause::Raised(exception) if exception.raiser == Raiser::Launcher)
}

#[cfg(test)]
mod tests {
    use crate::diagnosis::{Source, diagnose};
    use crate::scanner::Scanner;
    use tonnage_core::failure::Class;

    fn root(log: &str) -> Option<Class> {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let sources = [Source { name: "log".into(), rank: None, attempt: None, scan: scanner.finish() }];
        diagnose(&sources).root.map(|root| root.class())
    }

    const RAISED: &str =
        "Traceback (most recent call last):\n  File \"fit.py\", line 88, in fold\n    x = rows[k]\nKeyError: 'fold'\n";
    const LACKS: &str = "Traceback (most recent call last):\n  File \"fit.py\", line 3, in <module>\n    import frobs\n\
        ModuleNotFoundError: No module named 'frobs'\n";

    #[test]
    fn what_begins_after_it_is_another_command() {
        let held_back = "reading the rows\nready\nwaiting\n";
        assert_eq!(root(&format!("{RAISED}{held_back}")), Some(Class::Raised));
        for start in [
            "nohup: ignoring input\n",
            "wandb: Syncing run brave-sun-3\n",
            "Due to MODULEPATH changes, the following have been reloaded:\n",
        ] {
            assert_eq!(root(&format!("{RAISED}{start}{held_back}")), None, "{start}");
        }
        // What wandb says as a run ends is its end.
        assert_eq!(
            root(&format!("{RAISED}wandb: Synced brave-sun-3: x\nwandb: Find logs at: ./w\n")),
            Some(Class::Raised)
        );
        // Another rank may begin later than the one that failed.
        let of_rank = RAISED
            .replace("Trace", "[rank1]: Trace")
            .replace("  File", "[rank1]:   File")
            .replace("Key", "[rank1]: Key");
        assert!(root(&format!("{of_rank}wandb: Syncing run brave-sun-3\n{held_back}")).is_some());
    }

    #[test]
    fn what_keras_says_may_have_been_held_back_behind_what_is_no_traceback() {
        let keras = "Using TensorFlow backend.\nreading the rows\n";
        assert_eq!(root(&format!("{RAISED}{keras}")), None);
        let killed = "Killed\n";
        assert_eq!(root(&format!("{killed}{keras}")), root(&format!("{killed}reading the rows\n")));
    }

    #[test]
    fn what_was_held_back_is_of_the_program_that_died() {
        let progress = "We are weighing the rows\n".repeat(4);
        assert_eq!(root(&format!("{progress}{RAISED}{progress}")), Some(Class::Raised));
        let head = "Trains the model: small\nreads its settings from the file\nwrites its folder\n";
        let steps = "step 10 loss 2.1\nstep 20 loss 2.0\nstep 30 loss 1.9\n";
        let page: String = (0..400).map(|at| format!("the row {at} was weighed with {at}.5\n")).collect();
        assert_eq!(root(&format!("{head}{page}{steps}{RAISED}{head}ready\n")), Some(Class::Raised));
        assert_eq!(root(&format!("{head}{page}{steps}{RAISED}{head}ready\n{steps}")), None);
    }

    #[test]
    fn whole_lines_of_a_loop_that_follow_at_once_are_another_turn() {
        let turn = |name: u32| {
            let tasks = ["mrpc", "stsb", "sst", "cola", "qqp", "qnli", "wnli"];
            let task =
                |it: &&str| format!("TASK: {it}\nweights in all: 127.97M\nmodel: m{name} | {it} | score: 0.61\n");
            format!("MODEL: m{name}\n{}", tasks.iter().map(task).collect::<String>())
        };
        let many: String = (0..40).map(turn).collect();
        let two = format!("{}{}", turn(41), turn(42));
        assert_eq!(root(&format!("{many}{RAISED}{two}")), None);
        assert_eq!(root(&format!("{many}{RAISED}_41 | and so on\n{two}")), Some(Class::Raised));
        assert_eq!(root(&format!("{many}{RAISED}MODEL: m41\n")), Some(Class::Raised));
    }

    #[test]
    fn who_stops_at_its_imports_is_another_process() {
        let stops = "Traceback (most recent call last):\n  File \"fit.py\", line 3, in <module>\n    import frobs\n\
            \x20 File \"/opt/py/site-packages/frobs/a.py\", line 9, in <module>\n    from .b import c\nKeyboardInterrupt\n";
        assert_eq!(root(&format!("{RAISED}{stops}")), Some(Class::Interrupted));
        assert_eq!(root(&format!("{RAISED}{}", stops.replace("import", "load"))), Some(Class::Raised));
        // A process that another one started tells of its imports too.
        assert_eq!(root(&format!("{RAISED}{}", stops.replace("fit.py", "<string>"))), Some(Class::Raised));
        let stopped = RAISED.replace("KeyError: 'fold'", "KeyboardInterrupt");
        let fails = stops.replace("KeyboardInterrupt", "RuntimeError: KeyboardInterrupt:");
        assert_eq!(root(&format!("{stopped}{fails}")), Some(Class::Interrupted));
        let chained =
            format!("{RAISED}\nDuring handling of the above exception, another exception occurred:\n\n{stops}");
        assert_eq!(root(&chained), root(&chained.replace("import", "load")));
    }

    #[test]
    fn warnings_of_another_program_are_not_of_an_end() {
        let warns = |text: &str| format!("/opt/py/site-packages/zed/x.py:7: {text}\n  warnings.warn(x)\n").repeat(3);
        assert_eq!(root(&format!("{RAISED}{}ready\n", warns("FutureWarning: `old` is deprecated"))), None);
        assert_eq!(root(&format!("{RAISED}{}", warns("ResourceWarning: unclosed file"))), Some(Class::Raised));
        let of_workers = warns("FutureWarning: x").replace("/opt", "(RolloutWorker pid=12) /opt");
        assert_eq!(root(&format!("import ray.tune: /ray/tune\n{RAISED}{of_workers}")), Some(Class::Raised));
    }

    #[test]
    fn who_lacks_a_module_wrote_nothing() {
        let figures = "reading\n0.5378\nsplit\n0.7399\ntuning\n";
        assert_eq!(root(&format!("{LACKS}{figures}")), None);
        assert_eq!(root(&format!("{LACKS}all done\nsee out/\nreal 0m1.234s\nuser 0m0.9s\n")), Some(Class::Raised));
        // A program may have held back its figures until it raised.
        assert_eq!(root(&format!("{RAISED}{figures}")), Some(Class::Raised));
        let other = "python: can't open file 'fot.py': [Errno 2] No such file or directory\n";
        assert_eq!(root(&format!("{other}{figures}")), None);
        assert_eq!(root(&format!("{other}Finished at Mon Mar  2 2026\n")), Some(Class::Usage));
        let unread = "  File \"fit.py\", line 44\n    x = (\n        ^\nSyntaxError: '(' was never closed\n";
        assert_eq!(root(&format!("{unread}{figures}")), None);
    }

    #[test]
    fn a_loop_goes_on_after_one_command_was_killed() {
        let killed = "sweep.sh: line 5:  5782 Killed                  ./mix run$i.ini\n";
        let items = |from: u32| (from..from + 4).map(|i| format!("i is {i}\n")).collect::<String>();
        assert_eq!(root(&format!("{}{killed}{}", items(1), items(5))), None);
        assert_eq!(root(&format!("{}{killed}bye\n", items(1))), Some(Class::Killed));
        // A site says who and where before a job and after it.
        let site = "Job ID: 4711 of the cluster\nUser: ann of the lab\nNode list: n[1-4] of the island\n";
        assert_eq!(root(&format!("{site}{killed}{site}")), Some(Class::Killed));
    }

    #[test]
    fn another_job_follows_what_pbs_killed() {
        let killed = "=>> PBS: job killed: walltime 325 exceeded limit 300\n";
        let job = "heat.cu(225): warning: variable \"k\" was declared but never referenced\n".repeat(3);
        assert_eq!(root(&format!("{job}{killed}{job}")), None);
        assert_eq!(root(&format!("{job}{killed}mpirun: killing job...\n")), Some(Class::TimeLimit));
    }

    #[test]
    fn a_log_of_many_jobs_begins_again_with_its_first_lines() {
        let job = |host: u32| format!("Working directory is /home/ann/sparse\nRunning on host x{host}n0\nmport:9093\n");
        let failed = "x3n0:13069:13147 [0] init.cc:521 NCCL WARN Duplicate GPU detected : rank 4 and rank 0 both on CUDA device 7000\n";
        let works = "the pruning of layer and filter is under way\n".repeat(99);
        assert_eq!(root(&format!("{}{works}{}{failed}{}", job(1), job(2), job(3))), None);
        // Of ranks that start together every one writes them.
        assert_eq!(root(&format!("{}{}{failed}{}", job(1), job(2), job(3))), Some(Class::DuplicateGpu));
        assert_eq!(root(&format!("{}{}{failed}", job(1), job(2))), Some(Class::DuplicateGpu));
    }
}
