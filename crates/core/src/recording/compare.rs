//! Compares a predicted trace with a recorded job, event by event, and names the first difference.
//!
//! The n-th allocation of one side belongs to the n-th of the other. A free is where it should be when it falls
//! between the same two allocations; the order among the frees there means nothing to the allocator's peaks and is
//! not compared. A tensor freed too early or too late is named by its birth.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::trace::{Event, Origin, Trace};

/// Whether the names of operators, modules and nodes must agree besides bytes and phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Sizes must agree.
    Compare,
    /// Only bytes, phases and lifetimes count.
    Ignore,
}

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The first difference; `None` when the two agree throughout.
    pub first: Option<Difference>,
    /// Allocations that agree before it.
    pub equal_allocations: usize,
    /// Whether phases count: a snapshot of PyTorch's and a native program's recording have none.
    pub compares_phases: bool,
    /// Where counts or bytes differ, by phase and operator, the largest difference first.
    pub groups: Vec<GroupDifference>,
}

/// The first place where the two sides part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What kind of difference.
    pub kind: DifferenceKind,
    /// The predicted side; `None` when it has ended.
    pub predicted: Option<Place>,
    /// The recorded side; `None` when it has ended.
    pub recorded: Option<Place>,
}

/// How two sides part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The allocations at this place differ in these fields.
    Allocation(Vec<&'static str>),
    /// A free comes on the predicted side before it does on the recorded one.
    FreedEarly,
    /// A free is due that the predicted side has later or never.
    FreedLate,
    /// One side has an allocation that the other has not.
    Ended,
}

/// Where one side is, and what it does there. For a free, the allocation is the one that is freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the event in its recording or trace; the free itself where there is one.
    pub event: usize,
    /// Label of the phase (`2:backward`).
    pub phase: String,
    /// The allocation in question.
    pub allocation: RecordedAlloc,
    /// The events around, in words, the one in question marked by `>`.
    pub context: Vec<String>,
}

/// Allocations of one operator in one phase, where the two sides do not have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDifference {
    /// Label of the phase.
    pub phase: String,
    /// As PyTorch's dispatcher names it (`aten::addmm`).
    pub op: String,
    /// Number and bytes of allocations, predicted.
    pub predicted: (u64, u64),
    /// Number and bytes of allocations, recorded.
    pub recorded: (u64, u64),
}

/// Compares a trace with a recording.
pub fn compare(predicted: &Trace, recorded: &Recording, names: Names) -> Comparison {
    compare_recordings(&Recording::from(predicted), recorded, names)
}

/// Compares two recordings; phases only where both have some.
pub fn compare_recordings(predicted: &Recording, recorded: &Recording, names: Names) -> Comparison {
    let compares_phases = predicted.has_phases() && recorded.has_phases();
    let sides = [predicted, recorded].map(|recording| Side::new(recording, compares_phases));
    let (first, equal_allocations) = first_difference(&sides, names);
    Comparison { first, equal_allocations, compares_phases, groups: group_differences(&sides) }
}

impl From<&Trace> for Recording {
    /// The trace as a recording; allocations are numbered anew in order of birth.
    fn from(trace: &Trace) -> Self {
        let trace = &trace.unrolled();
        let mut numbers = HashMap::new();
        let mut names: HashSet<Arc<str>> = HashSet::new();
        let mut known = |name: &str| known_name(&mut names, name);
        let mut events = Vec::with_capacity(trace.events.len());
        for event in &trace.events {
            match *event {
                Event::Phase(index) => events.extend(trace.phases.get(index as usize).map(|phase| {
                    RecordedEvent::Phase(RecordedPhase { step: phase.step, name: phase.kind.name().to_owned() })
                })),
                Event::Alloc(id) => events.extend(trace.allocations.get(id as usize).map(|allocation| {
                    let number = numbers.len() as u32;
                    numbers.insert(id, number);
                    let Origin { op, node } = trace.origin(allocation);
                    RecordedEvent::Alloc(RecordedAlloc {
                        id: number,
                        bytes: allocation.bytes,
                        op: known(op),
                        module: known(trace.module(allocation)),
                        node: node.map(&mut known),
                        category: known(allocation.category.name()),
                        stream: allocation.stream,
                    })
                })),
                Event::EmptyCache => events.push(RecordedEvent::EmptyCache),
                Event::Repeat(_) | Event::Growing(_) => {}
                Event::Free(id) => events.extend(numbers.get(&id).map(|number| RecordedEvent::Free(*number))),
            }
        }
        Self { header: serde_json::Value::Null, events }
    }
}

