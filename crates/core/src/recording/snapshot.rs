//! Imports what `torch.cuda.memory._dump_snapshot` writes: the events of a device, and what was alive before them.
//!
//! Streams and private pools are not told apart: the replay puts everything on one stream.

use crate::small_sort::SmallSort;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::names::{Texts, beginning_of};
use super::pickle::{Pickle, PickleError, ValueId};
use super::{RecordedAlloc, RecordedEvent, RecordedPhase, Recording};
use crate::limit::{PICKLE_VALUES, SNAPSHOT_EVENTS};

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
    /// It has more events, blocks or names than are read.
    #[error("{0}; record fewer events: `_record_memory_history(max_entries=100000)`")]
    TooLarge(String),
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
    importer.add_survivors(pickle.items(segments), device as u64)?;
    let found = importer.found;
    let header = json!({ "source": "torch.cuda.memory", "settings": allocator_settings(&pickle), "ooms": found.ooms });
    // Its values take more memory than what they say.
    drop(pickle);
    Ok(found.into_recording(header))
}

/// The dicts of a snapshot have some fifteen fields each; what has more would be searched for ever.
const MOST_FIELDS: usize = 32;

/// An event of the trace, with allocations numbered from 0 in order of their birth in it.
enum Traced {
    Alloc(u32),
    Free(u32),
    /// Frees what was alive before the trace began, by its index in [`Found::before`].
    FreeEarlier(u32),
}

/// An allocation: its size, and where the names of what made it stand in [`Found::origins`].
#[derive(Clone, Copy)]
struct Block {
    bytes: u64,
    origin: u32,
}

/// Something alive before the trace began.
struct Earlier {
    addr: u64,
    block: Block,
}

/// What a snapshot tells.
struct Found {
    events: Vec<Traced>,
    blocks: Vec<Block>,
    before: Vec<Earlier>,
    /// Innermost function and innermost own line; the first pair is that of what has no stack.
    origins: Vec<(Arc<str>, Arc<str>)>,
    ooms: u64,
}

struct Importer<'a> {
    pickle: &'a Pickle<'a>,
    found: Found,
    /// Live allocations of the trace by address.
    live: HashMap<u64, u32>,
    /// Origins of stacks that were seen: frames are shared among events.
    seen: HashMap<ValueId, u32>,
    names: Texts,
    /// Blocks of segments that were looked at.
    looked_at: usize,
}

impl<'a> Importer<'a> {
    fn new(pickle: &'a Pickle<'a>) -> Self {
        let origins = vec![Default::default()];
        let found = Found { events: Vec::new(), blocks: Vec::new(), before: Vec::new(), origins, ooms: 0 };
        Self { pickle, found, live: HashMap::new(), seen: HashMap::new(), names: Texts::default(), looked_at: 0 }
    }

    fn read_trace(&mut self, trace: &[ValueId]) -> Result<(), SnapshotError> {
        // Memory returns when the free completes; the request alone counts only where completions were not recorded.
        let mut free = "free_requested";
        for event in trace {
            if self.read_action(*event)? == "free_completed" {
                free = "free_completed";
                break;
            }
        }
        for (index, event) in trace.iter().enumerate() {
            match self.read_action(*event)? {
                "alloc" => {
                    let (addr, bytes) = self.read_extent(index, *event)?;
                    self.import_alloc(addr, bytes, *event)?;
                }
                action if action == free => {
                    let (addr, bytes) = self.read_extent(index, *event)?;
                    self.import_free(addr, bytes)?;
                }
                "oom" => self.found.ooms += 1,
                // segment_alloc, segment_free, segment_map, segment_unmap, snapshot: the allocator's own doing.
                _ => {}
            }
        }
        Ok(())
    }

    /// What a dict has under each of `names`; the last setting counts.
    fn read_fields<const N: usize>(
        &self,
        dict: ValueId,
        names: [&str; N],
    ) -> Result<[Option<ValueId>; N], SnapshotError> {
        let entries = self.pickle.entries(dict);
        if entries.len() > MOST_FIELDS {
            return Err(SnapshotError::TooLarge(format!("a dict of {} fields is none of a snapshot", entries.len())));
        }
        let mut found = [None; N];
        for (key, value) in entries {
            if let Some(at) = self.pickle.text(*key).and_then(|key| names.iter().position(|name| *name == key)) {
                found[at] = Some(*value);
            }
        }
        Ok(found)
    }

