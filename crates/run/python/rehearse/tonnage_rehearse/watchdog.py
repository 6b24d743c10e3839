"""A thread that notices a loop that waits for a value which only a real device would compute, and the bound in seconds.

A loop waits when one line reads device values again and again, for as long as the patience lasts, while no phase begins
and no peak grows. It waits too when models do run in it (a text that goes on until its end is drawn), if the line stands
in a `while` loop of the user's own and no optimizer has stepped meanwhile: an evaluation is a `for` loop over data.
"""

import ast
import linecache
import os
import sys
import threading
import time

import torch

from . import counters, phases, places, settings

MANY_READS = 200
"""Fewer reads at one line in the time of the patience are no loop that spins."""

_reads = {}
_started = time.time()


def start():
    """Counts reads, and starts the thread."""
    for name in ("item", "__bool__", "__int__", "__float__", "__index__", "tolist", "cpu", "equal", "allclose", "is_nonzero"):
        setattr(torch.Tensor, name, _counted(getattr(torch.Tensor, name)))
    for name in ("equal", "allclose", "is_nonzero"):
        setattr(torch, name, _counted(getattr(torch, name)))
    threading.Thread(target=_watch, args=(threading.main_thread().ident,), name="tonnage", daemon=True).start()


def _counted(read):
    def counted(tensor, *args, **kwargs):
        if tensor.is_cuda:
            frame = sys._getframe(1)
            key = (frame.f_code, frame.f_lineno)
            _reads[key] = _reads.get(key, 0) + 1
        return read(tensor, *args, **kwargs)

    counted.__name__ = getattr(read, "__name__", "read")
    counted.__doc__ = read.__doc__
    return counted


def _state():
    running = phases.running()
    return running.boundaries, tuple(counters.read(i).peak_allocated for i in range(len(running.devices)))


class _Since:
    """Since when something has stayed as it is, and the reads until then."""

    def __init__(self, ask):
        self.ask = ask
        self.begin(ask())

    def begin(self, state):
        self.state, self.at, self.reads = state, time.time(), dict(_reads)

    def seconds(self):
        """How long nothing has changed."""
        state = self.ask()
        if state != self.state:
            self.begin(state)
        return time.time() - self.at


def _watch(main):
    wanted, owner = settings.read(), os.getpid()
    anything, steps = _Since(_state), _Since(lambda: phases.running().steps_done)
    while os.getpid() == owner:
        time.sleep(0.5)
        if wanted.seconds and time.time() - _started > wanted.seconds:
            from . import stop

            stop.end("seconds", f"stopped after {wanted.seconds:g} seconds, as asked", place=_line_of(main))
        for since, judged, meanwhile in ((anything, lambda code, line: True, "nothing else has happened"), (steps, _is_while, "no optimizer has stepped")):
            seconds = since.seconds()
            if seconds > wanted.patience:
                _judge(main, since.reads, seconds, judged, meanwhile)


def _is_while(code, line):
    """Whether a `while` is the innermost loop around a line of the user's."""
    if not places.is_own(code.co_filename):
        return False
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return False
    around = [node for node in ast.walk(tree) if isinstance(node, (ast.While, ast.For)) and node.lineno <= line <= node.end_lineno]
    return bool(around) and isinstance(max(around, key=lambda node: node.lineno), ast.While)


def _judge(main, before, seconds, judged, meanwhile):
    frame = sys._current_frames().get(main)
    busiest, count = None, 0
    while frame is not None:
        for (code, line), total in list(_reads.items()):
            read = total - before.get((code, line), 0)
            if code is frame.f_code and read > max(count, MANY_READS) and judged(code, line):
                busiest, count = (code, line), read
        frame = frame.f_back
    if busiest is None:
        return
    from . import stop

    code, line = busiest
    place = f"{places.short(code.co_filename)}:{line} in {code.co_name}"
    # Meanwhile the loop is at another of its lines.
    own = None if places.is_own(code.co_filename) else _line_of(main)
    stop.end(
        "waiting",
        f"{place} has read values of the device {count} times in {seconds:.0f} s and {meanwhile}: the loop "
        "waits for a value that only a real GPU computes (here all read as zero); give the loop a bound that the host knows",
        code=stop.STUCK_EXIT,
        place=own or place,
    )


def _line_of(thread):
    return places.of_frame(sys._current_frames().get(thread))
