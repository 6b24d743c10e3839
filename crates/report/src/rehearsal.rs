//! The JSON of a rehearsal, with the names that an estimate's has where it says the same.

use serde::Serialize;
use tonnage_core::estimate::Fit;
use tonnage_core::gpu::CatalogGpu;
use tonnage_core::recording::Comparison;
use tonnage_core::rehearsal::{
    Against, AtPeak, Caveat, DriverUse, Failure, LiveLine, OomRecord, OutOfMemory, PhaseBytes, ProcessRecord,
    Rehearsal, RehearsedVerdict, Seen, Stop, Unrecorded, VerdictSource, device_differences,
};

use crate::answer::fit_name;
use crate::view::VERSION;

/// Most lines of `largest_live_at_peak`.
const LINES: usize = 20;

#[derive(Serialize)]
pub struct RehearsalView<'a> {
    version: u32,
    source: &'static str,
    gpu: GpuView<'a>,
    gpus: Vec<GpuVerdictView<'a>>,
    /// `null` where GPUs were named, and where it ran out of memory.
    fits_from: Option<Vec<CarrierView>>,
    exit_code: Option<i32>,
    wall_s: f64,
    processes: Vec<ProcessView<'a>>,
    /// Those without a record.
    unrecorded: Vec<UnrecordedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<AgainstView>,
}

#[derive(Serialize)]
struct GpuView<'a> {
    id: &'a str,
    name: &'a str,
    usable_bytes: u64,
    compute_capability: String,
    multiprocessors: u64,
    count: u32,
}

#[derive(Serialize)]
struct CarrierView {
    id: &'static str,
    verdict: &'static str,
}

#[derive(Serialize)]
struct GpuVerdictView<'a> {
    id: &'a str,
    verdict: Option<&'static str>,
    by: &'static str,
    rank: u32,
    total_bytes: u64,
    peak_reserved_bytes: u64,
    context_bytes: u64,
    processes: u64,
    usable_bytes: u64,
    headroom_bytes: i64,
    num_alloc_retries: u64,
    out_of_memory: Option<OomView>,
    differences: Vec<&'static str>,
}

#[derive(Serialize)]
struct OomView {
    phase: String,
    line: String,
    requested_bytes: u64,
    /// `null` by the driver, which does not know it.
    allocated_bytes: Option<u64>,
    reserved_bytes: u64,
}

#[derive(Serialize)]
struct ProcessView<'a> {
    rank: u32,
    world_size: u32,
    pid: u32,
    command: &'a [String],
    versions: &'a std::collections::BTreeMap<String, String>,
    steps: u32,
    steady_since: Option<u32>,
    stop: &'a Stop,
    failure: Option<&'a Failure>,
    out_of_memory: &'a [OomRecord],
    host_peak_bytes: Option<u64>,
    wall_s: f64,
    trace_ends: Option<&'a str>,
    caveats: &'a [Caveat],
    devices: Vec<DeviceView<'a>>,
}

#[derive(Serialize)]
struct UnrecordedView {
    pid: u32,
    devices: Vec<DriverUseView>,
}

#[derive(Serialize)]
struct DriverUseView {
    index: u32,
    peak_bytes: u64,
    together_bytes: u64,
    processes: u64,
    refusals: u64,
}

#[derive(Serialize)]
struct DeviceView<'a> {
    index: u32,
    name: &'a str,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    peak_phase: &'a str,
    peak_line: Option<String>,
    peak_per_phase: &'a PhaseBytes,
    peak_reserved_per_phase: &'a PhaseBytes,
    num_alloc_retries: u64,
    num_ooms: u64,
    rounded512_peak_bytes: Option<u64>,
    bytes_by_category_at_peak: serde_json::Map<String, serde_json::Value>,
    largest_live_at_peak: Vec<LineView>,
}

#[derive(Serialize)]
struct LineView {
    line: String,
    op: String,
    phase: String,
    category: String,
    bytes: u64,
    count: u64,
}

#[derive(Serialize)]
struct AgainstView {
    estimate: PeaksView,
    rehearsal: PeaksView,
    bytes_by_category_at_peak: Vec<CategoryView>,
    equal_allocations: Option<usize>,
    first_difference: Option<String>,
}

#[derive(Serialize)]
struct PeaksView {
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
}

#[derive(Serialize)]
struct CategoryView {
    category: &'static str,
    estimate_bytes: u64,
    rehearsal_bytes: u64,
}

