//! The answer for a GPU: seen, where the phantom stood for it; replayed within its memory, where it is another.

use crate::alloc::{AllocatorConfig, CachingAllocator, replay};
use crate::estimate::{Fit, outside_bytes, safety_margin};
use crate::gpu::Gpu;
use crate::recording::{RecordedEvent, Recording};

use super::{DeviceRecord, OomRecord, Seen};

/// How an answer came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictSource {
    /// The phantom stood for this GPU.
    Run,
    /// The recorded trace was replayed within this GPU's memory.
    Replay,
    /// There is no trace: the peaks alone say it.
    Peaks,
    /// There is no record: what the driver gave and refused says it.
    Driver,
}

impl VerdictSource {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Replay => "replay",
            Self::Peaks => "peaks",
            Self::Driver => "driver",
        }
    }
}

/// The answer for one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsedVerdict {
    /// The GPU that is asked about.
    pub gpu: Gpu,
    /// Whether it fits.
    pub fit: Fit,
    /// How that is known.
    pub by: VerdictSource,
    /// The rank that has it worst.
    pub rank: u32,
    /// What PyTorch reserves at most, on a GPU with room to spare; by the driver, all that was taken beside contexts.
    pub peak_reserved_bytes: u64,
    /// The same and the context.
    pub total_bytes: u64,
    /// The GPU's bytes.
    pub usable_bytes: u64,
    /// What the context takes at most; those of all processes where they share a device.
    pub context_bytes: u64,
    /// Processes that held the device then; more than one where they share it.
    pub processes: u64,
    /// How often the cache must be flushed for the job to go on; not before errors that the script caught. By the driver, how often
    /// it refused memory and the program went on.
    pub num_alloc_retries: u64,
    /// Where memory runs out.
    pub out_of_memory: Option<OutOfMemory>,
}

/// Where memory runs out on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The phase (`2:backward`).
    pub phase: String,
    /// The line of the script; empty where it is not known.
    pub line: String,
    /// Bytes that were asked of the driver ("Tried to allocate" in PyTorch's message).
    pub requested_bytes: u64,
    /// Bytes allocated at that moment.
    pub allocated_bytes: u64,
    /// Bytes reserved at that moment.
    pub reserved_bytes: u64,
}

impl From<&OomRecord> for OutOfMemory {
    fn from(oom: &OomRecord) -> Self {
        Self {
            phase: oom.phase.clone(),
            line: oom.line.clone().unwrap_or_default(),
            requested_bytes: oom.requested_bytes,
            allocated_bytes: oom.allocated_bytes,
            reserved_bytes: oom.reserved_bytes,
        }
    }
}

/// The GPU with the most memory, the first of several: the one to rehearse on when several are asked for.
pub fn largest_gpu(gpus: &[Gpu]) -> Option<&Gpu> {
    gpus.iter().rev().max_by_key(|gpu| gpu.usable_bytes)
}

/// What the CUDA context of a GPU takes at most.
pub fn context_bytes(gpu: &Gpu) -> u64 {
    outside_bytes(gpu).high
}

/// Whether what a process used on `on` fits `gpu`.
pub fn verdict_on(seen: &Seen, gpu: &Gpu, on: &Gpu) -> RehearsedVerdict {
    let context = context_bytes(gpu);
    let reserved = seen.device.peak_reserved_bytes;
    let available = gpu.usable_bytes.saturating_sub(context);
    let (by, retries, out_of_memory) = match (&seen.recording, &seen.out_of_memory) {
        (_, Some(oom)) if gpu == on => (VerdictSource::Run, seen.device.num_alloc_retries, Some(oom.into())),
        (_, None) if gpu == on => (VerdictSource::Run, helped_bytes(&seen.device), None),
        // What ran out on the largest runs out on a smaller one, at that place or before.
        (_, Some(oom)) => (VerdictSource::Run, 0, Some(oom.into())),
        (Some(recording), None) => {
            let (retries, oom) = reserved_within(recording, gpu.usable_bytes, context);
            (VerdictSource::Replay, retries, oom)
        }
        (None, None) => (VerdictSource::Peaks, 0, None),
    };
    // Beyond the end of its recording, too, the peaks alone say it.
    let over = (by == VerdictSource::Peaks || by == VerdictSource::Replay && !seen.complete) && reserved > available;
    let most = reserved.saturating_add(safety_margin(reserved)).saturating_add(seen.device.not_counted_bytes);
    let roomy = most <= available;
    let fit = match (&out_of_memory, retries) {
        (Some(_), _) => Fit::DoesNotFit,
        (None, _) if over => Fit::DoesNotFit,
        (None, 0) if roomy => Fit::Fits,
        (None, _) => Fit::Tight,
    };
    RehearsedVerdict {
        gpu: gpu.clone(),
        fit,
        by,
        rank: seen.rank,
        peak_reserved_bytes: reserved,
        total_bytes: reserved.saturating_add(context),
        usable_bytes: gpu.usable_bytes,
        context_bytes: context,
        processes: 1,
        num_alloc_retries: retries,
        out_of_memory,
    }
}

