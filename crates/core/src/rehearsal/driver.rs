//! What the phantom's driver itself saw of processes that left no record of their own, and the answer that follows from it.
//! `crates/phantom/src/memory/usage.rs` writes it.

use std::cmp::Reverse;

use crate::estimate::{Fit, safety_margin};
use crate::gpu::Gpu;

use super::verdict::{OutOfMemory, RehearsedVerdict, VerdictSource, context_bytes};

/// A process that used a device and left no record: a native program, Python that our recorder could not reach, or one that
/// was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    /// On the machine that rehearsed.
    pub pid: u32,
    /// The devices that it used, at least one.
    pub devices: Vec<DriverUse>,
}

/// What the driver gave a process of one device, and what it refused. Bytes, CUDA contexts included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverUse {
    /// Its number on the machine.
    pub device: u32,
    /// The most that this process held.
    pub peak_bytes: u64,
    /// The most that all processes held together when this one took more.
    pub together_bytes: u64,
    /// How many processes these were.
    pub processes: u64,
    /// Requests for which there was no room.
    pub refusals: u64,
    /// The last of them, where as much was never given later; else 0.
    pub refused_bytes: u64,
    /// What this process held at that moment.
    pub held_bytes: u64,
}

impl Unrecorded {
    /// The most that it held of one device, its context included.
    pub fn peak_bytes(&self) -> u64 {
        self.devices.iter().map(|used| used.peak_bytes).max().unwrap_or(0)
    }
}

/// Reads what a process left, a line a device; `None` where it is not of that form, or tells of no device.
pub fn read_driver_use(text: &str) -> Option<Vec<DriverUse>> {
    let read = |line: &str| {
        let numbers: Option<Vec<u64>> = line.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let &[device, peak_bytes, together_bytes, processes, refusals, refused_bytes, held_bytes] = numbers?.as_slice()
        else {
            return None;
        };
        let device = u32::try_from(device).ok()?;
        Some(DriverUse { device, peak_bytes, together_bytes, processes, refusals, refused_bytes, held_bytes })
    };
    text.lines().map(read).collect::<Option<Vec<_>>>().filter(|devices| !devices.is_empty())
}

/// The answer for `gpu` by what the driver of a phantom of `on` gave; `failed` says whether the command did. The device that
/// has it worst.
pub(super) fn driver_verdict(processes: &[Unrecorded], failed: bool, gpu: &Gpu, on: &Gpu) -> Option<RehearsedVerdict> {
    let used = processes.iter().flat_map(|process| &process.devices);
    let on_gpu = used.map(|used| verdict_of(used, failed, gpu, on));
    on_gpu.max_by_key(|on_gpu| (on_gpu.fit, on_gpu.total_bytes))
}

/// The answer for a device that several processes with records shared, each of which tells its own errors and retries.
/// `not_counted`: bytes that no figure has.
pub(super) fn shared_verdict(used: &DriverUse, not_counted: u64, gpu: &Gpu, on: &Gpu) -> RehearsedVerdict {
    let mut on_gpu = verdict_of(&DriverUse { refusals: 0, refused_bytes: 0, ..*used }, false, gpu, on);
    on_gpu.by = if gpu == on { VerdictSource::Run } else { VerdictSource::Peaks };
    let most = on_gpu.total_bytes.saturating_add(safety_margin(on_gpu.peak_reserved_bytes)).saturating_add(not_counted);
    if on_gpu.fit == Fit::Fits && most > gpu.usable_bytes {
        on_gpu.fit = Fit::Tight;
    }
    on_gpu
}

