"""What this process leaves behind: `record-PID.json` in the folder of the rehearsal, and a trace for every device."""

import json
import os
import sys
import threading
import time

import torch

from . import caveats, counters, phases, settings, trace
from .answers import distributed

_started = time.time()
_out_of_memory = []
_written = False
_lock = threading.Lock()
"""The watchdog's thread may end the process as the script ends."""
_failure = None


def note_out_of_memory(device, requested, stack_line, innermost):
    """PyTorch is about to raise its out-of-memory error."""
    running = phases.running()
    running.note_peaks()
    reading = counters.read(device)
    _out_of_memory.append(
        {
            "device": device,
            "phase": running.current.label,
            "requested_bytes": requested,
            "allocated_bytes": reading.allocated,
            "reserved_bytes": reading.reserved,
            "line": stack_line,
            "op": innermost,
        }
    )


def note_failure(kind, value):
    """An exception has reached the top of the script."""
    global _failure
    _failure = {"type": kind.__name__, "out_of_memory": issubclass(kind, torch.OutOfMemoryError), "message": str(value)[:2000]}


def write(stop):
    """Writes it, once."""
    global _written
    with _lock:
        if not _written:
            _written = True
            _write(stop)


def _write(stop):
    running = phases.running()
    running.note_peaks()
    traces = trace.close()
    folder = settings.read().folder
    path = os.path.join(folder, f"record-{os.getpid()}.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(_document(running, traces, stop), file)
    os.replace(path + ".part", path)


def _document(running, traces, stop):
    from . import stop as stopping

    rank, world_size = _place()
    return {
        "version": 1,
        "pid": os.getpid(),
        "rank": rank,
        "world_size": world_size,
        "command": sys.orig_argv,
        "versions": _versions(),
        "steps": running.steps_done,
        "steady_since": stopping.steady_since(),
        "stop": stop,
        "failure": _failure,
        "out_of_memory": list(_out_of_memory),
        "host_peak_bytes": _host_peak(),
        "wall_s": round(time.time() - _started, 3),
        "trace_ends": trace.left_out(),
        "caveats": caveats.told(),
        "devices": [_device(running, index, traces) for index in range(len(running.devices)) if _used(running, index)],
    }


def _place():
    """Global rank and number of ranks: as the script joined them, else as the launcher says."""
    launched = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    return distributed.place or launched


def _used(running, index):
    return running.devices[index].peak_reserved > 0 or any(oom["device"] == index for oom in _out_of_memory)


def _device(running, index, traces):
    seen, properties = running.devices[index], torch.cuda.get_device_properties(index)
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
