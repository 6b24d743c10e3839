"""One rehearsed process, from the moment when it first touches the device: everything that is remembered of it is here.

Each part is handed the parts below it: counters; phases and roles; the trace; the record; stop; hooks and the watchdog.
"""

import atexit
import functools
import os
import signal
import sys
import threading

import torch

from . import caveats, places
from .counters import Counters
from .coverage import Coverage
from .hooks import Hooks
from .phases import Phases
from .record import Record
from .roles import Roles
from .shapes import Shapes
from .stop import Stop
from .trace import Trace
from .watchdog import Watchdog


class Session:
    """Made once CUDA has been initialised."""

    def __init__(self, wanted, named):
        self.named = named
        self.counters = Counters()
        self.phases = Phases(self.counters, torch.cuda.device_count())
        self.roles = Roles(self.counters)
        self.trace = Trace(wanted, self.counters, self.phases, self.roles)
        self.coverage = Coverage()
        self.shapes = Shapes(self.phases, wanted)
        self.record = Record(wanted, self.counters, self.phases, self.trace, (self.coverage, self.shapes))
        self.stop = Stop(wanted, self.phases, self.record)
        self.hooks = Hooks(self.phases, self.roles, self.trace, self.stop, named, self.coverage, self.shapes)
        self.watchdog = Watchdog(wanted, self.counters, self.phases, self.stop)

    def begin(self):
        """Puts everything in its place."""
        self.counters.install(before_reset=self.phases.note_peaks)
        self.named.phases = self.phases
        self.trace.begin()
        self.hooks.install()
        self.watchdog.start()
        self._observe_out_of_memory()
        self._observe_failures()
        self._observe_signals()
        atexit.register(self._finish, os.getpid())

    def _finish(self, owner):
        if os.getpid() != owner:
            return
        if self.phases.trained_nothing():
            ran = "no step of an optimizer was seen beside its backward passes, which are in the figures"
            none = "no optimizer stepped, though a model ran with gradients: if it trains, nothing of its training was seen"
            caveats.tell_of_run("no_steps", "the script ended by itself: " + (ran if "backward" in self.phases.kinds else none))
        if self.phases.left_training_out() and caveats.Asked.device:
            caveats.tell_of_run(
                "skipped",
                "no backward pass ran, and values of the device were asked that may decide it: what training takes is in no figure, so it is "
                "not known whether it fits",
            )
        self.record.write({"reason": "end", "message": "the script ended", "place": None})

    def _observe_out_of_memory(self):
        if torch.cuda.get_allocator_backend() != "native":
            # Others call nobody; what the script then raises is told at its top.
            return

        def observe(device, requested, device_total, device_free):
            if threading.current_thread() is threading.main_thread():
                frame = sys._getframe(1)
                self.record.note_out_of_memory(device, requested, places.of_frame(frame), places.innermost(frame))
            else:
                self.record.note_out_of_memory(device, requested, self.phases.backward_line, "backward")

        torch._C._cuda_attach_out_of_memory_observer(observe)

    def _observe_failures(self):
        before = sys.excepthook

        def excepthook(kind, value, traceback):
            self.record.note_failure(kind, value)
            before(kind, value, traceback)

        sys.excepthook = excepthook

    def _observe_signals(self):
        """Asked to end, the process leaves its figures first."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before, owner = signal.getsignal(number), os.getpid()
            if before in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, functools.partial(self._asked_to_end, before, owner))

    def _asked_to_end(self, before, owner, number, frame):
        stop = {"reason": "signal", "message": f"ended by {signal.Signals(number).name}", "place": places.of_frame(frame)}
        if os.getpid() == owner and not self.record.write_at_once(stop):
            # Launchers hand on what the whole group has got: the second of them comes while the first writes.
            return
        if callable(before):
            before(number, frame)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
