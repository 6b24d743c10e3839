//! [`GpuMemory`]: the numbers of an out-of-memory message, and what they say about why.

use crate::cause::Figures;
use tonnage_core::failure::Class;
use tonnage_core::units::{Bytes, GIB, MIB};

/// What a CUDA context and the libraries' own buffers take in any process; less than this outside the allocator is
/// nothing to wonder about.
const ORDINARY_OUTSIDE: u64 = 2 * GIB;

/// The numbers of an out-of-memory message, in bytes. What a message leaves out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// `CUDA`, `HIP`, `XPU`, `MPS`, `XLA`, `TensorFlow`.
    pub backend: &'static str,
    /// Whether PyTorch's own allocator states it.
    pub of_pytorch: bool,
    /// What was asked for: the segment, which is the tensor rounded up.
    pub requested: Option<u64>,
    /// The device's index.
    pub device: Option<u64>,
    /// All the device has.
    pub total: Option<u64>,
    /// Free on the device.
    pub free: Option<u64>,
    /// What this process holds, its CUDA context included.
    pub this_process: Option<u64>,
    /// What other processes hold, by pid.
    pub processes: Vec<(u64, u64)>,
    /// What a limit lets this process have.
    pub allowed: Option<u64>,
    /// Bytes in tensors, as PyTorch's message says.
    pub allocated: Option<u64>,
    /// Of the allocated, in private pools (CUDA graphs).
    pub private_pools: Option<u64>,
    /// In the allocator's cache, left over after it gave back what it could.
    pub unallocated: Option<u64>,
    /// Whether the message says so itself; some only come with low memory.
    pub likely: bool,
}

impl GpuMemory {
    /// Why: the first of [`Self::reasons`].
    pub fn class(&self) -> Class {
        self.reasons().first().copied().unwrap_or(Class::GpuMemory)
    }

    /// All that the numbers give as a reason, the strongest first; the job's own need only where nothing else.
    pub fn reasons(&self) -> Vec<Class> {
        // Where no process is named, others are only inferred, and what the message states comes first.
        let inferred = self.processes.is_empty() && self.is_fragmented();
        let candidates = [
            (self.is_capped(), Class::AllocatorCap),
            (self.is_crowded() && !inferred, Class::Neighbour),
            (self.is_fragmented(), Class::Fragmentation),
            (self.is_crowded() && inferred, Class::Neighbour),
            (self.is_outside(), Class::OutsideAllocator),
        ];
        let mut reasons: Vec<Class> = candidates.iter().filter(|(holds, _)| *holds).map(|(_, class)| *class).collect();
        if reasons == [Class::Fragmentation] && self.is_nearly_full() {
            reasons.push(Class::GpuMemory);
        }
        if reasons.is_empty() {
            reasons.push(Class::GpuMemory);
            reasons.extend(self.may_be_fragmented().then_some(Class::Fragmentation));
        }
        reasons
    }

    /// What the allocator held: tensors and cache.
    pub fn reserved(&self) -> Option<u64> {
        self.allocated.map(|allocated| allocated.saturating_add(self.unallocated.unwrap_or(0)))
    }

    /// Processes that are not this one. In a container the process itself is listed under the host's pid, or as 1,
    /// and the clause about this process is missing: then the one that holds a little more than the allocator is it.
    pub fn neighbours(&self) -> Vec<(u64, u64)> {
        let mut others = self.processes.clone();
        if self.this_process.is_none()
            && let Some(own) = self.own_entry()
        {
            others.remove(own);
        }
        others
    }

    /// The entry of this process. Whoever holds more than the card has beside this process's allocator is this process.
    fn own_entry(&self) -> Option<usize> {
        let reserved = self.reserved()?;
        let holds_it = |entry: &(usize, &(u64, u64))| {
            let (_, (_, bytes)) = entry;
            let about_it = bytes.saturating_add(64 * MIB) >= reserved;
            let no_other = self.total.is_some_and(|total| bytes.saturating_add(reserved) > total);
            about_it && (no_other || *bytes <= reserved.saturating_add(2 * ORDINARY_OUTSIDE))
        };
        self.processes.iter().enumerate().filter(holds_it).min_by_key(|(_, (_, bytes))| *bytes).map(|(at, _)| at)
    }

