//! What follows an out-of-memory failure of the GPU: growth is told from size, pieces from need; then the largest equal
//! batch that is predicted to fit, then remedies, then batches that fit if what was seen grows with the rows.

use tonnage_core::failure::Class;
use tonnage_core::job::keys::{ALLOCATOR_EXPANDABLE_SEGMENTS, MICRO_BATCH_SIZE};
use tonnage_core::job::{Origin, Override};
use tonnage_core::plan::remedy::{REMEDIES, Remedy, Results, micro_batch, segments};
use tonnage_core::record::{AttemptRecord, ChangeRecord, FailureClass, FailureRecord, Outcome};
use tonnage_core::units::Bytes;

use super::Job;
use super::batches::{Batches, Choice, choose_batch};
use super::causes::failure_words;
use super::ladder::{AttemptPlan, Guard, Next, checkpoint_path, plan_of};
use super::refit::refit_estimate;
use super::scaled::Seen;

/// Steps after which an out-of-memory error is growth: the first two reach a step's peak, optimizer state included.
const SETTLED_STEPS: u64 = 3;
/// Of the rows that failed, what the next attempts may have at most, where a computed batch failed too: a message gives
/// only the least that was needed.
const SHRINK: [(u64, u64); 3] = [(1, 1), (3, 4), (1, 2)];

