//! [`Counted`]: a stretch of which small requests are given blocks now and then, and only counted otherwise.
//!
//! The two pools never exchange blocks, and a small block is as large as its request: what is allocated, and all of the large
//! pool, is as if each had its block. Only where in the small pool they would lie is not known in between.

use std::ops::Range;

use super::counters::Level;
use super::{Kind, Op, Place, Run, bytes_at};
use crate::arena::BlockId;
use crate::caching::OutOfMemory;
use crate::trace::Growing;

type Failed = (usize, Box<OutOfMemory>);

pub(super) struct Counted<'a> {
    growing: &'a Growing,
    /// Where what is freed for the next time was made, by its name at the next time.
    carried: Vec<(u32, usize)>,
    plan: Plan,
}

/// What a stretch does for some times.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    /// Before this time nothing small becomes large, or the other way round.
    until: u64,
}

#[derive(Clone)]
enum Step {
    /// A large request, or what is freed of the large pool.
    Large(usize),
    /// Small requests of the same sizes each time: they rise to `high`, at this event, and come to `after`.
    Same { range: Range<usize>, high: Level, at: usize, after: Level },
    /// A small request whose size is another each time.
    Growing(usize),
}

/// What an event does to the small pool.
enum Does {
    Nothing,
    Same(u64, i64),
    Growing,
}

impl<'a> Counted<'a> {
    pub fn new(ops: &[Op], growing: &'a Growing) -> Self {
        let mut left: Vec<(u32, u32)> = growing.carried.iter().map(|(old, new)| (*new, *old)).collect();
        left.sort_unstable();
        let old_of = |(at, op): (usize, &Op)| {
            let place = left.binary_search_by_key(&op.id, |(new, _)| *new).ok()?;
            matches!(op.kind, Kind::Alloc { .. }).then_some((left[place].1, at))
        };
        let mut carried: Vec<(u32, usize)> = ops.iter().enumerate().filter_map(old_of).collect();
        carried.sort_unstable();
        Self { growing, carried, plan: Plan::default() }
    }

    /// Runs every time but the last.
    pub fn run_counted<F: FnMut(u64, Place)>(mut self, run: &mut Run<'_, F>) -> Result<(), Failed> {
        let last = self.growing.times.saturating_sub(1);
        let (mut time, mut before, mut counted) = (0, 0, 0);
        while time < last {
            (run.time, run.back) = (time, last - time);
            let is_new = time >= self.plan.until;
            if is_new {
                self.plan = self.plan_for(run, before);
            }
            let after = self.growing.size_after(time);
            let is_due = counted + 1 >= self.growing.stride.small;
            let places = is_new || is_due || after >= last || self.growing.places_all(time);
            counted = if places { 0 } else { counted + 1 };
            self.count_time(run, before, places)?;
            for (old, new) in &self.growing.carried {
                let new = std::mem::replace(&mut run.blocks[*new as usize], BlockId::NONE);
                if new != BlockId::NONE {
                    run.blocks[*old as usize] = new;
                }
            }
            (before, time) = (time, after);
        }
        Ok(())
    }

    /// One time of the stretch. What it frees that was there before was asked for at the time `before`.
    fn count_time<F: FnMut(u64, Place)>(
        &self,
        run: &mut Run<'_, F>,
        before: u64,
        mut places: bool,
    ) -> Result<(), Failed> {
        for (at_step, step) in self.plan.steps.iter().enumerate() {
            if let Step::Large(at) = *step {
                if !places && run.may_flush(at) {
                    // Which segments of the small pool are in use is asked now.
                    self.plan.steps[..at_step].iter().try_for_each(|step| run.place_step(step))?;
                    places = true;
                }
                run.replay_op(at)?;
                continue;
            }
            let (high, at, after) = match *step {
                Step::Same { high, at, after, .. } => (high, at, after),
                Step::Growing(at) | Step::Large(at) => {
                    let after = self.level_at(run, at, before);
                    (Level::default().or_higher(after), at, after)
                }
            };
            if places {
                run.place_step(step)?;
            }
            let highest = run.allocator.small_blocks_pass(Level::default(), high, after);
            run.note_rise(highest, at);
        }
        Ok(())
    }

    /// What a small request changes whose size is another each time.
    fn level_at<F>(&self, run: &Run<'_, F>, at: usize, before: u64) -> Level {
        let Op { id, kind, .. } = run.ops[at];
        let asked = |at: usize, time: u64| match run.ops[at].kind {
            Kind::Alloc { bytes, growth } => bytes_at(bytes, growth, time),
            Kind::Free { .. } => 0,
        };
        let made = || Some(self.carried[self.carried.binary_search_by_key(&id, |(old, _)| *old).ok()?].1);
        let (bytes, sign) = match (kind, made()) {
            (Kind::Alloc { .. }, _) => (asked(at, run.time), 1),
            (Kind::Free { of: Some(made) }, _) => (asked(made, run.time), -1),
            (Kind::Free { of: None }, Some(made)) if run.time > 0 => (asked(made, before), -1),
            (Kind::Free { of: None }, _) => (run.allocator.small_request(run.blocks[id as usize]).unwrap_or(0), -1),
        };
        Level::default().plus_block(run.allocator.block_for(bytes).0, bytes, sign)
    }

