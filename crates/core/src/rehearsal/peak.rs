//! What is alive when a recording's requests are highest, by what it holds and by the line that made it.

use crate::small_sort::SmallSort;
use std::collections::HashMap;
use std::sync::Arc;

use crate::recording::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::units::round_up;

/// PyTorch rounds every request up to this (`kMinBlockSize`, c10/cuda/CUDACachingAllocator.cpp).
const BLOCK: u64 = 512;

/// The highest moment of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtPeak {
    /// The phase (`2:backward`).
    pub phase: String,
    /// The line of the script whose request reaches it; empty where it is not known.
    pub line: String,
    /// The innermost function there.
    pub op: String,
    /// Bytes of the live requests, each rounded up to 512.
    pub bytes: u64,
    /// The same by category, largest first.
    pub by_category: Vec<(String, u64)>,
    /// The same by line, operator and phase of birth, largest first.
    pub by_line: Vec<LiveLine>,
}

/// What a line has allocated that is alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveLine {
    /// The line of the script; empty where it is not known.
    pub line: String,
    /// The innermost function, and its line in a library.
    pub op: String,
    /// The kind of phase in which it was allocated (`forward`).
    pub phase: String,
    /// What it holds.
    pub category: String,
    /// Of all its live blocks.
    pub bytes: u64,
    /// Number of allocations.
    pub count: u64,
}

/// What is alive, and the phase it was born in.
type Live<'a> = HashMap<u32, (&'a RecordedAlloc, &'a str)>;

impl AtPeak {
    /// The first moment with the most allocated bytes.
    pub fn of_recording(recording: &Recording) -> Self {
        highest_event(recording, None).map_or_else(Self::default, |highest| Self::at_event(recording, highest))
    }

    /// The same within the phase `label` (`2:backward`), which PyTorch's own counters say is the highest: these count blocks,
    /// which may be larger than what was asked for. Of the whole recording where that phase is not in it.
    pub fn in_phase(recording: &Recording, label: &str) -> Self {
        let highest = highest_event(recording, Some(label));
        highest.map_or_else(|| Self::of_recording(recording), |highest| Self::at_event(recording, highest))
    }

    fn at_event(recording: &Recording, (highest, bytes): (usize, u64)) -> Self {
        let mut live = Live::new();
        let (mut phase, mut label) = ("", String::new());
        for event in recording.events.iter().take(highest + 1) {
            match event {
                RecordedEvent::Phase(next) => (phase, label) = (next.name.as_str(), next.label()),
                RecordedEvent::Alloc(alloc) => drop(live.insert(alloc.id, (alloc, phase))),
                RecordedEvent::Free(id) => drop(live.remove(id)),
                RecordedEvent::EmptyCache => {}
            }
        }
        let (line, op) = match recording.events.get(highest) {
            Some(RecordedEvent::Alloc(alloc)) => (alloc.module.to_string(), alloc.op.to_string()),
            _ => (String::new(), String::new()),
        };
        let by_category = bytes_by(&live, |alloc, phase| category_of(alloc, phase).to_owned());
        let mut by_category: Vec<_> = by_category.into_iter().map(|(name, (bytes, _))| (name, bytes)).collect();
        by_category.small_sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self { phase: label, line, op, bytes, by_category, by_line: by_line(&live) }
    }
}

/// The event at which most is alive, of the phases with that label or of all, and how much that is.
fn highest_event(recording: &Recording, label: Option<&str>) -> Option<(usize, u64)> {
    let mut sizes = HashMap::new();
    let (mut now, mut best) = (0_u64, None);
    let mut counts = label.is_none();
    for (index, event) in recording.events.iter().enumerate() {
        match event {
            RecordedEvent::Phase(phase) => counts = label.is_none_or(|label| is_called(phase, label)),
            RecordedEvent::Alloc(alloc) => {
                let bytes = round_up(alloc.bytes, BLOCK);
                sizes.insert(alloc.id, bytes);
                now = now.saturating_add(bytes);
                if counts && best.is_none_or(|(_, most)| now > most) {
                    best = Some((index, now));
                }
            }
            RecordedEvent::Free(id) => now = now.saturating_sub(sizes.remove(id).unwrap_or(0)),
            _ => {}
        }
    }
    best
}

