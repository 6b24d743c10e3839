//! What a rehearsal saw: the user's own script over a phantom GPU, and what follows from it for this and other GPUs.
//!
//! Every process leaves a [`ProcessRecord`] and a [`crate::recording::Recording`] for each device it used. [`verdict_on`]
//! answers for a GPU, by what was seen or by replaying the recording within its memory; [`AtPeak`] tells what the peak
//! consists of; [`compare_estimate`] puts an estimate beside it. Of processes that leave none, [`DriverUse`] is what the phantom's
//! driver itself saw.

mod against;
mod driver;
mod peak;
mod record;
mod verdict;

pub use against::{Against, CategoryBytes, compare_estimate};
pub use driver::{DriverUse, Unrecorded, read_driver_use, shared_devices};
pub use peak::{AtPeak, LiveLine};
pub use record::{Caveat, DeviceRecord, Failure, OomRecord, PhaseBytes, ProcessRecord, RecordError, Stop, read_record};
pub use verdict::{
    OutOfMemory, RehearsedVerdict, VerdictSource, context_bytes, device_differences, largest_gpu, verdict_on,
};

use crate::estimate::Fit;
use crate::gpu::{CatalogGpu, Gpu, catalog};
use crate::recording::Recording;
use crate::small_sort::SmallSort;

/// One device as one process saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The process's global rank.
    pub rank: u32,
    /// Its number on the machine: processes that a script starts without a launcher are all of rank 0.
    pub pid: u32,
    /// As its process counted.
    pub device: DeviceRecord,
    /// Out-of-memory errors on this device that ended the process.
    pub out_of_memory: Option<OomRecord>,
    /// What was allocated and freed; `None` where it was not recorded.
    pub recording: Option<Recording>,
    /// Whether the recording lasts to the end of the run.
    pub complete: bool,
}

/// A whole rehearsal.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The GPU that the phantom stood for.
    pub gpu: Gpu,
    /// GPUs to answer for, in the order they were named.
    pub asked: Vec<Gpu>,
    /// Phantom GPUs of the machine.
    pub gpus: u32,
    /// The processes that used one, by rank.
    pub processes: Vec<ProcessRecord>,
    /// Every device that a process used, by rank and index.
    pub seen: Vec<Seen>,
    /// Those that used one and left no record.
    pub unrecorded: Vec<Unrecorded>,
    /// Devices that several processes held at once, each as the driver saw it when they held the most.
    pub shared: Vec<DriverUse>,
    /// Exit code of the command; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// Seconds the command took.
    pub wall_seconds: f64,
}

impl Rehearsal {
    /// The answer for `gpu`: that of the device that has it worst. Where no process left a record, what the driver saw decides.
    pub fn verdict_on(&self, gpu: &Gpu) -> Option<RehearsedVerdict> {
        if self.seen.is_empty() {
            return driver::driver_verdict(&self.unrecorded, self.has_failed(), gpu, &self.gpu);
        }
        let alone = self.seen.iter().map(|seen| verdict_on(seen, gpu, &self.gpu));
        let not_counted = self.seen.iter().map(|seen| seen.device.not_counted_bytes).sum();
        let together = self.shared.iter().map(|used| driver::shared_verdict(used, not_counted, gpu, &self.gpu));
        alone.chain(together).max_by_key(|on_gpu| (on_gpu.fit, on_gpu.total_bytes))
    }

    /// What is known of a GPU: a command that failed, waits or left out parts of its model might have asked for more, so
    /// that only running out of memory is an answer.
    pub fn known_fit(&self, on_gpu: &RehearsedVerdict) -> Option<Fit> {
        let ended = self.ran_out() || self.ended_well() && !self.is_waiting() && !self.skipped();
        Some(on_gpu.fit).filter(|fit| ended || *fit == Fit::DoesNotFit)
    }

    /// Whether the command ended without an error of its own: with exit code 0, or with another after every one of its ranks had
    /// been stopped here, which a launcher (a notebook's, Ray's) takes for a crash.
    pub fn ended_well(&self) -> bool {
        let ranks = self.processes.iter().map(|process| process.world_size as usize).max().unwrap_or(0);
        let all_stopped = ranks > 0
            && self.processes.len() >= ranks
            && self.unrecorded.is_empty()
            && self.processes.iter().all(ProcessRecord::stopped_here);
        self.exit_code == Some(0) || self.exit_code.is_some() && all_stopped
    }

    /// Whether parts of the model never ran that may run on a GPU.
    pub fn skipped(&self) -> bool {
        self.processes.iter().any(ProcessRecord::skipped)
    }

    /// The GPUs of the catalog that carry what ran to its end and named none, the smallest memory first; `None` of any other.
    pub fn carriers(&self) -> Option<Vec<(&'static CatalogGpu, Fit)>> {
        let unknown = self.ran_out() || self.is_waiting() || self.skipped() || !self.ended_well();
        if !self.asked.is_empty() || unknown {
            return None;
        }
        let carrier = |row: &'static CatalogGpu| Some((row, self.verdict_on(&row.gpu())?.fit));
        let on_gpu = catalog().iter().filter_map(carrier);
        let mut carriers: Vec<_> = on_gpu.filter(|(_, fit)| *fit != Fit::DoesNotFit).collect();
        carriers.small_sort_by_key(|(row, _)| row.sold_gb);
        Some(carriers)
    }

    /// The device with the highest reserved peak, the first of several.
    pub fn fullest(&self) -> Option<&Seen> {
        self.seen.iter().rev().max_by_key(|seen| seen.device.peak_reserved_bytes)
    }

    /// Whether a process was stopped because it waits for a value of the device.
    pub fn is_waiting(&self) -> bool {
        self.processes.iter().any(|process| process.stop.reason == "waiting")
    }

    /// Whether memory ran out and the script did not go on.
    pub fn ran_out(&self) -> bool {
        let by_driver = self.seen.is_empty() && driver::ran_out(&self.unrecorded, self.has_failed());
        by_driver || self.seen.iter().any(|seen| seen.out_of_memory.is_some())
    }

    /// Whether the command ended with an error, or with a signal.
    fn has_failed(&self) -> bool {
        self.exit_code != Some(0)
    }
}
