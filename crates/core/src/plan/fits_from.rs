//! [`fits_from`]: the GPUs of the catalog that carry a job which names none, each asked for itself.

use super::fit::{GpuVerdict, carrying_verdict, carrying_verdicts, carrying_verdicts_beside, job_by_device};
use crate::estimate::{Estimate, EstimateError, SimulatedJob, shown_bound};
use crate::gpu::{CatalogGpu, Device, Gpu, catalog};
use crate::job::JobSpec;
use crate::small_sort::SmallSort;
use crate::trace::Category;

/// A GPU that carries a job, with room to spare or tightly.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Carrier {
    /// A row of the catalog.
    pub gpu: &'static CatalogGpu,
    /// The job on it.
    pub verdict: GpuVerdict,
}

/// The GPUs of the catalog that carry a job.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Carriers {
    /// The smallest memory first.
    pub carrying: Vec<Carrier>,
    /// Those that carry what is known of it, while what is left out or unchecked has no bound.
    pub unknown: Vec<&'static CatalogGpu>,
    /// Those of which it is not known: to replay the job for their kinds would have taken too long.
    pub untried: Vec<&'static CatalogGpu>,
}

/// So many times as many replays share the time for a very long generation: the estimate itself has taken its own.
const REPLAYS: u64 = 4;

/// What is as large on every kind of GPU, and alive at the same moment of the same step.
const ON_EVERY_GPU: [Category; 3] = [Category::Parameter, Category::Gradient, Category::OptimizerState];

/// `job` as [`SimulatedJob::new`] has it, ready for [`fits_from`]: with what it would allocate on the other kinds of GPU of the catalog.
///
/// # Errors
/// When the model cannot be built.
pub fn simulate_for_catalog(job: &JobSpec) -> Result<SimulatedJob<'_>, EstimateError> {
    if !shares_simulation(job) {
        return SimulatedJob::new(job);
    }
    let others: Vec<Device> = on_other_devices(job).iter().map(|job| job.gpu.device()).collect();
    SimulatedJob::with_other_devices(job, &others, 1)
}

/// Whether the list of GPUs comes from the simulation of the estimate: of tokens that are generated each replay of several leaves
/// out more than one alone.
fn shares_simulation(job: &JobSpec) -> bool {
    job.task.facts().completion_len().unwrap_or(0).max(job.max_new_tokens) == 0
}

/// `job` on each kind of GPU of the catalog but its own.
fn on_other_devices(job: &JobSpec) -> Vec<JobSpec> {
    let gpus: Vec<Gpu> = catalog().iter().map(CatalogGpu::gpu).filter(|gpu| gpu.device() != job.gpu.device()).collect();
    job_by_device(job, &gpus)
}

/// The GPUs of the catalog that carry the job of `simulated`, which is [`simulate_for_catalog`]'s, the smallest memory first, and of a
/// size last those that PyTorch's newest builds do not run on. `estimate` is its own.
pub fn fits_from(simulated: SimulatedJob<'_>, estimate: &Estimate) -> Carriers {
    let at_least: u64 = ON_EVERY_GPU.iter().map(|category| estimate.at_peak.by_category[*category as usize]).sum();
    let large_enough = catalog().iter().filter(|row| row.usable_bytes > at_least);
    let job = simulated.job().clone();
    let (same, others): (Vec<_>, Vec<_>) = large_enough.partition(|row| row.gpu().device() == job.gpu.device());
    let of_others: Vec<Gpu> = others.iter().map(|row| row.gpu()).collect();
    // What has no bound on one kind of GPU and takes long to find out would most likely have none on another.
    let is_unbounded = simulated.trace().is_long() && shown_bound(estimate.safe_bytes).is_none();
    let on_same: Vec<_> = same.iter().map(|row| carrying_verdict(&simulated, &row.gpu())).collect();
    let on_others = if is_unbounded {
        let not_tried = EstimateError::NotReplayed { events: simulated.events(), kinds: of_others.len() as u64 };
        of_others.iter().map(|_| Err(not_tried.clone())).collect()
    } else if shares_simulation(&job) {
        carrying_verdicts_beside(simulated, &on_other_devices(&job), &of_others)
    } else {
        // The estimate took its share of the time that a very long generation is given.
        let (shares, events) = if simulated.trace().is_long() { (REPLAYS, 0) } else { (1, simulated.events()) };
        let devices = job_by_device(&job, &of_others).len() as u64;
        drop(simulated);
        carrying_verdicts(shares * devices, events, &job, &of_others)
    };
    let mut found = Carriers::default();
    for (gpu, answer) in same.iter().zip(on_same).chain(others.iter().zip(on_others)) {
        match answer {
            Ok(None) => {}
            Ok(Some(verdict)) if verdict.fits() => found.carrying.push(Carrier { gpu, verdict }),
            Ok(Some(_)) => found.unknown.push(gpu),
            Err(EstimateError::NotReplayed { .. }) => found.untried.push(gpu),
            // What cannot be simulated there does not run there.
            Err(_) => {}
        }
    }
    let place = |carrier: &Carrier| catalog().iter().position(|row| row.id == carrier.gpu.id);
    let is_old = |carrier: &Carrier| !carrier.gpu.gpu().device().runs_newest_builds();
    found.carrying.small_sort_by_key(|carrier| (carrier.gpu.sold_gb, is_old(carrier), place(carrier)));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::from_case;
    use crate::plan::fit::verdict_on;

    /// The list is what asking every GPU one by one gives.
    fn check(case: &Value) -> Vec<String> {
        let job = from_case(case).unwrap();
        let simulated = simulate_for_catalog(&job).unwrap();
        let estimate = simulated.estimate().unwrap();
        assert_eq!(estimate, SimulatedJob::new(&job).unwrap().estimate().unwrap());
        let found = fits_from(simulated, &estimate);
        for row in catalog() {
            let alone = verdict_on(&job, &row.gpu()).unwrap();
            let listed = found.carrying.iter().find(|carrier| carrier.gpu.id == row.id).map(|carrier| &carrier.verdict);
            assert_eq!(listed, alone.fits().then_some(&alone), "{}", row.id);
        }
        assert!(found.carrying.is_sorted_by_key(|carrier| carrier.gpu.sold_gb));
        assert!(found.untried.is_empty());
        found.carrying.into_iter().map(|carrier| carrier.gpu.id.clone()).collect()
    }

    #[test]
    fn every_gpu_of_the_catalog_is_asked() {
        let small = check(&json!({"micro_batch": 2, "model": {"family": "gpt2", "n_layer": 2}}));
        assert_eq!(small.len(), catalog().len());
        // Most of it is weights and their optimizer, which no small GPU holds.
        let large = check(&json!({"micro_batch": 1, "model": {"family": "gpt2", "n_layer": 24, "n_embd": 4096,
            "n_head": 32}}));
        assert!(!large.is_empty() && large.len() < catalog().len(), "{large:?}");
    }

    #[test]
    fn kinds_of_the_same_memory_differ() {
        // Without flash attention for bf16 the scores of a long row are kept: T4 and V100 fall out of their classes.
        let kinds = check(&json!({"micro_batch": 1, "seq_len": 8192, "precision": "bf16", "model": {"family": "gpt2",
            "n_layer": 12, "n_positions": 8192}}));
        assert!(kinds.iter().any(|id| id == "rtx-5090") && !kinds.iter().any(|id| id == "v100-32"), "{kinds:?}");
    }
}
