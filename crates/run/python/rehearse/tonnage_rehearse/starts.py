"""Sets the rehearsal up in a process: hooks when PyTorch is imported, counters when it first touches the device."""

import atexit
import os
import sys
import threading

from . import answers, caveats


TRIED = ((2, 6), (2, 15))
"""The oldest and the newest PyTorch of docs/phantom-versions.md."""
CANNOT_EXIT = 2


def torch_is_there(torch):
    """PyTorch has been imported."""
    problem = _cannot(torch)
    if problem is not None:
        print(f"tonnage rehearse: PyTorch {torch.__version__} {problem}", file=sys.stderr)
        sys.exit(CANNOT_EXIT)
    _note_version(torch)
    answers.torch_is_there(torch)
    torch.cuda._lazy_call(device_is_there)


def _cannot(torch):
    """Why this PyTorch cannot be rehearsed, or None."""
    cuda = getattr(torch.version, "cuda", None)
    if cuda is None:
        return "is built without CUDA: nothing can be rehearsed; install a CUDA build, which needs no GPU"
    if cuda.split(".")[0] not in ("12", "13"):
        return f"is built for CUDA {cuda}: only CUDA 12 and 13 can be rehearsed"
    return None


def _note_version(torch):
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not TRIED[0] <= version <= TRIED[1]:
        caveats.tell("version", f"PyTorch {torch.__version__} was never tried; {'.'.join(map(str, TRIED[0]))} to {'.'.join(map(str, TRIED[1]))} were")


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
    from . import phases, record

    if os.getpid() == owner:
        if phases.running().trained_nothing():
            caveats.tell_of_run("no_steps", "the script ended by itself before any optimizer step, though a model ran with gradients: if it trains, nothing of its training was seen")
        record.write({"reason": "end", "message": "the script ended", "place": None})


def _observe_out_of_memory():
    import torch

    from . import hooks, places, record

    if torch.cuda.get_allocator_backend() != "native":
        # Others call nobody; what the script then raises is told at its top.
        return

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
