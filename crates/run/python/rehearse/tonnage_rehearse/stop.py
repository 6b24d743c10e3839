"""When the run has shown enough, and how the process ends then: the record is written, output is flushed, and nothing
else of the script runs, so that it saves no weights that were never trained.
"""

import os
import sys

from . import phases, record, settings

_last = None
_steady = 0
STUCK_EXIT = 3
"""Told to the command by the exit code as well: a loop waits for a value of the device."""


def steady_since():
    """The step after which no peak grew, or None where the last step still grew."""
    running = phases.running()
    return running.steps_done - _steady if _steady else None


def after_step(running):
    """Called after every optimizer step."""
    global _last, _steady
    growth = running.growth()
    _steady = _steady + 1 if growth == _last else 0
    _last = growth
    wanted = settings.read()
    if wanted.steps and running.steps_done >= wanted.steps:
        end("steps", f"stopped after step {running.steps_done}, as asked")
    if wanted.steady and _steady >= wanted.steady and _all_seen_again(running):
        end("steady", f"stopped after step {running.steps_done}: no peak grew since step {running.steps_done - _steady}")


def _all_seen_again(running):
    """Whether every kind of phase happened with the optimizer's state in memory."""
    once = {"load", "wrap", "optimizer", "between", "clip", "zero_grad"}
    return running.kinds - once <= running.seen_since_second


def end(reason, message, code=0, place=None):
    """Writes the record and ends the process."""
    record.write({"reason": reason, "message": message, "place": place})
    print(f"tonnage rehearse: {message}", file=sys.stderr)
    _end_children()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_children():
    """Workers of data loaders would wait for a parent that is gone."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing else ():
        child.terminate()
