//! The largest micro-batch that fits: every size that is stated was estimated.
//!
//! Passes of other sizes are compared only where the accumulation is the same: two passes of four rows keep gradients while
//! they run, and can need more than one of eight. All GPUs are searched in rounds: what several ask for in one is simulated once, and
//! between rounds what was simulated is counted, so that a search ends however large its jobs are.

mod bracket;
mod search;

use std::cell::OnceCell;

use super::MOST_EVENTS;
use super::batch::Batch;
use super::fit::GpuVerdict;
use super::verdict_table::VerdictTable;
use crate::gpu::Device;
use search::{Halt, Search};

/// So many events are simulated for the searches, whatever the table took; those of other devices count as [`VerdictTable`] says.
const SEARCHED: u64 = MOST_EVENTS / 16;

/// The largest size that was estimated to fit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Largest {
    /// The largest that surely fits.
    pub batch: Batch,
    /// What it needs.
    pub verdict: GpuVerdict,
    /// Whether the search ended before a larger one was seen not to fit.
    pub more_may_fit: bool,
}

impl Largest {
    fn or_more(self) -> Self {
        Self { more_may_fit: true, ..self }
    }
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub enum MostRows {
    /// A batch that fits.
    Largest(Largest),
    /// Not even the smallest fits, or rows are not the job's to choose.
    Nothing,
    /// Not known: another simulation would have taken too long.
    TooLong,
}

impl MostRows {
    /// The batch that fits.
    pub const fn largest(&self) -> Option<&Largest> {
        match self {
            Self::Largest(largest) => Some(largest),
            Self::Nothing | Self::TooLong => None,
        }
    }
}

impl From<Option<Largest>> for MostRows {
    fn from(largest: Option<Largest>) -> Self {
        largest.map_or(Self::Nothing, Self::Largest)
    }
}

/// A batch that must be estimated before searches can go on.
pub struct Wanted<'t, 'a> {
    table: &'t VerdictTable<'a>,
    batch: Batch,
    devices: Vec<Device>,
}

impl<'t, 'a> Wanted<'t, 'a> {
    fn new(table: &'t VerdictTable<'a>, batch: Batch, index: usize) -> Self {
        Self { table, batch, devices: vec![table.gpus()[index].device()] }
    }

    /// Estimates it on all devices that ask for it, which share what they can.
    pub fn learn(&self) {
        self.table.learn_all(self.batch, &self.devices);
    }

    /// Adds what another search wants, if that is the same batch of the same job.
    fn join(&mut self, other: &Self) -> bool {
        let is_same = std::ptr::eq(self.table, other.table) && self.batch == other.batch;
        if is_same {
            let new = other.devices.iter().filter(|device| !self.devices.contains(*device)).copied();
            let new: Vec<Device> = new.collect();
            self.devices.extend(new);
        }
        is_same
    }
}

/// The searches for the largest micro-batch that fits with room to spare on each GPU of a table: of those that make no accumulation
/// needed by bisection, else of those that leave the effective batch what it is, the largest first. Sizes that cannot be (past a
/// model's positions, say) do not fit.
pub struct Searches<'t, 'a> {
    known: &'t VerdictTable<'a>,
    /// By the GPU's place; `None` of a search that goes on.
    found: Vec<Option<MostRows>>,
    most_events: u64,
    divisors: OnceCell<Vec<u64>>,
}

impl<'t, 'a> Searches<'t, 'a> {
    /// Of every GPU of `known`.
    pub fn new(known: &'t VerdictTable<'a>) -> Self {
        let most_events = MOST_EVENTS.max(known.spent().saturating_add(SEARCHED));
        Self { known, found: vec![None; known.gpus().len()], most_events, divisors: OnceCell::new() }
    }

