//! Counters in lines: `step 3/10`, `iter 250: loss 2.1`, `[Round 3]`, `Epoch 1 Batch 3/100`.

use super::measurements::{is_bare, is_measured, is_quoted_key, names_a_metric};
use super::{Progress, Said, Unit};
use crate::small_sort::SmallSort;

/// Words before a number that count, and what.
const WORDS: [(&str, Unit); 9] = [
    ("global_step", Unit::Step),
    ("global step", Unit::Step),
    ("iteration", Unit::Step),
    ("step", Unit::Step),
    ("iter", Unit::Step),
    ("update", Unit::Step),
    ("batch", Unit::Batch),
    ("round", Unit::Round),
    ("epoch", Unit::Epoch),
];

/// A counter in a line.
#[derive(Clone, Copy)]
struct Counter {
    unit: Unit,
    step: u64,
    total: Option<u64>,
    /// Where its word begins, and where its numbers end.
    place: (usize, usize),
}

/// What a line's counters say.
pub(super) fn read_counter(line: &str) -> Option<Said> {
    let counters = all_counters(line);
    let first = counters.first()?;
    let last = counters.last()?;
    let epoch = counters.iter().find(|counter| counter.unit == Unit::Epoch);
    // The finest that is counted: of `iter 1 step 7`, trainers who write both mean the step.
    let finest = counters.iter().rev().find(|counter| counter.unit != Unit::Epoch).or(epoch)?;
    let rest = line.get(last.place.1..)?;
    let progress = match (epoch, finest.unit) {
        (Some(epoch), Unit::Epoch) => batch_of(epoch, rest)?,
        (Some(epoch), _) => with_epoch(finest, epoch),
        (None, _) => Progress { unit: finest.unit, step: finest.step, total: finest.total, ..Progress::default() },
    };
    let is_counted = progress.total.is_some();
    let quoted = is_quoted_key(line, first.place.0);
    let trains = if quoted { names_a_metric(line) } else { is_measured(rest, true) };
    let alone = is_bare(line.get(..first.place.0)?) || is_measured(rest, false);
    (trains && (is_counted || quoted || alone)).then_some(Said { progress, is_certain: is_counted, is_bar: false })
}

fn with_epoch(counter: &Counter, epoch: &Counter) -> Progress {
    Progress {
        unit: counter.unit,
        step: counter.step,
        total: counter.total,
        // A step that is not counted within its epoch goes on from epoch to epoch.
        epoch: counter.total.map(|_| epoch.step),
        epochs: counter.total.and(epoch.total),
    }
}

/// `Epoch: [0][10/391]`, `Train Epoch: 1 [640/60000 (1%)]`, `epoch 001:  10 / 391`: numbers right behind an epoch's.
fn batch_of(epoch: &Counter, rest: &str) -> Option<Progress> {
    let after = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
    let batch = leading_number(after).and_then(|(step, rest)| Some((step, over_total(rest)?.0)));
    Some(match batch {
        Some((step, total)) => {
            Progress { unit: Unit::Batch, step, total: Some(total), epoch: Some(epoch.step), epochs: epoch.total }
        }
        None => Progress { unit: Unit::Epoch, step: epoch.step, total: epoch.total, ..Progress::default() },
    })
}

/// The counters of a line, in its order.
fn all_counters(line: &str) -> Vec<Counter> {
    // Letters of other alphabets stay as they are, so that places are the same.
    let lower = line.to_ascii_lowercase();
    let mut found: Vec<Counter> = Vec::new();
    for (word, unit) in WORDS {
        let ends = |at: usize| found.iter().any(|other| (other.place.0..other.place.1).contains(&at));
        let places: Vec<usize> = lower.match_indices(word).map(|(at, _)| at).filter(|at| !ends(*at)).collect();
        found.extend(places.into_iter().filter_map(|at| counter_at(&lower, at, word, unit)));
    }
    found.small_sort_by_key(|counter| counter.place.0);
    found
}

/// The counter whose word begins at `at`; `max_steps` and `steps per epoch` are none.
fn counter_at(lower: &str, at: usize, word: &str, unit: Unit) -> Option<Counter> {
    let before = lower.get(..at)?.chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')) {
        return None;
    }
    let rest = lower.get(at + word.len()..)?;
    let digits = rest.trim_start_matches(['"', '\'', ':', '=', ' ', '[', '#', '\t']);
    let (step, rest) = leading_number(digits)?;
    let (total, rest) = match over_total(rest) {
        Some((total, rest)) => (Some(total), rest),
        None => (None, rest),
    };
    // `STEP 7.0` is SLURM's; `step 3a`, `step 10k` and `step 2-3` are names.
    let mut next = rest.chars();
    let names = match next.next() {
        Some('.') => next.next().is_some_and(|c| c.is_ascii_digit()),
        Some(c) => c.is_alphanumeric() || matches!(c, '_' | '-' | '/'),
        None => false,
    };
    (!names).then_some(Counter { unit, step, total, place: (at, lower.len() - rest.len()) })
}

/// A number at the beginning, and what follows it.
pub(super) fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `/ 500`, ` of 500`: the total behind a number, and what follows it.
pub(super) fn over_total(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start();
    let rest = text.strip_prefix('/').or_else(|| text.strip_prefix("of "))?;
    leading_number(rest.trim_start())
}
