//! A training over a phantom GPU leaves the record and the trace for `tonnage rehearse` that its recorder leaves of Python, and ends
//! when it has shown enough.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tonnage_core::recording::{read_snapshot, write_recording};
use tonnage_core::rehearsal::{
    Caveat, DeviceRecord, Failure as RecordedFailure, OomRecord, PhaseBytes, ProcessRecord, Stop,
};
use tonnage_core::units::{GIB, KIB, MIB};
use tonnage_torch::{Device, DeviceMemory, ErrorKind, History, Torch};
use tonnage_train::TrainError;
use tonnage_train::ranks::Place;
use tonnage_train::training::{Outcome, peak_of_host};

use super::engine::torch_failure;
use crate::failure::Failure;

/// Where the processes of a rehearsal leave their records.
const FOLDER: &str = "TONNAGE_REHEARSE_DIR";
/// Events that PyTorch keeps, the newest.
const MOST_EVENTS: u32 = 1_000_000;
/// Steps without a new peak after which nothing new is recorded, as after which a rehearsal ends.
const STEADY: u32 = 3;

/// The folder of the rehearsal that this process is a part of.
pub fn rehearsal_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// When a rehearsal has seen enough.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    steps: Option<u32>,
    seconds: Option<u32>,
    /// Steps without a new peak.
    steady: Option<u32>,
}

impl Bounds {
    /// As `tonnage rehearse` sets the variables; 0 is none.
    fn of_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| {
            let text = variable(&format!("TONNAGE_REHEARSE_{name}"))?;
            text.parse().ok().filter(|number| *number > 0)
        };
        Self { steps: number("STEPS"), seconds: number("SECONDS"), steady: number("STEADY") }
    }
}

/// The device's figures after a step, and how many steps were made.
#[derive(Clone, Copy)]
struct Reached {
    steps: u32,
    /// After which the peaks last grew.
    grown: u32,
    memory: DeviceMemory,
}

/// What a process of a rehearsal sees of its own device.
pub struct Recorder {
    torch: &'static Torch,
    device: Device,
    folder: PathBuf,
    bounds: Bounds,
    begun: Instant,
    reached: Cell<Reached>,
    /// Until enough was recorded.
    history: RefCell<Option<History<'static>>>,
    trace: RefCell<Option<Trace>>,
    stop: RefCell<Option<Stop>>,
}

/// What became of PyTorch's history: a file of the folder, or why there is none or it ends before the run does.
#[derive(Clone, Default)]
struct Trace {
    file: Option<String>,
    ends: Option<String>,
    at_step: u32,
}

impl Recorder {
    /// Begins to record, where this is a rehearsal; the device is to be fresh.
    ///
    /// # Errors
    /// PyTorch's.
    pub fn begin(torch: &'static Torch, device: Device) -> Result<Option<Self>, Failure> {
        let Some(folder) = rehearsal_folder() else { return Ok(None) };
        let history = torch.record_history(MOST_EVENTS).map_err(torch_failure)?;
        let memory = torch.memory(device).map_err(torch_failure)?;
        Ok(Some(Self {
            torch,
            device,
            folder,
            bounds: Bounds::of_variables(&|name| std::env::var(name).ok()),
            begun: Instant::now(),
            reached: Cell::new(Reached { steps: 0, grown: 0, memory }),
            history: RefCell::new(Some(history)),
            trace: RefCell::new(None),
            stop: RefCell::new(None),
        }))
    }

    /// Looks at the device after a step; whether enough was seen.
    pub fn has_seen_enough(&self) -> bool {
        let before = self.reached.get();
        let Ok(memory) = self.torch.memory(self.device) else { return false };
        let steps = before.steps + 1;
        let has_grown = (memory.peak_allocated, memory.peak_reserved)
            != (before.memory.peak_allocated, before.memory.peak_reserved);
        let grown = if has_grown { steps } else { before.grown };
        self.reached.set(Reached { steps, grown, memory });
        if steps - grown >= STEADY {
            self.keep_trace();
        }
        let stop = self.bounds.reached(steps, grown, self.begun.elapsed().as_secs());
        let is_enough = stop.is_some();
        *self.stop.borrow_mut() = stop;
        is_enough
    }

    /// Whether it was its own wish to end, and nobody's signal.
    pub fn has_stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Writes what PyTorch has recorded, once.
    fn keep_trace(&self) {
        let Some(history) = self.history.borrow_mut().take() else { return };
        let name = format!("trace-{}-{}.jsonl", std::process::id(), self.index());
        let snapshot = self.folder.join(format!("{name}.pickle"));
        let written = write_trace(&history, &snapshot, &self.folder.join(&name), self.index());
        // Were it to stay, it would go with the folder.
        let _ = fs::remove_file(snapshot);
        let at_step = self.reached.get().steps;
        *self.trace.borrow_mut() = Some(match written {
            Ok(()) => Trace { file: Some(name), ends: None, at_step },
            Err(why) => Trace { file: None, ends: Some(why), at_step },
        });
    }

