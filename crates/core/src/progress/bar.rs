//! Bars: tqdm's, whose rate says that it counts steps and not bytes or files, and Keras's.

use super::counter::{leading_number, over_total};
use super::{Progress, Said, Unit};

/// Words that begin the title of a bar of training.
const TITLES: [&str; 10] =
    ["epoch", "step", "train", "iter", "round", "fit", "finetun", "fine-tun", "optimi", "update"];
/// What the rate of such a bar counts; tqdm's own unit is `it`.
const RATES: [&str; 7] = ["it", "step", "steps", "batch", "batches", "iter", "round"];

/// What a bar says.
pub(super) fn read_bar(line: &str) -> Option<Said> {
    let progress = read_tqdm(line).or_else(|| read_keras(line))?;
    Some(Said { progress, is_certain: true, is_bar: true })
}

/// `12%|█▏        | 12/100 [00:03<00:22,  4.00it/s]`, as tqdm writes it, after a title or none.
fn read_tqdm(line: &str) -> Option<Progress> {
    let (before, bar) = line.split_once("%|")?;
    let (_, counts) = bar.split_once("| ")?;
    let (step, rest) = leading_number(counts.trim_start())?;
    let (total, rest) = leading_number(rest.strip_prefix('/')?)?;
    let (_, times) = rest.split_once('[')?;
    if !times.contains('<') || !times.trim_end().ends_with(']') || !counts_steps(times) {
        return None;
    }
    let (unit, epoch, epochs) = read_title(before)?;
    Some(Progress { unit, step, total: Some(total), epoch, epochs })
}

/// Whether a bar's times say `it/s`, `s/it` or the like.
fn counts_steps(times: &str) -> bool {
    let rates = times.split([',', ' ', ']']).filter_map(|word| word.split_once('/'));
    let name = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '?').to_owned();
    rates.into_iter().any(|(left, right)| {
        (right == "s" && RATES.contains(&name(left).as_str())) || (name(left) == "s" && RATES.contains(&right))
    })
}

/// What a bar of this title counts; `None` where it is none of training. A title ends in a colon.
fn read_title(before: &str) -> Option<(Unit, Option<u64>, Option<u64>)> {
    let text = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ').trim_start();
    // A label of a rank or a node, `[rank0]:`, is none.
    let title = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, rest)) => rest.trim_start_matches([':', ' ']),
        None => text,
    };
    let title = title.trim_end_matches([':', ' ']).to_ascii_lowercase();
    if title.is_empty() {
        return Some((Unit::Step, None, None));
    }
    let begins = TITLES.iter().find(|word| title.starts_with(**word))?;
    if *begins != "epoch" {
        return Some((Unit::Step, None, None));
    }
    let rest = title.trim_start_matches(|c: char| !c.is_ascii_digit());
    let Some((epoch, rest)) = leading_number(rest) else { return Some((Unit::Batch, None, None)) };
    Some((Unit::Batch, Some(epoch), over_total(rest).map(|(total, _)| total)))
}

/// `10/100 [==>....] - ETA: 5s` of Keras 2, `10/100 ━━━━ 5s 50ms/step` of Keras 3.
fn read_keras(line: &str) -> Option<Progress> {
    let (step, rest) = leading_number(line.trim_start())?;
    let (total, rest) = leading_number(rest.strip_prefix('/')?)?;
    let bar = rest.trim_start();
    let is_bar = bar.starts_with("[=") || bar.starts_with("[>") || bar.starts_with("[.") || bar.starts_with('━');
    is_bar.then_some(Progress { unit: Unit::Batch, step, total: Some(total), epoch: None, epochs: None })
}
