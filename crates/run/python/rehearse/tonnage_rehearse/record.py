"""What this process leaves behind: `record-PID.json` in the folder of the rehearsal, and a trace for every device."""

import json
import os
import sys
import threading
import time

import torch

from . import caveats
from .answers import convolutions, distributed

_loaded = time.time()


class Record:
    """The record of this process, written once."""

    def __init__(self, wanted, counters, phases, trace, seen):
        self.wanted, self.counters, self.phases, self.trace = wanted, counters, phases, trace
        self.coverage, self.shapes = seen
        self.out_of_memory = []
        self.failure = None
        self.is_written = False
        self.lock = threading.Lock()
        """The watchdog's thread may end the process as the script ends."""

    def note_out_of_memory(self, device, requested, stack_line, innermost):
        """PyTorch is about to raise its out-of-memory error."""
        self.phases.note_peaks()
        reading = self.counters.read(device)
        self.out_of_memory.append(
            {
                "device": device,
                "phase": self.phases.current.label,
                "requested_bytes": requested,
                "allocated_bytes": reading.allocated,
                "reserved_bytes": reading.reserved,
                "line": stack_line,
                "op": innermost,
            }
        )

    def note_failure(self, kind, value):
        """An exception has reached the top of the script."""
        out_of_memory = issubclass(kind, torch.OutOfMemoryError)
        self.failure = {"type": kind.__name__, "out_of_memory": out_of_memory, "message": str(value)[:2000]}

    def write_at_once(self, stop):
        """The same in a signal's handler, where this very thread may be writing it; False if it is, and the process ends after that."""
        if not self.lock.acquire(blocking=False):
            return False
        self.lock.release()
        self.write(stop)
        return True

    def write(self, stop):
        """Writes it, once."""
        with self.lock:
            if not self.is_written:
                self.is_written = True
                self._write(stop)

    def _write(self, stop):
        self.phases.note_peaks()
        traces = self.trace.close()
        self.coverage.tell(self.phases.steps_done > 0)
        self.shapes.tell()
        path = os.path.join(self.wanted.folder, f"record-{os.getpid()}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(self._document(traces, stop), file)
        os.replace(path + ".part", path)

    def _document(self, traces, stop):
        phases = self.phases
        rank, world_size = _place()
        return {
            "version": 1,
            "pid": os.getpid(),
            "rank": rank,
            "world_size": world_size,
            "command": sys.orig_argv,
            "versions": _versions(),
            "steps": phases.steps_done,
            "steady_since": phases.steady_since(),
            "stop": stop,
            "failure": self.failure,
            "out_of_memory": list(self.out_of_memory),
            "host_peak_bytes": _host_peak(),
            "wall_s": round(time.time() - _loaded, 3),
            "trace_ends": self.trace.left_out,
            "caveats": caveats.told(),
            "devices": [_device(seen, index, traces) for index, seen in enumerate(phases.devices) if self._is_used(seen, index)],
        }

    def _is_used(self, seen, index):
        return seen.peak_reserved > 0 or any(oom["device"] == index for oom in self.out_of_memory)


def _place():
    """Global rank and number of ranks: as the script joined them, else as the launcher says."""
    launched = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    return distributed.Joined.place or launched


def _device(seen, index, traces):
    properties = torch.cuda.get_device_properties(index)
    # The script's thread may be at a boundary meanwhile.
    peaks, reserved = dict(seen.peaks), dict(seen.reserved)
    return {
        "index": index,
        "name": properties.name,
        "total_bytes": properties.total_memory,
        "compute_capability": [properties.major, properties.minor],
        "peak_allocated_bytes": seen.peak_allocated,
        "peak_reserved_bytes": seen.peak_reserved,
        "peak_phase": max(peaks, key=peaks.get, default=""),
        "peak_per_phase": peaks,
        "peak_reserved_per_phase": reserved,
        "not_counted_bytes": convolutions.Largest.bytes(),
        "num_alloc_retries": seen.retries,
        "num_ooms": seen.ooms,
        "trace": os.path.basename(traces[index]) if index in traces else None,
    }


def _versions():
    """Of the packages that are in use."""
    packages = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "bitsandbytes", "triton")
    versions = {"python": sys.version.split()[0]}
    for name in packages:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def _host_peak():
    """VmHWM of Linux, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
