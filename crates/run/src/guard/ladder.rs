//! [`Guard`]: the ladder from a failure to the next attempt, or to the end.

use tonnage_core::plan::batch::Batch;
use tonnage_core::plan::remedy::{REMEDIES, Remedy, Results, overrides};
use tonnage_core::record::{
    AttemptRecord, BatchRecord, ChangeRecord, CorrectionRecord, FailureRecord, Outcome, Policy, PredictionRecord,
};
use tonnage_core::spec::Override;
use tonnage_core::units::Bytes;

use super::batches::{Batches, Choice, choose};
use super::checkpoint::{self, Checkpoint};
use super::preflight::Preflight;
use super::refit::refit;
use super::{Job, Room};
use crate::adapter::can_tell;

/// Steps after which an out-of-memory error is growth: the first two reach a step's peak, optimizer state included.
const SETTLED_STEPS: u64 = 3;
/// Of the rows that failed, what the next attempts may have at most, where a computed batch failed too: a message gives
/// only the least that was needed.
const SHRINK: [(u64, u64); 3] = [(1, 1), (3, 4), (1, 2)];

/// An attempt to make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its batch, where the job has one.
    pub batch: Option<BatchRecord>,
    /// What else differs from the job.
    pub changes: Vec<ChangeRecord>,
    /// What it is predicted to need.
    pub predicted: Option<PredictionRecord>,
    /// The checkpoint to go on from.
    pub resume_from: Option<String>,
    /// Why.
    pub reason: String,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt, after so many seconds.
    Start(Box<Plan>, u64),
    /// Nothing more.
    End(Outcome, String),
}

/// What decides about a run's nodes.
pub struct Guard<'a> {
    /// The command, templates unfilled.
    pub command: &'a [String],
    /// Its policy.
    pub policy: &'a Policy,
    /// The job, where there is one.
    pub job: Option<Job<'a>>,
    /// What the GPU has.
    pub room: Room,
    /// Attempts that earlier supervisors of this run made; they are not of this one's budget.
    pub made_before: u32,
}

