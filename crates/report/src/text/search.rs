//! The ways to run a job over GPUs, their number and remedies, and the one that is chosen.

use tonnage_core::job::JobSpec;
use tonnage_core::plan::search::{Choice, Way, Wish};
use tonnage_core::units::{Bytes, Seconds};

use super::paint::{BOLD, DIM, WARN, fit, paint, wrap};
use super::table::{Align, Table, cell};
use super::{bill, patch};
use crate::answer::fit_words;
use crate::look::Look;

/// Ways that a screen shows; JSON and CSV have all.
const SHOWN: usize = 12;

/// The screen for `ways`, sorted; `with` is the job in the chosen way.
pub fn search(job: &JobSpec, ways: &[Way], choice: Choice, wish: &Wish, with: &JobSpec, look: &Look) -> String {
    let head = format!("{}: {} ways that were estimated", paint(BOLD, &job.model.name), ways.len());
    let mut text = format!("{}\n\n{}\n", wrap(&head, look.width, 0), table(ways, choice, look));
    text.push_str(&verdict(ways, choice, wish, look));
    if let Some(way) = chosen(ways, choice) {
        let changes = [vec![("gpu", way.gpu.id.clone())], way.spread.clone(), way.changes.clone()].concat();
        let judgement = &way.appraisal.judgement;
        let memory = format!(
            "{} of {} usable, {}",
            Bytes(judgement.total_bytes),
            Bytes(judgement.usable_bytes),
            paint(fit(judgement.fit), fit_words(judgement.fit))
        );
        text.push_str(&format!("  {}\n", wrap(&format!("memory {memory}"), look.width, 2)));
        if let Some(bill) = &way.appraisal.bill {
            text.push_str(&bill::lines(bill, look));
        }
        text.push_str(&patch::lines(with, &changes, look));
    }
    text
}

/// What was not estimated, and why.
pub fn left_out(reasons: &[String], look: &Look) -> String {
    let line =
        |reason: &String| format!("{} {}\n", paint(WARN, "!"), wrap(&format!("left out: {reason}"), look.width, 2));
    reasons.iter().map(line).collect()
}

fn chosen(ways: &[Way], choice: Choice) -> Option<&Way> {
    match choice {
        Choice::Best(at) | Choice::Nearest(at) | Choice::NoneFits(at) => ways.get(at),
        Choice::Nothing => None,
    }
}

fn table(ways: &[Way], choice: Choice, look: &Look) -> String {
    let columns = [
        ("", Align::Left),
        ("GPUs", Align::Left),
        ("total", Align::Right),
        ("verdict", Align::Left),
        ("time", Align::Right),
        ("price", Align::Right),
        ("with", Align::Left),
    ];
    if ways.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&columns).wrapped();
    let picked = match choice {
        Choice::Best(at) | Choice::Nearest(at) | Choice::NoneFits(at) => Some(at),
        Choice::Nothing => None,
    };
    // The first ones, and the chosen one wherever it stands.
    let shown = ways.iter().enumerate().filter(|(at, _)| *at < SHOWN || Some(*at) == picked);
    for (at, way) in shown {
        let judgement = &way.appraisal.judgement;
        let gpus = way.appraisal.bill.as_ref().map_or(1, |bill| bill.gpus);
        let remedies: Vec<&str> = way.remedies.iter().map(|remedy| remedy.name).collect();
        table.row(vec![
            if Some(at) == picked { cell(look.pick("▶", ">"), BOLD) } else { "".into() },
            format!("{gpus} x {}", way.gpu.id).into(),
            Bytes(judgement.total_bytes).to_string().into(),
            cell(fit_words(judgement.fit), fit(judgement.fit)),
            way.seconds().map_or("?".to_owned(), |seconds| Seconds(seconds).to_string()).into(),
            way.dollars().map_or("?".to_owned(), bill::dollars).into(),
            cell(remedies.join(" + "), DIM),
        ]);
    }
    let left = ways.len().saturating_sub(SHOWN);
    let more = if left > 0 {
        format!("  {}\n", paint(DIM, &format!("and {left} more (--json lists all)")))
    } else {
        String::new()
    };
    table.render(look) + &more
}

/// What was wished for, and whether it can be had.
fn verdict(ways: &[Way], choice: Choice, wish: &Wish, look: &Look) -> String {
    let limits: Vec<String> = [
        wish.dollars.map(|limit| format!("the budget of {}", bill::dollars(limit))),
        wish.seconds.map(|limit| format!("the deadline of {}", Seconds(limit))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let limits = if limits.is_empty() { "no limit".to_owned() } else { limits.join(" and ") };
    let line = match choice {
        Choice::Best(_) => format!("the cheapest way that fits, within {limits}:"),
        Choice::Nearest(at) => {
            let over = ways.get(at).and_then(|way| wish.excess(way));
            let over = over.map_or("its price is not known".to_owned(), |over| format!("{over:.1} times the limit"));
            paint(WARN, &format!("no way keeps {limits}; this one comes nearest, at {over}:"))
        }
        Choice::NoneFits(at) => {
            let lacks = ways.get(at).map_or(0, |way| {
                way.appraisal.judgement.total_bytes.saturating_sub(way.appraisal.judgement.usable_bytes)
            });
            paint(WARN, &format!("no way fits; this one lacks least, {}:", Bytes(lacks)))
        }
        Choice::Nothing => paint(WARN, "there is no way: the job can be put on none of these GPUs"),
    };
    format!("{}\n", wrap(&line, look.width, 0))
}
