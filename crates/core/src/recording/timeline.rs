//! Timelines: the text form of a recorded job. The first line is a JSON object about the case; each line after it is
//! `["p",phase,step]`, `["a",id,bytes,op,"module|node",category]` (and the stream, where it is not the main one),
//! `["f",id]` or `["e"]` where the cache is emptied.

use std::collections::HashMap;
use std::fmt::Write;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::failure::printable;
use crate::trace::{Allocation, Event, Origin, Trace};

/// What the lines mean, for the header of a timeline.
const FORMAT: &str = "one JSON array per event: ['a', id, bytes, op, fqn, category] or ['f', id]; ['p', phase, step] \
                      when the phase changes; ['e'] when the cache is emptied; allocations \
                      of a side stream end in its number";

/// Each takes some 200 bytes of memory.
const MOST_EVENTS: usize = 2_000_000;

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
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let done = if reader.started { reader.event(line) } else { reader.header(line) };
        done.map_err(|reason| TimelineError { line: index + 1, reason })?;
    }
    if !reader.started {
        return Err(TimelineError { line: 1, reason: "a timeline begins with a JSON object".to_owned() });
    }
    Ok(reader.recording)
}

#[derive(Default)]
struct Reader {
    started: bool,
    recording: Recording,
    /// The file's numbers of live allocations.
    live: HashMap<u64, u32>,
    born: u32,
}

impl Reader {
    fn header(&mut self, line: &str) -> Result<(), String> {
        let header: Value = parse(line)?;
        if !header.is_object() {
            return Err("a timeline begins with a JSON object".to_owned());
        }
        self.started = true;
        self.recording.header = header;
        Ok(())
    }

    fn event(&mut self, line: &str) -> Result<(), String> {
        let event = match line.split('"').nth(1) {
            Some("a") => self.alloc(line)?,
            Some("f") => {
                let (_, id): (IgnoredAny, u64) = parse(line)?;
                let id = self.live.remove(&id).ok_or_else(|| format!("frees {id}, which is not live"))?;
                RecordedEvent::Free(id)
            }
            Some("e") => RecordedEvent::EmptyCache,
            Some("p") => {
                let (_, name, step): (IgnoredAny, String, u32) = parse(line)?;
                RecordedEvent::Phase(RecordedPhase { step, name: shown(name) })
            }
            _ => return Err("expected [\"a\", ...], [\"f\", ...] or [\"p\", ...]".to_owned()),
        };
        if self.recording.events.len() == MOST_EVENTS {
            return Err(format!("more than {MOST_EVENTS} events; record fewer steps"));
        }
        self.recording.events.push(event);
        Ok(())
    }

    fn alloc(&mut self, line: &str) -> Result<RecordedEvent, String> {
        type Fields = (IgnoredAny, u64, u64, String, String, String);
        type FieldsAndStream = (IgnoredAny, u64, u64, String, String, String, u8);
        let ((_, id, bytes, op, origin, category), stream) = match parse::<FieldsAndStream>(line) {
            Ok((a, id, bytes, op, origin, category, stream)) => ((a, id, bytes, op, origin, category), stream),
            Err(_) => (parse::<Fields>(line)?, 0),
        };
        if self.live.insert(id, self.born).is_some() {
            return Err(format!("allocates {id}, which is still live"));
        }
        let (module, node) = match origin.split_once('|') {
            Some((module, node)) => (module.to_owned(), Some(node.to_owned())),
            None => (origin, None),
        };
        let [op, module, category] = [op, module, category].map(shown);
        let node = node.map(shown);
        let alloc = RecordedAlloc { id: self.born, bytes, op, module, node, category, stream };
        self.born = self.born.checked_add(1).ok_or("too many allocations")?;
        Ok(RecordedEvent::Alloc(alloc))
    }
}

/// Names are printed.
fn shown(name: String) -> String {
    if name.chars().any(char::is_control) { printable(&name) } else { name }
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T, String> {
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
    let place = node.map_or_else(|| module.to_owned(), |node| format!("{module}|{node}"));
    let line = json!(["a", id, allocation.bytes, op, place, allocation.category]);
    match (line, allocation.stream) {
        (Value::Array(mut fields), 1..) => {
            fields.push(allocation.stream.into());
            Value::Array(fields)
        }
        (line, _) => line,
    }
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
        assert_eq!((first.id, first.module.as_str(), first.node.as_deref()), (0, "h.0", Some("MmBackward0")));
        let RecordedEvent::Alloc(second) = &recording.events[3] else { panic!() };
        assert_eq!((second.id, second.node.as_deref()), (1, None));
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        let cases = [
            ("", 1, "begins with a JSON object"),
            ("[1]", 1, "begins with a JSON object"),
            ("{}\n\n[\"f\",1]", 3, "frees 1, which is not live"),
            ("{}\n[\"x\",1]", 2, "expected"),
            ("{}\n[\"a\",1,2]", 2, "invalid length"),
            ("{}\n[\"a\",1,2,\"\",\"\",\"\"]\n[\"a\",1,2,\"\",\"\",\"\"]", 3, "allocates 1, which is still live"),
        ];
        for (text, line, reason) in cases {
            let error = read_timeline(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(reason), "{error}");
        }
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
            sizes: 0,
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
            op: "mm.default".to_owned(),
            module: "h.0".to_owned(),
            node: Some("MmBackward0".to_owned()),
            category: "optimizer_state".to_owned(),
            stream: 0,
        };
        assert_eq!(recording.phases().map(RecordedPhase::label).collect::<Vec<_>>(), ["2:backward"]);
        assert_eq!(recording.events[1..], [RecordedEvent::Alloc(expected), RecordedEvent::Free(0)]);
    }
}
