//! What was predicted of the job that is watched: from its description, or from an estimate that was written.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use serde_json::Value;
use tonnage_core::estimate::{Deployment, Estimate};
use tonnage_core::job::{JobSource, JobSpec};
use tonnage_core::limit::JSON_BYTES;
use tonnage_core::plan::proposal::consider_remedies;
use tonnage_core::plan::remedy::Results;
use tonnage_run::bounded::read_text;
use tonnage_watch::{PredictedPhase, Prediction};

use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::{read_source, simulate_resolved};

/// The prediction, if a job or an estimate was named.
pub fn of_job(job: &JobArgs, estimate: Option<&Path>) -> Result<Option<Prediction>, Failure> {
    if let Some(path) = estimate {
        return read_prediction(path).map(Some);
    }
    if job.model.is_none() && job.small_gpt.is_none() {
        if let Some(given) = job.overrides.first() {
            return Err(Failure::bad_input(format!("`{}` belongs to a job, and none is named", given.origin.said()))
                .with_hint("name its model or job file: `tonnage watch job.toml`"));
        }
        return Ok(None);
    }
    let source = read_source(job)?;
    let resolved = source.resolve(&[])?;
    let simulated = simulate_resolved(&resolved)?;
    let deployment = Deployment::new(&simulated, simulated.estimate()?)?;
    let largest = deployment.processes.iter().map(|process| &process.estimate).max_by_key(|each| each.total_bytes);
    let name = job.model.clone().unwrap_or_else(|| "job".to_owned());
    let prediction = largest.map(|estimate| from_estimate(name, estimate));
    if let Some(prediction) = &prediction {
        find_advice(source, resolved.job.clone(), prediction);
    }
    Ok(prediction)
}

fn from_estimate(job: String, estimate: &Estimate) -> Prediction {
    let outside = (estimate.outside.low, estimate.outside.high);
    let peaks = estimate.peak_per_phase.iter().map(|peak| (peak.phase.label(), peak.allocated, peak.reserved));
    Prediction {
        job,
        peak_bytes: estimate.total_bytes,
        range: estimate.range,
        phases: predicted_phases(peaks, outside),
        advice: Arc::default(),
    }
}

/// The phases by their name without the step, each with the most of all steps: whoever watches does not know the step.
fn predicted_phases(peaks: impl Iterator<Item = (String, u64, u64)>, context: (u64, u64)) -> Vec<PredictedPhase> {
    let mut phases: Vec<PredictedPhase> = Vec::new();
    for (label, allocated, reserved) in peaks {
        let name = label.split_once(':').map_or(label.as_str(), |(_, name)| name);
        let (low, high) = (allocated + context.0, reserved + context.1);
        match phases.iter_mut().find(|phase| phase.name == name) {
            Some(phase) => (phase.low, phase.high) = (phase.low.max(low), phase.high.max(high)),
            None => phases.push(PredictedPhase { name: name.to_owned(), low, high }),
        }
    }
    phases
}

/// Finds the remedy that saves most, while the watch has begun: an estimate of every remedy takes its time.
fn find_advice(source: JobSource, job: JobSpec, prediction: &Prediction) {
    let advice = Arc::clone(&prediction.advice);
    thread::spawn(move || {
        let proposals = consider_remedies(&job, &source);
        let alone = proposals.map(|proposals| proposals.alone).unwrap_or_default();
        // One that leaves the training as it is comes before one that saves more.
        let same = alone.iter().find(|proposal| proposal.remedy.results == Results::Same);
        if let Some(best) = same.or(alone.first()) {
            let changes: Vec<_> = best.changes.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            let saved = best.saves_bytes >> 20;
            // It was not set before: this is the only thread that does.
            let _ = advice.set(format!("set {}: saves {saved} MiB", changes.join(", ")));
        }
    });
}

/// The prediction of a file that `tonnage estimate --json` wrote.
fn read_prediction(path: &Path) -> Result<Prediction, Failure> {
    let name = path.display().to_string();
    let text = read_text(path, JSON_BYTES).map_err(|error| Failure::about_file(&name, &error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| Failure::bad_input(format!("{name}: {error}")))?;
    from_json(&value).ok_or_else(|| {
        Failure::bad_input(format!("{name} is no estimate"))
            .with_hint("write one with `tonnage estimate JOB --json > FILE`")
    })
}

fn from_json(value: &Value) -> Option<Prediction> {
    let bytes = |path: &str| value.pointer(path).and_then(Value::as_u64);
    let context = (bytes("/context_bytes/low")?, bytes("/context_bytes/high")?);
    let reserved = value.get("peak_reserved_per_phase")?;
    let peaks =
        value.get("peak_per_phase")?.as_object()?.iter().filter_map(|(label, allocated)| {
            Some((label.clone(), allocated.as_u64()?, reserved.get(label)?.as_u64()?))
        });
    Some(Prediction {
        job: value.pointer("/model/name").and_then(Value::as_str).unwrap_or("job").to_owned(),
        peak_bytes: bytes("/total_bytes")?,
        range: (bytes("/range_bytes/low")?, bytes("/range_bytes/high")?),
        phases: predicted_phases(peaks, context),
        advice: Arc::default(),
    })
}
