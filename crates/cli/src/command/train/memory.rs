//! Predicted, rehearsed and measured in the run's one record: a rehearsal of the first steps goes on beside the training.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::NamedGpu;
use tonnage_core::job::keys::GPU;
use tonnage_core::record::{Event, MemoryRecord, Outcome, PeaksRecord, ResultRecord};
use tonnage_run::store::RunFolder;
use tonnage_torch::{Device, Found};

use super::job::TrainJob;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Where a training on the CPU leaves the peak of its process, in its attempt's folder.
pub const HOST: &str = "host-peak.json";

/// A rehearsal beside a training.
pub struct Beside {
    started: Result<Child, String>,
}

/// What it prints.
#[derive(Deserialize)]
struct Printed {
    predicted: PeaksRecord,
    rehearsed: PeaksRecord,
}

impl Beside {
    /// Starts it: this program once more, over a phantom of `gpu`.
    pub fn start(job: &TrainJob, found: &Found, output: &Path, gpu: &Gpu) -> Self {
        let command = job.trainer_command(found, Device::Cuda(0), output, false).map_err(|failure| failure.problem);
        let started = command.and_then(|words| {
            let (program, arguments) = words.split_first().ok_or("nothing is started")?;
            let gpu = NamedGpu { gpu: gpu.clone(), caveat: None }.written();
            Command::new(program)
                .args(arguments)
                .args(["--set", &format!("{GPU}={gpu}"), "--rehearsal"])
                .env("OMP_NUM_THREADS", "1")
                .env_remove("TONNAGE_ATTEMPT_DIR")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| error.to_string())
        });
        Self { started }
    }

    /// Its peaks; a training that failed waits for none.
    fn ended_record(self, result: &ResultRecord) -> Result<Printed, String> {
        let mut child = self.started?;
        if result.outcome != Outcome::Succeeded {
            // It may have ended already.
            let _ = child.kill();
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|_| format!("it ended with {}", output.status))
    }
}

/// Writes down what the run took.
///
/// # Errors
/// When the disk has no room.
pub fn memory_record(
    beside: Option<Beside>,
    folder: &RunFolder,
    gpu: &Gpu,
    result: &ResultRecord,
    terminal: &Terminal,
) -> Result<Option<MemoryRecord>, Failure> {
    let state = folder.state();
    let attempt = state.nodes.first().and_then(|node| node.attempts.last());
    let host = attempt.and_then(|attempt| {
        let path = folder.attempt_path(0, attempt.record.number).join(HOST);
        serde_json::from_slice::<Option<u64>>(&fs::read(path).ok()?).ok()?
    });
    let peaks = |(peak_allocated_bytes, peak_reserved_bytes)| PeaksRecord { peak_allocated_bytes, peak_reserved_bytes };
    let mut memory = MemoryRecord {
        gpu: gpu.name.clone(),
        measured: attempt.and_then(|attempt| attempt.measured).map(peaks),
        measured_host_bytes: host,
        predicted: attempt
            .and_then(|attempt| attempt.record.predicted)
            .map(|predicted| peaks((predicted.peak_allocated_bytes, predicted.peak_reserved_bytes))),
        rehearsed: None,
    };
    match beside.map(|beside| beside.ended_record(result)) {
        Some(Ok(printed)) => {
            memory.rehearsed = Some(printed.rehearsed);
            memory.predicted = memory.predicted.or(Some(printed.predicted));
        }
        Some(Err(why)) if result.outcome == Outcome::Succeeded => {
            terminal.say(&format!("nothing was rehearsed beside it: {why}; `tonnage train --rehearse` says more"));
        }
        _ => {}
    }
    if memory == (MemoryRecord { gpu: memory.gpu.clone(), ..MemoryRecord::default() }) {
        return Ok(None);
    }
    folder.append(Event::Memory { memory: memory.clone() }).map_err(|error| Failure::bad_input(error.to_string()))?;
    Ok(Some(memory))
}
