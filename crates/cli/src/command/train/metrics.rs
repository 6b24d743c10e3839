//! `metrics.jsonl` of a training: the records that `tonnage report` reads, a line each.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tonnage_core::job::keys;
use tonnage_core::record::{MemoryRecord, Outcome, PeaksRecord, ResultRecord};
use tonnage_experiment::record::{End, FORMAT, Identity, Item, Memory, Point, Record};
use tonnage_train::reasoning::PuzzleReport;
use tonnage_train::training::{Event, StepReport};

use super::job::TrainJob;
use super::shown_bytes;
use crate::failure::Failure;

/// Its name in the output folder.
pub const FILE: &str = "metrics.jsonl";

/// A file of records that grows.
pub struct Metrics {
    path: PathBuf,
    gpus: Option<u64>,
    /// Which node of a swarm writes it.
    node: Option<u64>,
}

impl Metrics {
    /// Of the training in `output`, or of the suite that named a file.
    pub fn new(output: &Path, gpus: Option<u64>) -> Self {
        let named = std::env::var_os("TONNAGE_METRICS").filter(|path| !path.is_empty()).map(PathBuf::from);
        Self { path: named.unwrap_or_else(|| output.join(FILE)), gpus, node: None }
    }

    /// The same of a node of a swarm.
    pub fn of_node(self, node: Option<u64>) -> Self {
        Self { node, ..self }
    }

