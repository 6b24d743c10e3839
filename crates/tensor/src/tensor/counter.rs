//! Counts operations and bytes while ops run, and closes an account at every phase.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::dtype::DType;
use crate::work::{Amount, Flops, PhaseWork};
use tonnage_alloc::trace::Phase;

/// What one kernel of matrix products computes and moves.
#[derive(Clone, Copy)]
pub struct Product {
    /// The operands' dtype.
    pub dtype: DType,
    /// Operations that the kernel runs.
    pub flops: u64,
    /// Operations that it leaves out since their results are masked.
    pub skipped: u64,
    /// Bytes of its operands.
    pub read: u64,
    /// Bytes of its results.
    pub written: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    flops: Flops,
    skipped: Flops,
    product_read: u64,
    product_written: u64,
    /// By all operators, products included.
    written: u64,
    /// Beside as much as is written.
    read: u64,
    /// Between host and device.
    link: u64,
    launches: u64,
}

impl Tally {
    const fn amount(&self) -> Amount {
        let written = self.written.saturating_sub(self.product_written);
        Amount {
            flops: self.flops,
            skipped_flops: self.skipped,
            product_bytes: self.product_read.saturating_add(self.product_written),
            other_bytes: written.saturating_mul(2).saturating_add(self.read),
            link_bytes: self.link,
            launches: self.launches,
        }
    }

    const fn half(&self) -> Self {
        const fn halves(flops: Flops) -> Flops {
            Flops { float32: flops.float32 / 2, bfloat16: flops.bfloat16 / 2, float16: flops.float16 / 2 }
        }
        Self {
            flops: halves(self.flops),
            skipped: halves(self.skipped),
            product_read: self.product_read / 2,
            product_written: self.product_written / 2,
            written: self.written / 2,
            read: self.read / 2,
            link: self.link / 2,
            launches: self.launches / 2,
        }
    }

    /// What came between `earlier` and `later`, `times` more.
    fn add_between(&mut self, earlier: &Self, later: &Self, times: u64) {
        let more =
            |now: u64, then: u64, since: u64| now.saturating_add((since - then.min(since)).saturating_mul(times));
        let flops = |now: Flops, then: Flops, since: Flops| Flops {
            float32: more(now.float32, then.float32, since.float32),
            bfloat16: more(now.bfloat16, then.bfloat16, since.bfloat16),
            float16: more(now.float16, then.float16, since.float16),
        };
        *self = Self {
            flops: flops(self.flops, earlier.flops, later.flops),
            skipped: flops(self.skipped, earlier.skipped, later.skipped),
            product_read: more(self.product_read, earlier.product_read, later.product_read),
            product_written: more(self.product_written, earlier.product_written, later.product_written),
            written: more(self.written, earlier.written, later.written),
            read: more(self.read, earlier.read, later.read),
            link: more(self.link, earlier.link, later.link),
            launches: more(self.launches, earlier.launches, later.launches),
        };
    }
}

/// The counts of the phase that runs, and those of the phases that are done.
#[derive(Default)]
pub(super) struct Counter {
    flops: [Cell<u64>; CLASSES],
    skipped: [Cell<u64>; CLASSES],
    product_read: Cell<u64>,
    product_written: Cell<u64>,
    written: Cell<u64>,
    read: Cell<u64>,
    link: Cell<u64>,
    launches: Cell<u64>,
    done: RefCell<Vec<Tally>>,
    /// Phases that happen more than once, and how often.
    repeated: RefCell<Vec<(Range<usize>, u64)>>,
}

/// The classes of dtypes that [`Flops`] tells apart.
const CLASSES: usize = 3;

const fn class_of(dtype: DType) -> usize {
    match dtype {
        DType::Bfloat16 => 1,
        DType::Float16 => 2,
        _ => 0,
    }
}

fn flops_of(classes: &[Cell<u64>; CLASSES]) -> Flops {
    let [float32, bfloat16, float16] = classes.each_ref().map(Cell::get);
    Flops { float32, bfloat16, float16 }
}

fn set_flops(classes: &[Cell<u64>; CLASSES], flops: Flops) {
    let counts = [flops.float32, flops.bfloat16, flops.float16];
    classes.iter().zip(counts).for_each(|(class, count)| class.set(count));
}

/// Cells of their own, for these are touched by every op.
fn add_to(cell: &Cell<u64>, count: u64) {
    cell.set(cell.get().saturating_add(count));
}