/// Flushes after which the request was served: PyTorch flushes once before every out-of-memory error, too
/// (`DeviceCachingAllocator::malloc`, c10/cuda/CUDACachingAllocator.cpp).
fn helped_bytes(device: &DeviceRecord) -> u64 {
    device.num_alloc_retries.saturating_sub(device.num_ooms)
}

/// Replays `recording` on a device of `usable` bytes beside its context, under the settings that it ran with: flushes of
/// the cache, and where memory runs out.
fn reserved_within(recording: &Recording, usable: u64, context: u64) -> (u64, Option<OutOfMemory>) {
    let mut allocator = CachingAllocator::new(allocator_settings(recording), Some(usable)).beside(context);
    let failed = replay(&mut allocator, recording.requests()).err();
    let oom = failed.map(|failed| {
        let (phase, line) = phase_and_line(recording, failed.event);
        OutOfMemory {
            phase,
            line,
            requested_bytes: failed.oom.attempted,
            allocated_bytes: failed.oom.allocated,
            reserved_bytes: failed.oom.reserved,
        }
    });
    (allocator.stats().num_alloc_retries, oom)
}

/// The allocator's settings that the job ran with; PyTorch's defaults where they are not known.
pub(super) fn allocator_settings(recording: &Recording) -> AllocatorConfig {
    AllocatorConfig::parse(recording.settings()).unwrap_or_default()
}

/// The phase and the line of an event.
fn phase_and_line(recording: &Recording, event: usize) -> (String, String) {
    let before = recording.events.get(..=event).unwrap_or_default();
    let phase = before.iter().rev().find_map(|event| match event {
        RecordedEvent::Phase(phase) => Some(phase.label()),
        _ => None,
    });
    let line = match recording.events.get(event) {
        Some(RecordedEvent::Alloc(alloc)) => alloc.module.to_string(),
        _ => String::new(),
    };
    (phase.unwrap_or_default(), line)
}

