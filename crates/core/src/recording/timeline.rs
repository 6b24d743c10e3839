//! Timelines: the text form of a recorded job. The first line is a JSON object about the case; each line after it is
//! `["p",phase,step]`, `["a",id,bytes,op,"module|node",category]` (and the stream, where it is not the main one),
//! `["f",id]`, `["e"]` where the cache is emptied, or `["r",n]`: the n events before it once more, a step later.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::names::{Texts, beginning_of};
use super::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::limit::{LINE_BYTES, RECORDED_EVENTS, RECORDED_PHASES};
use crate::printable::printable;
use crate::trace::{Allocation, Event, Origin, Trace};

/// What the lines mean, for the header of a timeline.
const FORMAT: &str = "one JSON array per event: ['a', id, bytes, op, fqn, category] or ['f', id]; ['p', phase, step] \
                      when the phase changes; ['e'] when the cache is emptied; allocations \
                      of a side stream end in its number; ['r', n]: the n events before once more, ids higher by \
                      their number of allocations, steps by one";

/// What is wrong with a timeline, and in which line (from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TimelineError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads a timeline. Empty lines are skipped.
///
/// # Errors
/// On a line that is none of the forms, a number given to two live allocations, and a free of what is not live.
pub fn read_timeline(text: &str) -> Result<Recording, TimelineError> {
    let mut reader = TimelineReader::default();
    text.lines().try_for_each(|line| reader.read_line(line))?;
    reader.finish()
}

/// A timeline that is read line by line, so that its text need not be held.
pub struct TimelineReader {
    most_events: usize,
    lines: usize,
    phases: usize,
    started: bool,
    recording: Recording,
    names: Texts,
    /// The file's numbers of live allocations.
    live: HashMap<u64, u32>,
    /// The file's number of each allocation, by birth.
    numbers: Vec<u64>,
}

impl Default for TimelineReader {
    fn default() -> Self {
        Self::of_at_most(RECORDED_EVENTS)
    }
}

impl TimelineReader {
    /// One that refuses more events than these.
    pub fn of_at_most(most_events: usize) -> Self {
        Self {
            most_events,
            lines: 0,
            phases: 0,
            started: false,
            recording: Recording::default(),
            names: Texts::default(),
            live: HashMap::new(),
            numbers: Vec::new(),
        }
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// As [`read_timeline`].
    pub fn read_line(&mut self, line: &str) -> Result<(), TimelineError> {
        self.lines += 1;
        let done = match line.trim() {
            "" => Ok(()),
            long if long.len() > LINE_BYTES => Err(format!("a line of {} bytes is none of a timeline", long.len())),
            line if self.started => self.read_event(line),
            line => self.read_header(line),
        };
        done.map_err(|reason| TimelineError { line: self.lines, reason })
    }

    /// Whether the header was read.
    pub const fn has_begun(&self) -> bool {
        self.started
    }

    /// What was read.
    ///
    /// # Errors
    /// When there was no header.
    pub fn finish(self) -> Result<Recording, TimelineError> {
        if !self.started {
            return Err(TimelineError { line: 1, reason: "a timeline begins with a JSON object".to_owned() });
        }
        Ok(self.recording)
    }

    fn read_header(&mut self, line: &str) -> Result<(), String> {
        let header: Value = parse(line)?;
        if !header.is_object() {
            return Err("a timeline begins with a JSON object".to_owned());
        }
        self.started = true;
        self.recording.header = header;
        Ok(())
    }

    fn read_event(&mut self, line: &str) -> Result<(), String> {
        let event = match line.split('"').nth(1) {
            Some("a") => self.read_alloc(line)?,
            Some("f") => {
                let (_, id): (IgnoredAny, u64) = parse(line)?;
                self.free_number(id)?
            }
            Some("e") => RecordedEvent::EmptyCache,
            Some("p") => {
                let (_, name, step): (IgnoredAny, String, u32) = parse(line)?;
                self.begin_phase(RecordedPhase { step, name: printable(beginning_of(&name)) })?
            }
            Some("r") => return self.repeat_events(parse::<(IgnoredAny, usize)>(line)?.1),
            _ => return Err("expected [\"a\", ...], [\"f\", ...] or [\"p\", ...]".to_owned()),
        };
        self.push_event(event)
    }

    fn push_event(&mut self, event: RecordedEvent) -> Result<(), String> {
        if self.recording.events.len() == self.most_events {
            return Err(format!("more than {} events; record fewer steps", self.most_events));
        }
        self.recording.events.push(event);
        Ok(())
    }

    fn begin_phase(&mut self, phase: RecordedPhase) -> Result<RecordedEvent, String> {
        if self.phases == RECORDED_PHASES {
            return Err(format!("more than {RECORDED_PHASES} phases; record fewer steps"));
        }
        self.phases += 1;
        Ok(RecordedEvent::Phase(phase))
    }

    /// An allocation is born; `id`: the file's number of it.
    fn take_birth(&mut self, id: u64) -> Result<u32, String> {
        let born = u32::try_from(self.numbers.len()).map_err(|_| "too many allocations")?;
        if self.live.insert(id, born).is_some() {
            return Err(format!("allocates {id}, which is still live"));
        }
        self.numbers.push(id);
        Ok(born)
    }

    fn free_number(&mut self, id: u64) -> Result<RecordedEvent, String> {
        let id = self.live.remove(&id).ok_or_else(|| format!("frees {id}, which is not live"))?;
        Ok(RecordedEvent::Free(id))
    }

    /// The last events once more, as what a step later did the same.
    fn repeat_events(&mut self, count: usize) -> Result<(), String> {
        let end = self.recording.events.len();
        let begin = end.checked_sub(count).ok_or_else(|| format!("repeats {count} events of {end}"))?;
        let repeated = &self.recording.events[begin..];
        let births = repeated.iter().filter(|event| matches!(event, RecordedEvent::Alloc(_))).count() as u64;
        for at in begin..end {
            let event = match self.recording.events[at].clone() {
                RecordedEvent::Alloc(alloc) => RecordedEvent::Alloc(RecordedAlloc {
                    id: self.take_birth(self.number_after(alloc.id, births)?)?,
                    ..alloc
                }),
                RecordedEvent::Free(id) => self.free_number(self.number_after(id, births)?)?,
                RecordedEvent::Phase(phase) => {
                    self.begin_phase(RecordedPhase { step: phase.step.saturating_add(1), ..phase })?
                }
                RecordedEvent::EmptyCache => RecordedEvent::EmptyCache,
            };
            self.push_event(event)?;
        }
        Ok(())
    }

    /// The file's number of what stands for this allocation so many births later.
    fn number_after(&self, id: u32, births: u64) -> Result<u64, String> {
        self.numbers[id as usize].checked_add(births).ok_or_else(|| "repeats a number that is too large".to_owned())
    }

    fn read_alloc(&mut self, line: &str) -> Result<RecordedEvent, String> {
        let Fields(_, id, bytes, op, origin, category, stream) = parse(line)?;
        let born = self.take_birth(id)?;
        let (module, node) = origin.split_once('|').map_or((&*origin, None), |(of, node)| (of, Some(node)));
        let (op, module, category) =
            (self.names.keep_text(&op)?, self.names.keep_text(module)?, self.names.keep_text(&category)?);
        let node = node.map(|node| self.names.keep_text(node)).transpose()?;
        Ok(RecordedEvent::Alloc(RecordedAlloc { id: born, bytes, op, module, node, category, stream }))
    }
}

/// The fields of an allocation; the main stream is left out.
#[derive(Deserialize)]
struct Fields<'a>(
    IgnoredAny,
    u64,
    u64,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(default)] u8,
);

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|e| e.to_string())
}

