//! [`candidates_on_each`] and [`choose_candidate`]: the ways to run a job over GPUs, their number and remedies, and the cheapest that fits within
//! a budget and a deadline.

use std::cmp::Reverse;

use super::MOST_EVENTS;
use super::appraisal::{Appraisal, moved_to};
use super::proposal::{Allowance, Appraised, Case, Proposal, combine_remedies, each_alone};
use super::remedy::{Change, Remedy, Results, overrides};
pub use super::spread::can_spread;
use super::spread::{spread_over, why_together};
use super::time::Scale;
use crate::estimate::{Fit, SimulatedJob};
use crate::gpu::Gpu;
use crate::job::{JobSource, JobSpec, Origin, Spreading, rows_per_step};
use crate::small_sort::SmallSort;
use crate::units::Bytes;

/// GPUs on which host code gives the same answers, and how many of each are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuGroup {
    /// Of one machine or kind; a candidate takes the first of them.
    pub gpus: Vec<Gpu>,
    /// How many of one kind are taken; `None` leaves the number as the job has it.
    pub count: Option<u64>,
    /// Whether the user's price is that of these GPUs, not of the job's own alone.
    pub has_users_price: bool,
}

/// A candidate: a GPU, how many of it, and remedies.
#[derive(Clone)]
#[non_exhaustive]
pub struct Candidate {
    /// On which GPU.
    pub gpu: Gpu,
    /// What is changed to take another number of them.
    pub spread: Vec<Change>,
    /// The remedies that it needs.
    pub remedies: Vec<&'static Remedy>,
    /// What they change.
    pub changes: Vec<Change>,
    /// The job as it would run.
    pub appraisal: Appraisal,
}

/// The candidates on a group of GPUs, and what was left out there.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Found {
    /// Candidates that fit, as found.
    pub candidates: Vec<Candidate>,
    /// Numbers of GPUs and GPUs without a candidate, each with the reason.
    pub left_out: Vec<String>,
}

impl Found {
    fn without_candidates(mut self, why: String) -> Self {
        self.left_out.push(why);
        self
    }
}

impl GpuGroup {
    fn counted_name(&self) -> String {
        match self.count {
            Some(1) => "1 GPU".to_owned(),
            Some(count) => format!("{count} GPUs"),
            None => "as many GPUs as the job has".to_owned(),
        }
    }
}

/// A job of more events is simulated for one list alone.
const LONG: u64 = MOST_EVENTS / 8;

/// Those of `lists` that may be searched, and why the others are not: each simulates the job once at least.
pub fn searched_lists(job: &JobSpec, mut lists: Vec<Vec<GpuGroup>>) -> (Vec<Vec<GpuGroup>>, Vec<String>) {
    let is_long = || SimulatedJob::new(job).is_ok_and(|simulated| simulated.events() > LONG);
    let others = if lists.len() > 1 && is_long() { lists.split_off(1) } else { Vec::new() };
    let why = "not tried: a simulation of this job takes long; ask about one number of GPUs (--counts)";
    let left_out = others.iter().filter_map(|list| Some(format!("{}, {why}", list.first()?.counted_name())));
    (lists, left_out.collect())
}

/// What is asked of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SearchLimits {
    /// The most that may be paid.
    pub dollars: Option<f64>,
    /// The longest that it may take.
    pub seconds: Option<f64>,
}

impl Candidate {
    /// What it costs, as far as that is known.
    pub fn dollars(&self) -> Option<f64> {
        Some(self.appraisal.bill.as_ref()?.costs.dollars?.typical)
    }

    /// How long it takes.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.appraisal.bill.as_ref()?.costs.wall_seconds.typical)
    }

    /// Whether it runs, tightly or not.
    pub fn fits(&self) -> bool {
        self.appraisal.verdict.fits()
    }

    /// The remedies with the least that they do to the results.
    pub fn results(&self) -> Results {
        self.remedies.iter().map(|remedy| remedy.results).max().unwrap_or(Results::Same)
    }
}

impl SearchLimits {
    /// By how much a way is beyond the worse of the two limits: 1 or less meets both. `None` where a limit is set and the
    /// way's figure is not known.
    pub fn excess(&self, candidate: &Candidate) -> Option<f64> {
        let over = |limit: Option<f64>, figure: Option<f64>| match limit {
            None => Some(0.0),
            Some(limit) => Some(figure? / limit.max(f64::MIN_POSITIVE)),
        };
        Some(over(self.dollars, candidate.dollars())?.max(over(self.seconds, candidate.seconds())?))
    }