impl Counter {
    /// An operator made a tensor.
    pub(super) fn write(&self, bytes: u64) {
        add_to(&self.written, bytes);
        add_to(&self.launches, 1);
    }

    /// An operator moved bytes beside those of its results and of an operand as large.
    pub(super) fn read(&self, bytes: u64) {
        add_to(&self.read, bytes);
    }

    /// A copy moved bytes between host and device.
    pub(super) fn link(&self, bytes: u64) {
        add_to(&self.link, bytes);
    }

    pub(super) fn count(&self, product: &Product) {
        let class = class_of(product.dtype);
        add_to(&self.flops[class], product.flops);
        add_to(&self.skipped[class], product.skipped);
        add_to(&self.product_read, product.read);
        add_to(&self.product_written, product.written);
    }

    /// Between two passes there are so many others, whose counts rise evenly from those of the first to those of the last.
    pub(super) fn interpolate(&self, [begun, ended]: &[Tally; 2], [last_begun, last_ended]: &[Tally; 2], between: u64) {
        let mut tally = self.tally();
        let mut twice = Tally::default();
        twice.add_between(begun, ended, between);
        twice.add_between(last_begun, last_ended, between);
        tally.add_between(&Tally::default(), &twice.half(), 1);
        self.set(&tally);
    }

    /// What was counted in this phase so far.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            flops: flops_of(&self.flops),
            skipped: flops_of(&self.skipped),
            product_read: self.product_read.get(),
            product_written: self.product_written.get(),
            written: self.written.get(),
            read: self.read.get(),
            link: self.link.get(),
            launches: self.launches.get(),
        }
    }

    pub(super) fn set(&self, tally: &Tally) {
        set_flops(&self.flops, tally.flops);
        set_flops(&self.skipped, tally.skipped);
        self.product_read.set(tally.product_read);
        self.product_written.set(tally.product_written);
        self.written.set(tally.written);
        self.read.set(tally.read);
        self.link.set(tally.link);
        self.launches.set(tally.launches);
    }

    /// What was counted since `earlier` in this phase happens `times` more times.
    pub(super) fn repeat_since(&self, earlier: &Tally, times: u64) {
        let now = self.tally();
        self.repeat_between(&[*earlier, now], times);
    }

    /// What was counted between two moments of a phase happens `times` more times.
    pub(super) fn repeat_between(&self, [earlier, later]: &[Tally; 2], times: u64) {
        let mut tally = self.tally();
        tally.add_between(earlier, later, times);
        self.set(&tally);
    }

    /// The phases in `range`, of which the last runs on, happen again: `tallies` say what was counted before the first of
    /// them and when the last ended.
    pub(super) fn copy_phases(&self, range: &Range<u32>, [before, end]: &[Tally; 2]) {
        if range.is_empty() {
            return self.repeat_between(&[*before, *end], 1);
        }
        let done: Vec<Tally> = self.done.borrow()[range.start as usize..range.end as usize].to_vec();
        for (at, tally) in done.iter().enumerate() {
            let before = if at == 0 { *before } else { Tally::default() };
            self.repeat_between(&[before, *tally], 1);
            self.close();
        }
        self.set(end);
    }

    /// Ends the phase.
    pub(super) fn close(&self) {
        self.done.borrow_mut().push(self.tally());
        self.set(&Tally::default());
    }

    /// The phases in `range` happen `times` more times.
    pub(super) fn repeat_phases(&self, range: Range<usize>, times: u64) {
        self.repeated.borrow_mut().push((range, times));
    }

    /// The accounts of all phases, the one that runs among them.
    pub(super) fn take(&self, phases: &[Phase]) -> Vec<PhaseWork> {
        self.close();
        let (tallies, repeated) = (self.done.take(), self.repeated.take());
        let times = |at: usize| {
            // A range that is noted later holds an earlier one whole, or none of it.
            let more = repeated.iter().filter(|(range, _)| range.contains(&at)).map(|(_, times)| times);
            more.fold(1, |product: u64, times| product.saturating_mul(times.saturating_add(1)))
        };
        let accounts = phases.iter().zip(&tallies).enumerate();
        accounts
            .map(|(at, (phase, tally))| PhaseWork { phase: *phase, times: times(at), amount: tally.amount() })
            .collect()
    }
}