impl Guard<'_> {
    pub(super) fn after_gpu_memory(&mut self, attempts: &[AttemptRecord], failures: &[FailureRecord]) -> Next {
        let (Some(last), Some(failure)) = (attempts.last(), failures.last()) else {
            return Next::End(Outcome::Failed, "nothing was started".to_owned());
        };
        if let Some(end) = self.growth_over_steps(last, failure) {
            return end;
        }
        let is_in_pieces = failure.class == FailureClass::Known(Class::Fragmentation);
        if is_in_pieces && last.changes.iter().all(|change| change.key != ALLOCATOR_EXPANDABLE_SEGMENTS) {
            return self.with_expandable_segments(last, failure);
        }
        if let Some(correction) = refit_estimate(failure, last.predicted.as_ref(), &self.room.correction) {
            self.room.correction = correction;
        }
        self.smaller_batch(last, failures)
    }

    /// Memory that many steps did not need is needed now: a leak, a longer batch, an evaluation. A smaller batch would
    /// put it off; only a checkpoint that lies further on makes another attempt worth it.
    fn growth_over_steps(&self, last: &AttemptRecord, failure: &FailureRecord) -> Option<Next> {
        let made = failure.steps_made.filter(|made| *made >= SETTLED_STEPS)?;
        let allocated = failure.numbers.iter().find(|(name, _)| name == "allocated").map(|(_, bytes)| *bytes);
        let peak = last.predicted.as_ref().map(|predicted| predicted.peak_allocated_bytes).filter(|peak| *peak > 0);
        let grown = match (allocated, peak) {
            (Some(allocated), Some(peak)) if allocated > peak => {
                format!("{} allocated where a step's peak is {}", Bytes(allocated), Bytes(peak))
            }
            _ => "more than the steps before needed".to_owned(),
        };
        let reason = format!(
            "memory grows: {made} steps fitted and the next did not ({grown}). A tensor kept from step to step (a leak), \
             a longer batch or an evaluation; a smaller batch would only put it off"
        );
        Some(match self.further_checkpoint(last) {
            Some(newest) => {
                let reason = format!("{reason}; on from step {}, further than before", newest.step);
                Next::Start(
                    Box::new(AttemptPlan { resume_from: Some(checkpoint_path(newest)), reason, ..plan_of(last) }),
                    0,
                )
            }
            None => Next::End(Outcome::Failed, reason),
        })
    }

    fn with_expandable_segments(&self, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let mut plan = AttemptPlan {
            reason: failure_words(failure),
            resume_from: self.newest_checkpoint().map(checkpoint_path),
            ..plan_of(last)
        };
        plan.changes.push(ChangeRecord {
            key: ALLOCATOR_EXPANDABLE_SEGMENTS.to_owned(),
            value: "true".to_owned(),
            remedy: segments::EXPANDABLE.name.to_owned(),
            saves_bytes: failure.numbers.iter().find(|(name, _)| name == "unallocated").map_or(0, |(_, bytes)| *bytes),
        });
        Next::Start(Box::new(plan), 0)
    }

    /// The largest smaller batch that is predicted to fit, then remedies.
    fn smaller_batch(&self, last: &AttemptRecord, failures: &[FailureRecord]) -> Next {
        let failure = failures.last().map(failure_words).unwrap_or_default();
        let Some(job) = &self.job else {
            let reason = format!("{failure}; without a job (`tonnage run JOB -- ...`) no batch can be computed");
            return Next::End(Outcome::Failed, reason);
        };
        if !self.may_adjust() {
            return Next::End(Outcome::Failed, format!("{failure}; {}", self.cannot_adjust()));
        }
        let rows = last.batch.map_or(job.spec.micro_batch_size, |batch| batch.micro_batch_size);
        let is_memory = |failure: &&FailureRecord| failure.class == FailureClass::Known(Class::GpuMemory);
        let times = failures.iter().filter(is_memory).count().saturating_sub(1);
        let (part, whole) = SHRINK[times.min(SHRINK.len() - 1)];
        let below = (rows * part).div_ceil(whole).max(1);
        let batches = Batches::of(&job.spec, self.policy.min_micro_batch);
        let kept = kept_changes(&last.changes);
        let found = |comfortably| batches.largest_batch(job, &kept, &self.room, (Some(below), comfortably));
        if let Some(choice) = found(true).or_else(|| found(false)) {
            let reason = format!("{failure}; the largest micro-batch predicted to fit at the same effective batch");
            return self.planned_attempt(&choice, last.changes.clone(), reason);
        }
        match self.next_remedy(job, &batches, last, &failure) {
            Ok(next) => next,
            Err(why) => self
                .if_it_grows(job, &batches, last, (rows, &failure))
                .unwrap_or_else(|| Next::End(Outcome::Failed, format!("{failure}; {why}"))),
        }
    }

    /// The largest batch that fits if what was seen grows with the rows; else the smallest, once. What a message tells at one
    /// size does not say which: a run is not ended by the worse of two guesses.
    fn if_it_grows(
        &self,
        job: &Job<'_>,
        batches: &Batches,
        last: &AttemptRecord,
        (rows, failure): (u64, &str),
    ) -> Option<Next> {
        let changes = kept_changes(&last.changes);
        let missing = Bytes(self.room.correction.offset_bytes);
        let try_it = |choice: &Choice, what: &str| {
            let reason = format!("{failure}; no batch fits if {missing} are missing at any size: {what}");
            self.planned_attempt(choice, last.changes.clone(), reason)
        };
        let seen = Seen::of(job, batches, &changes, &self.room, rows);
        // Half of what failed at most, so that few are tried.
        let half = Some(rows / 2 + 1);
        let grows = seen
            .and_then(|seen| batches.first_batch(half, |batch| seen.choose_scaled(job, batch, &changes, &self.room)));
        if let Some(choice) = grows {
            return Some(try_it(&choice, "the largest that fits if what is missing grows with the rows"));
        }
        let least = batches.0.last().filter(|least| least.micro_batch_size < rows)?;
        // What does not even fit by the estimate alone is not tried.
        let choice = choose_batch(job, Some(*least), &changes, &self.room.without_correction())?;
        choice.verdict.may_fit().then(|| try_it(&choice, "the smallest equal one is tried once all the same"))
    }

    /// Remedies that the command can be told, one after the other, until a batch fits; why nothing is left, where none does.
    fn next_remedy(
        &self,
        job: &Job<'_>,
        batches: &Batches,
        last: &AttemptRecord,
        failure: &str,
    ) -> Result<Next, String> {
        let mut changes = last.changes.clone();
        let base =
            |changes: &[ChangeRecord]| choose_batch(job, batches.0.last().copied(), &kept_changes(changes), &self.room);
        let mut needed = base(&changes).map(|choice| choice.verdict.total_bytes);
        for remedy in REMEDIES.iter().filter(|remedy| self.may_take(remedy)) {
            let Some(with) = self.with_remedy(job, remedy, &changes) else { continue };
            let Some(total) = base(&with).map(|choice| choice.verdict.total_bytes) else { continue };
            let Some(saves) = needed.and_then(|needed| needed.checked_sub(total)).filter(|saves| *saves > 0) else {
                continue;
            };
            let more = with.into_iter().map(|change| {
                if change.remedy == remedy.name { ChangeRecord { saves_bytes: saves, ..change } } else { change }
            });
            changes = more.collect();
            needed = Some(total);
            if let Some(choice) = batches.largest_batch(job, &kept_changes(&changes), &self.room, (None, false)) {
                let names: Vec<_> = changes.iter().map(|change| change.remedy.as_str()).collect();
                return Ok(self.planned_attempt(
                    &choice,
                    changes.clone(),
                    format!("{failure}; with {}", names.join(", ")),
                ));
            }
        }
        Err(self.nothing_left(job, batches, last, needed))
    }

    /// Why no batch is left to try: the least has failed, or is predicted to, with what observations add.
    fn nothing_left(&self, job: &Job<'_>, batches: &Batches, last: &AttemptRecord, needed: Option<u64>) -> String {
        let least = batches.0.last().map_or(0, |batch| batch.micro_batch_size);
        if batches.0.len() > 1 && last.batch.is_some_and(|batch| batch.micro_batch_size == least) {
            return format!("the least equal batch, micro_batch_size {least}, has failed too: no other is left to try");
        }
        let why = if batches.0.len() > 1 { "no equal batch is left" } else { Batches::why_not(&job.spec) };
        let more = self.room.correction.offset_bytes;
        let least = needed.map(|needed| {
            let seen = if more == 0 { String::new() } else { format!(", {} of it by what was seen", Bytes(more)) };
            let (needed, room) = (Bytes(needed.saturating_add(more)), Bytes(self.room.available()));
            format!(" (the least is {needed}{seen}, of {room})")
        });
        format!("{why}: nothing that keeps the effective batch is predicted to fit{}", least.unwrap_or_default())
    }

    /// The micro-batch is chosen apart, and what changes the training only where that is allowed.
    fn may_take(&self, remedy: &Remedy) -> bool {
        let changes_training = remedy.results == Results::Changed;
        remedy.name != micro_batch::SMALLER.name && (!changes_training || self.policy.changes_training)
    }

    fn with_remedy(&self, job: &Job<'_>, remedy: &Remedy, now: &[ChangeRecord]) -> Option<Vec<ChangeRecord>> {
        let current = job.source.resolve(&kept_changes(now)).ok()?.job;
        let more = (remedy.apply)(&current).ok()?;
        if more.iter().any(|(key, _)| *key == MICRO_BATCH_SIZE || !self.can_tell(key)) {
            return None;
        }
        let more = more.into_iter().map(|(key, value)| ChangeRecord {
            key: key.to_owned(),
            value,
            remedy: remedy.name.to_owned(),
            saves_bytes: 0,
        });
        let more: Vec<_> = more.collect();
        let mut changes = now.to_vec();
        changes.retain(|old| more.iter().all(|new| new.key != old.key));
        changes.extend(more);
        Some(changes)
    }
}

fn kept_changes(changes: &[ChangeRecord]) -> Vec<Override> {
    let set = |change: &ChangeRecord| Override::new(&change.key, &change.value, Origin::Remedy(change.remedy.clone()));
    changes.iter().map(set).collect()
}