    /// What is to be estimated before the next round, in any order; nothing when all searches have ended.
    pub fn next_round(&mut self) -> Vec<Wanted<'t, 'a>> {
        let left = self.most_events.saturating_sub(self.known.spent());
        let together = self.devices_going_on();
        // As if all asked for one batch; then by how many they do ask for.
        let together = self.known.passes_of(together);
        let (_, wanted) = self.ask(left / together);
        let apart = wanted.iter().map(|want| self.known.passes_of(want.devices.len())).sum::<u64>();
        let (ended, wanted) = self.ask(left / apart.max(together));
        for (index, found) in ended {
            self.found[index] = Some(found);
        }
        wanted
    }

    fn going_on(&self) -> impl Iterator<Item = usize> {
        (0..self.found.len()).filter(|index| self.found[*index].is_none())
    }

    fn devices_going_on(&self) -> usize {
        let mut devices: Vec<Device> = Vec::new();
        for device in self.going_on().map(|index| self.known.gpus()[index].device()) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices.len()
    }

    /// The searches that end where each may take so many events still, by the GPU's place, and what the others want.
    fn ask(&self, left: u64) -> (Vec<(usize, MostRows)>, Vec<Wanted<'t, 'a>>) {
        let (mut ended, mut wanted) = (Vec::new(), Vec::<Wanted<'t, 'a>>::new());
        for index in self.going_on() {
            match (Search { known: self.known, index, left, divisors: &self.divisors }).run() {
                Ok(largest) => ended.push((index, largest.into())),
                Err(Halt::TooLong) => ended.push((index, MostRows::TooLong)),
                Err(Halt::Wanted(want)) => {
                    if !wanted.iter_mut().any(|other| other.join(&want)) {
                        wanted.push(want);
                    }
                }
            }
        }
        (ended, wanted)
    }