    fn index(&self) -> u32 {
        match self.device {
            Device::Cuda(index) => u32::from(index),
            Device::Cpu => 0,
        }
    }

    /// Leaves the record of a training that has ended so.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn leave(&self, outcome: Result<&Outcome, &TrainError>, place: Option<&Place>) -> Result<(), Failure> {
        self.keep_trace();
        let record = self.record(outcome, place);
        let path = self.folder.join(format!("record-{}.json", std::process::id()));
        let part = path.with_extension("json.part");
        let text = serde_json::to_string(&record).unwrap_or_default();
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| Failure::about_file(&path.display().to_string(), &error))
    }

    fn record(&self, outcome: Result<&Outcome, &TrainError>, place: Option<&Place>) -> ProcessRecord {
        let Reached { steps, grown, memory } = self.reached.get();
        // A step that failed has peaks of its own.
        let memory = self.torch.memory(self.device).unwrap_or(memory);
        let trace = self.trace.borrow().clone().unwrap_or_default();
        let goes_on = trace.file.is_some() && trace.at_step < steps;
        let ends = goes_on.then(|| format!("nothing new came for {STEADY} steps"));
        let failure = outcome.err().map(failure_of);
        let ran_out = failure.as_ref().is_some_and(|failure| failure.out_of_memory);
        ProcessRecord {
            version: 1,
            pid: std::process::id(),
            rank: place.map_or(0, |place| u32::try_from(place.rank).unwrap_or(u32::MAX)),
            world_size: place.map_or(1, |place| u32::try_from(place.ranks).unwrap_or(u32::MAX)),
            command: std::env::args().collect(),
            versions: BTreeMap::from([
                ("tonnage".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
                ("torch".to_owned(), self.torch.version().to_owned()),
            ]),
            steps,
            steady_since: (steps > grown).then_some(grown),
            stop: self.ended_by(outcome),
            out_of_memory: failure.iter().filter(|_| ran_out).map(|failure| self.oom_of(failure, &memory)).collect(),
            failure,
            host_peak_bytes: peak_of_host(),
            wall_s: self.begun.elapsed().as_secs_f64(),
            trace_ends: trace.ends.or(ends),
            caveats: vec![steps_only()],
            devices: vec![self.device_record(&memory, trace.file)],
        }
    }

    fn ended_by(&self, outcome: Result<&Outcome, &TrainError>) -> Stop {
        let of =
            |reason: &str, message: &str| Stop { reason: reason.to_owned(), message: message.to_owned(), place: None };
        match (outcome, self.stop.borrow().clone()) {
            (Err(_), _) => of("end", "the training ended with an error"),
            (Ok(_), Some(stop)) => stop,
            (Ok(outcome), None) if outcome.was_stopped => of("signal", "it was asked to end"),
            (Ok(_), None) => of("end", "the training ended"),
        }
    }

    fn device_record(&self, memory: &DeviceMemory, trace: Option<String>) -> DeviceRecord {
        let told = std::env::var("TONNAGE_PHANTOM_DEVICES").unwrap_or_default();
        let (name, total_bytes, compute_capability) = told_device(&told);
        DeviceRecord {
            index: self.index(),
            name,
            total_bytes,
            compute_capability,
            peak_allocated_bytes: memory.peak_allocated,
            peak_reserved_bytes: memory.peak_reserved,
            peak_phase: String::new(),
            peak_per_phase: PhaseBytes::default(),
            peak_reserved_per_phase: PhaseBytes::default(),
            not_counted_bytes: 0,
            num_alloc_retries: memory.retries,
            num_ooms: memory.out_of_memory,
            trace,
        }
    }

    /// PyTorch's message says what was asked for, in two decimals; the peaks are the allocator's own.
    fn oom_of(&self, failure: &RecordedFailure, memory: &DeviceMemory) -> OomRecord {
        OomRecord {
            device: self.index(),
            phase: format!("step {}", self.reached.get().steps + 1),
            requested_bytes: requested_bytes(&failure.message),
            allocated_bytes: memory.peak_allocated,
            reserved_bytes: memory.peak_reserved,
            line: None,
            op: String::new(),
        }
    }
}

