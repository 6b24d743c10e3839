//! What was asked, what the checks found, and what may be said: the top of the report.

use super::{Context, counted_words};
use crate::axis::Axis;
use crate::check::number_text;
use crate::compare::{Comparison, Verdict};
use crate::document::Block;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(question_asked(context)), Block::Heading("Signal checks".to_owned())];
    blocks.push(Block::Flags(context.flags.to_vec()));
    if context.all.others().is_empty() {
        return blocks;
    }
    blocks.push(Block::Heading("What may be said".to_owned()));
    blocks.push(Block::List(
        context.all.others().iter().map(|other| claim_text(context, &other.name)).take(super::MOST_ROWS).collect(),
    ));
    blocks
}

fn question_asked(context: &Context<'_>) -> String {
    let all = context.all;
    let baseline = all.baseline().map_or("", |one| one.name.as_str());
    let better = if all.lower_is_better { "less is better" } else { "more is better" };
    let nodes = if all.nodes.is_empty() {
        String::new()
    } else {
        format!(" (put together from {})", counted_words(all.nodes.len(), "node"))
    };
    let of = format!(
        "{}{nodes} of {}",
        counted_words(all.runs.len(), "run"),
        counted_words(all.configurations.len(), "configuration")
    );
    let tasks =
        if all.metrics.len() > 1 { format!(", the mean of {} tasks", all.metrics.len()) } else { String::new() };
    let mut text = format!("{of}. Asked about: `{}` ({}; {better}{tasks}).", all.metric, all.kind().words());
    if !all.others().is_empty() {
        let pairs = if all.is_paired {
            "Runs of one seed are compared as pairs."
        } else if shares_seeds(context) {
            "Runs are compared as independent; if runs of one seed see the same data in the same order, --paired compares them as pairs."
        } else {
            "Runs are compared as independent."
        };
        text.push_str(&format!(" Compared with `{baseline}`. {pairs}"));
    }
    let others: Vec<&str> =
        all.available.keys().filter(|name| !all.metrics.contains(name)).map(String::as_str).take(12).collect();
    if !others.is_empty() {
        text.push_str(&format!(" Other metrics (--metric): {}.", others.join(", ")));
    }
    text
}

fn shares_seeds(context: &Context<'_>) -> bool {
    let seeds = |index: usize| {
        let one = context.all.configurations.get(index)?;
        Some(
            context
                .all
                .runs_of(one)
                .filter(|run| run.seed_is_known)
                .filter_map(|run| run.identity.seed)
                .collect::<Vec<u64>>(),
        )
    };
    seeds(0).zip(seeds(1)).is_some_and(|(a, b)| a.iter().any(|seed| b.contains(seed)))
}

/// What may be said of a configuration, and on which axes.
fn claim_text(context: &Context<'_>, name: &str) -> String {
    let rows: Vec<&Comparison> =
        context.comparisons.iter().flat_map(|(_, rows)| rows.iter().filter(|row| row.configuration == name)).collect();
    let baseline = context.all.baseline().map_or("", |one| one.name.as_str());
    let Some(first) = rows.first() else { return format!("{name}: no run has the metric. No conclusion.") };
    let parts: Vec<String> = rows.iter().map(|row| by_axis(context, row)).collect();
    let mut text = format!("{name} against {baseline}: {}.", parts.join("; "));
    if let Some(least) = first.permutation.filter(|test| test.is_exact).map(|test| test.least_p) {
        text.push_str(&format!(" The smallest p that {} allow is {}.", sizes_text(first), number_text(least)));
    }
    if rows.iter().any(|row| row.verdict == Verdict::HoldsIfNormal) {
        text.push_str(" Whether they scatter normally so few cannot show.");
    }
    if matches!(first.verdict, Verdict::NoConclusion(_)) {
        text.push_str(&needed_text(first));
    }
    text
}

fn sizes_text(row: &Comparison) -> String {
    if row.is_paired { counted_words(row.n.0, "pair") } else { format!("{} against {} runs", row.n.0, row.n.1) }
}

fn needed_text(row: &Comparison) -> String {
    let what = if row.is_paired { "pairs" } else { "seeds of each" };
    match (row.seeds_needed, row.hedges_g) {
        (Some(count), _) if count > row.n.0.min(row.n.1) => {
            format!(
                " A gap of this size would be seen, four times of five, with {count} {what}, {} more.",
                count - row.n.0.min(row.n.1)
            )
        }
        (Some(_), _) | (None, None) => String::new(),
        (None, Some(_)) => " A gap of this size would need more than 10,000 seeds.".to_owned(),
    }
}

fn by_axis(context: &Context<'_>, row: &Comparison) -> String {
    let gain = context.all.gain(row.difference);
    let (word, size) = if gain >= 0.0 { ("better", gain) } else { ("worse", -gain) };
    let interval = row.test.map(|test| {
        // Limits in the direction of the word: of what is worse, how much worse.
        let limits = test.interval.map(|limit| context.all.gain(limit) * if gain >= 0.0 { 1.0 } else { -1.0 });
        format!(
            " (95 % interval {} to {})",
            number_text(limits[0].min(limits[1])),
            number_text(limits[0].max(limits[1]))
        )
    });
    let figures = format!("{word} by {}{}", number_text(size), interval.unwrap_or_default());
    let by = format!("by {}", row.axis.words());
    match &row.verdict {
        Verdict::Holds => format!("{by} it is {figures}: this holds"),
        Verdict::HoldsIfNormal => {
            format!("{by} it is {figures}: this holds if runs scatter normally")
        }
        Verdict::NoConclusion(why) => format!("{by} no conclusion ({why}); seen: {figures}"),
    }
}

/// The axes on which a row was compared, for tables.
pub(super) fn verdict_text(row: &Comparison) -> String {
    match &row.verdict {
        Verdict::Holds => "holds".to_owned(),
        Verdict::HoldsIfNormal => "holds if normal".to_owned(),
        Verdict::NoConclusion(why) => format!("no conclusion: {why}"),
    }
}

/// A budget in the words of its axis.
pub(super) fn budget_text(axis: Axis, budget: f64) -> String {
    match axis {
        Axis::Steps => format!("up to step {}", number_text(budget)),
        other => format!("within {} {}", number_text(budget), other.words()),
    }
}
