//! Which passes of a long training job are run. What only repeats is left out: passes like the ones before them, whole
//! cycles of generation, and steps.
//!
//! A pass is plain, or it generates: every so many passes new completions are made. Once enough is recorded, three plain
//! passes after one another stand for those up to the last before a generation or of the step; three cycles that lie within a
//! step stand for the whole ones that follow; and three steps without generation stand for those up to the next with.

use super::settled::{LIKE, has_enough};
use crate::tensor::Context;

/// The passes of a job: so many a step, and every so many one that generates (`u64::MAX` when none does).
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    pub of_step: u64,
    pub generate_every: u64,
}

/// What is left out after a pass or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    Nothing,
    /// So many passes like the one that ended.
    Passes(u64),
    /// So many times the cycle of passes that ended.
    Cycles(u64),
}

/// How many of so many equal pieces, of which `done` were run, are left out: all that follow but the last. What those leave
/// must be made in their place.
pub(super) fn pieces_left_out(context: &Context, done: u64, pieces: u64) -> u64 {
    let is_long = has_enough(context) && done >= LIKE;
    if is_long { (pieces - done).saturating_sub(1) } else { 0 }
}

/// Where a long job stands.
#[derive(Debug)]
pub(super) struct Schedule {
    passes: Passes,
    /// Plain passes that were run one after another.
    plain: u64,
    /// Whole cycles that were run in this step.
    cycles: u64,
    /// Steps without generation that were run one after another.
    plain_steps: u64,
    /// Whether the step has generated.
    generated: bool,
    /// Steps that generated.
    generating_steps: u64,
}

impl Schedule {
    pub(super) const fn new(passes: Passes) -> Self {
        Self { passes, plain: 0, cycles: 0, plain_steps: 0, generated: false, generating_steps: 0 }
    }

    pub(super) const fn begin_step(&mut self) {
        self.plain = 0;
        self.cycles = 0;
        self.generated = false;
    }

    /// After pass number `pass` of the job, the one at `at` in its step. So many plain passes after one another, where enough is recorded,
    /// stand for others.
    pub(super) fn after_pass(&mut self, pass: u64, at: u64, alike: Option<u64>) -> Skip {
        let every = self.passes.generate_every;
        let generates = pass.is_multiple_of(every);
        self.generated |= generates;
        // The first of a step finds no gradients.
        self.plain = if generates || at == 0 { 0 } else { self.plain + 1 };
        let left = self.passes.of_step - at - 1;
        let ends_cycle = (pass + 1).is_multiple_of(every);
        if ends_cycle && at + 1 >= every {
            self.cycles += 1;
        }
        let Some(alike) = alike.filter(|_| left > 0) else { return Skip::Nothing };
        if ends_cycle {
            let whole = (left / every).saturating_sub(1);
            let known = self.cycles >= LIKE && whole > 0;
            return if known { Skip::Cycles(whole) } else { Skip::Nothing };
        }
        // The last one before a generation is run.
        let until_generation = every - 2 - pass % every;
        match until_generation.min(left - 1) {
            skipped @ 1.. if self.plain >= alike => Skip::Passes(skipped),
            _ => Skip::Nothing,
        }
    }

    /// After step number `step`: how many steps like it are left out; `None` where all that are left repeat others. So many steps
    /// stand for others, where enough is recorded.
    pub(super) fn after_step(&mut self, step: u64, alike: Option<u64>) -> Option<u64> {
        if self.generated {
            self.generating_steps += 1;
            self.plain_steps = 0;
        } else {
            self.plain_steps += 1;
        }
        let every = self.passes.generate_every;
        if alike.is_none_or(|alike| step < alike) {
            return Some(0);
        }
        if every == u64::MAX || self.generating_steps > LIKE {
            return None;
        }
        if self.plain_steps < LIKE {
            return Some(0);
        }
        let run = step.saturating_mul(self.passes.of_step);
        let generates = run.div_ceil(every).saturating_mul(every) / self.passes.of_step;
        Some(generates.saturating_sub(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which passes are run of so many steps, each by its number, where everything counts as long.
    fn run(of_step: u64, generate_every: u64, steps: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(Passes { of_step, generate_every });
        let (mut step, mut ran) = (1, Vec::new());
        while step <= steps {
            schedule.begin_step();
            let mut at = 0;
            while at < of_step {
                let pass = (step - 1) * of_step + at;
                ran.push(pass);
                at += 1;
                at += match schedule.after_pass(pass, at - 1, Some(LIKE)) {
                    Skip::Nothing => 0,
                    Skip::Passes(passes) => passes,
                    Skip::Cycles(cycles) => cycles * generate_every,
                };
            }
            assert_eq!(at, of_step, "a step ends with its last pass");
            match schedule.after_step(step, Some(LIKE)) {
                Some(skipped) => step += 1 + skipped,
                None => break,
            }
        }
        ran
    }

    #[test]
    fn plain_passes_between_are_left_out() {
        assert_eq!(run(10, u64::MAX, 1), [0, 1, 2, 3, 9]);
        // Generates at 0 and at 10: the passes around it are run.
        assert_eq!(run(20, 10, 1), [0, 1, 2, 3, 9, 10, 11, 12, 13, 19]);
    }

    #[test]
    fn whole_cycles_are_left_out_and_the_last_is_run() {
        assert_eq!(run(100, 1, 1), [0, 1, 2, 99]);
        assert_eq!(run(1000, 2, 1), [0, 1, 2, 3, 4, 5, 998, 999]);
        assert_eq!(run(1001, 2, 1), [0, 1, 2, 3, 4, 5, 998, 999, 1000]);
    }

    #[test]
    fn steps_are_left_out_up_to_the_one_that_generates() {
        assert_eq!(run(1, u64::MAX, 1 << 30), [0, 1, 2]);
        let ran = run(1, 100, 1 << 30);
        assert_eq!(ran, [0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203, 300]);
        // A step of four passes; every hundredth pass generates.
        let ran = run(4, 100, 1 << 30);
        assert!(ran.contains(&100) && ran.contains(&200) && ran.len() < 80, "{ran:?}");
    }

    #[test]
    fn however_long_few_are_run() {
        for of_step in [1, 2, 3, 7, 1000, 1 << 20, u64::from(u32::MAX)] {
            for every in [1, 2, 3, 5, 1000, 1 << 20, 1 << 36, u64::MAX] {
                let ran = run(of_step, every, u64::from(u32::MAX));
                assert!(ran.len() < 600, "{of_step} {every}: {}", ran.len());
                assert!(ran.windows(2).all(|two| two[0] < two[1]));
            }
        }
    }

    #[test]
    fn a_short_job_is_run_whole() {
        let mut schedule = Schedule::new(Passes { of_step: 1000, generate_every: 1 });
        for at in 0..1000 {
            assert_eq!(schedule.after_pass(at, at, None), Skip::Nothing);
        }
        assert_eq!(schedule.after_step(1, None), Some(0));
    }
}