impl Bounds {
    fn reached(self, steps: u32, grown: u32, seconds: u64) -> Option<Stop> {
        let of = |reason: &str, message: String| Some(Stop { reason: reason.to_owned(), message, place: None });
        if self.steps.is_some_and(|most| steps >= most) {
            return of("steps", format!("stopped after step {steps}, as asked"));
        }
        if self.steady.is_some_and(|steady| steps - grown >= steady) {
            return of("steady", format!("stopped after step {steps}: no peak grew since step {grown}"));
        }
        if self.seconds.is_some_and(|most| seconds >= u64::from(most)) {
            return of("seconds", format!("stopped after {seconds} s, as asked"));
        }
        None
    }
}

/// PyTorch's snapshot as a timeline.
fn write_trace(history: &History<'_>, snapshot: &Path, to: &Path, device: u32) -> Result<(), String> {
    history.write_snapshot(snapshot).map_err(|error| error.to_string())?;
    let bytes = fs::read(snapshot).map_err(|error| error.to_string())?;
    let recording = read_snapshot(&bytes, device as usize).map_err(|error| error.to_string())?;
    if recording.events.len() as u64 >= u64::from(MOST_EVENTS) {
        return Err(format!("PyTorch's buffer of {MOST_EVENTS} events overflowed"));
    }
    fs::write(to, write_recording(&recording)).map_err(|error| error.to_string())
}

/// A rehearsal makes steps and nothing else.
fn steps_only() -> Caveat {
    Caveat {
        code: "steps".to_owned(),
        text: "a rehearsed training makes its steps and keeps nothing: evaluation and what is written were not seen"
            .to_owned(),
        line: None,
        lines: Vec::new(),
        times: 1,
    }
}

/// The error as Python would have raised it.
fn failure_of(error: &TrainError) -> RecordedFailure {
    let out_of_memory = error.of_torch().is_some_and(|error| error.kind == ErrorKind::OutOfMemory);
    let kind = if out_of_memory { "OutOfMemoryError" } else { "TrainError" };
    RecordedFailure { kind: kind.to_owned(), out_of_memory, message: error.to_string() }
}

/// `Tried to allocate 20.00 MiB.`; 0 where the message has another form.
fn requested_bytes(message: &str) -> u64 {
    let after = message.split_once("Tried to allocate ").map_or("", |(_, after)| after);
    let mut words = after.split_ascii_whitespace();
    let Some((number, unit)) = words.next().zip(words.next()) else { return 0 };
    let unit = match unit.trim_end_matches('.') {
        "bytes" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => 0,
    };
    number.parse::<f64>().map_or(0, |number| (number * unit as f64) as u64)
}

/// Name, memory and compute capability of the phantom's first device, as it was told of it.
fn told_device(text: &str) -> (String, u64, (u32, u32)) {
    let value = |key: &str| {
        let pairs = text.split(';').next()?.split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
    };
    let capability = value("cc").and_then(|cc| {
        let (major, minor) = cc.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let total = value("total").and_then(|total| total.parse().ok());
    (value("name").unwrap_or_default(), total.unwrap_or(0), capability.unwrap_or((0, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_where_the_rehearsal_says() {
        let set = |wanted: &'static str, value: &'static str| {
            Bounds::of_variables(&move |name| (name == format!("TONNAGE_REHEARSE_{wanted}")).then(|| value.to_owned()))
        };
        let reason =
            |bounds: Bounds, steps, grown, seconds| bounds.reached(steps, grown, seconds).map(|stop| stop.reason);
        assert_eq!(reason(set("STEADY", "3"), 4, 2, 0), None);
        assert_eq!(reason(set("STEADY", "3"), 5, 2, 0).as_deref(), Some("steady"));
        assert_eq!(reason(set("STEADY", "0"), 500, 2, 0), None);
        assert_eq!(reason(set("STEPS", "7"), 7, 7, 0).as_deref(), Some("steps"));
        assert_eq!(reason(set("SECONDS", "9"), 1, 1, 9).as_deref(), Some("seconds"));
        assert_eq!(reason(Bounds::default(), 900, 0, 900), None);
    }

    #[test]
    fn what_was_asked_for_is_read_of_pytorchs_message() {
        let message = "step 1: CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0 has a total capacity of 1.00 GiB";
        assert_eq!(requested_bytes(message), 41 * MIB / 2);
        assert_eq!(requested_bytes("something else"), 0);
    }

    #[test]
    fn the_device_is_the_one_that_the_phantom_was_told() {
        let text = "name=NVIDIA L4,total=23653777408,context=236978176,cc=8.9,sms=58,count=2";
        assert_eq!(told_device(text), ("NVIDIA L4".to_owned(), 23_653_777_408, (8, 9)));
        assert_eq!(told_device(""), (String::new(), 0, (0, 0)));
    }
}
