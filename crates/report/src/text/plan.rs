//! What can be done about a job: each remedy with what it saves and costs, and the combination that fits.

use tonnage_core::job::JobSpec;
use tonnage_core::plan::appraisal::Appraisal;
use tonnage_core::plan::proposal::{Combination, OtherGpu, Proposal, Proposals};
use tonnage_core::plan::remedy::{Declined, Results};
use tonnage_core::units::Bytes;

use super::bill;
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::patch;
use super::table::{Align, Table, styled_cell};
use crate::answer::fit_words;
use crate::look::Look;

/// The screen for `proposals`; `with` is the job with the combination.
pub fn plan_screen(job: &JobSpec, proposals: &Proposals, with: &JobSpec, look: &Look) -> String {
    let mut text = plan_head(job, &proposals.base, look);
    text.push_str(&proposal_table(&proposals.alone, look));
    if let Some(together) = &proposals.together {
        text.push_str(&combination_lines(together, with, look));
    }
    if let Some(other) = &proposals.other_gpu {
        text.push_str(&other_gpu_line(other, look));
    }
    text.push_str(&declined_lines(proposals, look));
    text
}

/// The GPU on which nothing need be changed.
fn other_gpu_line(other: &OtherGpu, look: &Look) -> String {
    let verdict = &other.appraisal.verdict;
    let paid = other.appraisal.bill.as_ref().and_then(|bill| bill.costs.dollars);
    let paid = paid.map_or_else(String::new, |paid| format!(", {}", bill::dollars_text(paid.typical)));
    let line = format!(
        "or another GPU, the cheapest on which it fits as it is: --gpu {}: {} of {} usable, {}, time x{:.2}{paid}",
        other.gpu.id,
        Bytes(verdict.total_bytes),
        Bytes(verdict.usable_bytes),
        paint_text(fit_style(verdict.fit), fit_words(verdict.fit)),
        other.slowdown.factor.typical,
    );
    format!("{}\n\n", wrap_text(&line, look.width, 2))
}

/// The job as it is, in bytes, hours and dollars.
pub(super) fn plan_head(job: &JobSpec, base: &Appraisal, look: &Look) -> String {
    let verdict = &base.verdict;
    let what = format!(
        "{} on {}: {} of {} usable, {}",
        paint_text(BOLD, &job.model.name),
        job.gpu.name,
        Bytes(verdict.total_bytes),
        Bytes(verdict.usable_bytes),
        paint_text(fit_style(verdict.fit), fit_words(verdict.fit)),
    );
    let mut text = format!("{}\n", wrap_text(&what, look.width, 0));
    match &base.bill {
        Some(bill) => text.push_str(&bill::bill_lines(bill, look)),
        None => {
            let missing = "no time: the rates of this GPU are not known; give them with --gpu-file, or --step-time";
            let wrapped = wrap_text(missing, look.width.saturating_sub(2), 2);
            text.push_str(&format!("  {}\n", paint_text(DIM, &wrapped)));
        }
    }
    text + "\n"
}

fn proposal_table(proposals: &[Proposal], look: &Look) -> String {
    if proposals.is_empty() {
        return "nothing known would lower it\n\n".to_owned();
    }
    let columns = [
        ("remedy alone", Align::Left),
        ("saves", Align::Right),
        ("total", Align::Right),
        ("verdict", Align::Left),
        ("time", Align::Right),
        ("results", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for Proposal { remedy, appraisal, slowdown, saves_bytes, .. } in proposals {
        let verdict = &appraisal.verdict;
        table.row(vec![
            remedy.name.into(),
            styled_cell(Bytes(*saves_bytes).to_string(), BOLD),
            Bytes(verdict.total_bytes).to_string().into(),
            styled_cell(fit_words(verdict.fit), fit_style(verdict.fit)),
            format!("x{:.2}", slowdown.factor.typical).into(),
            results_words(remedy.results).into(),
        ]);
    }
    let rendered = table.render(look);
    let mut lines = rendered.lines();
    let mut text = lines.next().map_or_else(String::new, |head| format!("{head}\n"));
    for (line, proposal) in lines.zip(proposals) {
        text.push_str(&format!("{line}\n{}", about_proposal(proposal, look)));
    }
    text + "\n"
}

const fn results_words(results: Results) -> &'static str {
    match results {
        Results::Same => "same",
        Results::Rounding => "rounding",
        Results::Changed => "others",
    }
}

/// What the factor on the time rests on, and what it leaves out.
fn about_proposal(proposal: &Proposal, look: &Look) -> String {
    let caution = proposal.remedy.caution;
    let caution = if caution.is_empty() { String::new() } else { format!("; {caution}") };
    let text = format!("{}{caution}", proposal.slowdown.basis);
    format!("    {}\n", paint_text(DIM, &wrap_text(&text, look.width.saturating_sub(4), 0).replace('\n', "\n    ")))
}

/// The remedies together, as lines of a job file and in the words of the framework.
fn combination_lines(together: &Combination, with: &JobSpec, look: &Look) -> String {
    let names: Vec<&str> = together.remedies.iter().map(|remedy| remedy.name).collect();
    let verdict = &together.appraisal.verdict;
    let paid = together.appraisal.bill.as_ref().and_then(|bill| bill.costs.dollars);
    let paid = paid.map_or_else(String::new, |paid| format!(", {}", bill::dollars_text(paid.typical)));
    let head = format!(
        "together {}: {}, {}, time x{:.2}{paid}, {}",
        names.join(" + "),
        Bytes(verdict.total_bytes),
        paint_text(fit_style(verdict.fit), fit_words(verdict.fit)),
        together.slowdown.factor.typical,
        together.results().words(),
    );
    format!("{}\n{}\n", wrap_text(&head, look.width, 2), patch::patch_lines(with, &together.changes, look))
}

/// What was tried in vain, with the reason; what was not tried, and what the job has nothing to do with, by name.
fn declined_lines(proposals: &Proposals, look: &Look) -> String {
    let line = |line: &str| format!("{}\n", paint_text(DIM, &wrap_text(line, look.width, 2)));
    let names = |of: &dyn Fn(&Declined) -> bool| {
        let declined = proposals.declined.iter().filter(|(_, why)| of(why));
        declined.map(|(remedy, _)| remedy.name).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    for (remedy, why) in proposals.declined.iter().filter(|(_, why)| why.is_of_interest()) {
        if *why != Declined::NotTried {
            text.push_str(&line(&format!("{}: {}", remedy.name, why.reason())));
        }
    }
    let warning = |line: &str| format!("{} {}\n", paint_text(WARN, "!"), wrap_text(line, look.width, 2));
    let untried = names(&|why| *why == Declined::NotTried);
    if !untried.is_empty() {
        text.push_str(&warning(&format!("{}: {untried}", Declined::NotTried.reason())));
    } else if proposals.cut_short {
        text.push_str(&warning("not all remedies were tried together: the plan has simulated as much as it may"));
    }
    if !proposals.untried_gpus.is_empty() {
        let ids: Vec<&str> = proposals.untried_gpus.iter().map(|gpu| gpu.id.as_str()).collect();
        text.push_str(&warning(&format!("other GPUs that were not tried: {}; --gpus NAME tries one", ids.join(", "))));
    }
    let others = names(&|why| !why.is_of_interest());
    if !others.is_empty() {
        text.push_str(&line(&format!("not for this job (--json says why): {others}")));
    }
    text
}
