//! The largest micro-batch that fits: every size that is stated was estimated.
//!
//! Passes of other sizes are compared only where the accumulation is the same: two passes of four rows keep gradients while
//! they run, and can need more than one of eight.

use super::batch::Batch;
use super::fit::Judgement;
use super::judgements::Judgements;
use crate::estimate::Fit;
use crate::spec::Task;

/// The most rows that are asked for.
const MOST_ROWS: u64 = 1 << 20;

/// The largest size that was estimated to fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Largest {
    /// The batch.
    pub batch: Batch,
    /// What it needs.
    pub judgement: Judgement,
}

/// The largest micro-batch that fits with room to spare on the GPU at `index`: of those that make no accumulation needed by
/// bisection, else of those that leave the effective batch what it is, the largest first. `None` when not even one row
/// fits, or rows are not the job's to choose. Sizes that cannot be (past a model's positions, say) do not fit.
pub fn largest(known: &Judgements<'_>, index: usize) -> Option<Largest> {
    let (job, usable) = (known.job(), known.gpus()[index].usable_bytes);
    // A pass of a whole number of groups; of HRM, whose rows are its effective batch, of one row.
    let (grain, whole) = match &job.task {
        Task::Grpo(grpo) => (grpo.num_generations.max(1), Batch::of(job).effective()),
        Task::Hrm => (1, 1),
        _ => (1, Batch::of(job).effective()),
    };
    let search = Search { known, index };
    let first = whole.max(1).next_multiple_of(grain);
    match search.fits(first) {
        Some(found) => Some(search.above(found, grain, usable)),
        None => {
            let divisors = (1..first).rev().filter(|rows| first.is_multiple_of(*rows));
            divisors.take_while(|_| job.task != Task::Hrm).find_map(|rows| search.fits(rows))
        }
    }
}

struct Search<'a> {
    known: &'a Judgements<'a>,
    index: usize,
}

impl Search<'_> {
    /// The batch of `rows`, if it fits.
    fn fits(&self, rows: u64) -> Option<Largest> {
        let judgement = self.judge(rows)?;
        let batch = Batch::with_rows(self.known.job(), rows)?;
        (judgement.fit == Fit::Fits).then_some(Largest { batch, judgement })
    }

    fn judge(&self, rows: u64) -> Option<Judgement> {
        self.known.on(Batch::with_rows(self.known.job(), rows)?, self.index).ok()
    }

    /// From a size that fits upwards, in steps of `grain` rows.
    fn above(&self, mut best: Largest, grain: u64, usable: u64) -> Largest {
        let mut high = best.batch.micro_batch_size;
        // What the smallest size that does not fit would need, if there is such a job.
        let mut needed = None;
        loop {
            high = high.saturating_mul(2);
            if high > MOST_ROWS {
                break;
            }
            match self.judge(high) {
                Some(judgement) if judgement.fit == Fit::Fits => best = self.found(high, judgement, best),
                judgement => {
                    needed = judgement.map(|judgement| judgement.safe_bytes);
                    break;
                }
            }
        }
        self.between(best, high.min(MOST_ROWS / grain * grain + grain), (grain, usable), needed)
    }

    /// Between a size that fits and one that does not, guessing by a straight line where both needs are known and halving
    /// every other time.
    fn between(
        &self,
        mut best: Largest,
        mut high: u64,
        (grain, usable): (u64, u64),
        mut needed: Option<u64>,
    ) -> Largest {
        let mut guesses = true;
        loop {
            let low = best.batch.micro_batch_size;
            let steps = (high - low) / grain;
            if steps <= 1 {
                return best;
            }
            let line = needed.filter(|_| guesses).and_then(|needed| {
                let rise = u128::from(needed.checked_sub(best.judgement.safe_bytes)?);
                let room = u128::from(usable.checked_sub(best.judgement.safe_bytes)?);
                u64::try_from((room * u128::from(steps)).checked_div(rise)?).ok()
            });
            let middle = low + line.unwrap_or(steps / 2).clamp(1, steps - 1) * grain;
            guesses = !guesses;
            match self.judge(middle) {
                Some(judgement) if judgement.fit == Fit::Fits => {
                    best = self.found(middle, judgement, best);
                    // A guess that fits is often the last size that does.
                    if let Some(next) = self.judge(middle + grain).filter(|next| next.fit != Fit::Fits) {
                        (high, needed) = (middle + grain, Some(next.safe_bytes));
                    }
                }
                judgement => (high, needed) = (middle, judgement.map(|judgement| judgement.safe_bytes)),
            }
        }
    }

    fn found(&self, rows: u64, judgement: Judgement, before: Largest) -> Largest {
        match Batch::with_rows(self.known.job(), rows) {
            Some(batch) => Largest { batch, judgement },
            None => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::gpu::Gpu;
    use crate::spec::{Override, Resolved, SpecError, from_case};

    /// A case with other rows, as job files have them resolved.
    fn with(case: &Value, changes: &[Override]) -> Result<Resolved, SpecError> {
        let mut job = from_case(case)?;
        for change in changes {
            let value = change.value.parse().map_err(|_| SpecError::new("not a number"))?;
            match change.key.as_str() {
                "micro_batch_size" => job.micro_batch_size = value,
                "gradient_accumulation_steps" => job.gradient_accumulation_steps = value,
                other => return Err(SpecError::new(format!("`{other}` is not for this test"))),
            }
        }
        Ok(Resolved { job, provenance: vec![], notes: vec![], published_parameters: None, config_file: None })
    }

    #[test]
    fn the_next_larger_size_does_not_fit() {
        let case = json!({"micro_batch": 4, "seq_len": 256, "model": {"family": "gpt2", "n_layer": 2}});
        let gpus = ["3GiB,sm_90", "4GiB,sm_90", "12GiB,sm_80", "1GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = from_case(&case).unwrap();
        let resolve = |changes: &[Override]| with(&case, changes);
        let known = Judgements::new(&job, &gpus, &resolve);
        let mut sizes = Vec::new();
        for index in 0..gpus.len() {
            let Some(found) = largest(&known, index) else { continue };
            let rows = found.batch.micro_batch_size;
            sizes.push(rows);
            let next = known.on(Batch::with_rows(&job, rows + 1).unwrap(), index).unwrap();
            assert_ne!(next.fit, Fit::Fits, "{rows} on {index}");
            assert_eq!(found.judgement.fit, Fit::Fits);
        }
        assert!(sizes.len() >= 3 && sizes[0] < sizes[1], "{sizes:?}");
    }
}
