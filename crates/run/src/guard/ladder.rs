//! [`Guard`]: the ladder from a failure to the next attempt, or to the end.

use tonnage_core::failure::Class;
use tonnage_core::job::keys::{ALLOCATOR_EXPANDABLE_SEGMENTS, GRADIENT_ACCUMULATION_STEPS, MICRO_BATCH_SIZE};
use tonnage_core::plan::batch::Batch;
use tonnage_core::record::{
    AttemptRecord, BatchRecord, ChangeRecord, CorrectionRecord, FailureClass, FailureRecord, Outcome, Policy,
    PredictionRecord,
};
use tonnage_core::units::Bytes;

use super::batches::{Batches, Choice};
use super::causes::{Reaction, comes_from_outside, failure_words, reaction, with_evidence};
use super::checkpoint::{self, Checkpoint};
use super::gpu::LookAtGpu;
use super::preflight::Preflight;
use super::{Job, Room};
use crate::adapter::takes_key;

/// What a command must be told to run at another batch.
const BATCH: [&str; 2] = [MICRO_BATCH_SIZE, GRADIENT_ACCUMULATION_STEPS];
/// The longest wait before a retry of what was ended from outside, in seconds; the first is one.
const LONGEST_PAUSE: u64 = 60;
/// What is ended from outside in its first second, twice in a row, is not started a third time.
const AT_ONCE_SECONDS: f64 = 1.0;

/// An attempt to make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptPlan {
    /// Its batch, where the job has one.
    pub batch: Option<BatchRecord>,
    /// What else differs from the job.
    pub changes: Vec<ChangeRecord>,
    /// What it is predicted to need.
    pub predicted: Option<PredictionRecord>,
    /// The checkpoint to go on from.
    pub resume_from: Option<String>,
    pub reason: String,
    /// Bytes of the GPU that must be free; where the driver tells, the attempt begins as soon as they are.
    pub awaits_bytes: Option<u64>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt, after so many seconds.
    Start(Box<AttemptPlan>, u64),
    End(Outcome, String),
}

/// What decides about a run's nodes.
pub struct Guard<'a> {
    /// The command, templates unfilled.
    pub command: &'a [String],
    pub policy: &'a Policy,
    /// The job, where there is one.
    pub job: Option<Job<'a>>,
    /// What the GPU has.
    pub room: Room,
    /// What the driver says of it.
    pub look: &'a LookAtGpu<'a>,
    /// Attempts that earlier supervisors of this run made; they are not of this one's budget, nor in a row with its own.
    pub made_before: u32,
}

