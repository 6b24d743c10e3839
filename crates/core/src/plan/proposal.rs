//! [`consider_remedies`]: every remedy estimated alone, and the cheapest combination that fits.

use crate::small_sort::SmallSort;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;

use super::MOST_EVENTS;
use super::appraisal::{Appraisal, Slowdown, appraise, moved_to};
use super::remedy::{Change, Declined, REMEDIES, Remedy, Results, overrides};
use super::time::{Scale, gpus_taken};
use crate::estimate::{EstimateError, Fit};
use crate::gpu::{CatalogGpu, Gpu, PriceKind, catalog, prices_of};
use crate::job::{JobSource, JobSpec, Override, RunSpec};

/// What can be done about a job.
#[non_exhaustive]
pub struct Proposals {
    /// The job as it is.
    pub base: Appraisal,
    /// Each remedy alone, those that save most for their cost first.
    pub alone: Vec<Proposal>,
    /// Remedies that would not help or are impossible here, and why.
    pub declined: Vec<(&'static Remedy, Declined)>,
    /// Remedies that together make the job fit, or come nearest to it; `None` where it fits as it is.
    pub together: Option<Combination>,
    /// Whether it ended before all remedies were tried, alone and together: that would have taken too long.
    pub cut_short: bool,
    /// The cheapest GPU on which the job fits as it is; `None` where it fits already, or nowhere.
    pub other_gpu: Option<OtherGpu>,
    /// Cheaper GPUs than that, or all others, that may carry it and were not tried: that would have taken too long.
    pub untried_gpus: Vec<Gpu>,
}

/// A GPU in place of the job's.
#[non_exhaustive]
pub struct OtherGpu {
    /// The GPU that would carry it.
    pub gpu: Gpu,
    /// The job on it.
    pub appraisal: Appraisal,
    /// What that does to the time of a step.
    pub slowdown: Slowdown,
}

/// A remedy, estimated.
#[derive(Clone)]
#[non_exhaustive]
pub struct Proposal {
    /// What was tried.
    pub remedy: &'static Remedy,
    /// What it changes.
    pub changes: Vec<Change>,
    /// The job with it.
    pub appraisal: Appraisal,
    /// What that does to the time of a step.
    pub slowdown: Slowdown,
    /// What it saves of the total.
    pub saves_bytes: u64,
    /// The factor on the number of GPUs.
    pub more_gpus: f64,
}

/// Several remedies, estimated together.
#[derive(Clone)]
#[non_exhaustive]
pub struct Combination {
    /// Which, in the order they were added.
    pub remedies: Vec<&'static Remedy>,
    /// What they change.
    pub changes: Vec<Change>,
    /// The job with them.
    pub appraisal: Appraisal,
    /// What they do to the time of a step.
    pub slowdown: Slowdown,
}

impl Combination {
    /// The most that any of the remedies does to the results.
    pub fn results(&self) -> Results {
        self.remedies.iter().map(|remedy| remedy.results).max().unwrap_or(Results::Same)
    }
}

/// So many events are simulated for a plan: a table replays most of its events, which takes less time than simulating them.
const PLANNED: u64 = MOST_EVENTS / 3 * 2;

/// About so many events of generated tokens are replayed in the time in which one is simulated (GRPO of 0.5B and 7B models).
const REPLAYED_AT_ONCE: u64 = 10;

/// So many events are simulated for other GPUs.
const ON_OTHER_GPUS: u64 = MOST_EVENTS / 8;

/// What may still be simulated for a question.
pub(super) struct Allowance {
    events: Cell<u64>,
    /// What the next job will likely take: as much as the last.
    next: Cell<u64>,
    ran_out: Cell<bool>,
}

impl Allowance {
    pub(super) const fn of(events: u64) -> Self {
        Self { events: Cell::new(events), next: Cell::new(1), ran_out: Cell::new(false) }
    }

