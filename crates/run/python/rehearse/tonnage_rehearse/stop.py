"""When the run has shown enough, and how the process ends then: the record is written, output is flushed, and nothing
else of the script runs, so that it saves no weights that were never trained.
"""

import os
import sys

from . import caveats

STUCK_EXIT = 3
"""Told to the command by the exit code as well: a loop waits for a value of the device."""
LONG_STEADY = 50
"""Steps without a new peak after which a kind of phase that does not come again is waited for no longer."""
ONCE = frozenset(["inference", "evaluate"])
"""Phases that are not waited for at all: what a script evaluates before it trains comes again after many steps or never."""


class Stop:
    """Decides after every step, and ends the process."""

    def __init__(self, wanted, phases, record):
        self.wanted, self.phases, self.record = wanted, phases, record

    def after_step(self):
        """Called after every optimizer step."""
        phases, wanted = self.phases, self.wanted
        phases.note_growth()
        if wanted.steps and phases.steps_done >= wanted.steps:
            self.end("steps", f"stopped after step {phases.steps_done}, as asked")
        if not wanted.steady or phases.steady_steps < wanted.steady:
            return
        lacking = phases.not_seen_again()
        if not ONCE.issuperset(lacking) and phases.steady_steps < LONG_STEADY:
            return
        if lacking:
            caveats.tell_of_run(
                "not_again",
                f"{', '.join(lacking)}: seen before the first step was over and never again; with gradients and the optimizer's "
                f"state in memory it {self._later(lacking)}",
            )
        self.end("steady", f"stopped after step {phases.steps_done}: no peak grew since step {phases.steady_since()}")

    def _later(self, lacking):
        reached = self.phases.would_reach(lacking)
        if reached is None:
            return "would not exceed the peak"
        return f"would reach about {reached / 2**30:.2f} GiB allocated, more than the peak that was seen"

    def end(self, reason, message, code=0, place=None):
        """Writes the record and ends the process."""
        self.record.write({"reason": reason, "message": message, "place": place})
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
