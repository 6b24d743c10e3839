//! Plans in a terminal.

use tonnage_core::small_sort::SmallSort;
use tonnage_core::units::{Bytes, Seconds};
use tonnage_report::Look;
use tonnage_report::text::{Align, Table, dollars_text, grouped_number, plain_number, watt_hours, wrap_text};

use crate::pack::Machine;
use crate::plan::{Plan, Planned, Span};

/// Configurations in one table; the rest is in the JSON.
const MOST_ROWS: usize = 60;
/// Configurations that are another's twin, of which it is said.
const MOST_TWINS: usize = 12;
/// Runs of a schedule that are shown.
const MOST_PLACED: usize = 12;

/// What a plan is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    pub machine: Machine,
    /// Hours of a session or a job; 0 where nothing limits them.
    pub hours: f64,
}

/// The screen of a plan.
pub fn plan_text(plan: &Plan, against: &Against, look: &Look) -> String {
    let (runs, configurations) = (plan.runs.len(), plan.configurations.len());
    let head =
        format!("{}: {} of {}", plan.suite, counted_of(runs, "run"), counted_of(configurations, "configuration"));
    let mut text = format!("{head}\n\n{}", plan_table(plan, look));
    let mut lines = total_lines(plan);
    lines.extend(schedule_lines(plan, against));
    lines.extend(warning_lines(plan, against));
    lines.extend(plan.twin_names().into_iter().take(MOST_TWINS).map(|twins| format!("! {twins}")));
    lines.extend(rule_lines(plan));
    lines.push(format!("code: {}", plan.code));
    lines.iter().for_each(|line| text.push_str(&format!("{}\n", wrap_text(line, look.width, 2))));
    text
}

fn counted_of(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped_number(count as u64), if count == 1 { "" } else { "s" })
}

fn plan_table(plan: &Plan, look: &Look) -> String {
    let mut counts = vec![0usize; plan.configurations.len()];
    plan.runs.iter().for_each(|run| counts[run.configuration] += 1);
    let columns = [
        ("configuration", Align::Left),
        ("runs", Align::Right),
        ("a run", Align::Right),
        ("GPUs", Align::Right),
        ("verdict", Align::Left),
        ("hours", Align::Right),
        ("GPU-hours", Align::Right),
        ("price", Align::Right),
    ];
    let mut table = Table::new(&columns).flexible(0);
    let shown = plan.configurations.iter().zip(&counts).take(MOST_ROWS);
    let rows: Vec<Vec<String>> = shown.map(|(one, count)| table_row(one, *count)).collect();
    // What the other columns take, with two columns between and before.
    let width =
        |at: usize| rows.iter().map(|row| row[at].chars().count()).chain([columns[at].0.len()]).max().unwrap_or(0);
    let others: usize = (1..columns.len()).map(|at| width(at) + 2).sum();
    let room = look.width.saturating_sub(others + 2);
    for mut row in rows {
        row[0] = shorter_name(&row[0], room, look);
        table.row(row.into_iter().map(Into::into).collect());
    }
    let mut text = table.render(look);
    if plan.configurations.len() > MOST_ROWS {
        text.push_str(&format!("  and {} more\n", plan.configurations.len() - MOST_ROWS));
    }
    let mut errors: Vec<&String> = plan.configurations.iter().filter_map(|one| one.error.as_ref()).collect();
    errors.dedup();
    errors.iter().for_each(|error| text.push_str(&format!("! {}\n", wrap_text(error, look.width, 2))));
    text
}

/// A name in so many columns: what tells configurations apart is values, so that keys are cut first, then the name in its middle.
fn shorter_name(name: &str, room: usize, look: &Look) -> String {
    let (sign, length) = (if look.unicode { "…" } else { "..." }, |text: &str| text.chars().count());
    if length(name) <= room || room < 8 {
        return name.to_owned();
    }
    let word = |word: &str| match word.split_once('=') {
        Some((key, value)) if length(key) > 2 + length(sign) => {
            format!("{}{sign}={value}", key.chars().take(2).collect::<String>())
        }
        _ => word.to_owned(),
    };
    let name = name.split(' ').map(word).collect::<Vec<_>>().join(" ");
    if length(&name) <= room {
        return name;
    }
    let left = room.saturating_sub(length(sign));
    let (head, tail) = (left / 3, left - left / 3);
    let begin: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(length(&name) - tail).collect();
    format!("{begin}{sign}{end}")
}

fn table_row(one: &Planned, count: usize) -> Vec<String> {
    let unknown = || "?".to_owned();
    let name = one.name.replace(['\n', '\r', '\t'], " ");
    let Some(predicted) = &one.predicted else {
        let verdict = if one.error.is_some() { "impossible" } else { "not known" };
        return vec![
            name,
            count.to_string(),
            unknown(),
            unknown(),
            verdict.to_owned(),
            unknown(),
            unknown(),
            unknown(),
        ];
    };
    let all = |span: Option<Span>| span.map(|span| span.typical * count as f64);
    vec![
        name,
        count.to_string(),
        Bytes(predicted.total_bytes).to_string(),
        predicted.gpus.to_string(),
        predicted.verdict.clone(),
        predicted.seconds.map_or_else(unknown, |span| plain_number(span.typical / 3600.0)),
        all(predicted.gpu_hours).map_or_else(unknown, plain_number),
        all(predicted.dollars).map_or_else(unknown, dollars_text),
    ]
}

