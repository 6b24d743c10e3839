//! [`DoctorView`]: what killed a job, as JSON.

use serde::Serialize;
use serde_json::{Map, Value};
use tonnage_core::failure::{
    Class, Diagnosis, FailureCause, Figure, GpuMemory, Located, Raised, Source, advice, printable,
};
use tonnage_core::plan::proposal::Proposals;
use tonnage_core::spec::JobSpec;

use crate::plan::PlanView;
use crate::view::VERSION;

/// What was found in the logs of a job.
pub struct DoctorAnswer<'a> {
    /// The logs.
    pub sources: &'a [Source],
    /// What happened.
    pub diagnosis: Diagnosis<'a>,
    /// Files of a folder that do not look like logs.
    pub not_read: usize,
    /// The job that the message is held against.
    pub job: Option<JobAnswer>,
}

/// A job beside an out-of-memory message.
pub struct JobAnswer {
    /// The job, on the GPU that the message describes.
    pub job: JobSpec,
    /// What would make it fit there.
    pub proposals: Proposals,
    /// The job with the remedies that together do.
    pub with: JobSpec,
    /// What the GPU that the job names has, where the message is of another.
    pub other_gpu: Option<u64>,
}

impl DoctorAnswer<'_> {
    /// The numbers of an out-of-memory message, where that is what happened.
    pub fn memory(&self) -> Option<&GpuMemory> {
        match &self.diagnosis.root.as_ref()?.finding.cause {
            FailureCause::GpuMemory(memory) => Some(memory),
            _ => None,
        }
    }

    /// The exceptions that logs end with, where nothing that is known explains the end.
    pub fn raised(&self) -> impl Iterator<Item = (&Source, &Raised)> {
        let sources = if self.diagnosis.root.is_none() { self.sources } else { &[] };
        sources.iter().filter_map(|source| Some((source, source.raised.as_ref()?)))
    }

    /// What the run would have had to hold in tensors to go on: what it held and what it asked for.
    pub fn needed_bytes(&self) -> Option<u64> {
        let memory = self.memory()?;
        Some(memory.allocated?.saturating_add(memory.requested?))
    }
}

/// The document.
#[derive(Serialize)]
pub struct DoctorView {
    version: u32,
    logs: usize,
    lines: u64,
    cause: Option<CauseView>,
    first_rank: Option<u32>,
    lines_after: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raised: Vec<RaisedView>,
    others: Vec<CauseView>,
    echoes: Vec<CauseView>,
    warnings: Vec<CauseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Value>,
}

#[derive(Serialize)]
struct CauseView {
    class: &'static str,
    title: &'static str,
    /// All that the numbers give as a reason.
    reasons: Vec<&'static str>,
    figures: Map<String, Value>,
    evidence: EvidenceView,
    advice: Vec<AdviceView>,
}

#[derive(Serialize)]
struct EvidenceView {
    log: String,
    /// 0 where it stands in no log.
    line: u64,
    rank: Option<u32>,
    count: u64,
    signature: &'static str,
    quoted: String,
}

/// The exception that a log ends with.
#[derive(Serialize)]
struct RaisedView {
    log: String,
    line: u64,
    quoted: String,
}

#[derive(Serialize)]
struct AdviceView {
    text: String,
    flag: Option<String>,
}

impl DoctorView {
    /// The document for `answer`.
    pub fn new(answer: &DoctorAnswer<'_>) -> Self {
        let diagnosis = &answer.diagnosis;
        let causes = |found: &[Located<'_>]| found.iter().map(cause_view).collect();
        Self {
            version: VERSION,
            logs: answer.sources.len(),
            lines: answer.sources.iter().map(|source| source.scan.lines).sum(),
            cause: diagnosis.root.as_ref().map(cause_view),
            first_rank: diagnosis.first_rank,
            lines_after: diagnosis.lines_after,
            raised: answer.raised().map(raised_view).collect(),
            others: causes(&diagnosis.others),
            echoes: causes(&diagnosis.echoes),
            warnings: causes(&diagnosis.warnings),
            job: answer.job.as_ref().map(|job| job_view(job, answer.needed_bytes())),
        }
    }
}

fn raised_view((source, raised): (&Source, &Raised)) -> RaisedView {
    RaisedView { log: printable(&source.name), line: raised.line, quoted: printable(&raised.text) }
}

fn job_view(job: &JobAnswer, needed: Option<u64>) -> Value {
    let base = &job.proposals.base.judgement;
    serde_json::json!({
        "predicted_peak_allocated_bytes": base.peak_allocated_bytes,
        "predicted_total_bytes": base.total_bytes,
        "needed_allocated_bytes": needed,
        "other_gpu_bytes": job.other_gpu,
        "plan": PlanView::new(&job.proposals, &job.with),
    })
}

fn cause_view(found: &Located<'_>) -> CauseView {
    let cause = &found.finding.cause;
    let class = cause.class();
    let reasons = match cause {
        FailureCause::GpuMemory(memory) => memory.reasons(),
        _ => vec![class],
    };
    let figure = |figure: Figure| match figure {
        Figure::Bytes(bytes) => bytes.into(),
        Figure::Number(number) => number.into(),
        Figure::Text(text) => printable(&text).into(),
    };
    let named = |(name, value): (&str, Figure)| match value {
        Figure::Bytes(_) => (format!("{name}_bytes"), figure(value)),
        _ => (name.to_owned(), figure(value)),
    };
    CauseView {
        class: class.name(),
        title: class.title(),
        reasons: reasons.into_iter().map(Class::name).collect(),
        figures: cause.figures().into_iter().map(named).collect(),
        evidence: EvidenceView {
            log: printable(&found.source.name),
            line: found.finding.line,
            rank: found.rank(),
            count: found.finding.count,
            signature: found.finding.signature,
            quoted: printable(&found.finding.text),
        },
        advice: advice(cause).into_iter().map(|advice| AdviceView { text: advice.text, flag: advice.flag }).collect(),
    }
}
