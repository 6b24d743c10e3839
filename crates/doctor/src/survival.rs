//! Whether a job went on after what was found in its log: a good end, a new start, steps that rise, another program.

use crate::cause::FailureCause;
use crate::choice::raises_exception;
use crate::diagnosis::{LAST_WORDS, Located};
use crate::exception::Raiser;
use crate::finding::{Finding, Tone};
use crate::progress::Progress;
use crate::text::has_phrase;
use tonnage_core::failure::{Class, Strength};

/// Steps that must be seen to rise after a finding for it to have been survived.
const RISING: usize = 3;

/// Lines that a shell writes when a program has ended: a blank one, its prompt.
const PROMPT: u64 = 2;

/// So many lines after a new start are a run that got on.
const OF_A_RUN: u64 = 100;

/// Seconds after a failure from which on a log's first line is another run's; ranks write theirs within moments.
const NEW_RUN: u32 = 5;

/// Who goes on without what failed says so within so many lines.
const PASSED_OVER: u64 = 2;

/// Bars that begin after an exception are those of nested loops, shown once more; of more, it was survived.
const BEGUN: usize = 3;

/// Lines of other things with the time, after a logger told of an exception, that show that it was caught.
const TOLD: usize = 2;

/// Who wrote so many lines, for so many seconds, after an exception went on; where a rank dies the others wait in
/// silence.
const OUTLIVED_LINES: u64 = 300;
const OUTLIVED_SECONDS: u32 = 120;

/// So many lines of a logger, over so many seconds, are of who went on as well.
const OUTLIVED_TOLD: usize = 5;
const OUTLIVED_LOGGED: u32 = 60;

/// Exceptions of one rank, all alike, after which it is one that the program goes on after; fewer may be of workers that
/// it started, each of which died of it.
const HABIT: u64 = 64;

/// How many of the steps are larger than those before; one of less than half begins another epoch.
fn rising_steps<'a>(steps: impl Iterator<Item = &'a Progress>) -> usize {
    let (mut steps_seen, mut epochs_seen, mut count) = (None, None, (0, 0));
    for step in steps {
        let (seen, count) =
            if step.is_epoch { (&mut epochs_seen, &mut count.0) } else { (&mut steps_seen, &mut count.1) };
        if seen.is_none_or(|last| step.step > last || (!step.is_epoch && step.step < last / 2)) {
            *seen = Some(step.step);
            *count += 1;
        }
    }
    count.0.max(count.1)
}

