"""The allocator's own counters, device by device, read at the boundaries of phases.

Each phase needs a peak of its own, so peaks are reset at boundaries. The script must not notice: what it asks PyTorch
for is answered with the peaks that it would see without us.
"""

import torch


class Reading:
    """What a device's counters say."""

    __slots__ = ("allocated", "allocations", "frees", "ooms", "peak_allocated", "peak_reserved", "reserved", "retries", "sums")

    def __init__(self, stats, forgotten):
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        count = stats["allocation"]["all"]
        self.allocated, self.peak_allocated = allocated["current"], allocated["peak"]
        self.reserved, self.peak_reserved = reserved["current"], reserved["peak"]
        self.allocations, self.frees = count["allocated"] + forgotten[0], count["freed"] + forgotten[1]
        self.retries, self.ooms = stats["num_alloc_retries"], stats["num_ooms"]
        self.sums = (self.allocations, self.frees, allocated["allocated"], stats["requested_bytes"]["all"]["allocated"], self.retries)
        """What only grows; two stretches of the run that add the same to all of it did the same."""

    @property
    def events(self):
        """Allocations and frees so far: the place in the trace."""
        return self.allocations + self.frees


class Counters:
    """The counters of every device, with the script's view of them kept apart from ours."""

    def __init__(self):
        self.stats = torch._C._cuda_memoryStats
        self.reset_peak = torch._C._cuda_resetPeakMemoryStats
        self.reset_accumulated = torch._C._cuda_resetAccumulatedMemoryStats
        self.script_peaks = {}
        """Device -> what the peaks were, since the script last reset them, before our own resets."""
        self.forgotten = {}
        """Device -> allocations and frees that the script's resets took out of the counters."""

    def install(self, before_reset):
        """Puts the script's view in place of PyTorch's; `before_reset()` is called before the script's reset of peaks."""

        def script_resets_peaks(device):
            before_reset()
            self.reset_peak(device)
            self.script_peaks.pop(device, None)

        torch._C._cuda_memoryStats = self.script_view
        torch._C._cuda_resetPeakMemoryStats = script_resets_peaks
        torch._C._cuda_resetAccumulatedMemoryStats = self.script_resets_accumulated

    def read(self, device):
        """The counters, with the peaks since the last boundary."""
        return Reading(self.stats(device), self.forgotten.get(device, (0, 0)))

    def end_and_begin(self, device):
        """The counters at a boundary; peaks start anew."""
        stats = self.stats(device)
        self._keep_peaks(device, stats)
        self.reset_peak(device)
        return Reading(stats, self.forgotten.get(device, (0, 0)))

    def _keep_peaks(self, device, stats):
        peaks = self.script_peaks.get(device)
        if peaks is None:
            peaks = self.script_peaks[device] = {(name, pool): -1 for name, pool, _ in _pools(stats)}
        for key, most in peaks.items():
            name, pool = key
            peak = stats[name]["peak"] if pool is None else stats[name][pool]["peak"]
            if peak > most:
                peaks[key] = peak

    def script_view(self, device):
        """What PyTorch would say if nobody had reset peaks but the script."""
        stats = self.stats(device)
        peaks = self.script_peaks.get(device, {})
        for name, pool, counter in _pools(stats):
            counter["peak"] = max(counter["peak"], peaks.get((name, pool), 0))
        return stats

    def script_resets_accumulated(self, device):
        """The script's totals start anew; ours go on."""
        before = self.read(device)
        self.forgotten[device] = (before.allocations, before.frees)
        self.reset_accumulated(device)


def _pools(stats):
    """Every counter with a peak: name, pool, counter."""
    for name, value in stats.items():
        if not isinstance(value, dict):
            continue
        if "peak" in value:
            yield name, None, value
        else:
            for pool, counter in value.items():
                if isinstance(counter, dict) and "peak" in counter:
                    yield name, pool, counter