/// Writes a trace as a timeline.
pub fn write_timeline(trace: &Trace) -> String {
    let mut text = json!({ "format": FORMAT }).to_string();
    let trace = &trace.unrolled();
    for event in &trace.events {
        let line = match *event {
            Event::Alloc(id) => trace.allocations.get(id as usize).map(|a| alloc_line(trace, id, a)),
            Event::Free(id) => Some(json!(["f", id])),
            Event::EmptyCache => Some(json!(["e"])),
            Event::Repeat(_) | Event::Growing(_) => None,
            Event::Phase(index) => trace.phases.get(index as usize).map(|p| json!(["p", p.kind.name(), p.step])),
        };
        if let Some(line) = line {
            // Writing to a String does not fail.
            let _ = write!(text, "\n{line}");
        }
    }
    text.push('\n');
    text
}

fn alloc_line(trace: &Trace, id: u32, allocation: &Allocation) -> Value {
    let module = trace.module(allocation);
    let Origin { op, node } = trace.origin(allocation);
    let line = json!(["a", id, allocation.bytes, op, place_of(module, node), allocation.category]);
    on_stream(line, allocation.stream)
}

/// The module, and the node that ran it in backward.
fn place_of(module: &str, node: Option<&str>) -> String {
    node.map_or_else(|| module.to_owned(), |node| format!("{module}|{node}"))
}

/// The line with its stream, where that is not the main one.
fn on_stream(line: Value, stream: u8) -> Value {
    match (line, stream) {
        (Value::Array(mut fields), 1..) => {
            fields.push(stream.into());
            Value::Array(fields)
        }
        (line, _) => line,
    }
}