    fn read_action(&self, event: ValueId) -> Result<&'a str, SnapshotError> {
        let [action] = self.read_fields(event, ["action"])?;
        Ok(action.and_then(|id| self.pickle.text(id)).unwrap_or_default())
    }

    /// Where an event's memory lies, and its size.
    fn read_extent(&self, event: usize, dict: ValueId) -> Result<(u64, u64), SnapshotError> {
        let names = ["addr", "size"];
        let [addr, size] = self.read_fields(dict, names)?.map(|id| id.and_then(|id| self.pickle.unsigned(id)));
        let missing = |field| SnapshotError::Event { event, field };
        Ok((addr.ok_or(missing("addr"))?, size.ok_or(missing("size"))?))
    }

    /// Refuses one event more than is read.
    fn make_room(&self) -> Result<(), SnapshotError> {
        if self.found.events.len() + self.found.before.len() < SNAPSHOT_EVENTS {
            return Ok(());
        }
        Err(SnapshotError::TooLarge(format!("more than {SNAPSHOT_EVENTS} allocations and frees")))
    }

    fn import_alloc(&mut self, addr: u64, bytes: u64, event: ValueId) -> Result<(), SnapshotError> {
        self.make_room()?;
        let id = self.found.blocks.len() as u32;
        // An address that is still taken was freed while nothing was recorded.
        if let Some(lost) = self.live.insert(addr, id) {
            self.found.events.push(Traced::Free(lost));
        }
        let block = Block { bytes, origin: self.origin_of(event)? };
        self.found.blocks.push(block);
        self.found.events.push(Traced::Alloc(id));
        Ok(())
    }

    fn import_free(&mut self, addr: u64, bytes: u64) -> Result<(), SnapshotError> {
        self.make_room()?;
        if let Some(id) = self.live.remove(&addr) {
            self.found.events.push(Traced::Free(id));
            return Ok(());
        }
        // Where it was allocated is not known: the stack, if any, is that of the free.
        self.found.events.push(Traced::FreeEarlier(self.found.before.len() as u32));
        self.found.before.push(Earlier { addr, block: Block { bytes, origin: 0 } });
        Ok(())
    }

    /// Blocks of the final state that the trace did not allocate were alive all along.
    fn add_survivors(&mut self, segments: &[ValueId], device: u64) -> Result<(), SnapshotError> {
        let pickle = self.pickle;
        let number = |id: Option<ValueId>| id.and_then(|id| pickle.unsigned(id));
        for segment in segments {
            let [of, address, blocks] = self.read_fields(*segment, ["device", "address", "blocks"])?;
            let mut addr = number(address).unwrap_or(0);
            if number(of).unwrap_or(0) != device {
                continue;
            }
            for block in blocks.map_or(&[][..], |blocks| pickle.items(blocks)) {
                let names = ["size", "address", "state", "requested_size"];
                let [size, address, state, requested] = self.read_fields(*block, names)?;
                let size = number(size).unwrap_or(0);
                // Snapshots before PyTorch 2.1 name no block addresses.
                let start = number(address).unwrap_or(addr);
                let is_active = state.and_then(|id| pickle.text(id)).is_some_and(|state| state.starts_with("active"));
                self.look_at_one_more()?;
                if is_active && !self.live.contains_key(&start) {
                    self.make_room()?;
                    let block = Block { bytes: number(requested).unwrap_or(size), origin: self.origin_of(*block)? };
                    self.found.before.push(Earlier { addr: start, block });
                }
                addr = start.saturating_add(size);
            }
        }
        Ok(())
    }

    /// Segments may share their blocks in a file that PyTorch did not write.
    fn look_at_one_more(&mut self) -> Result<(), SnapshotError> {
        self.looked_at += 1;
        if self.looked_at <= PICKLE_VALUES {
            return Ok(());
        }
        Err(SnapshotError::TooLarge(format!("more than {PICKLE_VALUES} blocks")))
    }

    /// What made an allocation, as its stack tells: `op` is the innermost function, `module` the innermost line outside of
    /// installed packages.
    fn origin_of(&mut self, event: ValueId) -> Result<u32, SnapshotError> {
        let [Some(frames)] = self.read_fields(event, ["frames"])? else { return Ok(0) };
        if let Some(seen) = self.seen.get(&frames) {
            return Ok(*seen);
        }
        let (op, module) = self.frame_origin(self.pickle.items(frames))?;
        let kept = (self.names.keep_text(&op), self.names.keep_text(&module));
        let origin = self.found.origins.len() as u32;
        self.found.origins.push((kept.0.map_err(SnapshotError::TooLarge)?, kept.1.map_err(SnapshotError::TooLarge)?));
        self.seen.insert(frames, origin);
        Ok(origin)
    }

    fn frame_origin(&self, frames: &[ValueId]) -> Result<(String, String), SnapshotError> {
        let pickle = self.pickle;
        let text = |id: Option<ValueId>| id.and_then(|id| pickle.text(id)).unwrap_or_default();
        let op = match frames.first() {
            Some(frame) => text(self.read_fields(*frame, ["name"])?[0]),
            None => "",
        };
        for frame in frames {
            let [file, line] = self.read_fields(*frame, ["filename", "line"])?;
            let file = text(file);
            if !file.contains("site-packages") && !file.contains("dist-packages") && file != "??" {
                let line = line.and_then(|id| pickle.unsigned(id)).unwrap_or(0);
                return Ok((beginning_of(op).to_owned(), format!("{}:{line}", beginning_of(file))));
            }
        }
        Ok((beginning_of(op).to_owned(), String::new()))
    }
}

