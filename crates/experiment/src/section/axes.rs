//! The same comparison on every axis side by side: a claim holds on the axis that it is made on.

use super::Context;
use super::claims::{budget_text, verdict_text};
use crate::axis::AXES;
use crate::document::{Block, Cell, Table};

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    if context.all.others().is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for (axis, comparisons) in context.comparisons {
        let limit = context.all.budget(*axis).map_or_else(String::new, |limit| budget_text(*axis, limit));
        for row in comparisons.iter().take(super::MOST_ROWS) {
            rows.push(vec![
                axis.words().into(),
                limit.as_str().into(),
                row.configuration.as_str().into(),
                Cell::with_interval(row.difference, row.test.map(|test| test.interval)),
                Cell::p(row.holm_p),
                verdict_text(row).into(),
            ]);
        }
    }
    let missing: Vec<&str> = AXES.iter().filter(|row| !context.all.axes.contains(&row.0)).map(|row| row.2).collect();
    let note = if missing.is_empty() {
        "All four axes are known of all runs.".to_owned()
    } else {
        format!("Not compared by {}, because not every run says it: nothing is known there.", missing.join(", "))
    };
    let table = Table {
        name: "axes",
        title:
            "The same difference by steps, by tokens and by GPU-hours, each within what all configurations were given"
                .to_owned(),
        columns: vec!["by", "budget", "configuration", "difference [95 %]", "p (Holm)", "verdict"],
        rows,
        note,
        is_long: false,
    };
    vec![Block::Heading("Fair comparison".to_owned()), Block::Table(table)]
}