    fn plan_for<F>(&self, run: &Run<'_, F>, before: u64) -> Plan {
        let mut steps = Vec::new();
        for at in 0..run.ops.len() {
            match self.effect_of(run, at) {
                Does::Nothing => steps.push(Step::Large(at)),
                Does::Growing => steps.push(Step::Growing(at)),
                Does::Same(bytes, sign) => {
                    if !matches!(steps.last(), Some(Step::Same { .. })) {
                        let (high, after) = (Level::default(), Level::default());
                        steps.push(Step::Same { range: at..at, high, at, after });
                    }
                    if let Some(step) = steps.last_mut() {
                        step.add_change(at, (run.allocator.block_for(bytes).0, bytes), sign);
                    }
                }
            }
        }
        Plan { steps, until: self.plan_ends(run, before) }
    }

    fn effect_of<F>(&self, run: &Run<'_, F>, at: usize) -> Does {
        let of = |op: Op, time: u64, sign: i64| match op.kind {
            Kind::Alloc { bytes, growth } => match run.allocator.block_for(bytes_at(bytes, growth, time)) {
                (_, false) => Does::Nothing,
                (_, true) if growth != 0 => Does::Growing,
                (_, true) => Does::Same(bytes, sign),
            },
            Kind::Free { .. } => Does::Nothing,
        };
        let op = run.ops[at];
        match op.kind {
            Kind::Alloc { .. } => of(op, run.time, 1),
            Kind::Free { of: Some(made) } => of(run.ops[made], run.time, -1),
            // What was there before may be of another size than what comes after it.
            Kind::Free { of: None } => match run.allocator.small_request(run.blocks[op.id as usize]) {
                Some(_) => Does::Growing,
                None => Does::Nothing,
            },
        }
    }

    /// Before which time the plan for this one holds.
    fn plan_ends<F>(&self, run: &Run<'_, F>, before: u64) -> u64 {
        let now = run.time;
        let is_small = |op: &Op, time: u64| match op.kind {
            Kind::Alloc { bytes, growth } => run.allocator.block_for(bytes_at(bytes, growth, time)).1,
            Kind::Free { .. } => false,
        };
        // What the next time frees is what this one leaves, and that may be of the other pool than what this one frees.
        if now == 0 || run.ops.iter().any(|op| is_small(op, before) != is_small(op, now)) {
            return now + 1;
        }
        let changes = |op: &Op| {
            if !matches!(op.kind, Kind::Alloc { growth, .. } if growth != 0) {
                return self.growing.times;
            }
            let (mut same, mut other) = (now, self.growing.times);
            while other - same > 1 {
                let middle = same.midpoint(other);
                if is_small(op, middle) == is_small(op, now) { same = middle } else { other = middle }
            }
            other
        };
        run.ops.iter().map(changes).min().unwrap_or(u64::MAX)
    }
}

impl Step {
    /// One more small request, for a block of so many bytes and so many asked for.
    fn add_change(&mut self, at: usize, (block, bytes): (u64, u64), sign: i64) {
        let Self::Same { range, high, at: high_at, after } = self else { return };
        *after = after.plus_block(block, bytes, sign);
        if after.block > high.block {
            *high_at = at;
        }
        *high = high.or_higher(*after);
        range.end = at + 1;
    }
}

impl<F> Run<'_, F> {
    fn may_flush(&self, at: usize) -> bool {
        match self.ops[at] {
            Op { stream, kind: Kind::Alloc { bytes, growth }, .. } => {
                self.allocator.may_flush(stream, bytes_at(bytes, growth, self.time))
            }
            _ => false,
        }
    }

    /// Gives small requests their blocks, or takes those back; what is allocated is counted elsewhere.
    fn place_step(&mut self, step: &Step) -> Result<(), Failed> {
        let mut range = match step {
            Step::Large(_) => return Ok(()),
            Step::Same { range, .. } => range.clone(),
            Step::Growing(at) => *at..at + 1,
        };
        let Self { allocator, blocks, ops, first, time, .. } = self;
        allocator.run_uncounted(|allocator| {
            range.try_for_each(|at| {
                let Op { id, stream, kind } = ops[at];
                let block = &mut blocks[id as usize];
                match kind {
                    Kind::Alloc { bytes, growth } => {
                        let malloc = allocator.malloc_on(stream, bytes_at(bytes, growth, *time));
                        *block = malloc.map_err(|oom| (*first + at, oom))?;
                    }
                    Kind::Free { .. } => allocator.free(std::mem::replace(block, BlockId::NONE)),
                }
                Ok(())
            })
        })
    }
}
