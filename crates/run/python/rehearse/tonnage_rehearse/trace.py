"""The trace of every device: PyTorch's memory history, taken out of its buffer after every step and written as a
timeline that `tonnage trace replay` reads.
"""

import json
import os
import threading

import torch

from . import counters, hooks, phases, places, roles, settings

_TORCH = os.path.join("site-packages", "torch") + os.sep
MANY = 20
"""The buffer is drained before a step is over when there are entries divided by this allocations and frees; each takes up to
three entries, and what is drained at once is held as Python objects."""

_WRAPPERS = (os.path.join("nn", "parallel", "distributed.py"), os.path.join("fsdp", "_fully_shard"))
_record = torch.cuda.memory._record_memory_history
_writers = []
_lock = threading.RLock()
"""The watchdog's thread may close the trace while the script's drains it."""
_on = False
_drained = 0
_budget = 0
_left_out = None


def begin():
    """Starts PyTorch's recording; it must be the first thing after the device is there."""
    global _on, _budget, _left_out
    _budget = settings.read().trace_events
    if torch.cuda.get_allocator_backend() != "native":
        _left_out = f"the allocator {torch.cuda.get_allocator_backend()} keeps no history"
        return
    _start_history()
    _on = True

    def script_records(*args, **kwargs):
        end("the script records its own memory history")
        return _record(*args, **kwargs)

    torch.cuda.memory._record_memory_history = script_records
    _writers.extend(Writer(index) for index in range(torch.cuda.device_count()))


def _start_history():
    # Frees carry no stack: only births are attributed to lines.
    _record(enabled="all", context="alloc", stacks="python", max_entries=settings.read().trace_entries)


def end(reason):
    """No more is recorded, and why."""
    with _lock:
        if _on:
            _take()
            _stop(reason)


def _stop(reason):
    global _on, _left_out
    if _on:
        _on = False
        _left_out = reason


def left_out():
    """Why the trace ends before the run does, or None."""
    return _left_out


def emptied():
    """The script has emptied the cache."""
    with _lock:
        if _on:
            for writer in _writers:
                writer.empties.append(counters.read(writer.device).events)


def drain_if_many():
    """Where much happens between two steps: takes it before the buffer overflows."""
    if _on and _events() - _drained > settings.read().trace_entries // MANY:
        drain()


def _events():
    return sum(counters.read(writer.device).events for writer in _writers)


def drain():
    """Takes what was recorded since the last time; nothing once the trace has ended."""
    with _lock:
        if _on:
            _take(goes_on=True)
            if not _on:
                _record(enabled=None)


def _take(goes_on=False):
    global _budget, _drained
    marks = roles.take()
    snapshot = torch.cuda.memory._snapshot()
    if goes_on:
        # Switching it off empties the buffer, in every version.
        _record(enabled=None)
        _start_history()
    _drained = _events()
    running = phases.running()
    history, running.history = running.history, []
    room = settings.read().trace_entries
    if any(len(entries) >= room for entries in snapshot["device_traces"]):
        # The oldest entries are gone.
        _stop(f"PyTorch's buffer of {room} entries overflowed between two boundaries of phases")
        return
    for writer in _writers:
        _budget -= writer.take(snapshot["device_traces"][writer.device], history, marks)
    if _budget <= 0:
        _stop("enough was recorded")


def close():
    """Writes the rest, and takes no more; the paths by device."""
    global _on
    with _lock:
        if _on:
            _take()
        _on = False
        return {writer.device: writer.close() for writer in _writers if writer.file is not None}


class Writer:
    """Writes the timeline of one device."""

    def __init__(self, device):
        self.device, self.file, self.path = device, None, None
        self.place, self.number = 0, 0
        self.live, self.streams, self.empties = {}, {0: 0}, []

    def take(self, entries, history, marks):
        """Writes the entries; how many there were."""
        entries = [e for e in entries if e["action"] in ("alloc", "free_completed")]
        if not entries and self.file is None:
            return 0
        if self.file is None:
            self.open()
        events = sorted(self.events(entries, history, marks), key=lambda event: event[:2])
        lines, born = [], {}
        phase = ""
        for _, kind, what in events:
            if kind == 0:
                phase = what.name
                lines.append(f'["p",{json.dumps(what.name)},{what.step}]')
            elif kind == 1:
                category, addresses = what
                for address in addresses:
                    line = self.live.get(address)
                    if line is not None:
                        line[3] = category
            elif kind == 2:
                lines.append('["e"]')
            else:
                lines.append(self.event(what, phase))
        self.file.write("\n".join(line if isinstance(line, str) else _text(line) for line in lines) + "\n")
        self.place += len(entries)
        return len(entries)

    def events(self, entries, history, marks):
        """All that happened, each with its place: boundaries before marks before events at the same place."""
        for phase in history:
            yield phase.begins[self.device], 0, phase
        for device, place, category, addresses in marks:
            if device == self.device:
                yield place, 1, (category, addresses)
        for place in self.empties:
            yield place, 2, None
        self.empties = []
        for index, entry in enumerate(entries):
            yield self.place + index, 3, entry

    def event(self, entry, phase):
        """A line, or what becomes one when its category is known."""
        address = entry["addr"]
        if entry["action"] != "alloc":
            line = self.live.pop(address, None)
            return f'["f",{line[0]}]' if line is not None else '["f",0]'
        stream = self.streams.setdefault(entry["stream"], len(self.streams))
        op, origin = _origin(entry.get("frames") or (), phase)
        line = [self.number, max(entry["size"], 1), op + "\0" + origin, _category(entry), stream]
        self.number += 1
        self.live[address] = line
        return line

    def open(self):
        """The file begins with a header."""
        self.path = os.path.join(settings.read().folder, f"trace-{os.getpid()}-{self.device}.jsonl")
        self.file = open(self.path, "w", encoding="utf-8")
        header = {"source": "tonnage rehearse", "torch": torch.__version__, "device": self.device, "settings": _settings()}
        self.file.write(json.dumps(header) + "\n")

    def close(self):
        """Ends the file; its path."""
        self.file.close()
        return self.path


def _settings():
    """The text of PYTORCH_ALLOC_CONF, under its new or its old name, as PyTorch took it."""
    known = torch.cuda.memory._snapshot().get("allocator_settings", {})
    return known.get("PYTORCH_ALLOC_CONF") or known.get("PYTORCH_CUDA_ALLOC_CONF") or ""


def _text(line):
    number, size, origin, category, stream = line
    op, module = origin.split("\0", 1)
    tail = f",{stream}" if stream else ""
    return f'["a",{number},{size},{json.dumps(op)},{json.dumps(module)},"{category}"{tail}]'


def _category(entry):
    """What is allocated inside a wrapper moves between ranks, until a mark says otherwise."""
    inner = (entry.get("frames") or ())[:6]
    return "communication" if any(part in frame["filename"] for frame in inner for part in _WRAPPERS) else "temporary"


def _origin(frames, phase):
    """The innermost function with the innermost line outside PyTorch, and the innermost line of the user's; the backward pass runs on a thread of its own."""
    if not frames:
        return "", hooks.backward_line or "" if phase == "backward" else ""
    op = library = line = ""
    for frame in frames:
        name, filename = frame["name"], frame["filename"]
        if filename.startswith(places._HERE):
            continue
        op = op or name
        if places.is_own(filename):
            line = f"{places.short(filename)}:{frame['line']} in {name}"
            break
        if not library and _TORCH not in filename:
            library = f" ({os.path.basename(filename)}:{frame['line']})"
    return op + library, line
