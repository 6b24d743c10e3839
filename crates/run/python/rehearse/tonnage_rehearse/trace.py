"""The trace of every device: PyTorch's memory history, taken out of its buffer after every step and written as a
timeline that `tonnage trace replay` reads.
"""

import functools
import gc
import inspect
import os
import sys
import threading
import types

import torch

from .repeats import signature, told_of
from .timeline import Writer

ALIKE = 3
"""Steps that repeat one after another, after which PyTorch takes no stacks until something else happens: as many as make a run steady."""

MANY = 20
"""The buffer is drained before a step is over when there are entries divided by this allocations and frees; each takes up to
three entries, and what is drained at once is held as Python objects."""


class Trace:
    """PyTorch's history of this process, and where it is written."""

    def __init__(self, wanted, counters, phases, roles):
        self.wanted, self.counters, self.phases, self.roles = wanted, counters, phases, roles
        self.record_history = torch.cuda.memory._record_memory_history
        self.writers = []
        self.lock = threading.RLock()
        """The watchdog's thread may close the trace while the script's drains it."""
        self.is_on = self.is_taking = False
        self.drained = 0
        self.budget = wanted.trace_events
        self.left_out = None
        """Why the trace ends before the run does, or None."""
        self.start = self.signatures = None
        """Readings when the buffer was emptied last; what the step before then did, device by device."""
        self.repeated = 0
        """Steps in a row that repeated."""
        self.is_plain = self.was_plain = False
        """Whether no stacks are taken; whether what is in the buffer began so."""
        self.counted = None
        """The phase that was asked last how much has happened."""

    def begin(self):
        """Starts PyTorch's recording; it must be the first thing after the device is there."""
        if torch.cuda.get_allocator_backend() != "native":
            self.left_out = f"the allocator {torch.cuda.get_allocator_backend()} keeps no history"
            return
        self._start_history()
        self.is_on = True

        def script_records(*args, **kwargs):
            self.end("the script records its own memory history")
            return self.record_history(*args, **kwargs)

        torch.cuda.memory._record_memory_history = script_records
        for index in range(torch.cuda.device_count()):
            path = os.path.join(self.wanted.folder, f"trace-{os.getpid()}-{index}.jsonl")
            self.writers.append(Writer(index, path, _header))

    def _start_history(self):
        # Frees carry no stack: only births are attributed to lines.
        context = None if self.is_plain else "alloc"
        self.record_history(enabled="all", context=context, stacks="python", max_entries=self.wanted.trace_entries, **_skipped())

    def _watch_phases(self):
        """Steps repeat: stacks are taken again from the first phase on that follows another one, or one that did something else."""
        self.is_plain = True
        self.phases.observe = self._phase_began

    def _phase_began(self, history):
        """The last of these has begun."""
        phase, at = history[-1], len(history) - 1
        for index, writer in enumerate(self.writers):
            expected, before = self.signatures[0][index], self.start[index] if at == 0 else history[-2].readings[writer.device]
            told = told_of(phase, history[0].step, phase.readings[writer.device], before, writer.device, writer.place)
            if at >= len(expected) or told != expected[at]:
                self._end_plain()
                return

    def _end_plain(self):
        self.repeated, self.is_plain, self.phases.observe = 0, False, None
        if self.is_on:
            self._start_history()

    def end(self, reason):
        """No more is recorded, and why."""
        with self.lock:
            if self.is_on:
                self._take()
                self._stop(reason)

    def _stop(self, reason):
        if self.is_on:
            self.is_on = False
            self.left_out = reason

    def emptied(self):
        """The script has emptied the cache."""
        with self.lock:
            if self.is_on:
                for writer in self.writers:
                    writer.empties.append(self.counters.read(writer.device).events)

    def drain_if_many(self):
        """Where much happens between two steps: takes it before the buffer overflows."""
        if self.is_on and self._events() - self.drained > self.wanted.trace_entries // MANY:
            self.drain()

    def _events(self):
        """How much has happened: up to the last boundary, where there was one since the last time."""
        current = self.phases.current
        if current is not self.counted:
            self.counted = current
            return sum(current.begins[writer.device] for writer in self.writers)
        return sum(self.counters.read(writer.device).events for writer in self.writers)

    def drain(self, is_step=False):
        """Takes what was recorded since the last time; nothing once the trace has ended."""
        with self.lock:
            if self.is_on and not (is_step and self._repeats()):
                self.signatures = self.signatures if is_step else None
                self._take(goes_on=True, is_step=is_step)
                if not self.is_on:
                    self.record_history(enabled=None)

    def _repeats(self):
        """Whether the step that is over did what the one before did, as far as the counters say; it is written then."""
        now, history, before = self._read(), self.phases.history, self.signatures
        self.signatures = None
        if self.start is not None:
            # Emptied caches stand in the lines.
            told = [signature(self.start[at], history, now[at], writer.device, writer.place) for at, writer in enumerate(self.writers)]
            self.signatures = told, self.phases.backward_line, [[at - writer.place for at in writer.empties] for writer in self.writers]
        if before is None or self.signatures != before or not all(writer.template or writer.file is None for writer in self.writers):
            return False
        self.roles.take()
        self.phases.take_history()
        self.repeated += 1
        if self.repeated == ALIKE:
            self._watch_phases()
        self._empty(now)
        self.budget -= sum(writer.repeat() for writer in self.writers)
        if self.budget <= 0:
            self._stop("enough was recorded")
            self.record_history(enabled=None)
        return True

    def _read(self):
        return [self.counters.read(writer.device) for writer in self.writers]

    def _empty(self, now):
        """`now`: what the counters say."""
        # Switching it off empties the buffer, in every version.
        self.record_history(enabled=None)
        self._start_history()
        self.was_plain, self.start = self.is_plain, now
        self.drained = sum(reading.events for reading in self.start)

    def _take(self, goes_on=False, is_step=False):
        self.is_taking = True
        # A snapshot is a million small objects without a cycle: collecting while it is read walks them and all of the script's.
        collects = gc.isenabled()
        gc.disable()
        try:
            self._take_all(goes_on, is_step)
        finally:
            self.is_taking = False
            if collects:
                gc.enable()

    def _take_all(self, goes_on, is_step):
        marks = self.roles.take()
        snapshot = take_snapshot()
        is_like = self.was_plain
        if self.is_plain:
            self._end_plain()
        self.repeated = 0
        if goes_on:
            self._empty(self._read())
        history = self.phases.take_history()
        room = self.wanted.trace_entries
        if any(len(entries) >= room for entries in snapshot["device_traces"]):
            # The oldest entries are gone.
            self._stop(f"PyTorch's buffer of {room} entries overflowed between two boundaries of phases")
            return
        for writer in self.writers:
            entries = snapshot["device_traces"][writer.device]
            blocks = alive(snapshot, writer.device) if writer.adrift.sizes else ()
            taken = writer.take(entries, history, marks, self.phases.backward_line, is_step, blocks, is_like)
            if taken is None:
                self._stop("steps were taken for repetitions of one, and what came after does not follow from them")
                return
            self.budget -= taken
        if self.budget <= 0:
            self._stop("enough was recorded")

    def close(self):
        """Writes the rest, and takes no more; the paths by device."""
        with self.lock:
            if self.is_taking:
                # A signal came in the middle of it.
                self._stop("it was being written when the process was asked to end")
            elif self.is_on:
                self._take()
            self.is_on = False
            return {writer.device: writer.close() for writer in self.writers if writer.file is not None}