/// The name, as it was said before.
fn known_name(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name));
    name
}

/// One side, ordered by allocations. Of millions: what is kept of each is small, and there is no map.
struct Side<'a> {
    recording: &'a Recording,
    births: Vec<Birth<'a>>,
    /// Places of what is freed, those after as many allocations as the index of `ends` says together and sorted.
    frees: Vec<u32>,
    /// Where the frees after so many allocations end.
    ends: Vec<u32>,
}

struct Birth<'a> {
    event: u32,
    /// The event that frees it.
    death: Option<NonZeroU32>,
    phase: Option<&'a RecordedPhase>,
    alloc: &'a RecordedAlloc,
}

impl<'a> Side<'a> {
    fn new(recording: &'a Recording, compares_phases: bool) -> Self {
        let allocs = recording.events.iter().filter(|event| matches!(event, RecordedEvent::Alloc(_))).count();
        let births = Vec::with_capacity(allocs);
        let mut side = Self { recording, births, frees: Vec::new(), ends: Vec::with_capacity(allocs + 1) };
        let mut phase = None;
        // Places among the allocations serve as names on both sides, whatever numbers a recording gives.
        let mut place_of = HashMap::new();
        for (event, entry) in (0..).zip(&recording.events) {
            match entry {
                RecordedEvent::Phase(next) => phase = compares_phases.then_some(next),
                RecordedEvent::EmptyCache => {}
                RecordedEvent::Alloc(alloc) => {
                    place_of.insert(alloc.id, side.births.len() as u32);
                    side.end_frees();
                    side.births.push(Birth { event, death: None, phase, alloc });
                }
                RecordedEvent::Free(id) => {
                    if let Some(place) = place_of.remove(id) {
                        side.frees.push(place);
                        side.births[place as usize].death = NonZeroU32::new(event);
                    }
                }
            }
        }
        side.end_frees();
        side
    }

    /// The next allocation comes: the frees before it are known.
    fn end_frees(&mut self) {
        let begin = self.ends.last().map_or(0, |end| *end as usize);
        self.frees[begin..].sort_unstable();
        self.ends.push(self.frees.len() as u32);
    }

    /// What is freed after so many allocations.
    fn frees_after(&self, allocations: usize) -> &[u32] {
        let end = |index: usize| self.ends.get(index).map_or(self.frees.len(), |end| *end as usize);
        let begin = allocations.checked_sub(1).map_or(0, end);
        &self.frees[begin..end(allocations)]
    }

    fn birth_place(&self, index: usize) -> Option<Place> {
        self.births.get(index).map(|birth| self.place_of(birth.event as usize, birth))
    }

    /// Where an allocation is freed, or where it was born if it is not.
    fn death_place(&self, number: u32) -> Option<Place> {
        let birth = self.births.get(number as usize)?;
        let event = birth.death.map_or(birth.event, NonZeroU32::get);
        Some(self.place_of(event as usize, birth))
    }

    fn place_of(&self, event: usize, birth: &Birth<'_>) -> Place {
        let phase = birth.phase.map(RecordedPhase::label).unwrap_or_default();
        Place { event, phase, allocation: birth.alloc.clone(), context: self.context_of(event) }
    }

    fn context_of(&self, event: usize) -> Vec<String> {
        let range = event.saturating_sub(3)..(event + 4).min(self.recording.events.len());
        let mark = |index| if index == event { '>' } else { ' ' };
        range
            .map(|index| format!("{} {index} {}", mark(index), self.event_words(&self.recording.events[index])))
            .collect()
    }