/// Of what the processes left, each device that several held at once: as many as there were, each at its own peak, because a
/// rehearsal stops one while another has not come that far.
pub fn shared_devices(used: &[DriverUse]) -> Vec<DriverUse> {
    let mut devices: Vec<u32> = used.iter().filter(|one| one.processes > 1).map(|one| one.device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().filter_map(|device| shared_device(used, device)).collect()
}

fn shared_device(used: &[DriverUse], device: u32) -> Option<DriverUse> {
    let mut here: Vec<&DriverUse> = used.iter().filter(|one| one.device == device).collect();
    here.sort_unstable_by_key(|one| Reverse(one.peak_bytes));
    let processes = here.iter().map(|one| one.processes).max()?;
    let seen = here.iter().map(|one| one.together_bytes).max()?;
    let count = usize::try_from(processes).unwrap_or(usize::MAX);
    let peaks = here.iter().take(count).fold(0_u64, |sum, one| sum.saturating_add(one.peak_bytes));
    Some(DriverUse { processes, together_bytes: seen.max(peaks), ..**here.first()? })
}

/// Whether the driver refused memory and the command failed after it.
pub(super) fn ran_out(processes: &[Unrecorded], failed: bool) -> bool {
    failed && processes.iter().flat_map(|process| &process.devices).any(|used| used.refused_bytes > 0)
}

fn verdict_of(used: &DriverUse, failed: bool, gpu: &Gpu, on: &Gpu) -> RehearsedVerdict {
    let (context, there) = (context_bytes(gpu), context_bytes(on));
    let processes = used.processes.max(1);
    // Beside the contexts: a caching allocator's reserved bytes, and whatever else was taken.
    let taken = used.together_bytes.max(used.peak_bytes).saturating_sub(there.saturating_mul(processes));
    let contexts = context.saturating_mul(processes);
    let total = taken.saturating_add(contexts);
    let out_of_memory = (failed && used.refused_bytes > 0).then(|| {
        let held = used.held_bytes.saturating_sub(there);
        OutOfMemory {
            phase: String::new(),
            line: String::new(),
            requested_bytes: used.refused_bytes,
            allocated_bytes: held,
            reserved_bytes: held,
        }
    });
    let is_roomy = total.saturating_add(safety_margin(taken)) <= gpu.usable_bytes;
    let fit = if out_of_memory.is_some() || total > gpu.usable_bytes {
        Fit::DoesNotFit
    } else if used.refusals > 0 || !is_roomy {
        Fit::Tight
    } else {
        Fit::Fits
    };
    RehearsedVerdict {
        gpu: gpu.clone(),
        fit,
        by: VerdictSource::Driver,
        rank: 0,
        peak_reserved_bytes: taken,
        total_bytes: total,
        usable_bytes: gpu.usable_bytes,
        context_bytes: contexts,
        processes,
        num_alloc_retries: if out_of_memory.is_some() { 0 } else { used.refusals },
        out_of_memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    fn gpu(text: &str) -> Gpu {
        Gpu::parse(text).unwrap()
    }

    /// A process that held `taken` beside its context.
    fn process(taken: u64, on: &Gpu, change: impl FnOnce(&mut DriverUse)) -> Vec<Unrecorded> {
        let peak_bytes = taken + context_bytes(on);
        let mut used = DriverUse {
            device: 0,
            peak_bytes,
            together_bytes: peak_bytes,
            processes: 1,
            refusals: 0,
            refused_bytes: 0,
            held_bytes: 0,
        };
        change(&mut used);
        vec![Unrecorded { pid: 7, devices: vec![used] }]
    }

    #[test]
    fn what_the_driver_gave_is_an_answer() {
        let on = gpu("h100");
        let answer = |taken: u64, text: &str| driver_verdict(&process(taken, &on, |_| ()), false, &gpu(text), &on);
        let fits = answer(6 * GIB, "h100").unwrap();
        assert_eq!((fits.fit, fits.by, fits.peak_reserved_bytes), (Fit::Fits, VerdictSource::Driver, 6 * GIB));
        assert_eq!(fits.total_bytes, 6 * GIB + context_bytes(&on));
        // Of another GPU the context is another.
        let small = answer(6 * GIB, "t4").unwrap();
        assert_eq!((small.fit, small.total_bytes), (Fit::Fits, 6 * GIB + context_bytes(&gpu("t4"))));
        assert_eq!(answer(40 * GIB, "t4").unwrap().fit, Fit::DoesNotFit);
        let barely = gpu("h100").usable_bytes - context_bytes(&on);
        assert_eq!(answer(barely, "h100").unwrap().fit, Fit::Tight);
    }

    #[test]
    fn a_refusal_before_a_failure_is_out_of_memory() {
        let on = gpu("t4");
        let refused = process(9 * GIB, &on, |used| {
            (used.refusals, used.refused_bytes, used.held_bytes) = (2, 8 * GIB, used.peak_bytes);
        });
        let failed = driver_verdict(&refused, true, &on, &on).unwrap();
        let oom = failed.out_of_memory.unwrap();
        assert_eq!((failed.fit, oom.requested_bytes, oom.reserved_bytes), (Fit::DoesNotFit, 8 * GIB, 9 * GIB));
        assert!(ran_out(&refused, true) && !ran_out(&refused, false));
        // A program that went on with less.
        let went_on = driver_verdict(&refused, false, &on, &on).unwrap();
        assert_eq!((went_on.fit, went_on.num_alloc_retries, went_on.out_of_memory), (Fit::Tight, 2, None));
        // One that was given as much later, and failed for another reason.
        let answered = process(9 * GIB, &on, |used| used.refusals = 1);
        assert!(!ran_out(&answered, true));
    }

    #[test]
    fn processes_that_share_a_device_count_together() {
        let on = gpu("t4");
        let shared = process(GIB, &on, |used| {
            (used.together_bytes, used.processes) = (9 * GIB + 3 * context_bytes(&on), 3);
        });
        let answer = driver_verdict(&shared, false, &on, &on).unwrap();
        assert_eq!((answer.peak_reserved_bytes, answer.context_bytes), (9 * GIB, 3 * context_bytes(&on)));
        assert_eq!(driver_verdict(&[], false, &on, &on), None);
    }

    #[test]
    fn processes_with_records_count_together_too() {
        let on = gpu("t4");
        let one = context_bytes(&on);
        let of_one = |device, taken, together_bytes, processes| {
            let used = process(taken, &on, |used| {
                (used.device, used.together_bytes, used.processes) = (device, together_bytes, processes);
                used.refusals = 2;
            });
            used[0].devices[0]
        };
        // At most two of three at once: the third came when the first had gone.
        let used = [
            of_one(0, 4 * GIB, 6 * GIB + 2 * one, 2),
            of_one(1, GIB, GIB, 1),
            of_one(0, 5 * GIB, 5 * GIB, 1),
            of_one(0, GIB, 0, 1),
        ];
        let shared = shared_devices(&used);
        let held: Vec<_> = shared.iter().map(|one| (one.device, one.together_bytes)).collect();
        assert_eq!(held, [(0, 9 * GIB + 2 * one)]);
        let contexts = 2 * one;
        let answer = shared_verdict(&shared[0], 0, &on, &on);
        assert_eq!((answer.fit, answer.by, answer.num_alloc_retries), (Fit::Fits, VerdictSource::Run, 0));
        assert_eq!((answer.processes, answer.peak_reserved_bytes, answer.context_bytes), (2, 9 * GIB, contexts));
        assert_eq!(shared_verdict(&shared[0], 9 * GIB, &on, &on).fit, Fit::Tight);
        let small = shared_verdict(&shared[0], 0, &gpu("8GiB"), &on);
        assert_eq!((small.fit, small.by), (Fit::DoesNotFit, VerdictSource::Peaks));
    }

    #[test]
    fn what_is_no_file_of_the_phantom_is_not_read() {
        let read = read_driver_use("0 9 20 2 1 5 6\n1 7 7 1 0 0 0\n").unwrap();
        assert_eq!((read[0].together_bytes, read[0].refused_bytes, read[1].device), (20, 5, 1));
        for text in ["", "0 9\n", "0 9 20 2 1 5 x\n", "0 9 20 2 1 5 6 7\n"] {
            assert_eq!(read_driver_use(text), None, "{text}");
        }
    }
}
