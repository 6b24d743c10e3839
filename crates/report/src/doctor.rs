//! [`DoctorView`]: what killed a job, as JSON.

use serde::Serialize;
use serde_json::{Map, Value};
use tonnage_core::failure::Class;
use tonnage_core::job::JobSpec;
use tonnage_core::plan::proposal::Proposals;
use tonnage_core::printable::printable;
use tonnage_doctor::{
    Context, Diagnosis, End, FailureCause, Figure, GpuMemory, Located, Place, Progress, Source, advise,
};

use crate::plan::PlanView;
use crate::view::VERSION;

/// What was found in the logs of a job.
pub struct DoctorAnswer<'a> {
    pub sources: &'a [Source],
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

    /// The exceptions of the program, each rank's own, the root's first.
    pub fn raised(&self) -> impl Iterator<Item = &Located<'_>> {
        let diagnosis = &self.diagnosis;
        let all = diagnosis.root.iter().chain(&diagnosis.others).chain(&diagnosis.echoes);
        all.filter(|found| {
            matches!(found.finding.cause, FailureCause::Raised(_)) && found.finding.class() == Class::Raised
        })
    }

    /// What advice must fit: the root's own phase.
    pub fn advice_context(&self) -> Context<'_> {
        Context { setting: &self.diagnosis.setting, phase: self.diagnosis.phase }
    }

    /// What the run would have had to hold in tensors to go on: what it held and what it asked for.
    pub fn needed_bytes(&self) -> Option<u64> {
        let memory = self.memory()?;
        Some(memory.allocated?.saturating_add(memory.requested?))
    }
}

#[derive(Serialize)]
pub struct DoctorView {
    version: u32,
    logs: usize,
    lines: u64,
    cause: Option<CauseView>,
    first_rank: Option<u32>,
    /// `restart`, `restart_elsewhere`, `change` or `stopped`; `null` where nothing was identified.
    verdict: Option<&'static str>,
    /// `load`, `step`, `save` or `eval`.
    phase: Option<&'static str>,
    step: Option<StepView>,
    /// The machine to leave out, or that is named.
    node: Option<String>,
    gpu: Option<String>,
    ranks: RanksView,
    lines_after: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raised: Vec<RaisedView>,
    /// Where no cause was found, what the logs themselves call an error last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    last_errors: Vec<LastErrorView>,
    others: Vec<CauseView>,
    echoes: Vec<CauseView>,
    warnings: Vec<CauseView>,
    /// What the job went on after.
    survived: Vec<CauseView>,
    /// What earlier attempts ended with.
    earlier_attempts: Vec<CauseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Value>,
}

#[derive(Serialize)]
struct StepView {
    step: u64,
    of: Option<u64>,
}

/// Ranks by how they ended.
#[derive(Serialize)]
struct RanksView {
    raised: Vec<u32>,
    waited: Vec<u32>,
    lost: Vec<u32>,
    torn_down: Vec<u32>,
    silent: Vec<u32>,
    /// Those whose collectives stopped earlier than others'.
    behind: Vec<u32>,
}

/// A place in the program.
#[derive(Serialize)]
struct PlaceView {
    file: String,
    line: u64,
    function: String,
}

#[derive(Serialize)]
struct CauseView {
    class: &'static str,
    title: &'static str,
    /// `cause`, `death`, `ending`, `echo` or `warning`.
    strength: &'static str,
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
    place: Option<PlaceView>,
    /// The lines just before.
    before: Vec<String>,
}

/// A closing line that calls itself an error, where no cause was found.
#[derive(Serialize)]
struct LastErrorView {
    log: String,
    line: u64,
    quoted: String,
}

/// The exception that a log ends with.
#[derive(Serialize)]
struct RaisedView {
    log: String,
    line: u64,
    rank: Option<u32>,
    quoted: String,
    place: Option<PlaceView>,
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
        let context = answer.advice_context();
        let causes = |found: &[Located<'_>]| found.iter().map(|found| cause_view(found, &context)).collect();
        Self {
            version: VERSION,
            logs: answer.sources.len(),
            lines: answer.sources.iter().map(|source| source.scan.lines).sum(),
            cause: diagnosis.root.as_ref().map(|root| cause_view(root, &context)),
            first_rank: diagnosis.first_rank,
            verdict: diagnosis.root.as_ref().map(|root| root.finding.class().verdict().name()),
            phase: diagnosis.phase.map(tonnage_doctor::Phase::name),
            step: diagnosis.step.map(|Progress { step, of, .. }| StepView { step, of }),
            node: diagnosis.node.as_deref().map(printable),
            gpu: diagnosis.gpu.as_deref().map(printable),
            ranks: ranks_view(diagnosis),
            lines_after: diagnosis.lines_after,
            raised: answer.raised().map(raised_view).collect(),
            last_errors: if diagnosis.root.is_some() { Vec::new() } else { last_errors(answer) },
            others: causes(&diagnosis.others),
            echoes: causes(&diagnosis.echoes),
            warnings: causes(&diagnosis.warnings),
            survived: causes(&diagnosis.survived),
            earlier_attempts: causes(&diagnosis.earlier),
            job: answer.job.as_ref().map(|job| job_view(job, answer.needed_bytes())),
        }
    }
}

/// What each log calls an error last.
fn last_errors(answer: &DoctorAnswer<'_>) -> Vec<LastErrorView> {
    let view = |source: &Source| {
        let error = source.scan.last_error.as_ref()?;
        Some(LastErrorView { log: printable(&source.name), line: error.line, quoted: printable(&error.text) })
    };
    answer.sources.iter().filter_map(view).collect()
}

fn raised_view(found: &Located<'_>) -> RaisedView {
    RaisedView {
        log: printable(&found.source.name),
        line: found.finding.line,
        rank: found.rank(),
        quoted: printable(&found.finding.text),
        place: found.finding.place().map(place_view),
    }
}

fn place_view(place: &Place) -> PlaceView {
    PlaceView { file: printable(&place.file), line: place.line, function: printable(&place.function) }
}

fn ranks_view(diagnosis: &Diagnosis<'_>) -> RanksView {
    let ranks = &diagnosis.ranks;
    RanksView {
        raised: ranks.with(End::Raised),
        waited: ranks.with(End::Waited),
        lost: ranks.with(End::Lost),
        torn_down: ranks.with(End::TornDown),
        silent: ranks.with(End::Silent),
        behind: ranks.behind.clone(),
    }
}

fn job_view(job: &JobAnswer, needed: Option<u64>) -> Value {
    let base = &job.proposals.base.verdict;
    serde_json::json!({
        "predicted_peak_allocated_bytes": base.peak_allocated_bytes,
        "predicted_total_bytes": base.total_bytes,
        "needed_allocated_bytes": needed,
        "other_gpu_bytes": job.other_gpu,
        "plan": PlanView::new(&job.proposals, &job.with),
    })
}

fn cause_view(found: &Located<'_>, context: &Context<'_>) -> CauseView {
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
        title: cause.title(),
        strength: found.finding.strength().name(),
        reasons: reasons.into_iter().map(Class::name).collect(),
        figures: cause.figures().into_iter().map(named).collect(),
        evidence: EvidenceView {
            log: printable(&found.source.name),
            line: found.finding.line,
            rank: found.rank(),
            count: found.finding.count,
            signature: found.finding.signature,
            quoted: printable(&found.finding.text),
            place: found.finding.place().map(place_view),
            before: found.finding.context.iter().map(|line| printable(line)).collect(),
        },
        advice: advise(cause, context)
            .into_iter()
            .map(|advice| AdviceView { text: advice.text, flag: advice.flag })
            .collect(),
    }
}