    fn event_words(&self, event: &RecordedEvent) -> String {
        match event {
            RecordedEvent::Phase(phase) => format!("phase {}", phase.label()),
            RecordedEvent::EmptyCache => "empty cache".to_owned(),
            RecordedEvent::Alloc(alloc) => format!("alloc {alloc}"),
            RecordedEvent::Free(id) => {
                let born = self.births.get(*id as usize).filter(|birth| birth.alloc.id == *id);
                format!("free  {}", born.map_or_else(|| format!("#{id}"), |birth| birth.alloc.to_string()))
            }
        }
    }
}

impl fmt::Display for RecordedAlloc {
    /// `#12 1024 B addmm.default in h.0.attn (AddmmBackward0)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} B {} in {}", self.id, self.bytes, self.op, self.module)?;
        self.node.iter().try_for_each(|node| write!(f, " ({node})"))
    }
}

fn first_difference(sides: &[Side<'_>; 2], names: Names) -> (Option<Difference>, usize) {
    let [predicted, recorded] = sides;
    let longest = predicted.births.len().max(recorded.births.len());
    for index in 0..=longest {
        // Frees before the allocation with this index come first.
        if let Some(difference) = free_difference(sides, index) {
            return (Some(difference), index);
        }
        let kind = match (predicted.births.get(index), recorded.births.get(index)) {
            (None, None) => continue,
            (Some(a), Some(b)) => match differing_fields(a, b, names) {
                fields if fields.is_empty() => continue,
                fields => DifferenceKind::Allocation(fields),
            },
            _ => DifferenceKind::Ended,
        };
        let difference =
            Difference { kind, predicted: predicted.birth_place(index), recorded: recorded.birth_place(index) };
        return (Some(difference), index);
    }
    (None, longest)
}

/// The first allocation that only one side frees after `index` allocations.
fn free_difference([predicted, recorded]: &[Side<'_>; 2], index: usize) -> Option<Difference> {
    let (here, there) = (predicted.frees_after(index), recorded.frees_after(index));
    let only_here = here.iter().find(|number| there.binary_search(number).is_err());
    let only_there = there.iter().find(|number| here.binary_search(number).is_err());
    let (number, kind) = match (only_here, only_there) {
        (None, None) => return None,
        (Some(a), Some(b)) if b < a => (*b, DifferenceKind::FreedLate),
        (Some(a), _) => (*a, DifferenceKind::FreedEarly),
        (None, Some(b)) => (*b, DifferenceKind::FreedLate),
    };
    Some(Difference { kind, predicted: predicted.death_place(number), recorded: recorded.death_place(number) })
}

fn differing_fields(a: &Birth<'_>, b: &Birth<'_>, names: Names) -> Vec<&'static str> {
    let mut fields = Vec::new();
    let mut check = |field, differs: bool| {
        if differs {
            fields.push(field);
        }
    };
    check("bytes", a.alloc.bytes != b.alloc.bytes);
    check("phase", a.phase != b.phase);
    if names == Names::Compare {
        check("op", a.alloc.op != b.alloc.op);
        check("module", a.alloc.module != b.alloc.module);
        check("node", a.alloc.node != b.alloc.node);
    }
    fields
}

/// Number and bytes of allocations on the predicted and the recorded side.
type Tallies = [(u64, u64); 2];

fn group_differences(sides: &[Side<'_>; 2]) -> Vec<GroupDifference> {
    let mut groups: BTreeMap<(Option<&RecordedPhase>, &str), Tallies> = BTreeMap::new();
    for (index, side) in sides.iter().enumerate() {
        for birth in &side.births {
            let (count, bytes) = &mut groups.entry((birth.phase, &birth.alloc.op)).or_default()[index];
            *count += 1;
            *bytes = bytes.saturating_add(birth.alloc.bytes);
        }
    }
    let differing = groups.into_iter().filter(|(_, [predicted, recorded])| predicted != recorded);
    let mut rows: Vec<_> = differing
        .map(|((phase, op), [predicted, recorded])| {
            let phase = phase.map(RecordedPhase::label).unwrap_or_default();
            GroupDifference { phase, op: op.to_owned(), predicted, recorded }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.predicted.1.abs_diff(row.recorded.1)));
    rows
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DifferenceKind::Allocation(fields) => writeln!(f, "allocations differ in {}", fields.join(", "))?,
            DifferenceKind::FreedEarly => writeln!(f, "freed too early")?,
            DifferenceKind::FreedLate => writeln!(f, "freed too late or never")?,
            DifferenceKind::Ended => writeln!(f, "one side has no more allocations")?,
        }
        for (name, place) in [("predicted", &self.predicted), ("recorded", &self.recorded)] {
            let Some(place) = place else {
                writeln!(f, "{name}: ended")?;
                continue;
            };
            writeln!(f, "{name}: event {}, phase {}, {}", place.event, place.phase, place.allocation)?;
            place.context.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read_timeline;

    /// Events separated by blanks: `a512` allocates under the next number, `f0` frees, `pload` begins a phase.
    fn recording(events: &str) -> Recording {
        let mut text = "{}".to_owned();
        let mut born = 0;
        for event in events.split(' ') {
            let (kind, rest) = event.split_at(1);
            match kind {
                "a" => {
                    let (bytes, op) = rest.split_once(':').unwrap_or((rest, "mm"));
                    text += &format!("\n[\"a\",{born},{bytes},\"{op}\",\"h.0\",\"temporary\"]");
                    born += 1;
                }
                "f" => text += &format!("\n[\"f\",{rest}]"),
                _ => text += &format!("\n[\"p\",\"{rest}\",1]"),
            }
        }
        read_timeline(&text).unwrap()
    }

    fn kind(predicted: &str, recorded: &str, names: Names) -> Option<(DifferenceKind, usize)> {
        let comparison = compare_recordings(&recording(predicted), &recording(recorded), names);
        comparison.first.map(|first| (first.kind, comparison.equal_allocations))
    }

    #[test]
    fn finds_the_first_difference() {
        use DifferenceKind::{Allocation, Ended, FreedEarly, FreedLate};
        let cases = [
            ("pf a1 a2 f0 f1 a3", "pf a1 a2 f1 f0 a3", None),
            ("pf a1 a2 a3", "pf a1 a9 a3", Some((Allocation(vec!["bytes"]), 1))),
            ("pf a1 a2:add", "pf a1 a2:mm", Some((Allocation(vec!["op"]), 1))),
            ("pf a1 pb a2", "pf a1 a2", Some((Allocation(vec!["phase"]), 1))),
            // A recording without phases is held against bytes and lifetimes alone.
            ("pf a1 pb a2", "a1 a2", None),
            ("pf a1 pb a2", "pbefore precorded a1 a2", None),
            ("pf a1 pb a2", "precorded a1 a3", Some((Allocation(vec!["bytes"]), 1))),
            ("pf a1 a2 f0 a3", "pf a1 a2 a3 f0", Some((FreedEarly, 2))),
            ("pf a1 a2 a3 f0", "pf a1 a2 f0 a3", Some((FreedLate, 2))),
            ("pf a1 a2", "pf a1", Some((Ended, 1))),
            ("pf a1 f0", "pf a1", Some((FreedEarly, 1))),
        ];
        for (predicted, recorded, expected) in cases {
            assert_eq!(kind(predicted, recorded, Names::Compare), expected, "{predicted} / {recorded}");
        }
        assert_eq!(kind("pf a1 a2:add", "pf a1 a2:mm", Names::Ignore), None);
    }

    #[test]
    fn says_where_and_what() {
        let comparison = compare_recordings(&recording("pf a1 a2 f0 a3"), &recording("pf a1 a2 a3 f0"), Names::Compare);
        let text = comparison.first.unwrap().to_string();
        assert!(text.contains("predicted: event 3, phase 1:f, #0 1 B mm in h.0"), "{text}");
        assert!(text.contains("> 4 free  #0 1 B mm in h.0"), "{text}");
        assert_eq!(comparison.groups, []);
    }

    #[test]
    fn sums_up_by_phase_and_op() {
        let comparison =
            compare_recordings(&recording("pf a1 a2:add"), &recording("pf a1 a9:add a4:add"), Names::Ignore);
        let expected =
            GroupDifference { phase: "1:f".to_owned(), op: "add".to_owned(), predicted: (1, 2), recorded: (2, 13) };
        assert_eq!(comparison.groups, [expected]);
    }
}
