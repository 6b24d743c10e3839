"""A thread that notices a loop that waits for a value which only a real device would compute, and the bound in seconds.

A loop waits when one line reads device values again and again, for as long as the patience lasts, while no phase begins
and no peak grows. It waits too when models do run in it (a text that goes on until its end is drawn), if the line stands
in a `while` loop of the user's own that was never left and no optimizer has stepped meanwhile: an evaluation is a `for` loop over data,
and a solver's loop inside of it ends for every batch.
"""

import ast
import linecache
import os
import sys
import threading
import time

import torch

from . import places
from .stop import STUCK_EXIT
from .values.follow import keep_from_dynamo

MANY_READS = 200
"""Fewer reads at one line in the time of the patience are no loop that spins."""
_READS = ("item", "__bool__", "__int__", "__float__", "__index__", "tolist", "cpu", "equal", "allclose", "is_nonzero")

_loaded = time.time()


class Watchdog:
    """Counts reads of device values, and judges them on a thread of its own."""

    def __init__(self, wanted, counters, phases, stop):
        self.wanted, self.counters, self.phases, self.stop = wanted, counters, phases, stop
        self.reads = {}
        """(code, line) -> reads at this line."""

    def start(self):
        """Counts reads, and starts the thread."""
        for name in _READS:
            setattr(torch.Tensor, name, self._counted(getattr(torch.Tensor, name)))
        for name in ("equal", "allclose", "is_nonzero"):
            setattr(torch, name, self._counted(getattr(torch, name)))
        main = threading.main_thread().ident
        threading.Thread(target=self._watch, args=(main,), name="tonnage", daemon=True).start()

    def _counted(self, read):
        reads = self.reads

        def counted(tensor, *args, **kwargs):
            if tensor.is_cuda:
                frame = sys._getframe(1)
                key = (frame.f_code, frame.f_lineno)
                reads[key] = reads.get(key, 0) + 1
            return read(tensor, *args, **kwargs)

        counted.__name__ = getattr(read, "__name__", "read")
        counted.__doc__ = read.__doc__
        keep_from_dynamo(torch, counted.__code__)
        return counted

    def _state(self):
        peaks = (self.counters.read(index).peak_allocated for index in range(len(self.phases.devices)))
        return self.phases.boundaries, tuple(peaks)

    def _watch(self, main):
        wanted, owner = self.wanted, os.getpid()
        anything = _Since(self._state, self.reads)
        steps = _Since(lambda: self.phases.steps_done, self.reads)
        stayed = Stayed(lambda: steps.at)
        while os.getpid() == owner:
            time.sleep(0.5)
            if wanted.seconds and time.time() - _loaded > wanted.seconds:
                self.stop.end("seconds", f"stopped after {wanted.seconds:g} seconds, as asked", place=_line_of(main))
            self._judge(main, anything, lambda code, line: True, "nothing else has happened")
            stayed.look(sys._current_frames().get(main))
            self._judge(main, steps, lambda code, line: code in stayed.codes and is_while(code, line), "no optimizer has stepped")

    def _judge(self, main, since, judged, meanwhile):
        seconds = since.seconds()
        if seconds <= self.wanted.patience:
            return
        busiest, count = self._busiest(sys._current_frames().get(main), since.before, judged)
        if busiest is None:
            return
        code, line = busiest
        place = f"{places.short(code.co_filename)}:{line} in {code.co_name}"
        # Meanwhile the loop is at another of its lines.
        own = None if places.is_own(code.co_filename) else _line_of(main)
        self.stop.end(
            "waiting",
            f"{place} has read values of the device {count} times in {seconds:.0f} s and {meanwhile}: the loop "
            "waits for a value that only a real GPU computes (here all read as zero); give the loop a bound that the host knows",
            code=STUCK_EXIT,
            place=own or place,
        )

    def _busiest(self, frame, before, judged):
        """The line of the stack with the most reads since then, among those that are judged to wait; and how many."""
        busiest, count = None, 0
        while frame is not None:
            for (code, line), total in list(self.reads.items()):
                read = total - before.get((code, line), 0)
                if code is frame.f_code and read > max(count, MANY_READS) and judged(code, line):
                    busiest, count = (code, line), read
            frame = frame.f_back
        return busiest, count


class Stayed:
    """The functions that were on the stack whenever somebody looked, since the time that is asked for."""

    def __init__(self, since):
        self.since, self.at, self.codes = since, None, set()

    def look(self, frame):
        """The innermost frame of the stack as it is now."""
        codes = set()
        while frame is not None:
            codes.add(frame.f_code)
            frame = frame.f_back
        self.codes = codes & self.codes if self.at == self.since() else codes
        self.at = self.since()


class _Since:
    """Since when something has stayed as it is, and the reads until then."""

    def __init__(self, ask, reads):
        self.ask, self.reads = ask, reads
        self._begin(ask())

    def _begin(self, state):
        self.state, self.at, self.before = state, time.time(), dict(self.reads)

    def seconds(self):
        """How long nothing has changed."""
        state = self.ask()
        if state != self.state:
            self._begin(state)
        return time.time() - self.at


def is_while(code, line):
    """Whether a `while` is the innermost loop around a line of the user's."""
    if not places.is_own(code.co_filename):
        return False
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.While, ast.For)))
    around = [node for node in loops if node.lineno <= line <= node.end_lineno]
    return bool(around) and isinstance(max(around, key=lambda node: node.lineno), ast.While)


def _line_of(thread):
    return places.of_frame(sys._current_frames().get(thread))