    /// Begins, or goes on after `step`: what a lost attempt wrote of later steps is left out.
    ///
    /// # Errors
    /// When the disk has no room.
    pub fn begin(&self, job: &TrainJob, torch: &str, gpu: Option<String>, step: u64) -> Result<(), Failure> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let kept: String =
            text.lines().filter(|line| stays_before(line, step)).map(|line| format!("{line}\n")).collect();
        let identity = if kept.is_empty() { self.identity_record(job, torch, gpu).line() } else { String::new() };
        let part = self.path.with_extension("part");
        let failed = |error: &std::io::Error| Failure::about_file(&self.path.display().to_string(), error);
        fs::write(&part, kept + &identity).map_err(|error| failed(&error))?;
        fs::rename(&part, &self.path).map_err(|error| failed(&error))
    }

    fn identity_record(&self, job: &TrainJob, torch: &str, gpu: Option<String>) -> Record {
        let training = &job.resolved.training;
        let spec = &job.resolved.job;
        let swarm = spec.task.swarm().map_or_else(Vec::new, |swarm| {
            vec![
                ("I", Value::from(swarm.local_questions)),
                ("J", swarm.external_questions.into()),
                ("G", swarm.num_generations.into()),
            ]
        });
        let parameters: [(&str, Value); 5] = [
            ("model", spec.model.name.clone().into()),
            (keys::LEARNING_RATE, training.learning_rate.into()),
            (keys::MICRO_BATCH_SIZE, spec.micro_batch_size.into()),
            (keys::GRADIENT_ACCUMULATION_STEPS, spec.gradient_accumulation_steps.into()),
            (keys::SEQ_LEN, spec.seq_len.into()),
        ];
        Record::Run(Box::new(Identity {
            format: FORMAT,
            configuration: job.job_name(),
            seed: Some(training.seed),
            command: std::env::args().collect(),
            versions: BTreeMap::from([
                ("torch".to_owned(), torch.to_owned()),
                ("tonnage".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ]),
            gpu,
            node: self.node.map(|index| format!("node-{index}")),
            gpus: self.gpus,
            parameters: parameters.into_iter().chain(swarm).map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Identity::default()
        }))
    }

    /// Adds what happened, where it is a point of a curve.
    ///
    /// # Errors
    /// When the disk has no room.
    pub fn add(&self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::Step(report) => {
                let point = self.point_at(report.step, report.seconds, report.tokens_trained);
                self.write_point(point, step_metrics(report))
            }
            Event::Evaluated { step, loss, seconds, tokens_trained } => {
                let metrics = [("eval/loss", *loss), ("eval/perplexity", loss.exp())];
                self.write_point(self.point_at(*step, *seconds, *tokens_trained), metrics)
            }
            Event::Grpo(report) => {
                self.write_point(self.point_at(report.step, report.seconds, report.tokens_trained), report.metrics())
            }
            Event::EvaluatedReward(found) => {
                let metrics = [("eval/reward", found.greedy), ("eval/reward_sampled", found.sampled)];
                self.write_point(self.point_at(found.step, found.seconds, found.tokens_trained), metrics)
            }
            Event::Round(report) => {
                let point = self.point_at(report.step, report.seconds, report.tokens_trained);
                let tokens_generated = Some(report.tokens_generated as f64);
                self.write_point(Point { tokens_generated, ..point }, report.metrics())
            }
            Event::Reasoned(report) => {
                self.write_point(self.point_at(report.step, report.seconds, report.tokens_trained), report.metrics())
            }
            Event::EvaluatedPuzzles(found) => {
                let point = self.point_at(found.step, found.seconds, found.tokens_trained);
                self.write_point(point, found.metrics())?;
                if found.is_last { self.add_items(found) } else { Ok(()) }
            }
            Event::WarmedUp { steps, reward, seconds } => {
                let point = Point { step: 0.0, seconds: Some(*seconds), ..Point::default() };
                self.write_point(point, [("warm_start/steps", *steps as f64), ("warm_start/reward", *reward)])
            }
            Event::Resumed { .. }
            | Event::Swarm(_)
            | Event::Measured(_)
            | Event::Saved { .. }
            | Event::StoppedEarly { .. } => Ok(()),
        }
    }

    fn point_at(&self, step: u64, seconds: f64, tokens_trained: u64) -> Point {
        Point {
            step: step as f64,
            seconds: Some(seconds),
            gpu_hours: self.gpus.map(|gpus| seconds * gpus as f64 / 3600.0),
            tokens_trained: Some(tokens_trained as f64),
            ..Point::default()
        }
    }

    fn write_point<N: Into<String>>(
        &self,
        point: Point,
        metrics: impl IntoIterator<Item = (N, f64)>,
    ) -> Result<(), Failure> {
        let metrics = metrics.into_iter().map(|(name, value)| (name.into(), value)).collect();
        self.write(&Record::Point(Point { metrics, ..point }))
    }

    /// What became of each held-out puzzle at the end of a training.
    ///
    /// # Errors
    /// When the disk has no room.
    fn add_items(&self, found: &PuzzleReport) -> Result<(), Failure> {
        found.results.iter().try_for_each(|result| {
            self.write(&Record::Item(Item {
                item: result.name.clone(),
                split: "eval".to_owned(),
                kind: "puzzle".to_owned(),
                difficulty: result.difficulty.clone(),
                samples: result.views,
                correct: result.right_views,
                rank: result.rank,
                token_accuracy: Some(result.token_accuracy),
                ..Item::default()
            }))
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the disk has no room.
    pub fn write(&self, record: &Record) -> Result<(), Failure> {
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        // One write of a whole line: others may read meanwhile.
        let written = opened.and_then(|mut file| file.write_all(record.line().as_bytes()));
        written.map_err(|error| Failure::about_file(&self.path.display().to_string(), &error))
    }
}

fn step_metrics(report: &StepReport) -> Vec<(&'static str, f64)> {
    let mut metrics = vec![
        ("loss", report.loss),
        (keys::LEARNING_RATE, report.learning_rate),
        ("tokens_per_second", report.tokens_per_second),
        ("epoch", report.epoch),
    ];
    metrics.extend(report.grad_norm.map(|norm| ("grad_norm", norm)));
    metrics
}

/// Whether a line is of what is still there after going back to `step`.
fn stays_before(line: &str, step: u64) -> bool {
    match serde_json::from_str::<Record>(line) {
        Ok(Record::Point(point)) => point.step <= step as f64,
        Ok(Record::End(_) | Record::Memory(_)) => false,
        Ok(Record::Run(_) | Record::Item(_)) => true,
        // A line that was torn by a death.
        Err(_) => false,
    }
}

/// What a training came to, by its metrics.
#[derive(Default)]
pub struct Ended {
    /// The newest value of each metric.
    pub last: BTreeMap<String, f64>,
    /// Predicted beside measured.
    pub memory: Option<Memory>,
}

/// Writes the end, and reads what came before it.
///
/// # Errors
/// When the disk has no room.
pub fn record_end(output: &Path, result: &ResultRecord, memory: Option<&MemoryRecord>) -> Result<Ended, Failure> {
    let metrics = Metrics::new(output, None);
    let text = fs::read_to_string(&metrics.path).unwrap_or_default();
    let mut ended = Ended::default();
    let mut seconds = None;
    for record in text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok()) {
        match record {
            Record::Point(point) => {
                seconds = point.seconds.or(seconds);
                ended.last.extend(point.metrics);
            }
            Record::Memory(memory) => ended.memory = Some(memory),
            Record::Run(_) | Record::Item(_) | Record::End(_) => {}
        }
    }
    if let Some(memory) = memory {
        let reserved = |peaks: Option<PeaksRecord>| peaks.map(|peaks| peaks.peak_reserved_bytes);
        let before = ended.memory.take().unwrap_or_default();
        ended.memory = Some(Memory {
            predicted_bytes: before.predicted_bytes.or(reserved(memory.predicted)),
            rehearsed_bytes: reserved(memory.rehearsed),
            measured_bytes: before.measured_bytes.or(reserved(memory.measured)),
        });
    }
    if let (Some(memory), false) = (&ended.memory, text.is_empty()) {
        metrics.write(&Record::Memory(*memory))?;
    }
    if !text.is_empty() {
        let outcome = serde_json::to_value(result.outcome).unwrap_or_default();
        metrics.write(&Record::End(End {
            outcome: outcome.as_str().unwrap_or_default().to_owned(),
            reason: if result.outcome == Outcome::Succeeded { String::new() } else { result.reason.clone() },
            attempts: 1,
            seconds,
            ..End::default()
        }))?;
    }
    Ok(ended)
}

impl Ended {
    /// The means of what several nodes came to.
    pub fn mean_of(all: Vec<Self>) -> Self {
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (name, value) in all.iter().flat_map(|one| &one.last) {
            let (sum, count) = sums.entry(name.clone()).or_default();
            *sum += value;
            *count += 1.0;
        }
        let last = sums.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect();
        Self { last, memory: all.into_iter().find_map(|one| one.memory) }
    }

    /// Lines for a terminal.
    pub fn table_rows(&self) -> Vec<String> {
        let value = |name: &str| self.last.get(name).copied();
        let mut rows = Vec::new();
        if let Some(exact) = value("eval/exact_accuracy") {
            let cells = value("eval/accuracy").map_or_else(String::new, |share| format!(", {share:.3} of their cells"));
            let voted = value("eval/pass@2").map_or_else(String::new, |share| format!("; pass@2 by votes {share:.3}"));
            rows.push(format!("  puzzles   {exact:.3} of those held out solved{cells}{voted}\n"));
        } else if let Some(reward) = value("reward") {
            let held_out =
                value("eval/reward").zip(value("eval/reward_sampled")).map_or_else(String::new, |(greedy, sampled)| {
                    format!("; on held-out questions {greedy:.3} greedy, {sampled:.3} sampled")
                });
            rows.push(format!("  reward    {reward:.3}{held_out}\n"));
        } else if let Some(loss) = value("loss") {
            let held_out = value("eval/loss").map_or_else(String::new, |loss| format!(", {loss:.4} on held-out text"));
            rows.push(format!("  loss      {loss:.4}{held_out}\n"));
        }
        if let Some(Memory { predicted_bytes: Some(predicted), measured_bytes: Some(measured), .. }) = self.memory {
            let percent = (measured as f64 / predicted.max(1) as f64 - 1.0) * 100.0;
            rows.push(format!(
                "  memory    {} reserved as predicted, {} measured ({percent:+.2} %)\n",
                shown_bytes(predicted),
                shown_bytes(measured)
            ));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_back_leaves_out_what_came_later() {
        let point = |step: f64| Record::Point(Point { step, ..Point::default() }).line();
        assert!(stays_before(&point(10.0), 10) && !stays_before(&point(11.0), 10));
        assert!(!stays_before(&Record::End(End::default()).line(), 10) && !stays_before("{\"record\": \"po", 10));
        assert!(stays_before(&Record::Run(Box::default()).line(), 0));
    }
}