impl Guard<'_> {
    /// Holds the job against the GPU.
    pub fn preflight(&self) -> Option<Preflight> {
        self.job.as_ref().map(|job| Preflight::of(job, &self.room, self.policy.min_micro_batch))
    }

    /// The first attempt, or the refusal.
    pub fn first_attempt(&self, preflight: Option<&Preflight>) -> Next {
        let Some(preflight) = preflight else { return self.start_attempt(AttemptPlan::default()) };
        if preflight.fits() || self.policy.forced {
            let verdict = preflight.asked.as_ref();
            let more_bytes = self.room.correction.offset_bytes;
            let predicted = verdict
                .map(|verdict| self.prediction_record(&Choice { batch: None, verdict: verdict.clone(), more_bytes }));
            let reason = "as asked for".to_owned();
            return self.start_attempt(AttemptPlan {
                batch: self.batch_record(None),
                predicted,
                reason,
                ..AttemptPlan::default()
            });
        }
        match &preflight.instead {
            Some(choice) if self.may_adjust() => {
                let reason = "the largest micro-batch predicted to fit at the same effective batch".to_owned();
                let (batch, predicted) = (self.batch_record(choice.batch), Some(self.prediction_record(choice)));
                self.start_attempt(AttemptPlan { batch, predicted, reason, ..AttemptPlan::default() })
            }
            instead => Next::End(Outcome::Refused, format!("{}; {}", preflight.text, self.way_on(instead.as_ref()))),
        }
    }

    /// Why a batch that fits is not taken, and what to do.
    fn way_on(&self, instead: Option<&Choice>) -> String {
        match instead.and_then(|choice| choice.batch) {
            Some(_) => format!("not taken: {}; or start as it is with --force", self.cannot_adjust()),
            None => "--force starts it as it is".to_owned(),
        }
    }

    /// Why the batch is not changed, where it may not be, or the command cannot be told.
    pub(super) fn cannot_adjust(&self) -> String {
        if !self.policy.adjusts {
            return "--no-adjust forbids another batch: leave it out".to_owned();
        }
        let untold: Vec<_> = BATCH.iter().filter(|key| !self.can_tell(key)).map(|key| format!("{{{key}}}")).collect();
        format!("the command cannot be told its batch: write {} where it takes the value", untold.join(" and "))
    }

    /// The next attempt of a node whose last one ended with its supervisor: the same, from the newest checkpoint.
    pub fn taken_up(&self, last: &AttemptRecord) -> Next {
        let resume_from = self.newest_checkpoint().map(checkpoint_path).or_else(|| last.resume_from.clone());
        let reason = "taken up again".to_owned();
        self.start_attempt(AttemptPlan { resume_from, reason, ..plan_of(last) })
    }

    /// Whether the batch may be changed, and the command can be told.
    pub fn may_adjust(&self) -> bool {
        self.policy.adjusts && BATCH.iter().all(|key| self.can_tell(key))
    }

    pub(super) fn can_tell(&self, key: &str) -> bool {
        takes_key(self.command, key)
    }

    /// The start, with the newest complete checkpoint where one may be gone on from.
    fn start_attempt(&self, plan: AttemptPlan) -> Next {
        Next::Start(Box::new(plan), 0)
    }

    fn batch_record(&self, batch: Option<Batch>) -> Option<BatchRecord> {
        let job = self.job.as_ref()?;
        // A swarm's rows are not told as a micro-batch.
        Batches::of(&job.spec, 1).0.first()?;
        Some(BatchRecord::new(&batch.unwrap_or_else(|| Batch::of(&job.spec)), &job.spec))
    }

    fn prediction_record(&self, choice: &Choice) -> PredictionRecord {
        let processes = self.job.as_ref().map_or(1, |job| job.spec.task.facts().processes_per_gpu());
        PredictionRecord::new(&choice.verdict, choice.more_bytes, self.room.available(), processes)
    }

    /// What follows the failure of the last of `attempts` of a node. What the failure teaches is kept in [`Self::room`].
    pub fn after_failure(&mut self, attempts: &[AttemptRecord], failures: &[FailureRecord]) -> Next {
        let (Some(last), Some(failure)) = (attempts.last(), failures.last()) else {
            return Next::End(Outcome::Failed, "nothing was started".to_owned());
        };
        self.room.less_bytes = 0;
        let reaction = reaction(failure);
        if let Reaction::GiveUp(reason) = reaction {
            return Next::End(Outcome::Failed, with_evidence(reason, failure));
        }
        if last.number.saturating_sub(self.made_before) >= self.policy.max_attempts {
            let reason =
                format!("{}; the budget of {} attempts is spent", failure_words(failure), self.policy.max_attempts);
            return Next::End(Outcome::Failed, reason);
        }
        let next = match reaction {
            Reaction::Smaller => self.after_gpu_memory(attempts, failures),
            Reaction::WithoutExpandableSegments => self.without_setting(ALLOCATOR_EXPANDABLE_SEGMENTS, last, failure),
            Reaction::Wait => self.wait_and_retry(last, failure),
            Reaction::Again => self.try_again(last, failures),
            Reaction::FromCheckpoint(reason) => self.on_from_checkpoint(reason, last, failure),
            Reaction::GiveUp(reason) => Next::End(Outcome::Failed, with_evidence(reason, failure)),
        };
        match next {
            Next::Start(plan, seconds) => self.never_the_same(attempts, failures, *plan, seconds),
            end => end,
        }
    }

    /// Goes on from a checkpoint that this attempt made; the end, with the way out, where there is none.
    fn on_from_checkpoint(&self, reason: &str, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        match self.further_checkpoint(last) {
            Some(newest) => {
                let reason = format!("{}; on from step {}, further than before", failure_words(failure), newest.step);
                Next::Start(
                    Box::new(AttemptPlan { resume_from: Some(checkpoint_path(newest)), reason, ..plan_of(last) }),
                    0,
                )
            }
            None => {
                let way = match self.policy.checkpoints {
                    Some(_) if self.can_tell(crate::adapter::RESUME) => "there is no checkpoint further on",
                    _ => {
                        "to go on from checkpoints, it must be told them: `{resume_from_checkpoint}` and --checkpoints"
                    }
                };
                Next::End(Outcome::Failed, format!("{}; {way}", with_evidence(reason, failure)))
            }
        }
    }

    /// The newest checkpoint, where it is another than the one that `last` began from.
    pub(super) fn further_checkpoint(&self, last: &AttemptRecord) -> Option<Checkpoint> {
        self.newest_checkpoint().filter(|newest| last.resume_from.as_deref() != Some(&*newest.path.to_string_lossy()))
    }

    /// Names a neighbour that a message without processes does not: with what the driver sees in use now, that the run has
    /// ended, the job does not fit, and without it it would.
    pub fn with_neighbour(&self, failure: FailureRecord, last: &AttemptRecord) -> FailureRecord {
        let Some((now, predicted)) = (self.look)().zip(last.predicted) else { return failure };
        let others = now.used_bytes.saturating_sub(self.room.taken_bytes);
        let needed = predicted.corrected_bytes;
        let memory: [FailureClass; 2] = [Class::GpuMemory.into(), Class::OutsideAllocator.into()];
        let is_memory = memory.contains(&failure.class);
        if !is_memory || needed > now.total_bytes || needed.saturating_add(others) <= now.total_bytes {
            return failure;
        }
        let mut failure = FailureRecord { class: Class::Neighbour.into(), ..failure };
        failure.evidence.push(format!("the driver: {} in use by others after the end", Bytes(others)));
        failure.numbers.push(("in_use_by_others".to_owned(), others));
        failure
    }

    /// Resumes as it was, where the cause may be gone: a kill, a hang, a lost connection. Each time in a row it waits twice
    /// as long.
    fn try_again(&self, last: &AttemptRecord, failures: &[FailureRecord]) -> Next {
        let what = failures.last().map(failure_words).unwrap_or_default();
        let in_a_row = failures.iter().rev().take_while(|failure| comes_from_outside(failure));
        let at_once = in_a_row.clone().take_while(|failure| failure.seconds < AT_ONCE_SECONDS);
        // Who takes a run up again wants it tried again.
        let at_once = at_once.take(last.number.saturating_sub(self.made_before) as usize).count();
        if at_once > 1 {
            let reason = format!("{what}; ended within its first second twice in a row: it would be again");
            return Next::End(Outcome::Failed, reason);
        }
        let pause = match in_a_row.count() {
            0 => 0,
            times => 1_u64.checked_shl(times as u32 - 1).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE),
        };
        let plan = AttemptPlan {
            resume_from: self.newest_checkpoint().map(checkpoint_path),
            reason: format!("again after {what}"),
            ..plan_of(last)
        };
        Next::Start(Box::new(plan), pause)
    }

    fn wait_and_retry(&self, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let reason = format!("again when the neighbour may be gone: {}", failure_words(failure));
        let needed = last.predicted.map_or(0, |predicted| predicted.corrected_bytes);
        let awaits_bytes = (needed > 0 && (self.look)().is_some()).then_some(needed);
        let plan = AttemptPlan {
            resume_from: self.newest_checkpoint().map(checkpoint_path),
            reason,
            awaits_bytes,
            ..plan_of(last)
        };
        // Who cannot see when the memory is free looks from time to time: doubled each time, from half a minute.
        let blind = 30_u64.saturating_mul(1 << (last.number - 1).min(6)).min(self.policy.wait_seconds);
        Next::Start(Box::new(plan), if awaits_bytes.is_some() { self.policy.wait_seconds } else { blind })
    }

    fn without_setting(&self, key: &str, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let mut plan = AttemptPlan { reason: format!("without {key}: {}", failure_words(failure)), ..plan_of(last) };
        plan.changes.retain(|change| change.key != key);
        Next::Start(Box::new(plan), 0)
    }

    pub(super) fn planned_attempt(&self, choice: &Choice, changes: Vec<ChangeRecord>, reason: String) -> Next {
        let (batch, predicted) = (self.batch_record(choice.batch), Some(self.prediction_record(choice)));
        let resume_from = self.newest_checkpoint().map(checkpoint_path);
        Next::Start(Box::new(AttemptPlan { batch, changes, predicted, resume_from, reason, awaits_bytes: None }), 0)
    }

    /// The newest complete checkpoint, where the command can be told to go on from it.
    pub(super) fn newest_checkpoint(&self) -> Option<Checkpoint> {
        let folder = self.policy.checkpoints.as_ref()?;
        if !self.can_tell(crate::adapter::RESUME) {
            return None;
        }
        checkpoint::newest_checkpoint(std::path::Path::new(folder)).0
    }

    /// An identical attempt is made only where the cause lies outside the job.
    fn never_the_same(
        &self,
        attempts: &[AttemptRecord],
        failures: &[FailureRecord],
        plan: AttemptPlan,
        seconds: u64,
    ) -> Next {
        let same = |attempt: &&AttemptRecord| {
            let now = (&attempt.batch, &attempt.changes, &attempt.resume_from);
            now == (&plan.batch, &plan.changes, &plan.resume_from)
        };
        let outside = failures.last().is_some_and(comes_from_outside);
        if outside || !attempts.iter().any(|attempt| same(&attempt)) {
            return Next::Start(Box::new(plan), seconds);
        }
        let failure = failures.last().map(failure_words).unwrap_or_default();
        Next::End(Outcome::Failed, format!("{failure}; the same attempt would fail the same way"))
    }

    /// What a correction of an earlier supervisor of this run said.
    pub fn restore_correction(&mut self, correction: &CorrectionRecord) {
        if *correction != CorrectionRecord::default() {
            self.room.correction = correction.clone();
        }
    }
}

