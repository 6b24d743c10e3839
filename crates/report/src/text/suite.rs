//! What configurations of a job cost, each and all together.

use tonnage_core::plan::suite::Priced;
use tonnage_core::plan::time::Range;
use tonnage_core::units::{Bytes, Seconds};

use super::bill::{self, dollars_text, grouped_number, plain_number};
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::plan::plan_head;
use super::table::{Align, Cell, Table, styled_cell};
use crate::answer::fit_words;
use crate::look::Look;
use crate::suite::{self, SuiteAnswer};

/// The screen for `answer`: a single configuration in full, several as a table.
pub fn suite_screen(answer: &SuiteAnswer, look: &Look) -> String {
    if let [Priced { appraisal: Ok(appraisal), .. }] = answer.rows.as_slice() {
        return plan_head(&answer.job, appraisal, look);
    }
    let title = format!("{}: {} configurations", paint_text(BOLD, &answer.job.model.name), answer.rows.len());
    format!(
        "{}\n\n{}\n{}{}",
        wrap_text(&title, look.width, 0),
        suite_table(answer, look),
        refusal_lines(answer, look),
        basis_lines(answer, look)
    )
}

fn suite_table(answer: &SuiteAnswer, look: &Look) -> String {
    let columns = [
        ("configuration", Align::Left),
        ("factor", Align::Right),
        ("total", Align::Right),
        ("verdict", Align::Left),
        ("a step", Align::Right),
        ("GPU-hours", Align::Right),
        ("price", Align::Right),
    ];
    let mut table = Table::new(&columns).flexible(0);
    answer.rows.iter().for_each(|row| table.row(row_cells(row)));
    let totals = answer.totals();
    let figure = |range: Option<Range>, show: fn(f64) -> String| {
        range.map_or_else(|| "?".to_owned(), |range| show(range.typical))
    };
    table.row(vec![
        styled_cell(
            if totals.runs > answer.rows.len() as u64 { format!("all {} runs", totals.runs) } else { "all".to_owned() },
            BOLD,
        ),
        format!("{:.2}", totals.factor).into(),
        "".into(),
        "".into(),
        "".into(),
        styled_cell(plain_number(totals.gpu_hours.typical), BOLD),
        styled_cell(figure(totals.dollars, dollars_text), BOLD),
    ]);
    let mut text = table.render(look);
    let energy =
        totals.kilowatt_hours.map_or_else(String::new, |energy| format!(", {}", bill::watt_hours(energy.typical)));
    let range = totals
        .dollars
        .map_or_else(String::new, |paid| format!(", {} to {}", dollars_text(paid.low), dollars_text(paid.high)));
    let sums = format!("one after the other {}{energy}{range}", Seconds(totals.wall_seconds.typical));
    text.push_str(&format!(
        "  {}\n",
        paint_text(DIM, &wrap_text(&sums, look.width.saturating_sub(2), 0).replace('\n', "\n  "))
    ));
    text
}

fn row_cells(row: &Priced) -> Vec<Cell> {
    let count = row.configuration.count;
    let name = if count > 1 { format!("{} x {count}", row.configuration.name) } else { row.configuration.name.clone() };
    let name: Cell = name.into();
    let Ok(appraisal) = &row.appraisal else {
        return vec![name, "".into(), "".into(), styled_cell("impossible", WARN)];
    };
    let unknown = || "?".to_owned();
    let bill = suite::bill_of(row);
    let paid = bill.and_then(|bill| bill.costs.dollars);
    vec![
        name,
        row.factor.map_or_else(unknown, |factor| format!("{factor:.2}")).into(),
        Bytes(appraisal.verdict.total_bytes).to_string().into(),
        styled_cell(fit_words(appraisal.verdict.fit), fit_style(appraisal.verdict.fit)),
        bill.map_or_else(unknown, |bill| Seconds(bill.step.seconds.typical).to_string()).into(),
        bill.map_or_else(unknown, |bill| plain_number(bill.costs.gpu_hours.typical * count as f64)).into(),
        paid.map_or_else(unknown, |paid| dollars_text(paid.typical * count as f64)).into(),
    ]
}

/// Why configurations are impossible, each reason once.
fn refusal_lines(answer: &SuiteAnswer, look: &Look) -> String {
    let mut reasons: Vec<&String> = answer.rows.iter().filter_map(|row| row.appraisal.as_ref().err()).collect();
    reasons.dedup();
    reasons
        .into_iter()
        .map(|reason| format!("{} {}\n", paint_text(WARN, "!"), wrap_text(reason, look.width, 2)))
        .collect()
}

/// What the figures rest on.
fn basis_lines(answer: &SuiteAnswer, look: &Look) -> String {
    let Some(bill) = answer.rows.iter().find_map(suite::bill_of) else { return String::new() };
    let length = if bill.is_whole { "" } else { " (no length is given: --max-steps)" };
    let plural = if bill.gpus == 1 { "GPU" } else { "GPUs" };
    let price = bill.costs.price.as_ref().map_or_else(
        || "no price of this GPU is known: give yours with --price".to_owned(),
        |price| format!("${:.2} a GPU-hour: {}", price.dollars_per_gpu_hour, price.source),
    );
    let flops = bill
        .estimated
        .as_ref()
        .map_or_else(String::new, |step| format!(", {} a step on a GPU", bill::flops_text(step.flops)));
    let lines = [
        format!("the first: {} steps{length} on {} {plural}{flops}; {price}", grouped_number(bill.steps), bill.gpus),
        "factor: simulated operations beside the first configuration's".to_owned(),
        format!("time: {}", bill.step.basis),
    ];
    lines.iter().map(|line| format!("{}\n", paint_text(DIM, &wrap_text(line, look.width, 2)))).collect()
}
