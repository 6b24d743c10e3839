//! [`PlanView`] and [`SearchView`]: what can be done about a job, as JSON.

use serde::Serialize;
use serde_json::{Map, Value};
use tonnage_core::job::{JobSpec, Key, Kind};
use tonnage_core::plan::appraisal::{Appraisal, Slowdown};
use tonnage_core::plan::proposal::{Combination, Proposal, Proposals};
use tonnage_core::plan::remedy::Change;
use tonnage_core::plan::search::{Candidate, Choice, SearchLimits};
use tonnage_core::plan::time::Range;

use crate::answer::fit_name;
use crate::bill::BillView;
use crate::view::VERSION;

/// The document for remedies.
#[derive(Serialize)]
pub struct PlanView<'a> {
    version: u32,
    base: AppraisalView<'a>,
    remedies: Vec<RemedyView<'a>>,
    together: Option<TogetherView<'a>>,
    other_gpu: Option<OtherGpuView<'a>>,
    cut_short: bool,
    untried_gpus: Vec<&'a str>,
    declined: Vec<DeclinedView<'a>>,
}

#[derive(Serialize)]
struct OtherGpuView<'a> {
    gpu: &'a str,
    slowdown: f64,
    slowdown_range: Range,
    #[serde(flatten)]
    appraisal: AppraisalView<'a>,
}

/// The document for ways within a budget and a deadline.
#[derive(Serialize)]
pub struct SearchView<'a> {
    version: u32,
    budget_dollars: Option<f64>,
    deadline_seconds: Option<f64>,
    choice: &'static str,
    chosen: Option<usize>,
    #[serde(rename = "ways")]
    candidates: Vec<CandidateView<'a>>,
    left_out: &'a [String],
    patch: Option<PatchView>,
}

#[derive(Serialize)]
struct AppraisalView<'a> {
    verdict: &'static str,
    total_bytes: u64,
    usable_bytes: u64,
    cost: Option<BillView<'a>>,
}

#[derive(Serialize)]
struct RemedyView<'a> {
    name: &'a str,
    text: &'a str,
    results: &'static str,
    slowdown: f64,
    slowdown_range: Range,
    basis: &'a str,
    caution: Option<&'a str>,
    saves_bytes: u64,
    changes: Map<String, Value>,
    #[serde(flatten)]
    appraisal: AppraisalView<'a>,
}

#[derive(Serialize)]
struct TogetherView<'a> {
    remedies: Vec<&'a str>,
    results: &'static str,
    slowdown: f64,
    slowdown_range: Range,
    basis: &'a str,
    changes: Map<String, Value>,
    patch: PatchView,
    #[serde(flatten)]
    appraisal: AppraisalView<'a>,
}

#[derive(Serialize)]
struct DeclinedView<'a> {
    name: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct CandidateView<'a> {
    gpu: &'a str,
    remedies: Vec<&'a str>,
    results: &'static str,
    changes: Map<String, Value>,
    #[serde(flatten)]
    appraisal: AppraisalView<'a>,
}

#[derive(Serialize)]
struct PatchView {
    framework: &'static str,
    command: String,
    lines: Vec<LineView>,
}

#[derive(Serialize)]
struct LineView {
    place: &'static str,
    text: String,
}

impl<'a> PlanView<'a> {
    /// The document for `proposals`; `with` is the job with the combination.
    pub fn new(proposals: &'a Proposals, with: &JobSpec) -> Self {
        let declined = |(remedy, why): &'a (_, tonnage_core::plan::remedy::Declined)| -> DeclinedView<'a> {
            let remedy: &&tonnage_core::plan::remedy::Remedy = remedy;
            DeclinedView { name: remedy.name, reason: why.reason() }
        };
        Self {
            version: VERSION,
            base: AppraisalView::new(&proposals.base),
            remedies: proposals.alone.iter().map(RemedyView::new).collect(),
            together: proposals.together.as_ref().map(|together| TogetherView::new(together, with)),
            other_gpu: proposals.other_gpu.as_ref().map(|other| OtherGpuView {
                gpu: &other.gpu.id,
                slowdown: other.slowdown.factor.typical,
                slowdown_range: other.slowdown.factor,
                appraisal: AppraisalView::new(&other.appraisal),
            }),
            cut_short: proposals.cut_short,
            untried_gpus: proposals.untried_gpus.iter().map(|gpu| gpu.id.as_str()).collect(),
            declined: proposals.declined.iter().map(declined).collect(),
        }
    }
}