/// The sums; what one configuration does not say, no sum says.
fn total_lines(plan: &Plan) -> Vec<String> {
    let range = |span: Span, show: fn(f64) -> String| match span.low == span.high {
        true => show(span.typical),
        false => format!("{} ({} to {})", show(span.typical), show(span.low), show(span.high)),
    };
    let sums = [
        plan.total(|one| one.gpu_hours).map(|span| format!("{} GPU-hours", range(span, plain_number))),
        plan.total(|one| one.kilowatt_hours).map(|span| range(span, watt_hours)),
        plan.total(|one| one.dollars).map(|span| range(span, dollars_text)),
    ];
    let sums: Vec<String> = sums.into_iter().flatten().collect();
    match sums.is_empty() {
        true => vec![
            "all: time and price are not known (a job, its length and a GPU whose rates are known say them)".to_owned(),
        ],
        false => vec![format!("all: {}", sums.join(", "))],
    }
}

/// Which runs share the machine, and how long it takes.
fn schedule_lines(plan: &Plan, against: &Against) -> Vec<String> {
    let machine = &against.machine;
    let placed = plan.packed_on(machine);
    let mut lines = Vec::new();
    let at_once = placed
        .iter()
        .map(|one| placed.iter().take(2_000).filter(|other| other.start <= one.start && one.start < other.end).count());
    let most = at_once.take(200).max().unwrap_or(0);
    let Some(alone) = plan.total(|one| one.seconds) else {
        return vec![format!(
            "here: {} on {}, in an order that follows their bytes: times are not known",
            counted_of(plan.runs.len(), "run"),
            counted_of(machine.gpus, "GPU")
        )];
    };
    let end = placed.iter().map(|one| one.end).fold(0.0, f64::max);
    lines.push(format!(
        "on {} of {}: {} if runs that share a GPU do not slow each other, {} one after the other; at most {} at once",
        counted_of(machine.gpus, "GPU"),
        Bytes(machine.usable_bytes),
        Seconds(end),
        Seconds(alone.typical),
        counted_of(most, "run"),
    ));
    for one in placed.iter().take(MOST_PLACED) {
        let gpus: Vec<String> = one.gpus.iter().map(ToString::to_string).collect();
        let bytes = Bytes(crate::plan::pack_item(plan.planned_of(&plan.runs[one.item]).predicted.as_ref()).bytes);
        lines.push(format!(
            "- GPU {}: {} to {}: {} ({bytes})",
            gpus.join(","),
            after_time(one.start),
            after_time(one.end),
            plan.run_name(&plan.runs[one.item])
        ));
    }
    if placed.len() > MOST_PLACED {
        lines.push(format!("- and {} later (--json)", placed.len() - MOST_PLACED));
    }
    lines
}

/// Time since the start.
fn after_time(seconds: f64) -> String {
    if seconds == 0.0 { "0".to_owned() } else { Seconds(seconds).to_string() }
}

/// What stands in the way.
fn warning_lines(plan: &Plan, against: &Against) -> Vec<String> {
    let mut lines = Vec::new();
    let refused: Vec<&str> = plan
        .configurations
        .iter()
        .filter(|one| one.predicted.as_ref().is_some_and(|predicted| predicted.verdict == "does not fit"))
        .map(|one| one.name.as_str())
        .collect();
    if !refused.is_empty() {
        lines.push(format!(
            "! no GPU of the plan carries {}: {}",
            counted_of(refused.len(), "configuration"),
            some_names(&refused)
        ));
    }
    let too_wide =
        |one: &&Planned| one.predicted.as_ref().is_some_and(|predicted| predicted.gpus as usize > against.machine.gpus);
    let wide: Vec<&str> = plan.configurations.iter().filter(too_wide).map(|one| one.name.as_str()).collect();
    if !wide.is_empty() {
        lines.push(format!(
            "! more than the {} of this plan (--gpus): {}",
            counted_of(against.machine.gpus, "GPU"),
            some_names(&wide)
        ));
    }
    let chains = plan.configurations.iter().filter_map(|one| Some((one, plan.chain_links(one, against.hours)?)));
    let chained: Vec<(&Planned, u64)> = chains.filter(|(_, jobs)| *jobs > 1).collect();
    if let Some((one, jobs)) = chained.iter().max_by_key(|(_, jobs)| *jobs) {
        let names: Vec<&str> = chained.iter().map(|(one, _)| one.name.as_str()).collect();
        lines.push(format!(
            "! a limit of {} h is shorter than a run may take, of {}: `{}` takes a chain of {jobs} jobs, each going on from the last checkpoint",
            plain_number(against.hours),
            some_names(&names),
            one.name
        ));
    }
    lines
}

fn some_names(names: &[&str]) -> String {
    let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
    format!("{}{more}", names.iter().take(4).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
}

/// What rules made of values, each once.
fn rule_lines(plan: &Plan) -> Vec<String> {
    let mut said: Vec<&String> = plan.configurations.iter().flat_map(|one| &one.rules).collect();
    said.small_sort();
    said.dedup();
    said.into_iter().take(12).map(|rule| format!("scaled: {rule}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_what_tells_them_apart() {
        let look = Look { width: 80, unicode: true };
        let name = |text: &str| shorter_name(text, 21, &look);
        assert_eq!(name("hot learning_rate=0.0003 world_size=1"), "hot le…=0.0003 wo…=1");
        assert_eq!(name("hot learning_rate=0.001 world_size=1"), "hot le…=0.001 wo…=1");
        assert!(name("hierarchical H_cycles=4 L_cycles=1").ends_with("H_…=4 L_…=1"));
        assert_eq!(name("baseline"), "baseline");
        assert_eq!(shorter_name(&"ü".repeat(40), 20, &Look { unicode: false, ..look }).chars().count(), 20);
    }
}
