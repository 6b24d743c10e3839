//! Where every number comes from: runs with their files and lines, what could not be read, and how the report is made again.

use std::collections::BTreeMap;
use tonnage_core::small_sort::SmallSort;

use super::{Context, counted_words};
use crate::check::number_text;
use crate::document::{Block, Cell, Table};
use crate::run::Run;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading("Where this comes from".to_owned()),
        Block::Table(runs_table(context)),
        Block::List(facts_lines(context)),
    ];
    if !context.not_read.is_empty() {
        blocks.push(Block::Table(not_read(context)));
    }
    let files: Vec<&String> = context.all.runs.iter().filter_map(|run| run.identity.suite_file.as_ref()).collect();
    if let Some(file) = files.first() {
        blocks.push(Block::Text("The suite's file:".to_owned()));
        blocks.push(Block::Verbatim((*file).clone()));
    }
    blocks
}

fn runs_table(context: &Context<'_>) -> Table {
    let (axis, budget) = (context.axis(), context.budget());
    let row = |run: &Run| {
        let series = run.metric(&context.all.metrics[0]);
        let score = context.all.score(run, &context.all.metrics[0], axis, budget);
        let lines = series.map_or_else(String::new, |series| format!(":{}-{}", series.lines.0, series.lines.1));
        let file = run.files.first().map_or_else(String::new, |file| format!("{file}{lines}"));
        let more = if run.files.len() > 1 {
            format!(" and {}", counted_words(run.files.len() - 1, "more file"))
        } else {
            String::new()
        };
        vec![
            run.identity.configuration.as_str().into(),
            run.identity
                .seed
                .map_or_else(|| "-".into(), |seed| Cell { text: seed.to_string(), value: Some(seed as f64) }),
            Cell::maybe(score.map(|score| score.last)),
            Cell::maybe(score.map(|score| score.best)),
            series.map_or_else(|| "-".into(), |series| Cell::count(series.count())),
            Cell::maybe(series.and_then(|series| series.last_point()).map(|last| last.0)),
            run.end.as_ref().map_or("-", |end| end.outcome.as_str()).into(),
            format!("{file}{more}").into(),
            run.notes.join("; ").into(),
        ]
    };
    Table {
        name: "runs",
        title: "Runs".to_owned(),
        columns: vec!["configuration", "seed", "final", "best", "points", "last step", "ended", "file:lines", "notes"],
        rows: context.all.configurations.iter().flat_map(|one| context.all.runs_of(one)).map(row).collect(),
        note: "Final and best are of the metric asked about, within the common budget.".to_owned(),
        is_long: true,
    }
}

fn facts_lines(context: &Context<'_>) -> Vec<String> {
    let mut readers: BTreeMap<&str, usize> = BTreeMap::new();
    context.read.iter().for_each(|(_, reader)| *readers.entry(reader).or_default() += 1);
    let read: Vec<String> = readers
        .into_iter()
        .map(|(reader, count)| format!("{} by the reader of {reader}", counted_words(count, "file")))
        .collect();
    let mut facts = vec![format!("Read: {}.", read.join(", "))];
    if !context.others.is_empty() {
        let some: Vec<&str> = context.others.iter().take(5).map(String::as_str).collect();
        facts.push(format!(
            "{} of other kinds, which no reader takes: {}{}.",
            counted_words(context.others.len(), "file"),
            some.join(", "),
            if context.others.len() > 5 { ", ..." } else { "" }
        ));
    }
    if context.thinned > 0 {
        facts.push(format!(
            "{} series were thinned to 256 points, extremes kept, to bound memory; sums are of all points.",
            context.thinned
        ));
    }
    let distinct = |of: &dyn Fn(&Run) -> Option<String>| {
        let mut values: Vec<String> = context.all.runs.iter().filter_map(of).collect();
        values.small_sort();
        values.dedup();
        values
    };
    let versions = distinct(&|run| {
        let of: Vec<String> = run.identity.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        (!of.is_empty()).then(|| of.join(", "))
    });
    let seeds: Vec<String> = distinct(&|run| run.identity.seed.map(|seed| format!("{seed:>20}")))
        .iter()
        .map(|seed| seed.trim().to_owned())
        .collect();
    let commands = distinct(&|run| {
        (!run.identity.command.is_empty()).then(|| tonnage_report::words::shell_words(&run.identity.command))
    });
    let rows = [
        ("GPU", distinct(&|run| run.identity.gpu.clone())),
        ("Versions", versions),
        ("Suite", distinct(&|run| Some(run.identity.suite.clone()).filter(|suite| !suite.is_empty()))),
        ("Seeds", seeds),
        ("Commands of the runs", commands),
    ];
    for (name, values) in rows {
        let shown: Vec<&str> = values.iter().take(12).map(String::as_str).collect();
        let more = if values.len() > 12 { format!(", and {} more", values.len() - 12) } else { String::new() };
        facts.push(if shown.is_empty() {
            format!("{name}: not recorded.")
        } else {
            format!("{name}: {}{more}.", shown.join("; "))
        });
    }
    facts.push(format!("Made by tonnage {} with: {}", context.made.version, context.made.command));
    facts
}

fn not_read(context: &Context<'_>) -> Table {
    const MOST: usize = 200;
    let row = |one: &crate::source::NotRead| {
        vec![one.file.as_str().into(), if one.is_part { "in part" } else { "no" }.into(), one.why.as_str().into()]
    };
    let more = context.not_read.len().saturating_sub(MOST);
    Table {
        name: "not_read",
        title: "What could not be read".to_owned(),
        columns: vec!["file", "read", "why"],
        rows: context.not_read.iter().take(MOST).map(row).collect(),
        note: if more > 0 { format!("And {} more.", number_text(more as f64)) } else { String::new() },
        is_long: false,
    }
}