    /// Takes off what a job took.
    fn note(&self, appraisal: &Appraisal) {
        // Most of a generation is replayed and not simulated.
        let events = appraisal.verdict.events.saturating_add(appraisal.verdict.replayed / REPLAYED_AT_ONCE);
        self.next.set(events.max(1));
        self.events.set(self.events.get().saturating_sub(events));
    }

    /// Two thirds of what is left, for what comes first.
    fn take_most(&self) -> Self {
        let rest = self.events.get() / 3;
        let most = self.events.replace(rest) - rest;
        Self { next: self.next.clone(), ..Self::of(most) }
    }

    /// Takes back what was not spent.
    fn add_rest(&self, of: &Self) {
        self.events.set(self.events.get().saturating_add(of.events.take()));
        self.ran_out.set(self.ran_out.get() || of.ran_out.get());
    }

    /// Whether a job was not appraised because nothing was left.
    pub(super) const fn ran_out(&self) -> bool {
        self.ran_out.get()
    }

    /// The job on `gpu`; `None` where too little is left for another like the last. What is begun is finished.
    pub(super) fn appraise(&self, job: &JobSpec, gpu: &Gpu, scale: Scale) -> Option<Result<Appraisal, EstimateError>> {
        if self.events.get() < self.next.get() {
            self.ran_out.set(true);
            return None;
        }
        let appraised = appraise(job, gpu, scale);
        appraised.iter().for_each(|appraisal| self.note(appraisal));
        Some(appraised)
    }
}

/// Jobs that were appraised for one question: remedies are taken alone, on top of one another and without one another, and
/// come to the same job more than once.
#[derive(Default)]
pub struct Appraised(RefCell<Vec<(JobSpec, Appraisal)>>);

impl Appraised {
    /// The job on its GPU.
    fn appraise_once(&self, job: &JobSpec, scale: Scale, allowed: &Allowance) -> Result<Appraisal, Declined> {
        let known = self.0.borrow().iter().find(|(known, _)| known == job).map(|(_, appraisal)| appraisal.clone());
        if let Some(appraisal) = known {
            return Ok(appraisal);
        }
        let appraisal = allowed.appraise(job, &job.gpu, scale).ok_or(Declined::NotTried)?;
        let appraisal = appraisal.map_err(|error| Declined::Refused(error.to_string()))?;
        self.0.borrow_mut().push((job.clone(), appraisal.clone()));
        Ok(appraisal)
    }
}

/// The question that all of this is about: a job on a GPU, and how its keys are changed.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The job as the remedies left it.
    pub job: &'a JobSpec,
    /// The GPU that it is to fit.
    pub gpu: &'a Gpu,
    /// What it is made of.
    pub source: &'a JobSource,
    /// How a measured step carries over to changed jobs.
    pub scale: Scale,
    /// What was appraised by this scale.
    pub appraised: &'a Appraised,
    /// What may still be simulated.
    pub(super) allowed: &'a Allowance,
}

impl Case<'_> {
    /// The job with changes, on the GPU.
    pub(super) fn appraise_with(&self, changes: &[Override]) -> Result<(JobSpec, Appraisal), Declined> {
        let resolved = self.source.resolve(changes).map_err(|error| Declined::Refused(error.problem))?;
        let run = RunSpec { dollars_per_gpu_hour: self.job.run.dollars_per_gpu_hour, ..resolved.job.run };
        let job = JobSpec { gpu: self.gpu.clone(), run, ..resolved.job };
        let appraisal = self.appraised.appraise_once(&job, self.scale, self.allowed)?;
        Ok((job, appraisal))
    }

    /// The remedy alone.
    fn propose_alone(&self, remedy: &'static Remedy, base: &Appraisal) -> Result<Proposal, Declined> {
        let start = State { job: self.job.clone(), changes: Vec::new(), appraisal: base.clone() };
        let State { job, changes, appraisal } = start.add_remedy(remedy, self)?;
        let (before, after) = (base.verdict.total_bytes, appraisal.verdict.total_bytes);
        let slowdown = Slowdown::between(base, &appraisal, self.gpu).unwrap_or_else(Slowdown::none);
        let more_gpus = gpus_taken(&job) as f64 / gpus_taken(self.job) as f64;
        Ok(Proposal { remedy, changes, appraisal, slowdown, saves_bytes: before - after, more_gpus })
    }
}

