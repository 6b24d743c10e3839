//! Answers to questions: pass@k and pass^k, votes, exact and token accuracy, failures by difficulty and kind with examples, and two
//! configurations on one test set.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use crate::document::{Block, Cell, Table};
use crate::experiment::Configuration;
use crate::figure::{Figure, Mark};
use crate::record::Item;
use crate::statistics::{Resampling, bootstrap_interval, mcnemar_test, mean, paired_items, pass_all, pass_at};

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    if context.all.runs.iter().all(|run| run.items.iter().all(|item| item.split == "train")) {
        return Vec::new();
    }
    let mut blocks = vec![Block::Heading("Answers".to_owned())];
    blocks.extend(pass_tables(context));
    blocks.extend(majority_table(context));
    blocks.extend(failure_table(context));
    blocks.extend(same_questions(context));
    blocks
}

/// Questions of a configuration's evaluation, of all its runs.
fn items_of<'a>(context: &'a Context<'_>, one: &'a Configuration) -> impl Iterator<Item = &'a Item> {
    context.all.runs_of(one).flat_map(|run| &run.items).filter(|item| item.split != "train")
}

/// A question's value, averaged over the runs that were asked it: intervals are over questions.
fn by_question(
    context: &Context<'_>,
    one: &Configuration,
    value: impl Fn(&Item) -> Option<f64>,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for item in items_of(context, one) {
        if let Some(value) = value(item) {
            let sum = sums.entry(item.item.clone()).or_default();
            (sum.0, sum.1) = (sum.0 + value, sum.1 + 1);
        }
    }
    sums.into_iter().map(|(name, (sum, count))| (name, sum / count as f64)).collect()
}

fn with_interval(values: &BTreeMap<String, f64>) -> Cell {
    let values: Vec<f64> = values.values().copied().collect();
    let how = Resampling { resamples: 2_000, ..Resampling::default() }.within(10_000_000, values.len());
    if values.is_empty() {
        "-".into()
    } else {
        Cell::with_interval(mean(&values), bootstrap_interval(&values, how, |drawn| mean(drawn)))
    }
}

fn pass_tables(context: &Context<'_>) -> Vec<Block> {
    let shown = || context.all.configurations.iter().take(super::MOST_ROWS);
    let drawn =
        shown().flat_map(|one| items_of(context, one)).map(|item| item.samples).filter(|samples| *samples > 0).max();
    let Some(most) = drawn else { return Vec::new() };
    let ks: Vec<u64> = (0..12).map(|power| 1 << power).take_while(|k| *k <= most).collect();
    let (mut rows, mut marks) = (Vec::new(), Vec::new());
    for (series, one) in shown().enumerate() {
        let mut points = Vec::new();
        for k in &ks {
            let any = by_question(context, one, |item| pass_at(item.samples, item.correct, *k));
            let asked = by_question(context, one, |item| (item.samples > 0).then_some(1.0)).len();
            if any.is_empty() {
                continue;
            }
            let every = by_question(context, one, |item| pass_all(item.samples, item.correct, *k));
            let refused = if any.len() < asked {
                format!("{} refused: fewer than {k} samples", asked - any.len())
            } else {
                String::new()
            };
            points.push((*k as f64, mean(&any.values().copied().collect::<Vec<_>>())));
            rows.push(vec![
                one.name.as_str().into(),
                Cell::count(*k as usize),
                with_interval(&any),
                with_interval(&every),
                Cell::count(any.len()),
                refused.into(),
            ]);
        }
        marks.push(Mark::Line { series, points: points.clone(), is_thin: false });
        marks.push(Mark::Dots { series, points, is_hollow: false });
    }
    let table = Table {
        name: "pass_at_k",
        title: "pass@k and pass^k".to_owned(),
        columns: vec!["configuration", "k", "pass@k [95 %]", "pass^k [95 %]", "questions", ""],
        rows,
        note: "Unbiased from all samples of a question (Chen et al. 2021); k above the samples drawn is refused. Intervals are over questions, not over training.".to_owned(),
        is_long: false,
    };
    let figure = Figure {
        name: "pass-at-k".to_owned(),
        title: "pass@k".to_owned(),
        described: "The share of questions of which one of k samples is right; k by its logarithm.".to_owned(),
        x: "k".to_owned(),
        y: "pass@k".to_owned(),
        log_x: true,
        series: shown().map(|one| one.name.clone()).collect(),
        marks,
        ..Figure::default()
    };
    vec![Block::Table(table), Block::Figure(Box::new(figure))]
}

/// HRM's form: distinct answers ranked by votes. It is another quantity than pass@k of samples, and is called so.
fn majority_table(context: &Context<'_>) -> Vec<Block> {
    let mut rows = Vec::new();
    for one in context.all.configurations.iter().take(super::MOST_ROWS) {
        if items_of(context, one).all(|item| item.rank.is_none()) {
            continue;
        }
        for k in [1, 2, 5, 10, 100, 1000] {
            let within = by_question(context, one, |item| {
                Some(f64::from(u8::from(item.rank.is_some_and(|rank| rank > 0 && rank <= k))))
            });
            rows.push(vec![
                one.name.as_str().into(),
                Cell::count(k as usize),
                with_interval(&within),
                Cell::count(within.len()),
            ]);
        }
    }
    let table = Table {
        name: "voted_pass_at_k",
        title: "pass@k of voted answers (HRM, ARC)".to_owned(),
        columns: vec!["configuration", "k", "voted pass@k [95 %]", "questions"],
        rows,
        note: "The right answer is among the k distinct answers with the most votes over augmented views. These are not independent samples: not to be compared with pass@k above.".to_owned(),
        is_long: false,
    };
    if table.rows.is_empty() { Vec::new() } else { vec![Block::Table(table)] }
}

