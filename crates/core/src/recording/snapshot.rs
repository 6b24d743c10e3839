//! Imports what `torch.cuda.memory._dump_snapshot` writes: the events of a device, and what was alive before them.
//!
//! Streams and private pools are not told apart: the replay puts everything on one stream.

use std::collections::HashMap;

use serde_json::json;

use super::pickle::{Pickle, PickleError, ValueId};
use super::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::failure::printable;

/// Why a snapshot could not be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file is no pickle that can be read.
    #[error("not a readable pickle: {0}")]
    Pickle(#[from] PickleError),
    /// The pickle is no memory snapshot.
    #[error("not a memory snapshot: {0}")]
    Missing(&'static str),
    /// An event lacks a number.
    #[error("trace event {event}: no `{field}`")]
    Event {
        /// Its index in the device's trace.
        event: usize,
        /// What it lacks.
        field: &'static str,
    },
}

/// Imports the events of `device`. Two phases come out: `0:before` allocates what was alive when the trace begins,
/// in order of addresses; `1:recorded` is the trace. The header tells the settings and how often memory ran out.
///
/// # Errors
/// When `bytes` is no pickle, no snapshot, or was made without `_record_memory_history` for this device.
pub fn read_snapshot(bytes: &[u8], device: usize) -> Result<Recording, SnapshotError> {
    let pickle = Pickle::read(bytes)?;
    let root = pickle.root();
    let traces = pickle.get(root, "device_traces").ok_or(SnapshotError::Missing("no `device_traces`"))?;
    let segments = pickle.get(root, "segments").ok_or(SnapshotError::Missing("no `segments`"))?;
    let trace = pickle.items(traces).get(device).ok_or(SnapshotError::Missing("no trace of this device"))?;
    let mut importer = Importer::new(&pickle);
    importer.read_trace(pickle.items(*trace))?;
    importer.add_survivors(pickle.items(segments), device as u64);
    Ok(importer.finish())
}

/// An event of the trace, with allocations numbered from 0 in order of their birth in it.
enum Traced {
    Alloc(u32),
    Free(u32),
    /// Frees what was alive before the trace began, by its index in [`Importer::before`].
    FreeEarlier(usize),
}

/// Something alive before the trace began.
struct Earlier {
    addr: u64,
    alloc: RecordedAlloc,
}

struct Importer<'a> {
    pickle: &'a Pickle,
    events: Vec<Traced>,
    allocs: Vec<RecordedAlloc>,
    /// Live allocations of the trace by address.
    live: HashMap<u64, u32>,
    before: Vec<Earlier>,
    ooms: u64,
    /// Texts of stacks that were seen: frames are shared among events.
    origins: HashMap<ValueId, (String, String)>,
}

impl<'a> Importer<'a> {
    fn new(pickle: &'a Pickle) -> Self {
        let (events, allocs, before) = (Vec::new(), Vec::new(), Vec::new());
        Self { pickle, events, allocs, live: HashMap::new(), before, ooms: 0, origins: HashMap::new() }
    }

    fn read_trace(&mut self, trace: &[ValueId]) -> Result<(), SnapshotError> {
        // Memory returns when the free completes; the request alone counts only where completions were not recorded.
        let completed = trace.iter().any(|event| self.action(*event) == "free_completed");
        let free = if completed { "free_completed" } else { "free_requested" };
        for (index, event) in trace.iter().enumerate() {
            match self.action(*event) {
                "alloc" => {
                    let (addr, bytes) = (self.number(index, *event, "addr")?, self.number(index, *event, "size")?);
                    self.alloc(addr, bytes, *event);
                }
                action if action == free => {
                    let (addr, bytes) = (self.number(index, *event, "addr")?, self.number(index, *event, "size")?);
                    self.free(addr, bytes);
                }
                "oom" => self.ooms += 1,
                // segment_alloc, segment_free, segment_map, segment_unmap, snapshot: the allocator's own doing.
                _ => {}
            }
        }
        Ok(())
    }

