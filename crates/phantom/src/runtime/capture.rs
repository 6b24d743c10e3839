//! Streams, events and graphs as the process holds them. Everything is done as soon as it is asked for, so a stream is
//! only its properties and whether its work is being captured into a graph.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};

/// Handles below are CUDA's own: the legacy stream (0 and 1) and the per-thread stream (2).
const FIRST_HANDLE: usize = 0x10_0000;
/// Keeps handles apart the way pointers are.
const HANDLE_STEP: usize = 16;

/// How many captures are under way, so that launches need no lock otherwise.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// All streams, events and graphs.
pub struct Streams {
    next: usize,
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    captures: BTreeMap<u64, Capture>,
    graphs: BTreeMap<usize, usize>,
    executables: BTreeMap<usize, usize>,
    /// Of the streams that are not in the table because nobody made them.
    pub(super) legacy_capture: BTreeMap<usize, u64>,
}

#[derive(Clone, Copy, Default)]
pub struct Stream {
    pub device: usize,
    pub flags: u32,
    pub priority: i32,
    capture: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Event {
    untimed: bool,
    recorded: Option<Instant>,
    capture: Option<u64>,
}

struct Capture {
    origin: usize,
    graph: usize,
}

/// A capture in progress, as a stream's owner asks about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureState {
    pub id: u64,
    pub graph: usize,
}

/// `cudaEventDisableTiming`.
const EVENT_DISABLE_TIMING: u32 = 2;

impl Streams {
    pub const fn new() -> Self {
        Self {
            next: FIRST_HANDLE,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            executables: BTreeMap::new(),
            legacy_capture: BTreeMap::new(),
        }
    }

    pub fn handle(&mut self) -> usize {
        self.next += HANDLE_STEP;
        self.next
    }

    pub fn create_stream(&mut self, device: usize, flags: u32, priority: i32) -> usize {
        let handle = self.handle();
        self.streams.insert(handle, Stream { device, flags, priority, capture: None });
        handle
    }