/// What share of a question's answers are right.
fn share_passed(item: &Item) -> Option<f64> {
    if item.samples > 0 {
        Some(item.correct as f64 / item.samples as f64)
    } else {
        item.rank.map(|rank| f64::from(u8::from(rank == 1)))
    }
}

fn failure_table(context: &Context<'_>) -> Vec<Block> {
    let shown = || context.all.configurations.iter().take(super::MOST_ROWS);
    let rows = shown().flat_map(|one| by_difficulty(context, one)).collect();
    let (mut kinds, mut examples) = (Vec::new(), Vec::new());
    for one in shown() {
        failure_kinds(context, one, &mut kinds, &mut examples);
    }
    let columns = vec!["configuration", "kind", "difficulty", "questions", "exact [95 %]", "token accuracy [95 %]"];
    let note = "Exact: share of samples that are right, averaged over runs, then over questions.".to_owned();
    let mut blocks = vec![Block::Table(Table {
        name: "by_difficulty",
        title: "By kind and difficulty".to_owned(),
        columns,
        rows,
        note,
        is_long: false,
    })];
    if !kinds.is_empty() {
        let columns = vec!["configuration", "failure", "questions"];
        blocks.push(Block::Table(Table {
            name: "failures",
            title: "Failures by kind".to_owned(),
            columns,
            rows: kinds,
            ..Table::default()
        }));
    }
    if !examples.is_empty() {
        examples.truncate(12);
        blocks.push(Block::List(examples));
    }
    blocks
}

/// A row for each kind and difficulty that a configuration was asked.
fn by_difficulty(context: &Context<'_>, one: &Configuration) -> Vec<Vec<Cell>> {
    let groups: BTreeSet<(&str, &str)> =
        items_of(context, one).map(|item| (item.kind.as_str(), item.difficulty.as_str())).collect();
    let row = |(kind, difficulty): (&str, &str)| {
        let of = |value: fn(&Item) -> Option<f64>| {
            by_question(context, one, |item| {
                (item.kind == kind && item.difficulty == difficulty).then(|| value(item)).flatten()
            })
        };
        let exact = of(share_passed);
        vec![
            one.name.as_str().into(),
            kind.into(),
            difficulty.into(),
            Cell::count(exact.len()),
            with_interval(&exact),
            with_interval(&of(|item| item.token_accuracy)),
        ]
    };
    groups.into_iter().map(row).collect()
}

/// Adds how often each kind of failure came, and the first example of each.
fn failure_kinds(context: &Context<'_>, one: &Configuration, kinds: &mut Vec<Vec<Cell>>, examples: &mut Vec<String>) {
    let mut counts: BTreeMap<&str, (usize, Option<&Item>)> = BTreeMap::new();
    for item in items_of(context, one).filter(|item| item.failure.is_some()) {
        let count = counts.entry(item.failure.as_deref().unwrap_or_default()).or_default();
        (count.0, count.1) = (count.0 + 1, count.1.or_else(|| item.example.as_ref().map(|_| item)));
    }
    for (failure, (count, item)) in counts {
        kinds.push(vec![one.name.as_str().into(), failure.into(), Cell::count(count)]);
        if let Some((item, example)) = item.and_then(|item| Some((item, item.example.as_ref()?))) {
            let start = example.chars().take(400).collect::<String>();
            examples.push(format!("{}, {failure}, question {}: {start}", one.name, item.item));
        }
    }
}

/// Two configurations on the questions that both were asked.
fn same_questions(context: &Context<'_>) -> Vec<Block> {
    let Some(baseline) = context.all.baseline() else { return Vec::new() };
    let first = by_question(context, baseline, share_passed);
    let row = |other: &Configuration| {
        let second = by_question(context, other, share_passed);
        let both: Vec<(f64, f64)> = first.iter().filter_map(|(name, a)| Some((*a, *second.get(name)?))).collect();
        let differences: Vec<f64> = both.iter().map(|(a, b)| b - a).collect();
        let (difference, interval) =
            paired_items(&differences, Resampling { resamples: 2_000, ..Resampling::default() })?;
        // McNemar's test is of answers that are right or wrong: most of the samples decide.
        let is = |share: f64| share > 0.5;
        let count = |of: fn(bool, bool) -> bool| both.iter().filter(|(a, b)| of(is(*a), is(*b))).count() as u64;
        let test = mcnemar_test(count(|a, b| a && !b), count(|a, b| !a && b));
        Some(vec![
            other.name.as_str().into(),
            Cell::count(both.len()),
            Cell::with_interval(difference, Some(interval)),
            Cell::count(test.only_a as usize),
            Cell::count(test.only_b as usize),
            Cell::p(Some(test.p)),
        ])
    };
    let rows: Vec<Vec<Cell>> = context.all.others().iter().take(super::MOST_ROWS).filter_map(row).collect();
    let table = Table {
        name: "same_questions",
        title: format!("On the same questions as {}", baseline.name),
        columns: vec!["configuration", "questions", "difference [95 %]", "only baseline right", "only it right", "p (McNemar)"],
        rows,
        note: "Paired bootstrap over questions, and McNemar's exact test of what most samples say. Both are about these trained models, not about training again: seeds decide that.".to_owned(),
        is_long: false,
    };
    if table.rows.is_empty() { Vec::new() } else { vec![Block::Table(table)] }
}