/// Writes a recording as a timeline, its header first.
pub fn write_recording(recording: &Recording) -> String {
    let mut text = recording.header.to_string();
    for event in &recording.events {
        let line = match event {
            RecordedEvent::Alloc(RecordedAlloc { id, bytes, op, module, node, category, stream }) => {
                on_stream(json!(["a", id, bytes, **op, place_of(module, node.as_deref()), **category]), *stream)
            }
            RecordedEvent::Free(id) => json!(["f", id]),
            RecordedEvent::EmptyCache => json!(["e"]),
            RecordedEvent::Phase(phase) => json!(["p", phase.name, phase.step]),
        };
        // Writing to a String does not fail.
        let _ = write!(text, "\n{line}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Category, Phase, PhaseKind};

    const TEXT: &str = r#"{"case":{"id":"x"}}
["p","load",0]
["a",7,1024,"mm.default","h.0|MmBackward0","gradient"]
["f",7]
["a",7,512,"add.Tensor","","temporary"]
"#;

    #[test]
    fn reads_events_and_numbers_allocations_by_birth() {
        let recording = read_timeline(TEXT).unwrap();
        assert_eq!(recording.events.len(), 4);
        let RecordedEvent::Alloc(first) = &recording.events[1] else { panic!() };
        assert_eq!((first.id, &*first.module, first.node.as_deref()), (0, "h.0", Some("MmBackward0")));
        let RecordedEvent::Alloc(second) = &recording.events[3] else { panic!() };
        assert_eq!((second.id, second.node.as_deref()), (1, None));
    }

    #[test]
    fn a_recording_is_written_as_it_was_read() {
        let text = format!("{TEXT}[\"a\",9,2048,\"\",\"\",\"\",3]\n[\"e\"]\n");
        let recording = read_timeline(&text).unwrap();
        assert_eq!(read_timeline(&write_recording(&recording)).unwrap(), recording);
    }

    #[test]
    fn a_step_that_repeats_is_read_as_if_it_were_written() {
        let step = |number: u32, old: u32| {
            let (batch, rest) = (2 * number, 2 * number + 1);
            format!(
                "[\"p\",\"forward\",{number}]\n[\"a\",{batch},512,\"to\",\"\",\"temporary\"]\n\
                 [\"a\",{rest},256,\"mm\",\"\",\"temporary\",3]\n[\"f\",{old}]\n[\"e\"]\n[\"f\",{rest}]\n"
            )
        };
        let begun = format!("{{}}\n[\"a\",0,8,\"\",\"\",\"\"]\n{}{}", step(1, 0), step(2, 2));
        let written = format!("{begun}{}{}", step(3, 4), step(4, 6));
        assert_eq!(read_timeline(&format!("{begun}[\"r\",6]\n[\"r\",6]\n")), read_timeline(&written));
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        let cases = [
            ("", 1, "begins with a JSON object"),
            ("[1]", 1, "begins with a JSON object"),
            ("{}\n\n[\"f\",1]", 3, "frees 1, which is not live"),
            ("{}\n[\"x\",1]", 2, "expected"),
            ("{}\n[\"a\",1,2]", 2, "invalid length"),
            ("{}\n[\"e\"]\n[\"r\",2]", 3, "repeats 2 events of 1"),
            ("{}\n[\"a\",1,2,\"\",\"\",\"\"]\n[\"f\",1]\n[\"r\",1]", 4, "frees 1, which is not live"),
            ("{}\n[\"a\",1,2,\"\",\"\",\"\"]\n[\"a\",1,2,\"\",\"\",\"\"]", 3, "allocates 1, which is still live"),
        ];
        for (text, line, reason) in cases {
            let error = read_timeline(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn events_and_phases_are_bounded() {
        let filled = |line: &str, most_events: usize| {
            let mut reader = TimelineReader::of_at_most(most_events);
            reader.read_line("{}").unwrap();
            (0..).find_map(|count| reader.read_line(line).err().map(|error| (count, error.reason))).unwrap()
        };
        assert_eq!(filled("[\"e\"]", 7), (7, "more than 7 events; record fewer steps".to_owned()));
        let mut reader = TimelineReader::of_at_most(7);
        let lines = ["{}", "[\"e\"]", "[\"r\",1]", "[\"r\",2]", "[\"r\",4]"];
        assert!(
            lines.iter().try_for_each(|line| reader.read_line(line)).unwrap_err().reason.contains("more than 7 events")
        );
        assert_eq!(filled("[\"p\",\"forward\",1]", usize::MAX).0, RECORDED_PHASES);
    }

    #[test]
    fn writes_what_it_reads() {
        let allocation = Allocation {
            bytes: 1024,
            origin: 0,
            module: 1,
            phase: 0,
            category: Category::OptimizerState,
            stream: 0,
            other_size: 0,
        };
        let trace = Trace {
            events: vec![Event::Phase(0), Event::Alloc(0), Event::Free(0)],
            allocations: vec![allocation],
            origins: vec![Origin { op: "mm.default", node: Some("MmBackward0") }],
            modules: vec![String::new(), "h.0".to_owned()],
            phases: vec![Phase { kind: PhaseKind::Backward, step: 2 }],
            repeats: Vec::new(),
            growing: Vec::new(),
        };
        let recording = read_timeline(&write_timeline(&trace)).unwrap();
        let expected = RecordedAlloc {
            id: 0,
            bytes: 1024,
            op: "mm.default".into(),
            module: "h.0".into(),
            node: Some("MmBackward0".into()),
            category: "optimizer_state".into(),
            stream: 0,
        };
        assert_eq!(recording.phases().map(RecordedPhase::label).collect::<Vec<_>>(), ["2:backward"]);
        assert_eq!(recording.events[1..], [RecordedEvent::Alloc(expected), RecordedEvent::Free(0)]);
    }
}