    pub fn destroy_stream(&mut self, handle: usize) -> Result {
        if let Some(capture) = self.stream(handle)?.capture {
            self.finish(capture);
        }
        self.streams.remove(&handle).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    /// A stream; the legacy and per-thread streams always exist.
    pub fn stream(&self, handle: usize) -> Result<Stream> {
        match handle {
            0..=2 => Ok(Stream { capture: self.legacy_capture.get(&handle).copied(), ..Stream::default() }),
            _ => self.streams.get(&handle).copied().ok_or(Error::INVALID_HANDLE),
        }
    }

    /// Waiting for a stream, or asking whether it is done, is not possible while it is being captured.
    pub fn wait(&self, handle: usize) -> Result {
        if self.stream(handle)?.capture.is_some() { Err(Error::CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    pub fn create_event(&mut self, flags: u32) -> usize {
        let handle = self.handle();
        self.events.insert(handle, Event { untimed: flags & EVENT_DISABLE_TIMING != 0, ..Event::default() });
        handle
    }

    pub fn destroy_event(&mut self, handle: usize) -> Result {
        self.events.remove(&handle).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    pub fn check_event(&self, handle: usize) -> Result {
        if self.events.contains_key(&handle) { Ok(()) } else { Err(Error::INVALID_HANDLE) }
    }

    pub fn record(&mut self, event: usize, stream: usize) -> Result {
        let capture = self.stream(stream)?.capture;
        let event = self.events.get_mut(&event).ok_or(Error::INVALID_HANDLE)?;
        (event.recorded, event.capture) = (Some(Instant::now()), capture);
        Ok(())
    }

    /// Milliseconds from one record to the other, by the host's clock: nothing runs on the device.
    pub fn elapsed(&self, from: usize, to: usize) -> Result<f32> {
        let timed = |handle| match self.events.get(&handle) {
            Some(Event { untimed: false, recorded: Some(at), .. }) => Ok(*at),
            _ => Err(Error::INVALID_HANDLE),
        };
        let (from, to) = (timed(from)?, timed(to)?);
        let (sign, span) = if to >= from { (1.0, to - from) } else { (-1.0, from - to) };
        Ok(sign * span.as_secs_f32() * 1000.0)
    }

    /// A stream that waits for an event of a captured stream is captured with it.
    pub fn wait_event(&mut self, stream: usize, event: usize) -> Result {
        self.stream(stream)?;
        let capture = self.events.get(&event).ok_or(Error::INVALID_HANDLE)?.capture;
        if let (Some(id), Some(stream)) = (capture, self.streams.get_mut(&stream))
            && self.captures.contains_key(&id)
        {
            stream.capture = Some(id);
        }
        Ok(())
    }

    /// The legacy stream cannot be captured, nor a stream twice.
    pub fn begin_capture(&mut self, stream: usize) -> Result {
        if stream < 2 {
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        if self.stream(stream)?.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        let graph = self.create_graph();
        let id = graph as u64;
        self.captures.insert(id, Capture { origin: stream, graph });
        match self.streams.get_mut(&stream) {
            Some(stream) => stream.capture = Some(id),
            None => drop(self.legacy_capture.insert(stream, id)),
        }
        CAPTURES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the capture that began in this stream; the graph is the caller's.
    pub fn end_capture(&mut self, stream: usize) -> Result<usize> {
        let id = self.stream(stream)?.capture.ok_or(Error::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Error::ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(Error::CAPTURE_UNMATCHED);
        }
        let graph = capture.graph;
        self.finish(id);
        Ok(graph)
    }

    fn finish(&mut self, id: u64) {
        if self.captures.remove(&id).is_some() {
            CAPTURES.fetch_sub(1, Ordering::Relaxed);
        }
        self.streams.values_mut().filter(|stream| stream.capture == Some(id)).for_each(|stream| stream.capture = None);
        self.legacy_capture.retain(|_, capture| *capture != id);
    }

    pub fn capture_of(&self, stream: usize) -> Result<Option<CaptureState>> {
        let id = self.stream(stream)?.capture;
        Ok(id.and_then(|id| Some(CaptureState { id, graph: self.captures.get(&id)?.graph })))
    }

    /// Notes that something was put into a stream: a node, if the stream is being captured.
    pub fn add_nodes(&mut self, stream: usize, nodes: usize) -> Result {
        if let Some(capture) = self.capture_of(stream)?
            && let Some(count) = self.graphs.get_mut(&capture.graph)
        {
            *count += nodes;
        }
        Ok(())
    }

    pub fn create_graph(&mut self) -> usize {
        let handle = self.handle();
        self.graphs.insert(handle, 0);
        handle
    }

    pub fn nodes_of(&self, graph: usize) -> Result<usize> {
        self.graphs.get(&graph).copied().ok_or(Error::INVALID_VALUE)
    }

    pub fn destroy_graph(&mut self, graph: usize) -> Result {
        self.graphs.remove(&graph).map(drop).ok_or(Error::INVALID_VALUE)
    }

    /// An executable outlives its graph.
    pub fn instantiate(&mut self, graph: usize) -> Result<usize> {
        let nodes = self.nodes_of(graph)?;
        let handle = self.handle();
        self.executables.insert(handle, nodes);
        Ok(handle)
    }

    pub fn launch(&mut self, executable: usize, stream: usize) -> Result {
        let nodes = *self.executables.get(&executable).ok_or(Error::INVALID_VALUE)?;
        self.add_nodes(stream, nodes)
    }

    pub fn update(&mut self, executable: usize, graph: usize) -> Result {
        let nodes = self.nodes_of(graph)?;
        *self.executables.get_mut(&executable).ok_or(Error::INVALID_VALUE)? = nodes;
        Ok(())
    }

    pub fn destroy_executable(&mut self, executable: usize) -> Result {
        self.executables.remove(&executable).map(drop).ok_or(Error::INVALID_VALUE)
    }
}

/// Whether any stream is being captured.
pub fn capturing() -> bool {
    CAPTURES.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_spreads_through_events_and_ends_at_its_origin() {
        let mut streams = Streams::new();
        let (main, side) = (streams.create_stream(0, 1, 0), streams.create_stream(0, 1, 0));
        let event = streams.create_event(EVENT_DISABLE_TIMING);
        streams.begin_capture(main).unwrap();
        assert_eq!(streams.begin_capture(main), Err(Error::ILLEGAL_STATE));
        streams.add_nodes(main, 1).unwrap();
        streams.record(event, main).unwrap();
        streams.wait_event(side, event).unwrap();
        streams.add_nodes(side, 2).unwrap();
        assert_eq!(streams.wait(side), Err(Error::CAPTURE_UNSUPPORTED));
        assert_eq!(streams.end_capture(side), Err(Error::CAPTURE_UNMATCHED));
        let graph = streams.end_capture(main).unwrap();
        assert_eq!(streams.nodes_of(graph), Ok(3));
        assert_eq!(streams.wait(side), Ok(()));
        assert_eq!(streams.end_capture(main), Err(Error::ILLEGAL_STATE));
        let executable = streams.instantiate(graph).unwrap();
        streams.destroy_graph(graph).unwrap();
        streams.launch(executable, 0).unwrap();
        streams.destroy_executable(executable).unwrap();
        assert_eq!(streams.launch(executable, 0), Err(Error::INVALID_VALUE));
    }

    #[test]
    fn handles_nobody_made_are_refused() {
        let mut streams = Streams::new();
        assert_eq!(streams.wait(0), Ok(()));
        assert_eq!(streams.wait(77), Err(Error::INVALID_HANDLE));
        assert_eq!(streams.destroy_stream(0), Err(Error::INVALID_HANDLE));
        assert_eq!(streams.destroy_event(5), Err(Error::INVALID_HANDLE));
        assert_eq!(streams.record(5, 0), Err(Error::INVALID_HANDLE));
        assert_eq!(streams.begin_capture(0), Err(Error::CAPTURE_UNSUPPORTED));
        assert_eq!(streams.instantiate(5), Err(Error::INVALID_VALUE));
    }

    #[test]
    fn time_passes_between_events_that_keep_it() {
        let mut streams = Streams::new();
        let (from, to, untimed) = (streams.create_event(0), streams.create_event(0), streams.create_event(2));
        assert_eq!(streams.elapsed(from, to), Err(Error::INVALID_HANDLE));
        for event in [from, to, untimed] {
            streams.record(event, 0).unwrap();
        }
        assert!(streams.elapsed(from, to).unwrap() >= 0.0);
        assert_eq!(streams.elapsed(from, untimed), Err(Error::INVALID_HANDLE));
    }
}