impl Guard<'_> {
    /// Holds the job against the GPU.
    pub fn preflight(&self) -> Option<Preflight> {
        self.job.as_ref().map(|job| Preflight::of(job, &self.room, self.policy.min_micro_batch))
    }

    /// The first attempt, or the refusal.
    pub fn first(&self, preflight: Option<&Preflight>) -> Next {
        let Some(preflight) = preflight else { return self.start(Plan::default()) };
        if preflight.fits() || self.policy.forced {
            let judgement = preflight.asked.as_ref();
            let predicted =
                judgement.map(|judgement| self.prediction(&Choice { batch: None, judgement: judgement.clone() }));
            let reason = "as asked for".to_owned();
            return self.start(Plan { batch: self.batch(None), predicted, reason, ..Plan::default() });
        }
        match &preflight.instead {
            Some(choice) if self.may_adjust() => {
                let reason = "the largest micro-batch predicted to fit at the same effective batch".to_owned();
                let (batch, predicted) = (self.batch(choice.batch), Some(self.prediction(choice)));
                self.start(Plan { batch, predicted, reason, ..Plan::default() })
            }
            _ => Next::End(Outcome::Refused, preflight.text.clone()),
        }
    }

    /// The next attempt of a node whose last one ended with its supervisor: the same, from the newest checkpoint.
    pub fn taken_up(&self, last: &AttemptRecord) -> Next {
        let resume_from = self.newest().map(path).or_else(|| last.resume_from.clone());
        let reason = "taken up again".to_owned();
        self.start(Plan { resume_from, reason, ..plan_of(last) })
    }

    /// Whether the batch may be changed, and the command can be told.
    pub fn may_adjust(&self) -> bool {
        self.policy.adjusts && self.tells("micro_batch_size") && self.tells("gradient_accumulation_steps")
    }

    fn tells(&self, key: &str) -> bool {
        can_tell(self.command, key)
    }

    /// The start, with the newest complete checkpoint where one may be gone on from.
    fn start(&self, plan: Plan) -> Next {
        Next::Start(Box::new(plan), 0)
    }

    fn batch(&self, batch: Option<Batch>) -> Option<BatchRecord> {
        let job = self.job.as_ref()?;
        // A swarm's rows are not told as a micro-batch.
        Batches::of(&job.spec, 1).0.first()?;
        Some(BatchRecord::new(&batch.unwrap_or_else(|| Batch::of(&job.spec)), &job.spec))
    }

    fn prediction(&self, choice: &Choice) -> PredictionRecord {
        PredictionRecord::new(&choice.judgement, self.room.correction.offset_bytes, self.room.available())
    }

    /// What follows the failure of the last of `attempts` of a node. What the failure teaches is kept in [`Self::room`].
    pub fn after(&mut self, attempts: &[AttemptRecord], failures: &[FailureRecord]) -> Next {
        let (Some(last), Some(failure)) = (attempts.last(), failures.last()) else {
            return Next::End(Outcome::Failed, "nothing was started".to_owned());
        };
        if let Some(reason) = pointless(failure) {
            return Next::End(Outcome::Failed, reason);
        }
        if last.number.saturating_sub(self.made_before) >= self.policy.max_attempts {
            let reason = format!("{}; the budget of {} attempts is spent", words(failure), self.policy.max_attempts);
            return Next::End(Outcome::Failed, reason);
        }
        let next = match failure.class.as_str() {
            "neighbour" | "engine_start" => self.wait(last, failure),
            "gpu_memory" | "fragmentation" | "outside_allocator" => self.after_gpu_memory(attempts, failures),
            "expandable_sharing" => self.without("allocator.expandable_segments", last, failure),
            _ => self.again(last, failure),
        };
        match next {
            Next::Start(plan, seconds) => self.never_the_same(attempts, failures, *plan, seconds),
            end => end,
        }
    }

    /// Resumes as it was, where the cause may be gone: a kill, a hang, a lost connection.
    fn again(&self, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let reason = format!("again after {}", words(failure));
        let plan = Plan { resume_from: self.newest().map(path), reason, ..plan_of(last) };
        Next::Start(Box::new(plan), 0)
    }

    fn wait(&self, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let reason = format!("again when the neighbour may be gone: {}", words(failure));
        let plan = Plan { resume_from: self.newest().map(path), reason, ..plan_of(last) };
        // Doubled each time, from half a minute.
        let seconds = 30_u64.saturating_mul(1 << (last.number - 1).min(6)).min(self.policy.wait_seconds);
        Next::Start(Box::new(plan), seconds)
    }

    fn without(&self, key: &str, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let mut plan = Plan { reason: format!("without {key}: {}", words(failure)), ..plan_of(last) };
        plan.changes.retain(|change| change.key != key);
        Next::Start(Box::new(plan), 0)
    }

    fn after_gpu_memory(&mut self, attempts: &[AttemptRecord], failures: &[FailureRecord]) -> Next {
        let (Some(last), Some(failure)) = (attempts.last(), failures.last()) else {
            return Next::End(Outcome::Failed, "nothing was started".to_owned());
        };
        if let Some(end) = self.growth(last, failure) {
            return end;
        }
        let expandable = "allocator.expandable_segments";
        if failure.class == "fragmentation" && last.changes.iter().all(|change| change.key != expandable) {
            return self.with_expandable_segments(last, failure);
        }
        if let Some(correction) = refit(failure, last.predicted.as_ref(), &self.room.correction) {
            self.room.correction = correction;
        }
        self.smaller(last, failures)
    }

    /// Memory that many steps did not need is needed now: a leak, a longer batch, an evaluation. A smaller batch would
    /// put it off; only a checkpoint that lies further on makes another attempt worth it.
    fn growth(&self, last: &AttemptRecord, failure: &FailureRecord) -> Option<Next> {
        let step = failure.step.filter(|step| *step >= SETTLED_STEPS)?;
        let allocated = failure.numbers.iter().find(|(name, _)| name == "allocated").map(|(_, bytes)| *bytes);
        let peak = last.predicted.as_ref().map(|predicted| predicted.peak_allocated_bytes).filter(|peak| *peak > 0);
        let grown = match (allocated, peak) {
            (Some(allocated), Some(peak)) if allocated > peak => {
                format!("{} allocated where a step's peak is {}", Bytes(allocated), Bytes(peak))
            }
            _ => "more than the steps before needed".to_owned(),
        };
        let reason = format!(
            "memory grows: {step} steps fitted and the next did not ({grown}). A tensor kept from step to step (a leak), \
             a longer batch or an evaluation; a smaller batch would only put it off"
        );
        let further =
            self.newest().filter(|newest| last.resume_from.as_deref() != Some(&*newest.path.to_string_lossy()));
        Some(match further {
            Some(newest) => {
                let reason = format!("{reason}; on from step {}, further than before", newest.step);
                Next::Start(Box::new(Plan { resume_from: Some(path(newest)), reason, ..plan_of(last) }), 0)
            }
            None => Next::End(Outcome::Failed, reason),
        })
    }

    fn with_expandable_segments(&self, last: &AttemptRecord, failure: &FailureRecord) -> Next {
        let mut plan = Plan { reason: words(failure), resume_from: self.newest().map(path), ..plan_of(last) };
        plan.changes.push(ChangeRecord {
            key: "allocator.expandable_segments".to_owned(),
            value: "true".to_owned(),
            remedy: "expandable_segments".to_owned(),
            saves_bytes: failure.numbers.iter().find(|(name, _)| name == "unallocated").map_or(0, |(_, bytes)| *bytes),
        });
        Next::Start(Box::new(plan), 0)
    }

    /// The largest smaller batch that is predicted to fit, then remedies.
    fn smaller(&self, last: &AttemptRecord, failures: &[FailureRecord]) -> Next {
        let failure = failures.last().map(words).unwrap_or_default();
        let Some(job) = &self.job else {
            let reason = format!("{failure}; without a job (`tonnage run JOB -- ...`) no batch can be computed");
            return Next::End(Outcome::Failed, reason);
        };
        if !self.may_adjust() {
            return Next::End(Outcome::Failed, format!("{failure}; {}", self.cannot_tell()));
        }
        let rows = last.batch.map_or(job.spec.micro_batch_size, |batch| batch.micro_batch_size);
        let times = failures.iter().filter(|failure| failure.class == "gpu_memory").count().saturating_sub(1);
        let (part, whole) = SHRINK[times.min(SHRINK.len() - 1)];
        let below = (rows * part).div_ceil(whole).max(1);
        let batches = Batches::of(&job.spec, self.policy.min_micro_batch);
        let kept = kept(&last.changes);
        if let Some(choice) = batches.largest(job, &kept, &self.room, Some(below)) {
            let reason = format!("{failure}; the largest micro-batch predicted to fit at the same effective batch");
            return self.plan(&choice, last.changes.clone(), reason);
        }
        self.remedy(job, &batches, &last.changes, &failure)
    }

    fn cannot_tell(&self) -> String {
        if self.policy.adjusts {
            "the command cannot be told its batch: write {micro_batch_size} and {gradient_accumulation_steps} where it \
             takes them"
                .to_owned()
        } else {
            "changing the batch was not allowed".to_owned()
        }
    }

    /// Remedies that the command can be told, one after the other, until a batch fits.
    fn remedy(&self, job: &Job<'_>, batches: &Batches, now: &[ChangeRecord], failure: &str) -> Next {
        let mut changes = now.to_vec();
        let base = |changes: &[ChangeRecord]| choose(job, batches.0.last().copied(), &kept(changes), &self.room);
        let mut needed = base(&changes).map(|choice| choice.judgement.total_bytes);
        for remedy in REMEDIES.iter().filter(|remedy| self.may_take(remedy)) {
            let Some(with) = self.with_remedy(job, remedy, &changes) else { continue };
            let Some(total) = base(&with).map(|choice| choice.judgement.total_bytes) else { continue };
            let Some(saves) = needed.and_then(|needed| needed.checked_sub(total)).filter(|saves| *saves > 0) else {
                continue;
            };
            let more = with.into_iter().map(|change| {
                if change.remedy == remedy.name { ChangeRecord { saves_bytes: saves, ..change } } else { change }
            });
            changes = more.collect();
            needed = Some(total);
            if let Some(choice) = batches.largest(job, &kept(&changes), &self.room, None) {
                let names: Vec<_> = changes.iter().map(|change| change.remedy.as_str()).collect();
                return self.plan(&choice, changes.clone(), format!("{failure}; with {}", names.join(", ")));
            }
        }
        let why = if batches.0.len() > 1 { "no equal batch" } else { Batches::why_not(&job.spec) };
        let least = needed.map_or_else(String::new, |needed| format!(" (the least is {})", Bytes(needed)));
        let reason = format!("{failure}; {why}: nothing that keeps the effective batch is predicted to fit{least}");
        Next::End(Outcome::Failed, reason)
    }

    /// The micro-batch is chosen apart, and what changes the training only where that is allowed.
    fn may_take(&self, remedy: &Remedy) -> bool {
        let changes_training = remedy.results == Results::Changed;
        remedy.name != "micro_batch" && (!changes_training || self.policy.changes_training)
    }

    fn with_remedy(&self, job: &Job<'_>, remedy: &Remedy, now: &[ChangeRecord]) -> Option<Vec<ChangeRecord>> {
        let current = (job.resolve)(&kept(now)).ok()?.job;
        let more = (remedy.apply)(&current).ok()?;
        if more.iter().any(|(key, _)| *key == "micro_batch_size" || !self.tells(key)) {
            return None;
        }
        let more = overrides(remedy, &more).into_iter().map(|change| ChangeRecord {
            key: change.key,
            value: change.value,
            remedy: remedy.name.to_owned(),
            saves_bytes: 0,
        });
        let more: Vec<_> = more.collect();
        let mut changes = now.to_vec();
        changes.retain(|old| more.iter().all(|new| new.key != old.key));
        changes.extend(more);
        Some(changes)
    }

    fn plan(&self, choice: &Choice, changes: Vec<ChangeRecord>, reason: String) -> Next {
        let (batch, predicted) = (self.batch(choice.batch), Some(self.prediction(choice)));
        let resume_from = self.newest().map(path);
        Next::Start(Box::new(Plan { batch, changes, predicted, resume_from, reason }), 0)
    }

    /// The newest complete checkpoint, where the command can be told to go on from it.
    fn newest(&self) -> Option<Checkpoint> {
        let folder = self.policy.checkpoints.as_ref()?;
        if !self.tells(crate::adapter::RESUME) {
            return None;
        }
        checkpoint::newest(std::path::Path::new(folder)).0
    }

    /// An identical attempt is made only where the cause lies outside the job.
    fn never_the_same(&self, attempts: &[AttemptRecord], failures: &[FailureRecord], plan: Plan, seconds: u64) -> Next {
        let same = |attempt: &&AttemptRecord| {
            let now = (&attempt.batch, &attempt.changes, &attempt.resume_from);
            now == (&plan.batch, &plan.changes, &plan.resume_from)
        };
        let outside = failures.last().is_some_and(|failure| comes_from_outside(&failure.class));
        if outside || !attempts.iter().any(|attempt| same(&attempt)) {
            return Next::Start(Box::new(plan), seconds);
        }
        let failure = failures.last().map(words).unwrap_or_default();
        Next::End(Outcome::Failed, format!("{failure}; the same attempt would fail the same way"))
    }

    /// What a correction of an earlier supervisor of this run said.
    pub fn restore(&mut self, correction: &CorrectionRecord) {
        if *correction != CorrectionRecord::default() {
            self.room.correction = correction.clone();
        }
    }
}