@functools.cache
def _skipped():
    """What is not read is not recorded, where PyTorch can leave it out: 2.11 can."""
    record = getattr(torch.cuda.memory, "_record_memory_history_impl", None)
    can = record is not None and "skip_actions" in inspect.signature(record).parameters
    return {"skip_actions": ["free_requested"]} if can else {}


def take_snapshot():
    """PyTorch's snapshot. To tell stacks it asks `torch._inductor` for the lines of what was compiled, which imports all of that, up to a
    second of processor time: where the script has compiled nothing, it finds something empty instead."""
    if "torch._inductor" in sys.modules:
        return torch.cuda.memory._snapshot()
    names, nothing = vars(torch), types.SimpleNamespace()
    names["_inductor"] = nothing
    try:
        return torch.cuda.memory._snapshot()
    finally:
        # Another thread may have imported it meanwhile.
        if names.get("_inductor") is nothing:
            del names["_inductor"]


def alive(snapshot, device):
    """Address and size of everything that is allocated on a device."""
    segments = (segment for segment in snapshot["segments"] if segment["device"] == device)
    blocks = (block for segment in segments for block in segment["blocks"] if block["state"] != "inactive")
    return [(block["address"], max(block["requested_size"], 1)) for block in blocks]


def _header():
    """Who wrote the timeline, over which PyTorch; the text of PYTORCH_ALLOC_CONF, under its new or its old name, as PyTorch
    took it."""
    known = take_snapshot().get("allocator_settings", {})
    text = known.get("PYTORCH_ALLOC_CONF") or known.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return {"source": "tonnage rehearse", "torch": torch.__version__, "settings": text}
