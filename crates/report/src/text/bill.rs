//! The time, energy and price of a job in a few lines.

use tonnage_core::plan::time::{Bill, Bound, Range, StepTime};
use tonnage_core::small_sort::SmallSort;
use tonnage_core::units::Seconds;

use super::paint::{BOLD, DIM, paint_text, wrap_text};
use crate::look::Look;

/// Parts of a step that are named; the rest is smaller.
const PARTS: usize = 4;

/// The lines for `bill`.
pub(super) fn bill_lines(bill: &Bill, look: &Look) -> String {
    let mut text = String::new();
    let step = format!(
        "{} a step{}",
        paint_text(BOLD, &Seconds(bill.step.seconds.typical).to_string()),
        time_range(bill.step.seconds)
    );
    text.push_str(&labelled_line("time", &step, look));
    if let Some(estimated) = &bill.estimated {
        // Where the user measured, our parts add up to something else.
        let ours = match bill.step.seconds == estimated.time.seconds {
            true => String::new(),
            false => format!("estimated {}: ", Seconds(estimated.time.seconds.typical)),
        };
        text.push_str(&labelled_line("", &format!("{ours}{}", step_parts(estimated)), look));
    }
    text.push_str(&labelled_line("cost", &cost_line(bill), look));
    if let Some(price) = &bill.costs.price {
        let price = format!("at ${:.2} a GPU-hour: {}", price.dollars_per_gpu_hour, price.source);
        text.push_str(&labelled_line("", &price, look));
    } else {
        text.push_str(&labelled_line("", "no price of this GPU is known: give yours with --price", look));
    }
    text.push_str(&dim_text(&format!("time: {}", bill.step.basis), look));
    for note in bill.estimated.iter().flat_map(|estimated| &estimated.notes) {
        text.push_str(&dim_text(note, look));
    }
    text
}

fn labelled_line(label: &str, text: &str, look: &Look) -> String {
    format!("  {label:<6}{}\n", wrap_text(text, look.width.saturating_sub(8), 0).replace('\n', "\n        "))
}

fn dim_text(text: &str, look: &Look) -> String {
    format!("  {}\n", paint_text(DIM, &wrap_text(text, look.width.saturating_sub(2), 0).replace('\n', "\n  ")))
}

/// ` (0.9 s to 2.1 s)`; nothing of what is exact.
fn time_range(range: Range) -> String {
    if range.low == range.high {
        String::new()
    } else {
        format!(" ({} to {})", Seconds(range.low), Seconds(range.high))
    }
}

/// The largest parts of the step with what decides them.
fn step_parts(step: &StepTime) -> String {
    let mut parts: Vec<_> = step.parts.iter().collect();
    parts.small_sort_by(|a, b| b.seconds.typical.total_cmp(&a.seconds.typical));
    let bound = |bound: Bound| match bound {
        Bound::Compute => "products",
        Bound::Memory => "bandwidth",
        Bound::Host => "launches",
    };
    let one = |part: &&tonnage_core::plan::time::Part| {
        let by = part.bound.map_or_else(String::new, |by| format!(" ({})", bound(by)));
        format!("{} {}{by}", part.name, Seconds(part.seconds.typical))
    };
    let named: Vec<String> = parts.iter().take(PARTS).map(one).collect();
    format!("{}; {} a step on a GPU", named.join(", "), flops_text(step.flops))
}

/// `1.24 PFLOP`
pub(super) fn flops_text(count: u64) -> String {
    let count = count as f64;
    match count {
        c if c >= 1e15 => format!("{:.2} PFLOP", c / 1e15),
        c if c >= 1e12 => format!("{:.2} TFLOP", c / 1e12),
        c => format!("{:.2} GFLOP", c / 1e9),
    }
}

fn cost_line(bill: &Bill) -> String {
    let costs = &bill.costs;
    let plural = if bill.gpus == 1 { "GPU" } else { "GPUs" };
    let steps = format!("{} steps on {} {plural}", grouped_number(bill.steps), bill.gpus);
    let steps = if bill.is_whole { steps } else { format!("{steps} (no length is given: --max-steps)") };
    let mut figures = vec![
        format!("{}{}", Seconds(costs.wall_seconds.typical), time_range(costs.wall_seconds)),
        format!("{} GPU-hours", plain_number(costs.gpu_hours.typical)),
    ];
    figures.extend(costs.kilowatt_hours.map(|energy| watt_hours(energy.typical)));
    if let Some(paid) = costs.dollars {
        let range = match paid.low == paid.high {
            true => String::new(),
            false => format!(" ({} to {})", dollars_text(paid.low), dollars_text(paid.high)),
        };
        figures.push(format!("{}{range}", paint_text(BOLD, &dollars_text(paid.typical))));
    }
    format!("{steps}: {}", figures.join(", "))
}

/// `$12.30`, `$1,230`
pub fn dollars_text(amount: f64) -> String {
    if amount >= 1000.0 { format!("${}", grouped_number(amount.round() as u64)) } else { format!("${amount:.2}") }
}

/// `340 Wh`, `12.3 kWh`
pub fn watt_hours(kilo: f64) -> String {
    if kilo < 1.0 { format!("{} Wh", plain_number(kilo * 1000.0)) } else { format!("{} kWh", plain_number(kilo)) }
}

/// `0.34`, `12.3`, `1,230`
pub fn plain_number(number: f64) -> String {
    match number {
        n if n >= 1000.0 => grouped_number(n.round() as u64),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// `1,234,567`
pub fn grouped_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([grouped_number(7), grouped_number(1234), grouped_number(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!([dollars_text(0.5), dollars_text(999.0), dollars_text(12_345.6)], ["$0.50", "$999.00", "$12,346"]);
        assert_eq!([plain_number(0.333), plain_number(12.34), plain_number(1234.5)], ["0.33", "12.3", "1,235"]);
    }
}