/// Whether a phase has the label, which late steps share (`16+:forward`).
fn is_called(phase: &RecordedPhase, label: &str) -> bool {
    match label.split_once("+:") {
        Some((last, name)) => phase.name == name && last.parse().is_ok_and(|last: u32| phase.step > last),
        None => phase.label() == label,
    }
}

/// The category, by where it was born if nobody said: what forward made and is still there is saved for backward.
fn category_of<'a>(alloc: &'a RecordedAlloc, phase: &str) -> &'a str {
    match (&*alloc.category, phase) {
        ("temporary", "forward") => "activation",
        (category, _) => category,
    }
}

fn bytes_by<K: std::hash::Hash + Eq>(
    live: &Live<'_>,
    key: impl Fn(&RecordedAlloc, &str) -> K,
) -> HashMap<K, (u64, u64)> {
    let mut sums = HashMap::new();
    for (alloc, phase) in live.values() {
        let (bytes, count) = sums.entry(key(alloc, phase)).or_insert((0_u64, 0_u64));
        *bytes = bytes.saturating_add(round_up(alloc.bytes, BLOCK));
        *count += 1;
    }
    sums
}

fn by_line(live: &Live<'_>) -> Vec<LiveLine> {
    let key = |alloc: &RecordedAlloc, phase: &str| {
        (alloc.module.clone(), alloc.op.clone(), phase.to_owned(), category_of(alloc, phase).to_owned())
    };
    let line = |((line, op, phase, category), (bytes, count)): ((Arc<str>, Arc<str>, String, String), _)| {
        let (line, op) = (line.to_string(), op.to_string());
        LiveLine { line, op, phase, category, bytes, count }
    };
    let mut lines: Vec<_> = bytes_by(live, key).into_iter().map(line).collect();
    let name = |live: &LiveLine| (live.line.clone(), live.op.clone(), live.phase.clone(), live.category.clone());
    lines.small_sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| name(a).cmp(&name(b))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read_timeline;

    #[test]
    fn tells_what_is_alive_and_who_made_it() {
        let text = "{}\n[\"p\",\"load\",0]\n[\"a\",0,1024,\"to\",\"train.py:3 in f\",\"parameter\"]\n\
                    [\"p\",\"forward\",1]\n[\"a\",1,100,\"mm\",\"train.py:7 in f\",\"temporary\"]\n\
                    [\"a\",2,600,\"mm\",\"train.py:7 in f\",\"temporary\"]\n[\"f\",2]\n\
                    [\"p\",\"backward\",1]\n[\"a\",3,512,\"mm\",\"train.py:8 in f\",\"temporary\"]\n";
        let peak = AtPeak::of_recording(&read_timeline(text).unwrap());
        assert_eq!((peak.phase.as_str(), peak.line.as_str(), peak.bytes), ("1:forward", "train.py:7 in f", 2560));
        let categories: Vec<_> = peak.by_category.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        assert_eq!(categories, [("activation", 1536), ("parameter", 1024)]);
        assert_eq!((peak.by_line[0].line.as_str(), peak.by_line[0].count), ("train.py:7 in f", 2));
    }

    #[test]
    fn the_peak_of_a_phase_is_told_where_the_counters_say_that_it_is_highest() {
        // Requests are highest in the first step; blocks, says PyTorch, in the second.
        let text = "{}\n[\"p\",\"forward\",1]\n[\"a\",0,1024,\"mm\",\"train.py:3 in f\",\"temporary\"]\n[\"f\",0]\n\
                    [\"p\",\"forward\",2]\n[\"a\",1,512,\"mm\",\"train.py:7 in f\",\"temporary\"]\n";
        let recording = read_timeline(text).unwrap();
        let peak = |label| AtPeak::in_phase(&recording, label);
        assert_eq!((peak("2:forward").phase.as_str(), peak("2:forward").bytes), ("2:forward", 512));
        assert_eq!(peak("2:forward").line, "train.py:7 in f");
        assert_eq!(peak("1+:forward"), peak("2:forward"), "late steps share a label");
        assert_eq!(peak("16+:forward"), AtPeak::of_recording(&recording), "where the trace has ended before");
    }

    #[test]
    fn an_empty_recording_has_no_peak() {
        assert_eq!(AtPeak::of_recording(&Recording::default()), AtPeak::default());
    }
}