/// What differs between a GPU and the one that the script ran on, besides the size, and changes what PyTorch allocates.
pub fn device_differences(gpu: &Gpu, on: &Gpu) -> Vec<&'static str> {
    let (here, there) = (gpu.compute_capability, on.compute_capability);
    let mut differences = Vec::new();
    let mut tell = |differs: bool, text| {
        if differs {
            differences.push(text);
        }
    };
    // ATen's `sdp_utils.cpp`: flash attention from sm_80 on.
    tell((here >= (8, 0)) != (there >= (8, 0)), "without flash attention and bf16 tensor cores (below sm_80)");
    // ATen's `CUDABlas.cpp`, `parseChosenWorkspaceSize`: 32 MiB from Hopper on, 8.125 MiB below.
    tell((here.0 >= 9) != (there.0 >= 9), "cuBLAS workspaces of another size (32 MiB from sm_90, 8 MiB below)");
    // Reductions and fused kernels size their scratch space by multiprocessors.
    tell(gpu.multiprocessors != on.multiprocessors, "scratch space of some reductions goes by multiprocessors");
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read_timeline;
    use crate::rehearsal::PhaseBytes;
    use crate::units::{GIB, MIB};

    fn gpu(text: &str) -> Gpu {
        Gpu::parse(text).unwrap()
    }

    /// 6 GiB that are freed, then 8 GiB: the cache holds 6 when the 8 are asked for.
    fn seen() -> Seen {
        let (six, eight) = (6 * GIB, 8 * GIB);
        let text = format!(
            "{{}}\n[\"p\",\"forward\",1]\n[\"a\",0,{six},\"mm\",\"train.py:3 in f\",\"temporary\"]\n[\"f\",0]\n\
             [\"p\",\"backward\",1]\n[\"a\",1,{eight},\"mm\",\"train.py:9 in g\",\"temporary\"]"
        );
        let device = DeviceRecord {
            index: 0,
            name: "phantom".to_owned(),
            total_bytes: 80 * GIB,
            compute_capability: (9, 0),
            peak_allocated_bytes: eight,
            peak_reserved_bytes: six + eight,
            peak_phase: "1:backward".to_owned(),
            peak_per_phase: PhaseBytes::default(),
            peak_reserved_per_phase: PhaseBytes::default(),
            not_counted_bytes: 0,
            num_alloc_retries: 0,
            num_ooms: 0,
            trace: None,
        };
        Seen { rank: 0, pid: 7, device, out_of_memory: None, recording: read_timeline(&text).ok(), complete: true }
    }

    #[test]
    fn a_smaller_gpu_is_answered_by_replay() {
        let on = gpu("h100");
        let on_gpu = verdict_on(&seen(), &on, &on);
        assert_eq!((on_gpu.fit, on_gpu.by, on_gpu.num_alloc_retries), (Fit::Fits, VerdictSource::Run, 0));
        let tight = verdict_on(&seen(), &gpu("12GiB"), &on);
        assert_eq!((tight.fit, tight.by, tight.num_alloc_retries), (Fit::Tight, VerdictSource::Replay, 1));
        let small = verdict_on(&seen(), &gpu("7GiB"), &on);
        let oom = small.out_of_memory.unwrap();
        assert_eq!(small.fit, Fit::DoesNotFit);
        assert_eq!((oom.phase.as_str(), oom.line.as_str()), ("1:backward", "train.py:9 in g"));
        assert_eq!(oom.requested_bytes, 8 * GIB);
    }

    #[test]
    fn without_a_trace_the_peaks_say_it() {
        let bare = Seen { recording: None, ..seen() };
        let on = gpu("h100");
        assert_eq!(verdict_on(&bare, &gpu("12GiB"), &on).fit, Fit::DoesNotFit);
        assert_eq!(verdict_on(&bare, &gpu("24GiB"), &on).fit, Fit::Fits);
    }

    #[test]
    fn what_is_not_counted_makes_it_tight() {
        let mut with_workspaces = seen();
        let on = gpu("h100");
        with_workspaces.device.not_counted_bytes = 80 * GIB;
        assert_eq!(verdict_on(&with_workspaces, &on, &on).fit, Fit::Tight);
    }

    #[test]
    fn errors_that_the_script_caught_do_not_make_it_tight() {
        let on = gpu("h100");
        let mut caught = seen();
        (caught.device.num_alloc_retries, caught.device.num_ooms) = (12, 12);
        assert_eq!(verdict_on(&caught, &on, &on).fit, Fit::Fits);
        caught.device.num_alloc_retries = 13;
        let on_gpu = verdict_on(&caught, &on, &on);
        assert_eq!((on_gpu.fit, on_gpu.num_alloc_retries), (Fit::Tight, 1));
    }

    #[test]
    fn beyond_the_end_of_a_trace_the_peaks_say_it() {
        let cut = Seen { complete: false, ..seen() };
        let on_gpu = verdict_on(&cut, &gpu("12GiB"), &gpu("h100"));
        assert_eq!((on_gpu.fit, on_gpu.by), (Fit::DoesNotFit, VerdictSource::Replay));
    }

    #[test]
    fn what_ran_out_on_the_largest_fits_nowhere() {
        let oom = OomRecord {
            device: 0,
            phase: "2:forward".to_owned(),
            requested_bytes: MIB,
            allocated_bytes: GIB,
            reserved_bytes: GIB,
            line: None,
            op: String::new(),
        };
        let seen = Seen { out_of_memory: Some(oom), ..seen() };
        assert_eq!(verdict_on(&seen, &gpu("t4"), &gpu("h100")).fit, Fit::DoesNotFit);
    }

    #[test]
    fn gpus_differ_in_more_than_size() {
        assert!(device_differences(&gpu("h100"), &gpu("h100")).is_empty());
        assert_eq!(device_differences(&gpu("t4"), &gpu("h100")).len(), 3);
        assert_eq!(device_differences(&gpu("l4"), &gpu("a100-80")).len(), 1);
    }

    #[test]
    fn the_largest_is_rehearsed_on() {
        let gpus = ["t4", "a100-80", "l4"].map(gpu);
        assert_eq!(largest_gpu(&gpus).map(|gpu| gpu.id.as_str()), Some("a100-80"));
    }
}