/// Estimates every remedy of `job` on its GPU; `source` is what it is made of.
///
/// # Errors
/// When the job itself cannot be simulated.
pub fn consider_remedies(job: &JobSpec, source: &JobSource) -> Result<Proposals, EstimateError> {
    consider_within(&Allowance::of(PLANNED), job, source)
}

fn consider_within(allowed: &Allowance, job: &JobSpec, source: &JobSource) -> Result<Proposals, EstimateError> {
    let base = appraise(job, &job.gpu, Scale::own(job))?;
    allowed.note(&base);
    let scale = Scale::own(job).for_others(base.bill.as_ref().and_then(|bill| bill.estimated.as_ref()));
    let case = Case { job, gpu: &job.gpu, source, scale, appraised: &Appraised::default(), allowed };
    let (alone, declined) = each_alone(&case, &base);
    let fits = base.verdict.fit == Fit::Fits;
    let together = if fits { None } else { combine_remedies(&case, &base, &alone) };
    // What has no bound here has none on a larger GPU.
    let asks_others = base.verdict.fit != Fit::Fits && base.verdict.fit != Fit::NotKnown;
    let (other_gpu, untried_gpus) = if asks_others { other_gpu(&case, &base) } else { (None, Vec::new()) };
    Ok(Proposals { base, alone, declined, together, cut_short: allowed.ran_out(), other_gpu, untried_gpus })
}

/// Of the catalog's GPUs with more memory the one with the lowest price on which the job fits; those of unknown price come
/// last, the smallest first.
fn other_gpu(case: &Case<'_>, base: &Appraisal) -> (Option<OtherGpu>, Vec<Gpu>) {
    let needed = base.verdict.total_bytes.max(case.gpu.usable_bytes);
    let price = |gpu: &Gpu| {
        let lowest = prices_of(&gpu.id, PriceKind::OnDemand).and_then(|prices| prices.lowest());
        lowest.map_or(f64::INFINITY, |price| price.dollars_per_gpu_hour)
    };
    let mut larger: Vec<Gpu> = catalog().iter().map(CatalogGpu::gpu).filter(|gpu| gpu.usable_bytes > needed).collect();
    larger.small_sort_by(|a, b| price(a).total_cmp(&price(b)).then(a.usable_bytes.cmp(&b.usable_bytes)));
    let allowed = Allowance { next: case.allowed.next.clone(), ..Allowance::of(ON_OTHER_GPUS) };
    for (at, gpu) in larger.iter().enumerate() {
        match allowed.appraise(&moved_to(case.job.clone(), gpu), gpu, case.scale) {
            None => return (None, larger.split_off(at)),
            Some(Ok(appraisal)) if appraisal.verdict.fit == Fit::Fits => {
                let slowdown = Slowdown::between(base, &appraisal, case.gpu).unwrap_or_else(Slowdown::none);
                return (Some(OtherGpu { gpu: gpu.clone(), appraisal, slowdown }), Vec::new());
            }
            Some(_) => {}
        }
    }
    (None, Vec::new())
}

/// Every remedy alone, the worthiest first, and those that decline. They take two thirds of what may be simulated: the rest is for some together.
pub(super) fn each_alone(case: &Case<'_>, base: &Appraisal) -> (Vec<Proposal>, Vec<(&'static Remedy, Declined)>) {
    let most = case.allowed.take_most();
    let found = each_within(&Case { allowed: &most, ..*case }, base);
    case.allowed.add_rest(&most);
    found
}

fn each_within(case: &Case<'_>, base: &Appraisal) -> (Vec<Proposal>, Vec<(&'static Remedy, Declined)>) {
    let mut alone = Vec::new();
    let mut declined = Vec::new();
    for remedy in REMEDIES {
        match case.propose_alone(remedy, base) {
            Ok(proposal) => alone.push(proposal),
            Err(why) => declined.push((*remedy, why)),
        }
    }
    alone.small_sort_by(by_worth);
    (alone, declined)
}