    fn action(&self, event: ValueId) -> &'a str {
        self.pickle.get(event, "action").and_then(|id| self.pickle.text(id)).unwrap_or_default()
    }

    fn number(&self, index: usize, event: ValueId, field: &'static str) -> Result<u64, SnapshotError> {
        let value = self.pickle.get(event, field).and_then(|id| self.pickle.unsigned(id));
        value.ok_or(SnapshotError::Event { event: index, field })
    }

    fn alloc(&mut self, addr: u64, bytes: u64, event: ValueId) {
        let id = self.allocs.len() as u32;
        // An address that is still taken was freed while nothing was recorded.
        if let Some(lost) = self.live.insert(addr, id) {
            self.events.push(Traced::Free(lost));
        }
        let alloc = self.described(bytes, event);
        self.allocs.push(RecordedAlloc { id, ..alloc });
        self.events.push(Traced::Alloc(id));
    }

    fn free(&mut self, addr: u64, bytes: u64) {
        if let Some(id) = self.live.remove(&addr) {
            self.events.push(Traced::Free(id));
            return;
        }
        // Where it was allocated is not known: the stack, if any, is that of the free.
        self.events.push(Traced::FreeEarlier(self.before.len()));
        self.before.push(Earlier { addr, alloc: RecordedAlloc { bytes, ..RecordedAlloc::default() } });
    }

    /// Blocks of the final state that the trace did not allocate were alive all along.
    fn add_survivors(&mut self, segments: &[ValueId], device: u64) {
        let pickle = self.pickle;
        let field = |dict: ValueId, key: &str| pickle.get(dict, key).and_then(|id| pickle.unsigned(id));
        for segment in segments.iter().filter(|s| field(**s, "device").unwrap_or(0) == device) {
            let blocks = pickle.get(*segment, "blocks").map_or(&[][..], |blocks| pickle.items(blocks));
            let mut addr = field(*segment, "address").unwrap_or(0);
            for block in blocks {
                let size = field(*block, "size").unwrap_or(0);
                // Snapshots before PyTorch 2.1 name no block addresses.
                let start = field(*block, "address").unwrap_or(addr);
                let state = pickle.get(*block, "state").and_then(|id| pickle.text(id)).unwrap_or_default();
                if state.starts_with("active") && !self.live.contains_key(&start) {
                    let alloc = self.described(field(*block, "requested_size").unwrap_or(size), *block);
                    self.before.push(Earlier { addr: start, alloc });
                }
                addr = start.saturating_add(size);
            }
        }
    }

    /// An allocation with what its stack tells: `op` is the innermost function, `module` the innermost line outside
    /// of installed packages.
    fn described(&mut self, bytes: u64, event: ValueId) -> RecordedAlloc {
        let Some(frames) = self.pickle.get(event, "frames") else {
            return RecordedAlloc { bytes, ..RecordedAlloc::default() };
        };
        if !self.origins.contains_key(&frames) {
            let origin = self.origin(self.pickle.items(frames));
            self.origins.insert(frames, (printable(&origin.0), printable(&origin.1)));
        }
        let (op, module) = self.origins.get(&frames).cloned().unwrap_or_default();
        RecordedAlloc { bytes, op, module, ..RecordedAlloc::default() }
    }

    fn origin(&self, frames: &[ValueId]) -> (String, String) {
        let pickle = self.pickle;
        let text =
            |frame: ValueId, key: &str| pickle.get(frame, key).and_then(|id| pickle.text(id)).unwrap_or_default();
        let op = frames.first().map_or("", |frame| text(*frame, "name"));
        let own = frames.iter().find(|frame| {
            let file = text(**frame, "filename");
            !file.contains("site-packages") && !file.contains("dist-packages") && file != "??"
        });
        let line = |frame: ValueId| pickle.get(frame, "line").and_then(|id| pickle.unsigned(id)).unwrap_or(0);
        let module = own.map_or_else(String::new, |frame| format!("{}:{}", text(*frame, "filename"), line(*frame)));
        (op.to_owned(), module)
    }

    fn finish(self) -> Recording {
        let earlier = self.before.len() as u32;
        let mut order: Vec<usize> = (0..self.before.len()).collect();
        order.sort_by_key(|index| self.before[*index].addr);
        let mut number = vec![0; self.before.len()];
        let mut events = vec![phase(0, "before")];
        for (id, index) in order.into_iter().enumerate() {
            number[index] = id as u32;
            let alloc = RecordedAlloc { id: id as u32, ..self.before[index].alloc.clone() };
            events.push(RecordedEvent::Alloc(alloc));
        }
        events.push(phase(1, "recorded"));
        let mut allocs = self.allocs.into_iter();
        events.extend(self.events.into_iter().filter_map(|event| match event {
            Traced::Alloc(id) => allocs.next().map(|a| RecordedEvent::Alloc(RecordedAlloc { id: earlier + id, ..a })),
            Traced::Free(id) => Some(RecordedEvent::Free(earlier + id)),
            Traced::FreeEarlier(index) => Some(RecordedEvent::Free(number[index])),
        }));
        let settings = settings(self.pickle);
        Recording { header: json!({ "source": "torch.cuda.memory", "settings": settings, "ooms": self.ooms }), events }
    }
}

/// The text of `PYTORCH_ALLOC_CONF` the job ran with, under its new or its old name.
fn settings(pickle: &Pickle) -> Option<&str> {
    let settings = pickle.get(pickle.root(), "allocator_settings")?;
    let text = |name| pickle.text(pickle.get(settings, name)?).filter(|text| !text.is_empty());
    text("PYTORCH_ALLOC_CONF").or_else(|| text("PYTORCH_CUDA_ALLOC_CONF"))
}

fn phase(step: u32, name: &str) -> RecordedEvent {
    RecordedEvent::Phase(RecordedPhase { step, name: name.to_owned() })
}
