"""A thread that notices a loop that waits for a value which only a real device would compute, and the bound in seconds.

A loop waits when one line reads device values again and again, for as long as the patience lasts, while no phase begins
and no peak grows.
"""

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
    for name in ("item", "__bool__", "__int__", "__float__", "__index__", "tolist", "cpu"):
        setattr(torch.Tensor, name, _counted(getattr(torch.Tensor, name)))
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


def _watch(main):
    wanted, owner = settings.read(), os.getpid()
    state, since, reads = _state(), time.time(), dict(_reads)
    while os.getpid() == owner:
        time.sleep(0.5)
        now = time.time()
        if wanted.seconds and now - _started > wanted.seconds:
            from . import stop

            stop.end("seconds", f"stopped after {wanted.seconds:g} seconds, as asked", place=_line_of(main))
        latest = _state()
        if latest != state:
            state, since, reads = latest, now, dict(_reads)
        elif now - since > wanted.patience:
            _judge(main, reads, now - since)


def _judge(main, before, seconds):
    frame = sys._current_frames().get(main)
    busiest, count = None, 0
    while frame is not None:
        for (code, line), total in list(_reads.items()):
            read = total - before.get((code, line), 0)
            if code is frame.f_code and read > max(count, MANY_READS):
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
        f"{place} has read values of the device {count} times in {seconds:.0f} s and nothing else has happened: the loop "
        "waits for a value that only a real GPU computes (here all read as zero); give the loop a bound that the host knows",
        code=stop.STUCK_EXIT,
        place=own or place,
    )


def _line_of(thread):
    return places.of_frame(sys._current_frames().get(thread))
