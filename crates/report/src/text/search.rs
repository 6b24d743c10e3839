//! The ways to run a job over GPUs, their number and remedies, and the one that is chosen.

use tonnage_core::job::{JobSpec, keys};
use tonnage_core::plan::search::{Candidate, Choice, SearchLimits};
use tonnage_core::units::{Bytes, Seconds};

use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use super::{bill, patch};
use crate::answer::fit_words;
use crate::look::Look;

/// Ways that a screen shows; JSON and CSV have all.
const SHOWN: usize = 12;

/// The screen for `ways`, sorted; `with` is the job in the chosen way.
pub fn search_screen(
    job: &JobSpec,
    candidates: &[Candidate],
    choice: Choice,
    limits: &SearchLimits,
    with: &JobSpec,
    look: &Look,
) -> String {
    let head = format!("{}: {} ways that were estimated", paint_text(BOLD, &job.model.name), candidates.len());
    let mut text = format!("{}\n\n{}\n", wrap_text(&head, look.width, 0), candidate_table(candidates, choice, look));
    text.push_str(&choice_words(candidates, choice, limits, look));
    if let Some(candidate) = chosen_candidate(candidates, choice) {
        let changes =
            [vec![(keys::GPU, candidate.gpu.id.clone())], candidate.spread.clone(), candidate.changes.clone()].concat();
        let verdict = &candidate.appraisal.verdict;
        let memory = format!(
            "{} of {} usable, {}",
            Bytes(verdict.total_bytes),
            Bytes(verdict.usable_bytes),
            paint_text(fit_style(verdict.fit), fit_words(verdict.fit))
        );
        text.push_str(&format!("  {}\n", wrap_text(&format!("memory {memory}"), look.width, 2)));
        if let Some(bill) = &candidate.appraisal.bill {
            text.push_str(&bill::bill_lines(bill, look));
        }
        text.push_str(&patch::patch_lines(with, &changes, look));
    }
    text
}

/// What was not estimated, and why.
pub fn left_out(reasons: &[String], look: &Look) -> String {
    let line = |reason: &String| {
        format!("{} {}\n", paint_text(WARN, "!"), wrap_text(&format!("left out: {reason}"), look.width, 2))
    };
    reasons.iter().map(line).collect()
}

fn chosen_candidate(candidates: &[Candidate], choice: Choice) -> Option<&Candidate> {
    candidates.get(choice.place()?)
}

fn candidate_table(candidates: &[Candidate], choice: Choice, look: &Look) -> String {
    let columns = [
        ("", Align::Left),
        ("GPUs", Align::Left),
        ("total", Align::Right),
        ("verdict", Align::Left),
        ("time", Align::Right),
        ("price", Align::Right),
        ("with", Align::Left),
    ];
    if candidates.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&columns).wrapped();
    let picked = choice.place();
    // The first ones, and the chosen one wherever it stands.
    let shown = candidates.iter().enumerate().filter(|(at, _)| *at < SHOWN || Some(*at) == picked);
    for (at, candidate) in shown {
        let verdict = &candidate.appraisal.verdict;
        let gpus = candidate.appraisal.bill.as_ref().map_or(1, |bill| bill.gpus);
        let remedies: Vec<&str> = candidate.remedies.iter().map(|remedy| remedy.name).collect();
        table.row(vec![
            if Some(at) == picked { styled_cell(look.pick("▶", ">"), BOLD) } else { "".into() },
            format!("{gpus} x {}", candidate.gpu.id).into(),
            Bytes(verdict.total_bytes).to_string().into(),
            styled_cell(fit_words(verdict.fit), fit_style(verdict.fit)),
            candidate.seconds().map_or("?".to_owned(), |seconds| Seconds(seconds).to_string()).into(),
            candidate.dollars().map_or("?".to_owned(), bill::dollars_text).into(),
            styled_cell(remedies.join(" + "), DIM),
        ]);
    }
    let left = candidates.len().saturating_sub(SHOWN);
    let more = if left > 0 {
        format!("  {}\n", paint_text(DIM, &format!("and {left} more (--json lists all)")))
    } else {
        String::new()
    };
    table.render(look) + &more
}

/// The limits that were set, and whether they can be kept.
fn choice_words(candidates: &[Candidate], choice: Choice, limits: &SearchLimits, look: &Look) -> String {
    let named: Vec<String> = [
        limits.dollars.map(|limit| format!("the budget of {}", bill::dollars_text(limit))),
        limits.seconds.map(|limit| format!("the deadline of {}", Seconds(limit))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let named = if named.is_empty() { "no limit".to_owned() } else { named.join(" and ") };
    let line = match choice {
        Choice::Best(_) => format!("the cheapest way that fits, within {named}:"),
        Choice::Nearest(at) => {
            let over = candidates.get(at).and_then(|candidate| limits.excess(candidate));
            let over = over.map_or("its price is not known".to_owned(), |over| format!("{over:.1} times the limit"));
            paint_text(WARN, &format!("no way keeps {named}; this one comes nearest, at {over}:"))
        }
        Choice::NotKnown(_) => {
            let why = "of no way it is known that it fits: what is left out or unchecked has no bound (`tonnage estimate` \
                       says what); the cheapest that may:";
            paint_text(WARN, why)
        }
        Choice::NoneFits(at) => {
            let lacks = candidates.get(at).map_or(0, |candidate| {
                candidate.appraisal.verdict.total_bytes.saturating_sub(candidate.appraisal.verdict.usable_bytes)
            });
            paint_text(WARN, &format!("no way fits; this one lacks least, {}:", Bytes(lacks)))
        }
        Choice::Nothing => paint_text(WARN, "there is no way: the job can be put on none of these GPUs"),
    };
    format!("{}\n", wrap_text(&line, look.width, 0))
}