impl Found {
    fn alloc(&self, id: u32, block: Block) -> RecordedEvent {
        let (op, module) = self.origins.get(block.origin as usize).cloned().unwrap_or_default();
        RecordedEvent::Alloc(RecordedAlloc { id, bytes: block.bytes, op, module, ..RecordedAlloc::default() })
    }

    fn into_recording(mut self, header: serde_json::Value) -> Recording {
        let earlier = self.before.len() as u32;
        let mut order: Vec<usize> = (0..self.before.len()).collect();
        order.small_sort_by_key(|index| self.before[*index].addr);
        let mut number = vec![0; self.before.len()];
        let traced = std::mem::take(&mut self.events);
        let mut events = Vec::with_capacity(order.len() + traced.len() + 2);
        events.push(phase_event(0, BEFORE));
        for (id, index) in order.into_iter().enumerate() {
            number[index] = id as u32;
            events.push(self.alloc(id as u32, self.before[index].block));
        }
        events.push(phase_event(1, RECORDED));
        events.extend(traced.into_iter().filter_map(|event| match event {
            Traced::Alloc(id) => self.blocks.get(id as usize).map(|block| self.alloc(earlier + id, *block)),
            Traced::Free(id) => Some(RecordedEvent::Free(earlier + id)),
            Traced::FreeEarlier(index) => number.get(index as usize).map(|number| RecordedEvent::Free(*number)),
        }));
        Recording { header, events }
    }
}

/// The text of `PYTORCH_ALLOC_CONF` the job ran with, under its new or its old name.
fn allocator_settings<'a>(pickle: &'a Pickle<'_>) -> Option<&'a str> {
    let settings = pickle.get(pickle.root(), "allocator_settings")?;
    let text = |name| pickle.text(pickle.get(settings, name)?).filter(|text| !text.is_empty());
    text("PYTORCH_ALLOC_CONF").or_else(|| text("PYTORCH_CUDA_ALLOC_CONF"))
}

/// What was alive when the history began, and what came then: phases that the reader makes, not the job.
pub(super) const BEFORE: &str = "before";
pub(super) const RECORDED: &str = "recorded";

fn phase_event(step: u32, name: &str) -> RecordedEvent {
    RecordedEvent::Phase(RecordedPhase { step, name: name.to_owned() })
}
