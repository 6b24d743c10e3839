//! [`candidates_on_each`] and [`choose_candidate`]: the ways to run a job over GPUs, their number and remedies, and the cheapest that fits within
//! a budget and a deadline.

use std::cmp::Reverse;

use super::appraisal::{Appraisal, appraise, moved_to};
use super::proposal::{Appraised, Case, combine_remedies, each_alone};
use super::remedy::{Change, Remedy, Results, overrides};
pub use super::spread::can_spread;
use super::spread::{spread_over, why_together};
use super::time::Scale;
use crate::estimate::Fit;
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
    /// None fits; this one lacks the least memory.
    NoneFits(usize),
    /// There is no way at all.
    Nothing,
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

/// The ways to run `job` on each of these groups, of one number of GPUs and the most memory first. Where no remedies make it fit,
/// kinds with far less memory than they leave are not tried.
pub fn candidates_on_each(
    job: &JobSpec,
    gpu_groups: &[GpuGroup],
    source: &JobSource,
    scale: Scale,
    changed: bool,
) -> Found {
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
        let here = candidates_on(job, &GpuGroup { gpus, ..gpu_group.clone() }, source, scale, changed);
        if here.candidates.iter().all(|candidate| !candidate.fits()) {
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
/// the training are left out unless `changed`.
fn candidates_on(job: &JobSpec, gpu_group: &GpuGroup, source: &JobSource, scale: Scale, changed: bool) -> Found {
    let mut found = Found::default();
    let spread = match gpu_group.count {
        Some(count) => spread_over(job, count).ok_or_else(|| why_not_spread(job, count)),
        None => Ok(Vec::new()),
    };
    let spread = match spread {
        Ok(spread) => spread,
        Err(why) => return found.without_candidates(why),
    };
    let on_site = source.clone().with(&overrides(&spread, &Origin::Spread));
    let resolved = match on_site.resolve(&[]) {
        Ok(resolved) => resolved,
        Err(error) => return found.without_candidates(format!("{}: {}", gpu_group.counted_name(), error.problem)),
    };
    let mut alone = None;
    let candidates = &mut found.candidates;
    for gpu in &gpu_group.gpus {
        let job = match gpu_group.has_users_price {
            true => JobSpec { gpu: gpu.clone(), ..resolved.job.clone() },
            false => moved_to(resolved.job.clone(), gpu),
        };
        let base = match appraise(&job, gpu, scale) {
            Ok(base) => base,
            Err(error) => {
                found.left_out.push(format!("{}, {}: {error}", gpu.id, gpu_group.counted_name()));
                continue;
            }
        };
        let case = Case { job: &job, gpu, source: &on_site, scale, appraised: &Appraised::default() };
        let combination = if base.verdict.fit == Fit::Fits {
            None
        } else {
            // What remedies save is the same on all GPUs of the group of GPUs.
            let alone = alone.get_or_insert_with(|| each_alone(&case, &base).0);
            let allowed: Vec<_> = alone
                .iter()
                .filter(|proposal| changed || proposal.remedy.results != Results::Changed)
                // Other numbers of GPUs are groups of GPUs of their own.
                .filter(|proposal| gpu_group.count.is_none() || !proposal.adds_gpus())
                .cloned()
                .collect();
            combine_remedies(&case, &base, &allowed)
        };
        let candidate = |remedies, changes, appraisal| Candidate {
            gpu: gpu.clone(),
            spread: spread.clone(),
            remedies,
            changes,
            appraisal,
        };
        // A job that fits tightly is a way of its own; remedies may cost more than they are worth.
        if base.verdict.fits() || combination.is_none() {
            candidates.push(candidate(Vec::new(), Vec::new(), base));
        }
        candidates.extend(combination.map(|it| candidate(it.remedies, it.changes, it.appraisal)));
    }
    found
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
        let (fits, cost) = (b.fits().cmp(&a.fits()), known(a.dollars()).total_cmp(&known(b.dollars())));
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
        let all = candidates_on_each(&job, &groups[0], &source, Scale::Estimated, false);
        let tried: Vec<&str> = all.candidates.iter().map(|candidate| candidate.gpu.id.as_str()).collect();
        assert!(tried.contains(&"b200") && tried.contains(&"l4") && !tried.contains(&"t4"), "{tried:?}");
        let [why] = all.left_out.as_slice() else { panic!("{:?}", all.left_out) };
        assert!(why.starts_with("1 GPU: t4, which have far less than the "), "{why}");
        // What is left out fits by itself no more than it does beside others, and what is tried is answered alike.
        for group in &groups[0] {
            let alone = candidates_on(&job, group, &source, Scale::Estimated, false);
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
}
