"""Sets the rehearsal up in a process: hooks when PyTorch is imported, counters when it first touches the device."""

import atexit
import os
import sys
import threading

from . import answers


def torch_is_there(torch):
    """PyTorch has been imported."""
    if getattr(torch.version, "cuda", None) is None:
        print("tonnage rehearse: this PyTorch is built without CUDA; nothing can be rehearsed", file=sys.stderr)
        return
    answers.torch_is_there(torch)
    torch.cuda._lazy_call(device_is_there)


def device_is_there():
    """CUDA has been initialised in this process."""
    from . import counters, hooks, phases, trace, watchdog

    owner = os.getpid()
    counters.install()
    phases.install()
    trace.begin()
    hooks.install()
    watchdog.start()
    _observe_out_of_memory()
    _observe_failures()
    atexit.register(_finish, owner)


def _finish(owner):
    from . import record

    if os.getpid() == owner:
        record.write({"reason": "end", "message": "the script ended", "place": None})


def _observe_out_of_memory():
    import torch

    from . import hooks, places, record

    def observe(device, requested, device_total, device_free):
        frame = sys._getframe(1) if threading.current_thread() is threading.main_thread() else None
        line = places.of_frame(frame) if frame is not None else hooks.backward_line
        record.note_out_of_memory(device, requested, line, places.innermost(frame) if frame is not None else "backward")

    torch._C._cuda_attach_out_of_memory_observer(observe)


def _observe_failures():
    from . import record

    before = sys.excepthook

    def excepthook(kind, value, traceback):
        record.note_failure(kind, value)
        before(kind, value, traceback)

    sys.excepthook = excepthook