    fn is_met(&self, candidate: &Candidate) -> bool {
        candidate.fits() && self.excess(candidate).is_some_and(|excess| excess <= 1.0)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This way, by its index, is the cheapest that fits and meets the wish.
    Best(usize),
    /// None meets it; this one fits and comes nearest.
    Nearest(usize),
    /// Of none it is known that it fits; this one, the cheapest, may.
    NotKnown(usize),
    /// None fits; this one lacks the least memory.
    NoneFits(usize),
    /// There is no way at all.
    Nothing,
}

impl Choice {
    /// The way's index, if there is one.
    pub const fn place(self) -> Option<usize> {
        match self {
            Self::Best(at) | Self::Nearest(at) | Self::NotKnown(at) | Self::NoneFits(at) => Some(at),
            Self::Nothing => None,
        }
    }
}

/// `gpus` by how many of a kind are taken, and then by kind, the one with the most memory first. Whoever names the GPUs and a price
/// means that price of them.
pub fn gpu_groups(job: &JobSpec, gpus: &[Gpu], counts: &[u64], are_named: bool) -> Vec<Vec<GpuGroup>> {
    let mut kinds: Vec<Vec<Gpu>> = Vec::new();
    for gpu in gpus {
        match kinds.iter_mut().find(|kind| kind.iter().any(|other| other.device() == gpu.device())) {
            Some(kind) => kind.push(gpu.clone()),
            None => kinds.push(vec![gpu.clone()]),
        }
    }
    kinds.small_sort_by_key(|kind| Reverse(kind.iter().map(|gpu| gpu.usable_bytes).max()));
    let counts: Vec<Option<u64>> = match can_spread(job) {
        true if !counts.is_empty() => counts.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    let gpu_group = |kind: &Vec<Gpu>, count| GpuGroup { gpus: kind.clone(), count, has_users_price: are_named };
    let of_count = |count: &Option<u64>| kinds.iter().map(|kind| gpu_group(kind, *count)).collect();
    counts.iter().map(of_count).collect()
}

/// What a search is about.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The job as it is.
    pub job: &'a JobSpec,
    /// What it is made of.
    pub source: &'a JobSource,
    /// How a measured step carries over to changed jobs.
    pub scale: Scale,
    /// Whether remedies may change the training.
    pub changes_training: bool,
    /// Of how many lists of groups this question is one; they share what may be simulated.
    pub lists: usize,
}

/// The ways to run a job on each of these groups, of one number of GPUs and the most memory first. Where no remedies make it fit,
/// kinds with far less memory than they leave are not tried, and after so many events nothing more is.
pub fn candidates_on_each(asked: &Asked<'_>, gpu_groups: &[GpuGroup]) -> Found {
    let allowed = Allowance::of(MOST_EVENTS / asked.lists.max(1) as u64);
    candidates_within(asked, gpu_groups, &allowed)
}

fn candidates_within(asked: &Asked<'_>, gpu_groups: &[GpuGroup], allowed: &Allowance) -> Found {
    let mut found = Found::default();
    let mut least: Option<u64> = None;
    let mut too_small = Vec::new();
    for gpu_group in gpu_groups {
        let is_far_below = |gpu: &Gpu| least.is_some_and(|least| gpu.usable_bytes < least / 5 * 4);
        let (small, gpus): (Vec<Gpu>, Vec<Gpu>) = gpu_group.gpus.iter().cloned().partition(is_far_below);
        too_small.extend(small.into_iter().map(|gpu| gpu.id));
        if gpus.is_empty() {
            continue;
        }
        let here = candidates_on(asked, &GpuGroup { gpus, ..gpu_group.clone() }, allowed);
        if !allowed.ran_out() && here.candidates.iter().all(|candidate| !candidate.appraisal.verdict.may_fit()) {
            least = here.candidates.iter().map(|candidate| candidate.appraisal.verdict.total_bytes).chain(least).min();
        }
        found.candidates.extend(here.candidates);
        found.left_out.extend(here.left_out);
    }
    if let (Some(least), Some(first)) = (least, gpu_groups.first().filter(|_| !too_small.is_empty())) {
        let (count, names) = (first.counted_name(), too_small.join(", "));
        found
            .left_out
            .push(format!("{count}: {names}, which have far less than the {} that remedies leave", Bytes(least)));
    }
    found
}

/// The ways to run `job` at `group of GPUs`: as it is where that fits, else with the remedies that make it fit. Remedies that change
/// the training are left out unless they are asked for.
fn candidates_on(asked: &Asked<'_>, gpu_group: &GpuGroup, allowed: &Allowance) -> Found {
    let Asked { job, source, scale, .. } = *asked;
    let mut found = Found::default();
    let spread = gpu_group.count.map_or(Some(Vec::new()), |count| spread_over(job, count));
    let Some(spread) = spread else {
        return found.without_candidates(why_not_spread(job, gpu_group.count.unwrap_or_default()));
    };
    let on_site = source.clone().with(&overrides(&spread, &Origin::Spread));
    let resolved = match on_site.resolve(&[]) {
        Ok(resolved) => resolved,
        Err(error) => return found.without_candidates(format!("{}: {}", gpu_group.counted_name(), error.problem)),
    };
    let (mut alone, mut untried, mut cut) = (None, Vec::new(), Vec::new());
    let candidates = &mut found.candidates;
    for gpu in &gpu_group.gpus {
        let job = match gpu_group.has_users_price {
            true => JobSpec { gpu: gpu.clone(), ..resolved.job.clone() },
            false => moved_to(resolved.job.clone(), gpu),
        };
        let base = match allowed.appraise(&job, gpu, scale) {
            Some(Ok(base)) => base,
            Some(Err(error)) => {
                found.left_out.push(format!("{}, {}: {error}", gpu.id, gpu_group.counted_name()));
                continue;
            }
            None => {
                untried.push(gpu.id.as_str());
                continue;
            }
        };
        let case = Case { job: &job, gpu, source: &on_site, scale, appraised: &Appraised::default(), allowed };
        let combination = if base.verdict.fit == Fit::Fits {
            None
        } else {
            // What remedies save is the same on all GPUs of the group of GPUs.
            let alone = alone.get_or_insert_with(|| each_alone(&case, &base).0);
            let allowed = allowed_remedies(asked, gpu_group, alone);
            combine_remedies(&case, &base, &allowed)
        };
        if allowed.ran_out() && base.verdict.fit != Fit::Fits {
            cut.push(gpu.id.as_str());
        }
        let candidate = |remedies, changes, appraisal| Candidate {
            gpu: gpu.clone(),
            spread: spread.clone(),
            remedies,
            changes,
            appraisal,
        };
        // A job that fits tightly is a way of its own; remedies may cost more than they are worth.
        if base.verdict.may_fit() || combination.is_none() {
            candidates.push(candidate(Vec::new(), Vec::new(), base));
        }
        candidates.extend(combination.map(|it| candidate(it.remedies, it.changes, it.appraisal)));
    }
    found.left_out.extend(broken_off(gpu_group, &cut, &untried));
    found
}

/// Those that a search may take.
fn allowed_remedies(asked: &Asked<'_>, gpu_group: &GpuGroup, alone: &[Proposal]) -> Vec<Proposal> {
    let may = |proposal: &&Proposal| {
        // Other numbers of GPUs are groups of GPUs of their own.
        (asked.changes_training || proposal.remedy.results != Results::Changed)
            && (gpu_group.count.is_none() || !proposal.adds_gpus())
    };
    alone.iter().filter(may).cloned().collect()
}

/// That the search ended: on which GPUs it had not tried all remedies, and which it had not come to.
fn broken_off(gpu_group: &GpuGroup, cut: &[&str], untried: &[&str]) -> Vec<String> {
    let count = gpu_group.counted_name();
    let why = "the search has simulated as much as it may; name fewer GPUs (--gpus)";
    let told = [(cut, "not all remedies were tried"), (untried, "not tried")].into_iter();
    let told = told.filter(|(gpus, _)| !gpus.is_empty());
    told.map(|(gpus, what)| format!("{count}: {}, {what}: {why}", gpus.join(", "))).collect()
}

/// Why the rows of a step cannot be put on `count` GPUs.
fn why_not_spread(job: &JobSpec, count: u64) -> String {
    if let Some(why) = why_together(job) {
        return format!("{count} GPUs: {why}");
    }
    match job.task.facts().spreading() {
        Spreading::Nodes { nodes, .. } => format!("{count} GPUs: the swarm has {nodes} nodes"),
        Spreading::Ranks if job.parallel.replicas() != job.parallel.world_size => {
            format!("{count} GPUs: the ranks share a model, only {} were estimated", job.parallel.world_size)
        }
        _ => format!("{count} GPUs: the {} rows of a step do not divide by {count}", rows_per_step(job)),
    }
}

/// Sorts `ways` (those that fit first, by price, then by time) and chooses.
pub fn choose_candidate(candidates: &mut [Candidate], limits: &SearchLimits) -> Choice {
    let known = |figure: Option<f64>| figure.unwrap_or(f64::INFINITY);
    candidates.small_sort_by(|a, b| {
        let order = |candidate: &Candidate| (candidate.fits(), candidate.appraisal.verdict.may_fit());
        let (fits, cost) = (order(b).cmp(&order(a)), known(a.dollars()).total_cmp(&known(b.dollars())));
        fits.then(cost).then(known(a.seconds()).total_cmp(&known(b.seconds())))
    });
    // What fits with room to spare comes before what runs tightly, if that is dearer.
    let is_met = |tightest: Fit| {
        candidates.iter().position(|candidate| limits.is_met(candidate) && candidate.appraisal.verdict.fit <= tightest)
    };
    if let Some(best) = is_met(Fit::Fits).or_else(|| is_met(Fit::Tight)) {
        return Choice::Best(best);
    }
    let fitting = candidates.iter().enumerate().filter(|(_, candidate)| candidate.fits());
    let nearest = fitting.min_by(|(_, a), (_, b)| known(limits.excess(a)).total_cmp(&known(limits.excess(b))));
    if let Some((at, _)) = nearest {
        return Choice::Nearest(at);
    }
    if let Some(at) = candidates.iter().position(|candidate| candidate.appraisal.verdict.may_fit()) {
        return Choice::NotKnown(at);
    }
    let lacks = |candidate: &Candidate| {
        candidate.appraisal.verdict.total_bytes.saturating_sub(candidate.appraisal.verdict.usable_bytes)
    };
    let least = candidates.iter().enumerate().min_by_key(|(_, candidate)| lacks(candidate));
    least.map_or(Choice::Nothing, |(at, _)| Choice::NoneFits(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::keys;

    #[test]
    fn kinds_with_far_less_memory_than_remedies_leave_are_not_tried() {
        let source = JobSource::model("llama-3.1-8b").set(keys::PRECISION, "bf16");
        let job = source.resolve(&[]).unwrap().job;
        let gpus = ["t4", "b200", "h100", "l4", "a100-80", "gh200"].map(|name| Gpu::parse(name).unwrap());
        let groups = gpu_groups(&job, &gpus, &[1], false);
        assert_eq!(groups.len(), 1);
        let asked = Asked { job: &job, source: &source, scale: Scale::Estimated, changes_training: false, lists: 1 };
        let all = candidates_on_each(&asked, &groups[0]);
        let tried: Vec<&str> = all.candidates.iter().map(|candidate| candidate.gpu.id.as_str()).collect();
        assert!(tried.contains(&"b200") && tried.contains(&"l4") && !tried.contains(&"t4"), "{tried:?}");
        let [why] = all.left_out.as_slice() else { panic!("{:?}", all.left_out) };
        assert!(why.starts_with("1 GPU: t4, which have far less than the "), "{why}");
        // What is left out fits by itself no more than it does beside others, and what is tried is answered alike.
        for group in &groups[0] {
            let alone = candidates_on(&asked, group, &Allowance::of(MOST_EVENTS));
            let beside = all.candidates.iter().filter(|candidate| group.gpus.contains(&candidate.gpu));
            let totals = |found: &[Candidate]| -> Vec<u64> {
                found.iter().map(|candidate| candidate.appraisal.verdict.total_bytes).collect()
            };
            match tried.contains(&group.gpus[0].id.as_str()) {
                true => assert_eq!(totals(&alone.candidates), totals(&beside.cloned().collect::<Vec<_>>())),
                false => assert!(alone.candidates.iter().all(|candidate| !candidate.fits())),
            }
        }
    }
    /// Whose turn comes when nothing may be simulated any more is named, and what was tried is answered as ever.
    #[test]
    fn gpus_beyond_the_allowance_are_named() {
        let source = JobSource::model("gpt2").set("model.n_layer", 4).set("micro_batch_size", 8);
        let job = source.resolve(&[]).unwrap().job;
        let gpus = ["b200", "h100", "a100-80", "l4", "t4"].map(|name| Gpu::parse(name).unwrap());
        let groups = gpu_groups(&job, &gpus, &[1], false);
        let asked = Asked { job: &job, source: &source, scale: Scale::Estimated, changes_training: false, lists: 1 };
        let all = candidates_on_each(&asked, &groups[0]);
        assert_eq!((all.candidates.len(), all.left_out.len()), (5, 0));
        let events = all.candidates[0].appraisal.verdict.events;
        let few = candidates_within(&asked, &groups[0], &Allowance::of(2 * events));
        let ids = |found: &Found| -> Vec<String> {
            found.candidates.iter().map(|candidate| candidate.gpu.id.clone()).collect()
        };
        assert_eq!(ids(&few), ids(&all)[..2]);
        let untried: Vec<&str> = few.left_out.iter().filter_map(|why| why.split(", not tried").next()).collect();
        let others: Vec<String> = ids(&all)[2..].iter().map(|id| format!("1 GPU: {id}")).collect();
        assert_eq!(untried, others);
        // On a GPU that needs remedies the search says where it broke off.
        let small = [Gpu::parse("2GiB,sm_90").unwrap()];
        let groups = gpu_groups(&job, &small, &[1], false);
        let cut = candidates_within(&asked, &groups[0], &Allowance::of(events + 1));
        assert!(cut.left_out.iter().any(|why| why.contains("not all remedies were tried")), "{:?}", cut.left_out);
    }
}