fn plan_of(attempt: &AttemptRecord) -> Plan {
    Plan {
        batch: attempt.batch,
        changes: attempt.changes.clone(),
        predicted: attempt.predicted,
        resume_from: attempt.resume_from.clone(),
        reason: String::new(),
    }
}

fn kept(changes: &[ChangeRecord]) -> Vec<Override> {
    let set = |change: &ChangeRecord| Override {
        key: change.key.clone(),
        value: change.value.clone(),
        flag: format!("remedy {}", change.remedy),
    };
    changes.iter().map(set).collect()
}

fn path(checkpoint: Checkpoint) -> String {
    checkpoint.path.display().to_string()
}

/// A failure in a few words.
fn words(failure: &FailureRecord) -> String {
    let evidence = failure.evidence.first().cloned().unwrap_or_default();
    let when = if failure.at_start { ", at start" } else { "" };
    format!("{}{when} ({evidence})", failure.class)
}

/// Causes that may be gone by themselves.
fn comes_from_outside(class: &str) -> bool {
    matches!(
        class,
        "killed"
            | "stalled"
            | "nccl_timeout"
            | "nccl_error"
            | "port_in_use"
            | "neighbour"
            | "engine_start"
            | "preempted"
    )
}

/// Why another attempt would be pointless, where it would.
fn pointless(failure: &FailureRecord) -> Option<String> {
    let advice = match failure.class.as_str() {
        "host_memory" => "the host's memory ran out: fewer loader workers, not a smaller batch",
        "shared_memory" => "/dev/shm is full: a larger one (--shm-size), not a smaller batch",
        "disk_full" => "the disk is full",
        "no_gpu" => "no GPU can be used",
        "driver_mismatch" => "driver and libraries are of different versions",
        "xid" => "the GPU reports an error: not again on this one",
        "cuda_fault" => "a kernel failed: a fault of the program, or of the GPU",
        "kernel_limit" => "a kernel asks for more than its limits; this is not memory",
        "allocator_cap" => "memory is free, but a limit or a private pool keeps it",
        "protobuf" => "packages disagree about protobuf",
        "program_error" => "the program failed, and would again",
        "not_started" => "the command could not be started",
        _ => return None,
    };
    Some(format!("{advice} ({})", failure.evidence.first().cloned().unwrap_or_default()))
}