impl Located<'_> {
    /// Whether the program raised this again and again, and wrote more after the last time.
    fn is_habit(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let alike = |it: &&Finding| it.signature == own.signature && it.rank == own.rank && it.cause == own.cause;
        let often = scan.findings.iter().filter(alike).find(|it| it.count > HABIT);
        let several = scan.findings.iter().filter(alike).count() > 1;
        own.class() == Class::Raised && several && often.is_some_and(|it| it.last_line + LAST_WORDS < scan.lines)
    }

    /// Whether the job is seen to go on after it: a good end, a new start that gets somewhere, steps that rise.
    pub(crate) fn is_survived(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        if self.finding.line == 0 {
            return false;
        }
        // What a script says below a program that could not begin is of the script.
        let never_began = |success: &u64| {
            self.class() == Class::Usage
                && *success <= line + PROMPT
                && scan.lines <= *success + PROMPT
                && scan.steps.is_empty()
        };
        let ended_well = scan.successes.iter().any(|success| *success > line && !never_began(success));
        let same = |step: &&Progress| {
            step.line > line && (step.rank == self.rank() || step.rank.is_none() || self.rank().is_none())
        };
        let steps = scan.steps.iter().filter(same);
        // The line that says that the job is put back is where it starts again.
        let requeued = self.class() == Class::Requeued && steps.clone().next().is_some();
        // Who warned of it, or raised it in a thread of its own, did not end the program: any step shows that it goes on.
        let of_thread = matches!(&self.finding.cause, FailureCause::Raised(it) if it.raiser == Raiser::Aside);
        let aside = of_thread || matches!(self.finding.tone, Tone::Warned);
        // Who lost a thread and says so is ended by it, and so is who aborts.
        let is_end = |class: Class| matches!(class, Class::WorkerFailed | Class::Crash);
        let is_lost = |it: &Finding| it.line > line && is_end(it.class());
        let goes_on = of_thread && scan.last_said > line + PROMPT && !scan.findings.iter().any(is_lost);
        // A job that had ended well before a destructor raised has ended well.
        let after_the_end = of_thread && !scan.successes.is_empty();
        let is_exception = matches!(self.finding.tone, Tone::Raised { .. }) || raises_exception(self.class());
        let near = |passed: &u64| *passed > line && *passed <= line + PASSED_OVER;
        let is_passed_over = is_exception && scan.passed_over.iter().any(near);
        // What is fatal as an exception alone was caught where a line without a traceback says it.
        let caught = matches!(self.finding.tone, Tone::Said) && raises_exception(self.class());
        // Who lost another process's pipe is not who works.
        let lost = matches!(&self.finding.cause, FailureCause::Raised(it) if it.raiser == Raiser::Victim);
        let told_of = caught || (lost && self.is_alone_but_lost());
        let needed = if aside { 1 } else { RISING - usize::from(told_of) };
        ended_well
            || after_the_end
            || self.is_restarted(&steps)
            || requeued
            || self.is_left_out()
            || self.is_before_new_run()
            || goes_on
            || is_passed_over
            || self.is_of_an_ended_job()
            || self.has_more_work()
            || self.is_of_an_earlier_run()
            || self.is_habit()
            || self.is_outlived()
            || self.is_outwritten()
            || self.is_logged()
            || rising_steps(steps) >= needed
    }

    /// Whether nothing else was found in the log of a process that writes a page more.
    fn is_alone_but_lost(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let alone = scan.findings.iter().all(|it| it.rank.is_none() && it.last_line <= line);
        alone && scan.lines > line + OF_A_RUN
    }

    /// Whether a new start, after it, got somewhere: steps, further findings, lines of a run.
    fn is_restarted<'s>(&self, steps: &(impl Iterator<Item = &'s Progress> + Clone)) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        scan.restarts.iter().filter(|restart| **restart > line).any(|restart| {
            let later = |other: &Finding| other.line > *restart && other.strength() > Strength::Warning;
            let is_last = scan.lines <= *restart + PROMPT;
            let is_long = scan.lines > *restart + OF_A_RUN;
            is_last || is_long || steps.clone().any(|step| step.line > *restart) || scan.findings.iter().any(later)
        })
    }

    /// Whether a run began long after it, by the clock, and wrote more than its head.
    fn is_before_new_run(&self) -> bool {
        let scan = &self.source.scan;
        scan.new_runs.iter().any(|(run, stamp)| {
            let apart = self.finding.stamp.is_some_and(|then| then.seconds_to(*stamp) >= NEW_RUN);
            *run > self.finding.last_line && apart && scan.lines > *run + PROMPT
        })
    }

    /// Whether it is a command that is not there, as `module` where the node has no modules, which its script goes on without.
    fn is_left_out(&self) -> bool {
        self.class() == Class::Usage
            && has_phrase(&self.finding.text, ": command not found")
            && self.source.scan.lines > self.finding.last_line + OF_A_RUN
    }

    /// Whether another program began after it where the log is of one process at a time, or the same one began several
    /// pieces of work; those under way at its end are shown once more by their bars.
    fn has_more_work(&self) -> bool {
        let scan = &self.source.scan;
        let alone = scan.findings.iter().all(|it| it.rank.is_none());
        let is_exception = matches!(self.finding.tone, Tone::Raised { .. }) || raises_exception(self.class());
        let last = self.finding.last_line;
        let bars = scan.begun.iter().filter(|line| **line > last).count();
        let other = scan.programs.iter().any(|line| *line > last && scan.lines > *line + OF_A_RUN);
        let is_death = is_exception || matches!(self.class(), Class::Killed | Class::Crash);
        alone && ((is_exception && bars >= BEGUN) || (is_death && other))
    }

    /// Whether another run of a sweep came after it, and whoever started them all does not say that one failed; or
    /// another command.
    fn is_of_an_earlier_run(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let told = |it: &Finding| it.line > line && it.class() == Class::WorkerFailed;
        let next = scan.next.iter().find(|next| **next > line);
        // Where the sweep's own process dies of it, no other begins.
        let in_sweep = next.is_some_and(|next| scan.lines > *next) && !scan.findings.iter().any(told);
        in_sweep || self.is_of_an_earlier_command()
    }

    /// Whether the only process's logger told of it and went on to tell of other things.
    fn is_logged(&self) -> bool {
        let (scan, line) = (&self.source.scan, self.finding.last_line);
        let is_raised = matches!(self.finding.tone, Tone::Raised { .. });
        let caught =
            is_raised || raises_exception(self.class()) || matches!(self.class(), Class::Killed | Class::Divergence);
        let alone = scan.findings.iter().all(|it| it.rank.is_none());
        let needed = if is_raised { TOLD } else { TOLD + 1 };
        caught
            && alone
            && scan.logged.contains(&self.finding.line)
            && scan.alive.iter().filter(|alive| **alive > line).count() >= needed
    }

    /// Whether the scheduler ended the whole job after it, and a log that is appended to goes on with another rather than
    /// with the stacks of those that it ended.
    fn is_of_an_ended_job(&self) -> bool {
        let scan = &self.source.scan;
        let ends_all = |it: &&Finding| it.line >= self.finding.last_line && has_phrase(&it.text, ": *** JOB ");
        !scan.ends_in_dump && scan.findings.iter().filter(ends_all).any(|it| scan.lines > it.last_line + OF_A_RUN)
    }

    /// Whether more than a page was written after the only process that was killed, and nothing else failed: a dead process
    /// writes nothing.
    fn is_outwritten(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let alone = scan.findings.iter().all(|it| it.rank.is_none());
        let later = scan.findings.iter().any(|it| it.last_line > own.last_line && it.class() != own.class());
        own.signature == "shell_killed" && alone && !later && scan.lines > own.last_line + OF_A_RUN
    }

    /// Whether the only process of the log wrote on and on for minutes after it, and of nothing worse: who raised it
    /// caught it.
    fn is_outlived(&self) -> bool {
        let (scan, own) = (&self.source.scan, self.finding);
        let is_exception = matches!(own.tone, Tone::Raised { .. }) || raises_exception(self.class());
        let alone = scan.findings.iter().all(|it| it.rank.is_none());
        let later = scan.findings.iter().any(|it| it.last_line > own.last_line && it.strength() > Strength::Warning);
        // Who does not know its arguments ends at once: the lines are another program's.
        let is_other = self.class() == Class::Usage;
        let time = own.stamp.zip(scan.last_stamp).map_or(0, |(then, last)| then.seconds_to(last));
        let is_long = alone && scan.lines > own.last_line + OUTLIVED_LINES;
        let told = scan.alive.iter().filter(|alive| **alive > own.last_line).count();
        let is_logging = alone && told >= OUTLIVED_TOLD && time >= OUTLIVED_LOGGED && is_exception && !later;
        is_logging || is_long && (is_other || (is_exception && !later && time >= OUTLIVED_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnosis::{Source, diagnose};
    use crate::scanner::Scanner;
    use tonnage_core::failure::Class;

    fn root(log: &str) -> Option<(Class, u64)> {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let sources = [Source { name: "log".into(), rank: None, attempt: None, scan: scanner.finish() }];
        diagnose(&sources).root.map(|root| (root.class(), root.finding.line))
    }

    const RAISED: &str =
        "Traceback (most recent call last):\n  File \"fit.py\", line 88, in fold\n    x = rows[k]\nKeyError: 'fold'\n";

    #[test]
    fn who_loses_a_pipe_is_not_who_works() {
        let lost = "Process ForkProcess-2:\nTraceback (most recent call last):\n  File \"/usr/lib/python3.10/multiprocessing/connection.py\", \
            line 383, in _recv\n    raise EOFError\nEOFError\n";
        let steps = "step 10 loss 2.1\nstep 11 loss 2.0\n";
        let quiet = "    the angles are all within their limits\n".repeat(120);
        assert_eq!(root(&format!("{lost}{steps}{quiet}")), None);
        assert_eq!(root(&format!("{lost}{steps}")).map(|it| it.0), Some(Class::WorkerFailed));
    }

    #[test]
    fn the_last_of_many_steps_are_kept() {
        let run = |last: u32| (0..last).map(|at| format!("step {at} loss 2.1\n")).collect::<String>();
        let failed = format!("{}{RAISED}", run(400));
        let log = format!("{}{}", failed.repeat(4), run(300));
        assert_eq!(root(&log), None);
        assert!(root(&failed.repeat(4)).is_some());
    }

    #[test]
    fn before_an_earlier_command_all_is_history() {
        let refused = "fit.py: error: argument -s: invalid choice: 'CIFAR' (choose from 'A', 'B')\n";
        assert_eq!(root(&format!("{RAISED}{refused}")).map(|it| it.0), Some(Class::Usage));
        assert_eq!(root(&format!("{RAISED}{refused}Accuracy: 0.41\nAccuracy: 0.47\n")), None);
    }

    #[test]
    fn who_was_killed_later_had_lived_on() {
        let rows: String = (0..400).map(|at| format!("smape of window {at} is {at}.83 so far, going on\n")).collect();
        assert_eq!(root(&format!("{RAISED}{rows}Killed\n")).map(|it| it.0), Some(Class::Killed));
        assert_eq!(root(&format!("{RAISED}Killed\n")).map(|it| it.1), Some(4));
    }

    #[test]
    fn how_programs_end_without_a_line_of_their_own() {
        let class = |log: &str| root(log).map(|it| it.0);
        let bar = "  400/5000 [=>......] - ETA: 2:32:37 - Time (s): 2.9100Killed\n";
        assert_eq!(class(bar), Some(Class::Killed));
        assert_eq!(class("the word is 2.9100Killed\n"), None);
        assert_eq!(
            class("step 1 loss 2\nsignal (15): Terminated\nin expression starting at /a/b.jl:207\n"),
            Some(Class::Terminated)
        );
        assert_eq!(class("*** SIGTERM received at time=1736077232 on cpu 19 ***\n"), Some(Class::Terminated));
        assert_eq!(class("TRAIN 100/352\nLoss is NAN: Mini-Batch Index: 238\n"), Some(Class::Divergence));
        assert_eq!(
            class("python : C:\\Python313\\python.exe: can't open file \n'C:\\a.py': \n[Errno 2] No such file\n"),
            Some(Class::Usage)
        );
    }

    #[test]
    fn settings_and_rows_of_a_logger_are_no_errors() {
        assert_eq!(root("Samples: 3\nTimeout:      120s\nTask: 7\n"), None);
        let row = "[07/29/2025 14:39:00 fit INFO] [E 15 | it 1100] loss {total 1.338E+00, last 5.620E-01}\n";
        assert_eq!(root(&format!("step 1 loss 2.1\n{row}")), None);
    }

    #[test]
    fn a_module_is_not_lacking_for_want_of_kernels() {
        let warned = "/a/torch/cuda/__init__.py:143: UserWarning:\nA40 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n";
        let lacks = "Traceback (most recent call last):\n  File \"fit.py\", line 3, in <module>\n    import frobs\n\
            ImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory\n";
        assert_eq!(root(&format!("{warned}{lacks}")).map(|it| it.0), Some(Class::Raised));
    }
}