/// Bytes saved per GPU-time lost; what costs nothing comes first.
fn by_worth(a: &Proposal, b: &Proposal) -> Ordering {
    let worth = |proposal: &Proposal| proposal.saves_bytes as f64 / (proposal.gpu_time() - 1.0).max(0.01);
    worth(b).total_cmp(&worth(a))
}

impl Proposal {
    /// The factor on the time of all GPUs together.
    pub fn gpu_time(&self) -> f64 {
        self.slowdown.factor.typical * self.more_gpus
    }

    /// Whether it sets all that another sets: the judge is offloaded, or it has a GPU of its own.
    fn replaces(&self, other: &Self) -> bool {
        other.changes.iter().all(|(key, _)| self.changes.iter().any(|(own, _)| own == key))
    }

    /// Whether it takes more GPUs.
    pub(super) fn adds_gpus(&self) -> bool {
        self.more_gpus > 1.0
    }
}

/// Adds remedies until the job fits, those that leave the results alone first, and of these those that take no more GPUs;
/// then leaves out what was not needed. Where that does not end in a job that fits, the same without more GPUs may: on them
/// some remedies are none.
pub(super) fn combine_remedies(case: &Case<'_>, base: &Appraisal, alone: &[Proposal]) -> Option<Combination> {
    let mut candidates: Vec<&Proposal> = alone.iter().collect();
    candidates.small_sort_by_key(|proposal| (proposal.remedy.results == Results::Changed, proposal.adds_gpus()));
    let fits = |combination: &Combination| combination.appraisal.verdict.fit == Fit::Fits;
    let all = pile_up(case, base, &candidates)?;
    if fits(&all) || !candidates.iter().any(|proposal| proposal.adds_gpus()) {
        return Some(all);
    }
    candidates.retain(|proposal| !proposal.adds_gpus());
    Some(pile_up(case, base, &candidates).filter(fits).unwrap_or(all))
}

/// Adds `candidates` in order, each that lowers the total.
fn pile_up(case: &Case<'_>, base: &Appraisal, candidates: &[&Proposal]) -> Option<Combination> {
    let mut chosen: Vec<&Proposal> = Vec::new();
    let mut state = State { job: case.job.clone(), changes: Vec::new(), appraisal: base.clone() };
    for proposal in candidates {
        if let Ok(next) = state.add_remedy(proposal.remedy, case) {
            chosen.retain(|earlier| !proposal.replaces(earlier));
            chosen.push(proposal);
            state = next;
        }
        if state.fits() {
            break;
        }
    }
    if chosen.is_empty() {
        return None;
    }
    if state.fits() {
        (chosen, state) = leaner_remedies(chosen, state, case, base);
    }
    let slowdown = Slowdown::between(base, &state.appraisal, case.gpu).unwrap_or_else(Slowdown::none);
    let remedies = chosen.into_iter().map(|proposal| proposal.remedy).collect();
    Some(Combination { remedies, changes: state.changes, appraisal: state.appraisal, slowdown })
}

/// Leaves out each remedy in turn, the dearest first, as long as the job fits without it.
fn leaner_remedies<'a>(
    mut chosen: Vec<&'a Proposal>,
    mut state: State,
    case: &Case<'_>,
    base: &Appraisal,
) -> (Vec<&'a Proposal>, State) {
    let mut dearest = chosen.clone();
    dearest.small_sort_by(|a, b| b.gpu_time().total_cmp(&a.gpu_time()));
    for out in dearest {
        let rest: Vec<_> = chosen.iter().copied().filter(|kept| kept.remedy.name != out.remedy.name).collect();
        let start = State { job: case.job.clone(), changes: Vec::new(), appraisal: base.clone() };
        let without = rest.iter().try_fold(start, |state, kept| state.add_remedy(kept.remedy, case));
        if let Some(without) = without.ok().filter(|state| state.fits() && !rest.is_empty()) {
            (chosen, state) = (rest, without);
        }
    }
    (chosen, state)
}