    /// By the GPU's place.
    pub fn into_found(self) -> Vec<MostRows> {
        self.found.into_iter().map(|found| found.unwrap_or(MostRows::TooLong)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{EstimateError, Fit};
    use crate::gpu::Gpu;
    use crate::job::JobSource;
    use crate::plan::fit::NoVerdict;

    fn search(known: &VerdictTable<'_>) -> Vec<Option<Largest>> {
        let mut searches = Searches { most_events: u64::MAX, ..Searches::new(known) };
        while let wanted @ [_, ..] = &searches.next_round()[..] {
            wanted.iter().for_each(Wanted::learn);
        }
        searches.into_found().iter().map(|found| found.largest().cloned()).collect()
    }

    /// The batch of so many rows, if it fits.
    fn fits_with(known: &VerdictTable<'_>, index: usize, rows: u64) -> Option<Largest> {
        let batch = Batch::with_rows(known.job(), rows)?;
        let verdict = known.verdict_on(batch, index).ok()?;
        (verdict.fit == Fit::Fits).then_some(Largest { batch, verdict, more_may_fit: false })
    }

    #[test]
    fn the_next_larger_size_does_not_fit() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("framework", "loop");
        let source = source.set("micro_batch_size", 4).set("seq_len", 256);
        let gpus = ["3GiB,sm_90", "4GiB,sm_90", "12GiB,sm_80", "1GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        let mut sizes = Vec::new();
        for (index, found) in search(&known).into_iter().enumerate() {
            let Some(found) = found else { continue };
            let rows = found.batch.micro_batch_size;
            sizes.push(rows);
            let next = known.verdict_on(Batch::with_rows(&job, rows + 1).unwrap(), index).unwrap();
            assert_ne!(next.fit, Fit::Fits, "{rows} on {index}");
            assert_eq!(found.verdict.fit, Fit::Fits);
        }
        assert!(sizes.len() >= 3 && sizes[0] < sizes[1], "{sizes:?}");
    }

    #[test]
    fn the_largest_divisor_that_fits_is_found_without_trying_all() {
        let small = JobSource::model("gpt2").set("model.n_layer", 2).set("seq_len", 256).set("micro_batch_size", 60);
        let gpus = [600, 1024, 1500, 2048, 3072, 4096].map(|size| Gpu::parse(&format!("{size}MiB,sm_90")).unwrap());
        let changes = [("framework", "loop"), ("framework", "trainer"), ("gradient_checkpointing", "true")];
        for (key, value) in changes {
            for passes in [2_u64, 4] {
                let source = small.clone().set("gradient_accumulation_steps", passes).set(key, value);
                let job = source.resolve(&[]).unwrap().job;
                let known = VerdictTable::new(&job, &gpus, &source);
                for (index, found) in search(&known).into_iter().enumerate() {
                    let tried = (1..=60 * passes).rev().filter(|rows| (60 * passes).is_multiple_of(*rows));
                    let largest = tried.into_iter().find_map(|rows| fits_with(&known, index, rows));
                    if largest.as_ref().is_none_or(|largest| largest.batch.gradient_accumulation_steps > 1) {
                        assert_eq!(found, largest, "{key} = {value}, {passes} passes on {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_passes_of_whole_groups_are_found_without_trying_all() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("task", "grpo").set("completion_len", 32);
        let source = source.set("prompt_len", 64).set("micro_batch_size", 40).set("gradient_accumulation_steps", 2);
        let gpus = [1024, 2048, 2560, 3072, 4096].map(|size| Gpu::parse(&format!("{size}MiB,sm_90")).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        let mut passes = Vec::new();
        for (index, found) in search(&known).into_iter().enumerate() {
            let all = VerdictTable::new(&job, &gpus, &source);
            let tried = (1..=80).rev().filter(|rows| 80_u64.is_multiple_of(*rows));
            let largest = tried.into_iter().find_map(|rows| fits_with(&all, index, rows));
            passes.push(largest.as_ref().map(|largest| largest.batch.gradient_accumulation_steps));
            if passes[index] != Some(1) {
                assert_eq!(found, largest, "on {index}");
            }
        }
        assert!(passes.contains(&None) && passes.iter().flatten().any(|passes| *passes > 1), "{passes:?}");
    }

    #[test]
    fn a_long_job_is_searched_by_its_first_steps() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("framework", "loop").set("steps", 40);
        let source = source.set("micro_batch_size", 2).set("seq_len", 128);
        let gpus = ["1GiB,sm_90", "2GiB,sm_80", "3GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        assert!(known.of_first_steps().is_some());
        let mut sizes = Vec::new();
        for (index, found) in search(&known).into_iter().enumerate() {
            let rows = found.as_ref().map_or(1, |found| found.batch.micro_batch_size);
            let next = known.verdict_on(Batch::with_rows(&job, rows + 1).unwrap(), index).unwrap();
            assert_ne!(next.fit, Fit::Fits, "on {index}");
            assert_eq!(found, fits_with(&known, index, rows), "on {index}");
            sizes.extend(found.map(|found| found.batch.micro_batch_size));
        }
        assert!(sizes.len() >= 2 && sizes.iter().any(|rows| *rows > 2), "{sizes:?}");
    }

    #[test]
    fn billions_of_rows_are_searched_by_the_divisors_that_are_asked_for() {
        let source = JobSource::model("gpt2").set("model.n_layer", 1).set("framework", "loop").set("seq_len", 16);
        let source = source.set("micro_batch_size", 1).set("gradient_accumulation_steps", u32::MAX);
        let gpus = [Gpu::parse("4GiB,sm_90").unwrap()];
        let job = source.resolve(&[]).unwrap().job;
        let found = search(&VerdictTable::new(&job, &gpus, &source)).remove(0).unwrap();
        assert_eq!(found.batch.effective(), u64::from(u32::MAX));
        assert!(found.batch.micro_batch_size > 1);
    }

    /// Where a table had no time for a GPU, nothing is said of its largest batch.
    #[test]
    fn what_took_too_long_is_not_nothing() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2);
        let job = source.resolve(&[]).unwrap().job;
        let gpus = ["t4", "h100"].map(|gpu| Gpu::parse(gpu).unwrap());
        let known = VerdictTable::new(&job, &gpus, &source);
        let why = NoVerdict::NotReplayed(EstimateError::NotReplayed { events: 1, kinds: 2 });
        known.note_answers(Batch::of(&job), vec![gpus[0].device()], (&gpus[..1], Ok(vec![Err(why)])));
        let mut searches = Searches::new(&known);
        while let wanted @ [_, ..] = &searches.next_round()[..] {
            wanted.iter().for_each(Wanted::learn);
        }
        let found = searches.into_found();
        assert_eq!(found[0], MostRows::TooLong);
        assert!(found[1].largest().is_some(), "{found:?}");
    }

    /// The same of the last batch that a search asks about, and of one above a batch that fits.
    #[test]
    fn a_batch_that_took_too_long_is_no_batch_that_does_not_fit() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("seq_len", 256).set("framework", "loop");
        let source = source.set("micro_batch_size", 2);
        let job = source.resolve(&[]).unwrap().job;
        let large = [Gpu::parse("80GiB,sm_90").unwrap()];
        let enough = |batch| VerdictTable::new(&job, &large, &source).verdict_on(batch, 0).unwrap().safe_bytes;
        let [one, both] = [Batch::in_fewest_passes(&job, 1).unwrap(), Batch::of(&job)].map(enough);
        let between = format!("{}MiB,sm_90", one.midpoint(both) >> 20);
        let found = |gpu: &str, untried: u64| {
            let gpus = [Gpu::parse(gpu).unwrap()];
            let known = VerdictTable::new(&job, &gpus, &source);
            let why = NoVerdict::NotReplayed(EstimateError::NotReplayed { events: 1, kinds: 2 });
            let batch = Batch::with_rows(&job, untried).unwrap();
            known.note_answers(batch, vec![gpus[0].device()], (&gpus, Ok(vec![Err(why)])));
            let mut searches = Searches::new(&known);
            while let wanted @ [_, ..] = &searches.next_round()[..] {
                wanted.iter().for_each(Wanted::learn);
            }
            searches.into_found().remove(0)
        };
        assert_eq!(found(&between, 1), MostRows::TooLong, "of one row in two passes nothing is known");
        // Nothing but what is known to fit may be said of what lies above it.
        for untried in 3..=12 {
            match found("4GiB,sm_90", untried) {
                MostRows::Largest(largest) => assert_ne!(largest.batch.micro_batch_size, untried),
                other => panic!("{untried}: {other:?}"),
            }
        }
    }

    /// PPO's rows are simulated one by one: the search ends with what it was given, at a size that fits.
    #[test]
    fn a_search_ends_when_its_events_are_spent() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("model.n_embd", 64).set("model.n_head", 2);
        let source = source.set("task", "ppo").set("ppo.reward_model", "distilgpt2").set("prompt_len", 8);
        let source = source.set("completion_len", 8);
        let gpus = ["4GiB,sm_90", "6GiB,sm_80", "8GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let most_events = 1 << 18;
        let known = VerdictTable::new(&job, &gpus, &source);
        let mut searches = Searches { most_events, ..Searches::new(&known) };
        let mut events = known.spent();
        while let wanted @ [_, ..] = &searches.next_round()[..] {
            wanted.iter().for_each(Wanted::learn);
            events = known.spent();
        }
        assert!(searches.next_round().is_empty());
        // One round may take twice what was foreseen.
        assert!(events < 2 * most_events, "{events} events");
        let found = searches.into_found();
        assert!(
            found.iter().flat_map(MostRows::largest).any(|found| found.more_may_fit),
            "all were searched to the end"
        );
        for (index, found) in found.iter().enumerate() {
            let found = found.largest().unwrap();
            let alone = fits_with(&known, index, found.batch.micro_batch_size).unwrap();
            assert_eq!(found.verdict, alone.verdict, "on {index}");
        }
    }
}
