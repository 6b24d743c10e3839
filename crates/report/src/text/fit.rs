//! A job by rows and GPUs: what each combination needs, and the largest that fits.

use tonnage_core::estimate::{Fit, Room, shown_bound};
use tonnage_core::job::{Passes, rows_per_step};
use tonnage_core::plan::fit::{self, NoVerdict};
use tonnage_core::plan::largest::MostRows;
use tonnage_core::plan::table::Row;
use tonnage_core::units::GIB;

use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::table::{Align, Cell, Table, styled_cell};
use crate::fit::FitAnswer;
use crate::look::Look;

/// The screen for `answer`.
pub fn fit_table(answer: &FitAnswer, look: &Look) -> String {
    let mut text = table_head(answer, look);
    // As many GPUs beside each other as the terminal has room for; more of them, for a single job, below each other.
    let beside = (look.width.saturating_sub(if by_step(answer) { 34 } else { 26 }) / 12).max(1);
    let is_shared = answer.rows.iter().flat_map(|row| &row.cells).flatten().any(|cell| !cell.room.is_empty());
    if answer.rows.len() == 1 && (answer.gpus.len() > beside || is_shared) {
        text.push_str(&below_each_other(answer, look));
        text.push_str(&format!("\n{}{}", remark_lines(answer, look), table_legend(answer, look)));
        return text;
    }
    for first in (0..answer.gpus.len()).step_by(beside) {
        let shown = first..(first + beside).min(answer.gpus.len());
        text.push_str(&verdict_table(answer, shown, look));
        text.push('\n');
    }
    text.push_str(&remark_lines(answer, look));
    text.push_str(&table_legend(answer, look));
    text
}

fn table_head(answer: &FitAnswer, look: &Look) -> String {
    let job = &answer.job;
    let what = format!("{}: GiB that are surely enough for the fullest GPU", paint_text(BOLD, &job.model.name));
    format!("{}\n\n", wrap_text(&what, look.width, 0))
}

