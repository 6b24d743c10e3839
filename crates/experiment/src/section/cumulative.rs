//! Cumulative reward beside the published table, on the same scale or not at all.

use super::Context;
use crate::check::number_text;
use crate::document::{Block, Cell, Table};
use crate::experiment::{Configuration, Experiment};
use crate::record::Total;
use crate::run::Run;
use crate::statistics::mean;
use crate::swarm::split_of;

/// SAPO's table (arXiv 2509.08721): I, J and the cumulative reward: a sum over 8 agents and 2,000 rounds of the mean reward of
/// their completions, of one run each.
const SAPO: [(u64, u64, f64); 4] = [(8, 0, 561.79), (6, 2, 854.43), (4, 4, 1093.31), (2, 6, 945.87)];
const SAPO_AGENTS: usize = 8;
const SAPO_ROUNDS: usize = 2_000;

/// The cumulative reward of a run: over rounds, and over nodes where there are several.
fn cumulative_reward(run: &Run, metric: &str) -> Option<f64> {
    run.metric(metric).map(|series| series.sum() * run.nodes.max(1) as f64)
}

/// The reward that is added up: on-policy, where it is named so.
fn reward_metric(all: &Experiment) -> Option<&String> {
    let known = ["reward/on_policy", "my_reward", "reward", "train/reward", "mean_reward"];
    known.iter().find_map(|name| all.available.get_key_value(*name)).map(|(name, _)| name)
}

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let Some(metric) = reward_metric(context.all) else { return Vec::new() };
    let of = |one: &Configuration| {
        context.all.runs_of(one).filter_map(|run| cumulative_reward(run, metric)).collect::<Vec<f64>>()
    };
    let baseline = context.all.baseline().map(of).filter(|values| !values.is_empty()).map(|values| mean(&values));
    let refusal = refusal_reason(context.all, metric);
    let row = |one: &Configuration| {
        let values = of(one);
        let total = (!values.is_empty()).then(|| mean(&values));
        let gain = total.zip(baseline).filter(|(_, first)| *first > 0.0).map(|(total, first)| total / first - 1.0);
        let published = context
            .all
            .runs_of(one)
            .next()
            .and_then(split_of)
            .and_then(|(own, foreign)| SAPO.iter().find(|row| (row.0, row.1) == (own, foreign)));
        vec![
            one.name.as_str().into(),
            Cell::count(values.len()),
            Cell::maybe(total),
            Cell::percent(gain),
            published.map_or_else(|| "-".into(), |row| Cell { text: format!("{:.2}", row.2), value: Some(row.2) }),
            Cell::percent(published.map(|row| row.2 / SAPO[0].2 - 1.0)),
        ]
    };
    let rows: Vec<Vec<Cell>> = context.all.configurations.iter().take(super::MOST_ROWS).map(row).collect();
    let is_of_swarm = rows.iter().any(|row| row[4].value.is_some());
    let (columns, rows) = if is_of_swarm {
        (vec!["configuration", "n", "cumulative", "gain", "SAPO's paper", "its gain"], rows)
    } else {
        (
            vec!["configuration", "n", "cumulative", "gain"],
            rows.into_iter()
                .map(|mut row| {
                    row.truncate(4);
                    row
                })
                .collect(),
        )
    };
    let note = match (is_of_swarm, refusal) {
        (false, _) => "The sum over rounds, and over nodes.".to_owned(),
        (true, None) => "On the paper's scale: the sum over 8 agents and 2,000 rounds of the mean reward of a round's completions. The paper has one run of each.".to_owned(),
        (true, Some(why)) => format!("NOT comparable with the paper's column: {why}"),
    };
    let title = format!("Cumulative `{metric}`");
    vec![
        Block::Heading("Cumulative reward".to_owned()),
        Block::Table(Table { name: "cumulative", title, columns, rows, note, is_long: false }),
    ]
}

/// Why the sums are not on the paper's scale.
fn refusal_reason(all: &Experiment, metric: &str) -> Option<String> {
    let mut reasons = Vec::new();
    let scales: Vec<Option<Total>> = all.runs.iter().map(|run| run.identity.reward.of_completions).collect();
    if scales.contains(&Some(Total::Sum)) {
        let completions = all.runs.iter().find_map(|run| run.identity.reward.completions);
        let of = completions.map_or_else(String::new, |count| format!(" ({count} of them here)"));
        reasons.push(format!("these are sums over a round's completions{of}, the paper's are means of them"));
    } else if scales.contains(&None) {
        reasons.push("it is not known whether these are sums or means over a round's completions; --reward sum or --reward mean says it".to_owned());
    }
    let agents: Vec<usize> = all.runs.iter().map(|run| run.nodes).collect();
    if agents.iter().any(|count| *count != SAPO_AGENTS) {
        reasons.push(format!("these are sums over {} agents, the paper's over {SAPO_AGENTS}", counts_spread(&agents)));
    }
    let rounds: Vec<usize> =
        all.runs.iter().filter_map(|run| run.metric(metric)).map(crate::series::Series::count).collect();
    if rounds.iter().any(|count| *count != SAPO_ROUNDS) {
        reasons.push(format!("these are sums over {} rounds, the paper's over {SAPO_ROUNDS}", counts_spread(&rounds)));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn counts_spread(counts: &[usize]) -> String {
    match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if least != most => {
            format!("{} to {}", number_text(*least as f64), number_text(*most as f64))
        }
        (Some(one), _) => one.to_string(),
        _ => "no".to_owned(),
    }
}