impl<'a> SearchView<'a> {
    /// The document for `ways`, sorted; `with` is the job in the chosen way.
    pub fn new(
        candidates: &'a [Candidate],
        choice: Choice,
        limits: &SearchLimits,
        with: &JobSpec,
        left_out: &'a [String],
    ) -> Self {
        let chosen = choice.place();
        let name = match choice {
            Choice::Best(_) => "best",
            Choice::Nearest(_) => "nearest",
            Choice::NotKnown(_) => "not_known",
            Choice::NoneFits(_) => "none_fits",
            Choice::Nothing => "nothing",
        };
        let patch = chosen.and_then(|at| candidates.get(at)).map(|candidate| {
            let changes = [candidate.spread.clone(), candidate.changes.clone()].concat();
            PatchView::new(with, &changes)
        });
        Self {
            version: VERSION,
            budget_dollars: limits.dollars,
            deadline_seconds: limits.seconds,
            choice: name,
            chosen,
            candidates: candidates.iter().map(CandidateView::new).collect(),
            left_out,
            patch,
        }
    }
}

impl<'a> AppraisalView<'a> {
    fn new(appraisal: &'a Appraisal) -> Self {
        let verdict = &appraisal.verdict;
        Self {
            verdict: fit_name(verdict.fit),
            total_bytes: verdict.total_bytes,
            usable_bytes: verdict.usable_bytes,
            cost: appraisal.bill.as_ref().map(BillView::new),
        }
    }
}

impl<'a> RemedyView<'a> {
    fn new(proposal: &'a Proposal) -> Self {
        let Slowdown { factor, basis, .. } = &proposal.slowdown;
        Self {
            name: proposal.remedy.name,
            text: proposal.remedy.text,
            results: proposal.remedy.results.words(),
            slowdown: factor.typical,
            slowdown_range: *factor,
            basis,
            caution: Some(proposal.remedy.caution).filter(|caution| !caution.is_empty()),
            saves_bytes: proposal.saves_bytes,
            changes: changes_object(&proposal.changes),
            appraisal: AppraisalView::new(&proposal.appraisal),
        }
    }
}

impl<'a> TogetherView<'a> {
    fn new(together: &'a Combination, with: &JobSpec) -> Self {
        Self {
            remedies: together.remedies.iter().map(|remedy| remedy.name).collect(),
            results: together.results().words(),
            slowdown: together.slowdown.factor.typical,
            slowdown_range: together.slowdown.factor,
            basis: &together.slowdown.basis,
            changes: changes_object(&together.changes),
            patch: PatchView::new(with, &together.changes),
            appraisal: AppraisalView::new(&together.appraisal),
        }
    }
}

impl<'a> CandidateView<'a> {
    fn new(candidate: &'a Candidate) -> Self {
        let changes = [candidate.spread.as_slice(), candidate.changes.as_slice()].concat();
        Self {
            gpu: &candidate.gpu.id,
            remedies: candidate.remedies.iter().map(|remedy| remedy.name).collect(),
            results: candidate.results().words(),
            changes: changes_object(&changes),
            appraisal: AppraisalView::new(&candidate.appraisal),
        }
    }
}

impl PatchView {
    fn new(job: &JobSpec, changes: &[Change]) -> Self {
        let framework = job.framework;
        let patch = framework.patch(job, changes);
        let line =
            |line: &tonnage_core::plan::framework::Line| LineView { place: line.place(), text: line.text().to_owned() };
        Self {
            framework: framework.name(),
            command: patch.command(framework),
            lines: patch.lines.iter().map(line).collect(),
        }
    }
}

/// Keys and values as a job file has them.
fn changes_object(changes: &[Change]) -> Map<String, Value> {
    let value = |key: &str, value: &str| match Key::find(key).map(|key| key.kind) {
        Some(Kind::Size { .. } | Kind::Number { .. } | Kind::Switch) => {
            serde_json::from_str(value).unwrap_or_else(|_| value.into())
        }
        _ => value.into(),
    };
    changes.iter().map(|(key, text)| ((*key).to_owned(), value(key, text))).collect()
}