fn verdict_table(answer: &FitAnswer, shown: std::ops::Range<usize>, look: &Look) -> String {
    let gpus = &answer.gpus[shown.clone()];
    let mut columns: Vec<(&str, Align)> = vec![("", Align::Left), ("rows x passes", Align::Right)];
    let by_step = by_step(answer);
    if by_step {
        columns.push(("a step", Align::Right));
    }
    columns.extend(gpus.iter().map(|gpu| (gpu.id.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let usable: Vec<Cell> = gpus.iter().map(|gpu| styled_cell(gib_text(gpu.usable_bytes), DIM)).collect();
    let blank = || if by_step { vec!["".into()] } else { Vec::new() };
    table.row([vec!["".into(), styled_cell("usable", DIM)], blank(), usable].concat());
    for row in &answer.rows {
        let step = by_step.then(|| styled_cell(row.rows_per_step().to_string(), DIM));
        let names = [row_name(row).into(), batch_text(row).into()].into_iter().chain(step);
        let cells = row.cells[shown.clone()].iter().map(|answer| verdict_cell(answer, look));
        table.row(names.chain(cells).collect());
    }
    if !answer.largest.is_empty() {
        let largest = shown.map(|at| most_rows(answer, at, look));
        table.row([vec!["".into(), "largest".into()], blank(), largest.collect()].concat());
    }
    table.render(look)
}

/// What the variant changes beside its rows.
fn row_name(row: &Row) -> String {
    row.changes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn batch_text(row: &Row) -> String {
    format!("{} x {}", row.batch.micro_batch_size, row.batch.gradient_accumulation_steps)
}

fn verdict_cell(answer: &fit::Cell, look: &Look) -> Cell {
    match answer {
        Ok(verdict) => {
            let mark = fit_mark(verdict.fit, look);
            let least = || format!("{}{}", at_least(look), gib_text(verdict.total_bytes));
            let enough = match verdict.at_least {
                true => least(),
                false => shown_bound(verdict.safe_bytes).map_or_else(|| "?".to_owned(), gib_text),
            };
            styled_cell(format!("{enough} {mark}").trim_end().to_owned(), fit_style(verdict.fit))
        }
        Err(NoVerdict::Pruned | NoVerdict::TooLarge) => styled_cell(look.pick("✘", "-"), fit_style(Fit::DoesNotFit)),
        Err(NoVerdict::NotReplayed(_)) => styled_cell("?", WARN),
        Err(NoVerdict::Impossible(_)) => styled_cell("impossible", WARN),
    }
}

/// The sign of a verdict in a table; none where it is not known.
pub(super) fn fit_mark(fit: Fit, look: &Look) -> &'static str {
    match fit {
        Fit::Fits => look.pick("✔", "+"),
        Fit::Tight => look.pick("▲", "~"),
        Fit::NotKnown => "",
        Fit::DoesNotFit => look.pick("✘", "-"),
    }
}

fn at_least(look: &Look) -> &'static str {
    look.pick("≥", ">=")
}

pub(super) fn gib_text(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / GIB as f64)
}

/// What to know of the lines: why some are impossible, and whether they are of one training.
fn remark_lines(answer: &FitAnswer, look: &Look) -> String {
    format!("{}{}", refusal_lines(answer, look), step_lines(answer, look))
}

/// Whether the steps of lines have other numbers of rows than the job's, or than each other's.
fn by_step(answer: &FitAnswer) -> bool {
    let own = rows_per_step(&answer.job);
    answer.rows.iter().any(|row| row.rows_per_step() != own)
        && !matches!(answer.job.task.facts().passes(), Passes::Counted(_))
}

/// Lines whose steps have other numbers of rows are other trainings, which is easily overlooked where rows are those of a
/// rank.
fn step_lines(answer: &FitAnswer, look: &Look) -> String {
    let mut steps: Vec<u64> = answer.rows.iter().map(Row::rows_per_step).collect();
    steps.sort_unstable();
    steps.dedup();
    let ranks = answer.rows.iter().any(|row| row.ranks > 1);
    let text = match steps.as_slice() {
        [rows] if ranks => format!("Rows are those of a rank: {rows} in an optimizer step of all ranks."),
        [fewest, .., most] if ranks => format!(
            "Rows are those of a rank. An optimizer step of all ranks has {fewest} to {most}, by line: these are different \
             trainings. --micro-batch-size, or --gradient-accumulation-steps where the task accumulates, makes up for it."
        ),
        [fewest, .., most] => {
            let way_out = match answer.job.task.facts().passes() {
                Passes::One(_) => "for its passes are its steps.",
                _ => "unless --global-batch-size is given, a multiple of all.",
            };
            format!("An optimizer step has {fewest} to {most} rows, by line: these are different trainings, {way_out}")
        }
        [rows] if *rows != rows_per_step(&answer.job) => format!(
            "An optimizer step has {rows} rows, not {}: no number of these passes makes as many.",
            rows_per_step(&answer.job)
        ),
        _ => return String::new(),
    };
    format!("{}\n", wrap_text(&text, look.width, 2))
}

/// Why rows are impossible, each reason once.
fn refusal_lines(answer: &FitAnswer, look: &Look) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for reason in answer.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.as_ref().err()) {
        let text = reason.to_string();
        if *reason != NoVerdict::Pruned && !reasons.contains(&text) {
            reasons.push(text);
        }
    }
    reasons
        .into_iter()
        .map(|reason| format!("{} {}\n", paint_text(WARN, "!"), wrap_text(&reason, look.width, 2)))
        .collect()
}