pub(super) fn plan_of(attempt: &AttemptRecord) -> AttemptPlan {
    AttemptPlan {
        batch: attempt.batch,
        changes: attempt.changes.clone(),
        predicted: attempt.predicted,
        resume_from: attempt.resume_from.clone(),
        reason: String::new(),
        awaits_bytes: None,
    }
}

pub(super) fn checkpoint_path(checkpoint: Checkpoint) -> String {
    checkpoint.path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::GpuNow;
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_the_driver_sees_after_the_end_is_a_neighbours() {
        let policy = Policy { wait_seconds: 100, ..Policy::default() };
        let now = |used: u64| Some(GpuNow { total_bytes: 8 * GIB, used_bytes: used * GIB });
        let predicted = PredictionRecord { corrected_bytes: 5 * GIB, ..PredictionRecord::default() };
        let last = AttemptRecord { number: 1, predicted: Some(predicted), ..AttemptRecord::default() };
        let failure = FailureRecord { class: Class::GpuMemory.into(), ..FailureRecord::default() };
        for (used, class, seconds) in [(4, "neighbour", Some(100)), (3, "gpu_memory", None)] {
            let look = || now(used);
            let room = Room::default();
            let mut guard = Guard { command: &[], policy: &policy, job: None, room, look: &look, made_before: 0 };
            let named = guard.with_neighbour(failure.clone(), &last);
            assert_eq!(named.class.name(), class);
            // It begins when the memory is free, after the longest wait at the latest.
            let waits = match guard.after_failure(std::slice::from_ref(&last), &[named]) {
                Next::Start(plan, seconds) if plan.awaits_bytes == Some(5 * GIB) => Some(seconds),
                _ => None,
            };
            assert_eq!(waits, seconds);
        }
    }

    #[test]
    fn what_is_killed_at_once_is_tried_again_by_who_takes_it_up() {
        let (policy, look) = (Policy::default(), || None);
        let killed = FailureRecord { class: Class::Killed.into(), seconds: 0.2, ..FailureRecord::default() };
        let last = AttemptRecord { number: 2, ..AttemptRecord::default() };
        for (made_before, starts) in [(0, false), (1, true)] {
            let mut guard =
                Guard { command: &[], policy: &policy, job: None, room: Room::default(), look: &look, made_before };
            let next = guard.after_failure(std::slice::from_ref(&last), &[killed.clone(), killed.clone()]);
            assert_eq!(matches!(next, Next::Start(..)), starts, "{next:?}");
        }
    }
}
