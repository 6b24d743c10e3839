"""When the run has shown enough, and how the process ends then: the record is written, output is flushed, and nothing
else of the script runs, so that it saves no weights that were never trained.
"""

import os
import sys

from . import caveats, phases, record, settings

_last = None
_steady = 0
STUCK_EXIT = 3
LONG_STEADY = 50
"""Steps without a new peak after which a kind of phase that does not come again is waited for no longer."""
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
    if wanted.steady and _steady >= wanted.steady:
        lacking = _not_seen_again(running)
        if lacking and _steady < LONG_STEADY:
            return
        if lacking:
            caveats.tell_of_run("not_again", f"{', '.join(lacking)}: seen before the first step was over and never again; with gradients and the optimizer's state in memory it may take more")
        end("steady", f"stopped after step {running.steps_done}: no peak grew since step {running.steps_done - _steady}")


def _not_seen_again(running):
    """Kinds of phase that never happened with the optimizer's state in memory."""
    once = {"load", "wrap", "optimizer", "between", "clip", "zero_grad"}
    return sorted(running.kinds - once - running.seen_since_second)


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
