//! The largest value of a key on each GPU, and what stops the next.

use tonnage_core::estimate::shown_bound;
use tonnage_core::gpu::Gpu;
use tonnage_core::plan::fit::GpuVerdict;
use tonnage_core::plan::solve::{Solution, Unanswered};

use super::fit::{fit_mark, gib_text};
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::table::{Align, Cell, Table, styled_cell};
use crate::look::Look;
use crate::solve::{SolveAnswer, SolveRow};

/// The screen for `answer`.
pub fn solve_screen(answer: &SolveAnswer, look: &Look) -> String {
    let head = format!(
        "{}: the largest {} that fits",
        paint_text(BOLD, &answer.job.model.name),
        paint_text(BOLD, &answer.key)
    );
    let has_changes = answer.rows.iter().any(|row| !row.changes.is_empty());
    let mut columns = vec![("gpu", Align::Left), ("largest", Align::Right), ("enough", Align::Right)];
    columns.extend([("usable", Align::Right), ("the next", Align::Left)]);
    if has_changes {
        columns.insert(0, ("", Align::Left));
    }
    let mut table = Table::new(&columns);
    for row in &answer.rows {
        for (at, (gpu, found)) in answer.gpus.iter().zip(&row.cells).enumerate() {
            let mut cells = gpu_cells(gpu, found, look);
            if has_changes {
                // Said once for all GPUs of a variant.
                cells.insert(0, if at == 0 { row_name(row).into() } else { "".into() });
            }
            table.row(cells);
        }
    }
    format!(
        "{}\n\n{}\n{}{}",
        wrap_text(&head, look.width, 0),
        table.render(look),
        refusal_lines(answer, look),
        solve_legend(look)
    )
}

fn row_name(row: &SolveRow) -> String {
    row.changes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn gpu_cells(gpu: &Gpu, found: &Result<Solution, String>, look: &Look) -> Vec<Cell> {
    let id = || -> Cell { gpu.id.as_str().into() };
    let usable = styled_cell(gib_text(gpu.usable_bytes), DIM);
    let Ok(solution) = found else {
        return vec![id(), styled_cell("impossible", WARN), "".into(), usable, "".into()];
    };
    let next = next_cell(solution, look);
    match &solution.best {
        Some((value, verdict)) => {
            let enough = styled_cell(enough_text(verdict), fit_style(verdict.fit));
            vec![id(), styled_cell(value.to_string(), BOLD), enough, usable, next]
        }
        None => vec![id(), styled_cell("none", DIM), "".into(), usable, next],
    }
}

fn next_cell(solution: &Solution, look: &Look) -> Cell {
    match &solution.next {
        Some((value, Ok(verdict))) => {
            let next = format!("{value}: {} {}", enough_text(verdict), fit_mark(verdict.fit, look));
            styled_cell(next.trim_end().to_owned(), fit_style(verdict.fit))
        }
        Some((value, Err(Unanswered::Refused(_)))) => styled_cell(format!("{value}: refused"), WARN),
        Some((value, Err(Unanswered::NotTried))) => styled_cell(format!("{value}: not tried"), WARN),
        None => styled_cell("none is tried", DIM),
    }
}

/// What surely is enough, as far as that is known.
fn enough_text(verdict: &GpuVerdict) -> String {
    shown_bound(verdict.safe_bytes).map_or_else(|| "?".to_owned(), gib_text)
}

/// Why values or variants are refused, each reason once.
fn refusal_lines(answer: &SolveAnswer, look: &Look) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for found in answer.rows.iter().flat_map(|row| &row.cells) {
        let reason = match found {
            Err(reason) => Some(reason.clone()),
            Ok(solution) => solution.next.as_ref().and_then(|(_, tried)| tried.as_ref().err()).map(ToString::to_string),
        };
        reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
    }
    reasons
        .into_iter()
        .map(|reason| format!("{} {}\n", paint_text(WARN, "!"), wrap_text(&reason, look.width, 2)))
        .collect()
}

fn solve_legend(look: &Look) -> String {
    let (tight, not) = (look.pick("▲", "~"), look.pick("✘", "-"));
    let signs = format!(
        "The next value that the job can have: {tight} tight   {not} does not fit   (GiB, as `fit` states them)"
    );
    let largest = "Reserved memory does not rise with every step: a value beyond the next may fit again.";
    [signs.as_str(), largest].map(|line| format!("{}\n", paint_text(DIM, &wrap_text(line, look.width, 2)))).concat()
}

#[cfg(test)]
mod tests {
    use tonnage_core::plan::solve::{Question, Tried, solve};

    use super::*;

    #[test]
    fn what_was_not_tried_is_not_said_to_be_refused() {
        let look = Look { width: 80, unicode: true };
        let next = |why: Unanswered| {
            let verdict = |_| -> Tried { Err(why.clone()) };
            let solution = solve(&Question { range: 3..=8, own: 3, check: &|_| Ok(()), verdict: &verdict });
            next_cell(&solution, &look).text
        };
        assert_eq!(next(Unanswered::NotTried), "3: not tried");
        assert_eq!(next(Unanswered::Refused("heads do not divide".to_owned())), "3: refused");
    }
}