impl<'a> RehearsalView<'a> {
    /// The document for `rehearsal`, with an estimate beside it if there is one.
    pub fn new(rehearsal: &'a Rehearsal, against: Option<&Against>) -> Self {
        let (major, minor) = rehearsal.gpu.compute_capability;
        let devices = |process: &ProcessRecord| {
            let seen = rehearsal.seen.iter().filter(|seen| seen.pid == process.pid);
            seen.map(DeviceView::new).collect::<Vec<_>>()
        };
        Self {
            version: VERSION,
            source: "rehearsal on a phantom GPU",
            gpu: GpuView {
                id: &rehearsal.gpu.id,
                name: &rehearsal.gpu.name,
                usable_bytes: rehearsal.gpu.usable_bytes,
                compute_capability: format!("{major}.{minor}"),
                multiprocessors: rehearsal.gpu.multiprocessors,
                count: rehearsal.gpus,
            },
            gpus: rehearsal
                .asked
                .iter()
                .filter_map(|gpu| Some(GpuVerdictView::new(&gpu.id, rehearsal.verdict_on(gpu)?, rehearsal)))
                .collect(),
            fits_from: rehearsal.carriers().map(|carriers| {
                let view = |(gpu, fit): (&'static CatalogGpu, Fit)| CarrierView { id: &gpu.id, verdict: fit_name(fit) };
                carriers.into_iter().map(view).collect()
            }),
            exit_code: rehearsal.exit_code,
            wall_s: rehearsal.wall_seconds,
            processes: rehearsal.processes.iter().map(|process| ProcessView::new(process, devices(process))).collect(),
            unrecorded: rehearsal.unrecorded.iter().map(UnrecordedView::new).collect(),
            against: against.map(AgainstView::new),
        }
    }
}

impl UnrecordedView {
    fn new(process: &Unrecorded) -> Self {
        let view = |used: &DriverUse| {
            let DriverUse { device, peak_bytes, together_bytes, processes, refusals, .. } = *used;
            DriverUseView { index: device, peak_bytes, together_bytes, processes, refusals }
        };
        Self { pid: process.pid, devices: process.devices.iter().map(view).collect() }
    }
}

impl<'a> GpuVerdictView<'a> {
    fn new(id: &'a str, on_gpu: RehearsedVerdict, rehearsal: &Rehearsal) -> Self {
        Self {
            id,
            verdict: rehearsal.known_fit(&on_gpu).map(fit_name),
            by: on_gpu.by.name(),
            rank: on_gpu.rank,
            total_bytes: on_gpu.total_bytes,
            peak_reserved_bytes: on_gpu.peak_reserved_bytes,
            context_bytes: on_gpu.context_bytes,
            processes: on_gpu.processes,
            usable_bytes: on_gpu.usable_bytes,
            headroom_bytes: on_gpu.usable_bytes as i64 - on_gpu.total_bytes as i64,
            num_alloc_retries: on_gpu.num_alloc_retries,
            out_of_memory: on_gpu.out_of_memory.map(|oom| OomView::new(oom, on_gpu.by)),
            differences: device_differences(&on_gpu.gpu, &rehearsal.gpu),
        }
    }
}

impl OomView {
    fn new(oom: OutOfMemory, by: VerdictSource) -> Self {
        let OutOfMemory { phase, line, requested_bytes, allocated_bytes, reserved_bytes } = oom;
        let allocated_bytes = (by != VerdictSource::Driver).then_some(allocated_bytes);
        Self { phase, line, requested_bytes, allocated_bytes, reserved_bytes }
    }
}

impl<'a> ProcessView<'a> {
    fn new(process: &'a ProcessRecord, devices: Vec<DeviceView<'a>>) -> Self {
        Self {
            rank: process.rank,
            world_size: process.world_size,
            pid: process.pid,
            command: &process.command,
            versions: &process.versions,
            steps: process.steps,
            steady_since: process.steady_since,
            stop: &process.stop,
            failure: process.failure.as_ref(),
            out_of_memory: &process.out_of_memory,
            host_peak_bytes: process.host_peak_bytes,
            wall_s: process.wall_s,
            trace_ends: process.trace_ends.as_deref(),
            caveats: &process.caveats,
            devices,
        }
    }
}

impl<'a> DeviceView<'a> {
    fn new(seen: &'a Seen) -> Self {
        let device = &seen.device;
        let peak = seen.recording.as_ref().map(|recording| AtPeak::in_phase(recording, &device.peak_phase));
        let highest = seen.recording.as_ref().map(AtPeak::of_recording);
        Self {
            index: device.index,
            name: &device.name,
            peak_allocated_bytes: device.peak_allocated_bytes,
            peak_reserved_bytes: device.peak_reserved_bytes,
            peak_phase: &device.peak_phase,
            peak_line: peak.as_ref().map(|peak| peak.line.clone()),
            peak_per_phase: &device.peak_per_phase,
            peak_reserved_per_phase: &device.peak_reserved_per_phase,
            num_alloc_retries: device.num_alloc_retries,
            num_ooms: device.num_ooms,
            rounded512_peak_bytes: highest.as_ref().map(|peak| peak.bytes),
            bytes_by_category_at_peak: peak.iter().flat_map(category_values).collect(),
            largest_live_at_peak: peak.iter().flat_map(|peak| peak.by_line.iter().take(LINES)).map(line_view).collect(),
        }
    }
}

fn category_values(peak: &AtPeak) -> impl Iterator<Item = (String, serde_json::Value)> + '_ {
    peak.by_category.iter().map(|(name, bytes)| (name.clone(), (*bytes).into()))
}

fn line_view(live: &LiveLine) -> LineView {
    let LiveLine { line, op, phase, category, bytes, count, .. } = live.clone();
    LineView { line, op, phase, category, bytes, count }
}

impl AgainstView {
    fn new(against: &Against) -> Self {
        let comparison = against.comparison.as_ref();
        let estimate = &against.estimate;
        let row = |row: &tonnage_core::rehearsal::CategoryBytes| CategoryView {
            category: row.category.map_or("other", |category| category.name()),
            estimate_bytes: row.estimated,
            rehearsal_bytes: row.rehearsed,
        };
        Self {
            estimate: PeaksView {
                peak_allocated_bytes: estimate.peak_allocated_bytes,
                peak_reserved_bytes: estimate.peak_reserved_bytes,
            },
            rehearsal: PeaksView {
                peak_allocated_bytes: against.rehearsed.0,
                peak_reserved_bytes: against.rehearsed.1,
            },
            bytes_by_category_at_peak: against.by_category.iter().map(row).collect(),
            equal_allocations: comparison.map(|comparison| comparison.equal_allocations),
            first_difference: comparison.and_then(|c: &Comparison| c.first.as_ref()).map(ToString::to_string),
        }
    }
}
