//! What an out-of-memory error showed beyond the estimate, if it grows with the rows as the estimate's own share of them does.

use tonnage_core::job::Override;
use tonnage_core::plan::batch::Batch;
use tonnage_core::record::CorrectionRecord;

use super::batches::{Batches, Choice, choose_batch};
use super::{Job, Room};

/// Bytes at the batch that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// More than calculated.
    more: u64,
    /// What is calculated of it that grows with the rows.
    growing: u64,
    /// What is calculated that does not: weights, optimizer, context.
    fixed: u64,
}

impl Seen {
    /// What the room's correction says of a batch of `rows`; `None` where nothing was seen, or nothing grows.
    pub fn of(job: &Job<'_>, batches: &Batches, changes: &[Override], room: &Room, rows: u64) -> Option<Self> {
        let plenty = Room { usable_bytes: u64::MAX / 2, ..Room::default() };
        let total = |batch: &Batch| Some(choose_batch(job, Some(*batch), changes, &plenty)?.verdict.total_bytes);
        let failed = batches.0.iter().find(|batch| batch.micro_batch_size == rows)?;
        let least = batches.0.last().filter(|least| least.micro_batch_size < rows)?;
        let (most, some) = (total(failed)?, total(least)?);
        let each_row = most.saturating_sub(some) / (rows - least.micro_batch_size);
        let fixed = some.saturating_sub(each_row.saturating_mul(least.micro_batch_size));
        let growing = most.saturating_sub(fixed);
        let more = room.correction.offset_bytes;
        (more > 0 && growing > 0).then_some(Self { more, growing, fixed })
    }

    /// What is missing of a batch that is calculated to need `total`: no more than of the batch that failed.
    fn more_bytes(&self, total: u64) -> u64 {
        let growing = u128::from(total.saturating_sub(self.fixed).min(self.growing));
        let more = u128::from(self.more) * growing / u128::from(self.growing.max(1));
        u64::try_from(more).unwrap_or(self.more)
    }

    /// The job with `batch`, where it fits so.
    pub fn choose_scaled(&self, job: &Job<'_>, batch: Batch, changes: &[Override], room: &Room) -> Option<Choice> {
        let plain = choose_batch(job, Some(batch), changes, &room.without_correction())?;
        let offset_bytes = self.more_bytes(plain.verdict.total_bytes);
        let room = Room { correction: CorrectionRecord { offset_bytes, ..room.correction.clone() }, ..room.clone() };
        choose_batch(job, Some(batch), changes, &room).filter(|choice| choice.verdict.may_fit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_grows_with_the_rows_and_no_further() {
        let seen = Seen { more: 2700, growing: 300, fixed: 700 };
        assert_eq!([700, 850, 1000, 2000, 0].map(|total| seen.more_bytes(total)), [0, 1350, 2700, 2700, 0]);
    }
}