/// A line for each GPU: what one job needs there, the largest micro-batch, and how many processes could share it.
fn below_each_other(answer: &FitAnswer, look: &Look) -> String {
    let Some(row) = answer.rows.first() else { return String::new() };
    let shares = row.cells.iter().flatten().any(|verdict| !verdict.room.is_empty());
    let mut columns = vec![("gpu", Align::Left), ("usable", Align::Right), ("enough", Align::Right)];
    if !answer.largest.is_empty() {
        columns.push(("largest", Align::Right));
    }
    if shares {
        let rooms = ["nodes that fit", "1 trains", "2 train", "4 train"];
        columns.extend(rooms.map(|title| (title, Align::Right)));
    }
    let mut table = Table::new(&columns);
    for (at, (gpu, verdict)) in answer.gpus.iter().zip(&row.cells).enumerate() {
        let mut cells =
            vec![gpu.id.as_str().into(), styled_cell(gib_text(gpu.usable_bytes), DIM), verdict_cell(verdict, look)];
        cells.extend(answer.largest.get(at).map(|_| most_rows(answer, at, look)));
        if shares {
            let room = verdict.as_ref().map_or(&[][..], |verdict| &verdict.room);
            cells.extend([None, Some(1), Some(2), Some(4)].map(|lease| node_cell(room, lease)));
        }
        table.row(cells);
    }
    let what = [row_name(row), format!("{} rows x passes", batch_text(row))].join(" ");
    format!("  {}\n{}", paint_text(DIM, what.trim()), table.render(look))
}

/// Of the GPU at this place.
fn most_rows(answer: &FitAnswer, at: usize, look: &Look) -> Cell {
    match &answer.largest[at] {
        MostRows::Largest(largest) if largest.more_may_fit => {
            styled_cell(format!("{} {}", at_least(look), largest.batch.micro_batch_size), BOLD)
        }
        MostRows::Largest(largest) => styled_cell(largest.batch.micro_batch_size.to_string(), BOLD),
        MostRows::TooLong => styled_cell("?", WARN),
        MostRows::Nothing => styled_cell("none", DIM),
    }
}

/// How many processes fit under a lease; all may train at once where there is none.
fn node_cell(room: &[Room], lease: Option<u64>) -> Cell {
    match room.iter().find(|room| room.lease == lease) {
        Some(room) => styled_cell(room.processes.to_string(), if lease.is_none() { BOLD } else { DIM }),
        None => styled_cell("", DIM),
    }
}

fn table_legend(answer: &FitAnswer, look: &Look) -> String {
    let (fits, tight, not) = (look.pick("✔", "+"), look.pick("▲", "~"), look.pick("✘", "-"));
    let signs = format!("{fits} fits   {tight} tight: within the margin, or only by flushing   {not} does not fit");
    let has_unknown = answer.rows.iter().flat_map(|row| &row.cells).flatten().any(|cell| cell.fit == Fit::NotKnown);
    let signs = if has_unknown { signs + "   ? not known: no upper bound" } else { signs };
    let figures = "With the context, what is not known, and a margin (2 %, at least 64 MiB).";
    let mut found = answer.largest.iter().flat_map(MostRows::largest);
    let largest = match found.clone().next().is_some() {
        true => "Largest: rows of a pass that fit; where a whole step's rows fit in one, the most that do.",
        false => "",
    };
    let ends = format!("{}: so many fit, and more may: beyond, the search would have taken too long.", at_least(look));
    let more = if found.any(|largest| largest.more_may_fit) { ends.as_str() } else { "" };
    let is_unknown = answer.largest.contains(&MostRows::TooLong);
    let unknown =
        if is_unknown { "Largest ?: a search would have taken too long; --rows N asks about one size." } else { "" };
    let counted = format!(
        "{}: what is alive at one moment, already more than the GPU has; --gpus NAME replays the job for one GPU.",
        at_least(look)
    );
    let is_counted = answer.rows.iter().flat_map(|row| &row.cells).flatten().any(|verdict| verdict.at_least);
    let counted = if is_counted { counted.as_str() } else { "" };
    let lines = [signs.as_str(), figures, counted, largest, more, unknown].into_iter().filter(|line| !line.is_empty());
    lines.map(|line| format!("{}\n", paint_text(DIM, &wrap_text(line, look.width, 2)))).collect()
}