/// A job on the way to fitting.
struct State {
    job: JobSpec,
    changes: Vec<Change>,
    appraisal: Appraisal,
}

impl State {
    fn fits(&self) -> bool {
        self.appraisal.verdict.fit == Fit::Fits
    }

    /// With one more remedy. One that leaves the training and the number of GPUs alone is taken as often as it must be: rows
    /// are halved until the job fits.
    fn add_remedy(&self, remedy: &'static Remedy, case: &Case<'_>) -> Result<Self, Declined> {
        let mut state = self.apply_remedy(remedy, case)?;
        let may_again =
            |state: &Self| remedy.results != Results::Changed && gpus_taken(&state.job) == gpus_taken(&self.job);
        while !state.fits() && may_again(&state) {
            match state.apply_remedy(remedy, case) {
                Ok(next) => state = next,
                Err(_) => break,
            }
        }
        Ok(state)
    }

    /// With one more remedy, once, if that lowers the total.
    fn apply_remedy(&self, remedy: &'static Remedy, case: &Case<'_>) -> Result<Self, Declined> {
        let more = (remedy.apply)(&self.job)?;
        let mut changes: Vec<Change> =
            self.changes.iter().filter(|(key, _)| more.iter().all(|(other, _)| other != key)).cloned().collect();
        changes.extend(more);
        let (job, appraisal) = case.appraise_with(&overrides(&changes, &remedy.origin()))?;
        let lower = appraisal.verdict.total_bytes < self.appraisal.verdict.total_bytes;
        if lower { Ok(Self { job, changes, appraisal }) } else { Err(Declined::SavesNothing) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::from_case;

    #[test]
    fn a_job_that_several_remedies_come_to_is_appraised_once() {
        let job = from_case(&json!({"micro_batch": 2, "model": {"family": "gpt2", "n_layer": 2}})).unwrap();
        let other = JobSpec { micro_batch_size: 1, ..job.clone() };
        let (appraised, allowed) = (Appraised::default(), Allowance::of(1 << 20));
        let [first, again, smaller] =
            [&job, &job, &other].map(|job| appraised.appraise_once(job, Scale::Estimated, &allowed).unwrap());
        assert_eq!((first == again, first == smaller, appraised.0.borrow().len()), (true, false, 2));
        assert_eq!(first, appraise(&job, &job.gpu, Scale::Estimated).unwrap());
    }
    /// What is left out is named, and what was tried is answered as ever.
    #[test]
    fn remedies_beyond_the_allowance_are_untried() {
        let source = JobSource::model("gpt2").set("model.n_layer", 4).set("micro_batch_size", 8);
        let job = JobSpec { gpu: Gpu::parse("2GiB,sm_90").unwrap(), ..source.resolve(&[]).unwrap().job };
        let base = appraise(&job, &job.gpu, Scale::Estimated).unwrap();
        let tried = |events: u64| {
            let proposals = consider_within(&Allowance::of(events), &job, &source).unwrap();
            let untried = proposals.declined.iter().filter(|(_, why)| *why == Declined::NotTried).count();
            (proposals, untried)
        };
        let (all, untried) = tried(u64::MAX);
        assert_eq!((untried, all.cut_short), (0, false));
        let mut some = (1..60).map(|times| tried(times * base.verdict.events));
        let (few, untried) = some.find(|(few, _)| !few.alone.is_empty()).unwrap();
        assert!(few.cut_short && few.alone.len() < all.alone.len() && untried > 0, "{} and {untried}", few.alone.len());
        // Where each was tried alone, some together may not have been.
        let (cut, _) = some.find(|(_, untried)| *untried == 0).unwrap();
        assert!(cut.cut_short || cut.together.map(|found| found.changes) == all.together.map(|found| found.changes));
        for proposal in few.alone {
            let same = all.alone.iter().find(|other| other.remedy.name == proposal.remedy.name).unwrap();
            assert_eq!(same.appraisal, proposal.appraisal);
        }
    }
}
