"""The allocator's own counters, device by device, read at the boundaries of phases.

Each phase needs a peak of its own, so peaks are reset at boundaries. The script must not notice: what it asks PyTorch
for is answered with the peaks that it would see without us.
"""

import torch

_stats = torch._C._cuda_memoryStats
_reset_peak = torch._C._cuda_resetPeakMemoryStats
_reset_accumulated = torch._C._cuda_resetAccumulatedMemoryStats

_script_peaks = {}
"""Device -> what the peaks were, since the script last reset them, before our own resets."""
_forgotten = {}
"""Device -> allocations and frees that the script's resets took out of the counters."""


class Reading:
    """What a device's counters say."""

    __slots__ = ("allocated", "reserved", "peak_allocated", "peak_reserved", "allocations", "frees", "retries", "ooms")

    def __init__(self, stats, forgotten):
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        count = stats["allocation"]["all"]
        self.allocated, self.peak_allocated = allocated["current"], allocated["peak"]
        self.reserved, self.peak_reserved = reserved["current"], reserved["peak"]
        self.allocations, self.frees = count["allocated"] + forgotten[0], count["freed"] + forgotten[1]
        self.retries, self.ooms = stats["num_alloc_retries"], stats["num_ooms"]

    @property
    def events(self):
        """Allocations and frees so far: the place in the trace."""
        return self.allocations + self.frees


def read(device):
    """The counters, with the peaks since `begin` was called last."""
    return Reading(_stats(device), _forgotten.get(device, (0, 0)))


def end_and_begin(device):
    """The counters at a boundary; peaks start anew."""
    stats = _stats(device)
    _keep_peaks(device, stats)
    _reset_peak(device)
    return Reading(stats, _forgotten.get(device, (0, 0)))


def install():
    """Puts the script's view in place of PyTorch's."""
    torch._C._cuda_memoryStats = _script_view
    torch._C._cuda_resetPeakMemoryStats = _script_resets_peaks
    torch._C._cuda_resetAccumulatedMemoryStats = _script_resets_accumulated


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


def _keep_peaks(device, stats):
    peaks = _script_peaks.setdefault(device, {})
    for name, pool, counter in _pools(stats):
        key = (name, pool)
        if counter["peak"] > peaks.get(key, -1):
            peaks[key] = counter["peak"]


def _script_view(device):
    stats = _stats(device)
    peaks = _script_peaks.get(device, {})
    for name, pool, counter in _pools(stats):
        counter["peak"] = max(counter["peak"], peaks.get((name, pool), 0))
    return stats


def _script_resets_peaks(device):
    """The running phase keeps its peak; only the script's view starts anew."""
    from . import phases

    phases.running().note_peaks()
    _reset_peak(device)
    _script_peaks.pop(device, None)


def _script_resets_accumulated(device):
    before = read(device)
    _forgotten[device] = (before.allocations, before.frees)
    _reset_accumulated(device)