    /// What other processes hold, together.
    pub fn neighbours_bytes(&self) -> u64 {
        self.neighbours().iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// What nobody accounts for, where the message names no process at all: before 2.1, on Windows and on ROCm.
    pub fn unexplained(&self) -> Option<u64> {
        let named = self.this_process.is_some() || !self.processes.is_empty() || self.allowed.is_some();
        let rest = self.total?.checked_sub(self.free?)?.checked_sub(self.reserved()?)?;
        (!named && rest > ORDINARY_OUTSIDE).then_some(rest)
    }

    /// What this process holds beside its allocator.
    pub fn outside(&self) -> Option<u64> {
        let entry = || self.own_entry().and_then(|at| self.processes.get(at)).map(|(_, bytes)| *bytes);
        self.this_process.or_else(entry)?.checked_sub(self.reserved()?)
    }

    /// What cannot have been free: `free` is read after the failure, and others move in between.
    fn free_then(&self) -> Option<u64> {
        let (free, requested) = (self.free?, self.requested?);
        Some(if free < requested.saturating_add(64 * MIB) { free.min(requested.saturating_sub(1)) } else { free })
    }

    /// Free memory that was not given: a stated limit, a private pool, or far more free than was asked for and nobody
    /// else there who could just have left.
    fn is_capped(&self) -> bool {
        let (Some(free), Some(requested)) = (self.free, self.requested) else { return false };
        if free < requested.saturating_add((requested / 8).max(64 * MIB)) {
            return false;
        }
        let others = self.neighbours_bytes().saturating_add(self.unexplained().unwrap_or(0));
        let stated = self.allowed.is_some() || self.private_pools.is_some();
        let far = free - requested >= (GIB / 2).max(self.total.unwrap_or(0) / 20);
        stated || (far && others <= GIB / 2)
    }

    /// Without the others it would have fitted.
    fn is_crowded(&self) -> bool {
        let (Some(free), Some(requested)) = (self.free, self.requested) else { return false };
        let others = self.neighbours_bytes().saturating_add(self.unexplained().unwrap_or(0));
        let then = self.free_then().unwrap_or(free);
        // With much free beside a neighbour it is the neighbour's that came and went.
        others > GIB / 2 && !self.is_capped() && then.saturating_add(others) >= requested
    }

    /// What was missing of the request beside what the device had free.
    pub fn missing(&self) -> Option<u64> {
        self.requested?.checked_sub(self.free_then()?)
    }

    /// Whether the cache in pieces could have given what was missing. At the message every whole free segment has been
    /// given back already (c10/cuda/CUDACachingAllocator.cpp, malloc); holes can only be had by unmapping their pages,
    /// 20 MiB each, which expandable segments do: hence three quarters.
    fn may_be_fragmented(&self) -> bool {
        let (Some(unallocated), Some(missing)) = (self.unallocated, self.missing_or_all()) else { return false };
        missing <= unallocated / 4 * 3
    }

    /// Whether pieces are the first reason: twice what is missing, and no small sum.
    fn is_fragmented(&self) -> bool {
        let (Some(unallocated), Some(missing)) = (self.unallocated, self.missing_or_all()) else { return false };
        // Windows lends the host's memory: who holds more than the card has needs more than it.
        let overcommitted = self.allocated.zip(self.total).is_some_and(|(allocated, total)| allocated > total);
        self.may_be_fragmented() && !overcommitted && unallocated >= missing.saturating_mul(2).max(512 * MIB)
    }

    /// Where the message does not say what was free, all of the request is missing.
    fn missing_or_all(&self) -> Option<u64> {
        if self.free.is_none() { self.requested } else { self.missing() }
    }

    fn is_nearly_full(&self) -> bool {
        self.free.zip(self.total).is_some_and(|(free, total)| free < total / 20)
    }

    /// A word on the numbers, where the class alone says too little: how much was missing and how much lies in pieces.
    pub fn words(&self) -> Option<String> {
        let (missing, unallocated) = (self.missing()?, self.unallocated?);
        if self.is_capped() || unallocated == 0 {
            return None;
        }
        let numbers = format!("{} missing, {} cached in pieces", Bytes(missing), Bytes(unallocated));
        if self.may_be_fragmented() {
            let full = if self.is_nearly_full() { "; the card is nearly full as well" } else { "" };
            let first = if self.is_fragmented() { "" } else { ": try expandable segments first" };
            return Some(format!("{numbers}{first}{full}"));
        }
        let short = missing.checked_sub(unallocated)?;
        Some(format!("{numbers}: {} too little even if the pieces were one", Bytes(short)))
    }

    /// This process holds much beside its allocator, enough for what was asked for.
    fn is_outside(&self) -> bool {
        let (Some(outside), Some(requested)) = (self.outside(), self.requested) else { return false };
        outside > ORDINARY_OUTSIDE && outside - ORDINARY_OUTSIDE / 2 >= requested
    }

    pub(crate) fn figures(&self, figures: &mut Figures) {
        figures.bytes("requested", self.requested);
        figures.number("device", self.device);
        figures.bytes("total", self.total);
        figures.bytes("free", self.free);
        figures.bytes("this_process", self.this_process);
        figures.bytes("other_processes", (!self.neighbours().is_empty()).then(|| self.neighbours_bytes()));
        figures.bytes("unexplained", self.unexplained());
        figures.bytes("allowed", self.allowed);
        figures.bytes("allocated", self.allocated);
        figures.bytes("private_pools", self.private_pools);
        figures.bytes("unallocated", self.unallocated);
        figures.bytes("outside", self.outside().filter(|_| self.is_outside()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(requested: u64, free: u64, allocated: u64, unallocated: u64) -> GpuMemory {
        GpuMemory {
            requested: Some(requested * MIB),
            total: Some(24 * GIB),
            free: Some(free * MIB),
            allocated: Some(allocated * MIB),
            unallocated: Some(unallocated * MIB),
            ..GpuMemory::default()
        }
    }

    #[test]
    fn numbers_tell_why() {
        assert_eq!(message(22, 11, 22 * 1024, 195).class(), Class::GpuMemory);
        assert_eq!(message(654, 22 * 1024, 500, 20).class(), Class::AllocatorCap);
        assert_eq!(message(2048, 500, 17 * 1024, 6 * 1024).class(), Class::Fragmentation);
        let crowded =
            GpuMemory { processes: vec![(7, 14 * GIB)], this_process: Some(9 * GIB), ..message(2048, 900, 8192, 100) };
        assert_eq!(crowded.reasons(), [Class::Neighbour]);
        let outside = GpuMemory { this_process: Some(20 * GIB), ..message(1024, 100, 8192, 100) };
        assert_eq!(outside.class(), Class::OutsideAllocator);
    }

    #[test]
    fn in_a_container_the_process_itself_is_no_neighbour() {
        let alone = GpuMemory { processes: vec![(1, 23 * GIB)], ..message(512, 100, 22 * 1024, 300) };
        assert_eq!((alone.neighbours(), alone.class()), (Vec::new(), Class::GpuMemory));
        let two = GpuMemory { processes: vec![(1, 9 * GIB), (2, 14 * GIB)], ..message(512, 100, 8 * 1024, 300) };
        assert_eq!((two.neighbours_bytes(), two.class()), (14 * GIB, Class::Neighbour));
    }

    #[test]
    fn enormous_numbers_do_not_overflow() {
        let all = GpuMemory {
            requested: Some(u64::MAX),
            total: Some(u64::MAX),
            free: Some(u64::MAX),
            this_process: Some(u64::MAX),
            processes: vec![(1, u64::MAX), (2, u64::MAX)],
            allocated: Some(u64::MAX),
            unallocated: Some(u64::MAX),
            ..GpuMemory::default()
        };
        assert!(!all.reasons().is_empty());
    }
}
