"""Sets the rehearsal up in a process: answers when PyTorch is imported, a session when it first touches the device."""

import glob
import os
import sys
import threading

from . import answers, caveats, values

TRIED = ((2, 6), (2, 15))
"""The oldest and the newest PyTorch of docs/phantom-versions.md."""
CANNOT_EXIT = 2
IDLE = 20.0
"""Seconds after which a run that has used no device is told of."""


def torch_is_there(torch, wanted, named):
    """PyTorch has been imported."""
    problem = cannot(torch)
    if problem is not None:
        print(f"tonnage rehearse: PyTorch {torch.__version__} {problem}", file=sys.stderr)
        sys.exit(CANNOT_EXIT)
    note_version(torch)
    values.install(torch, wanted)
    answers.torch_is_there(torch)
    torch.cuda._lazy_call(lambda: device_is_there(wanted, named))
    if wanted is not None:
        timer = threading.Timer(IDLE, tell_if_idle, [wanted.folder])
        timer.daemon = True
        timer.start()


def tell_if_idle(folder):
    """Says once in a rehearsal that nothing has used a device: the phantom writes `used-PID` of whoever has."""
    told = os.path.join(folder, "idle")
    if glob.glob(os.path.join(glob.escape(folder), "used-*")) or os.path.exists(told):
        return
    with open(told, "w", encoding="utf-8"):
        pass
    print(
        f"tonnage rehearse: nothing has used the GPU yet after {IDLE:.0f} s; where the script trains on the CPU, it lacks a flag "
        "such as --device cuda, and no figures will come",
        file=sys.stderr,
    )


def cannot(torch):
    """Why this PyTorch cannot be rehearsed, or None."""
    cuda = getattr(torch.version, "cuda", None)
    if cuda is None:
        return "is built without CUDA: nothing can be rehearsed; install a CUDA build, which needs no GPU"
    if cuda.split(".")[0] not in ("12", "13"):
        return f"is built for CUDA {cuda}: only CUDA 12 and 13 can be rehearsed"
    return None


def note_version(torch):
    """A caveat where this PyTorch was never tried."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not TRIED[0] <= version <= TRIED[1]:
        oldest, newest = (".".join(map(str, tried)) for tried in TRIED)
        caveats.tell("version", f"PyTorch {torch.__version__} was never tried; {oldest} to {newest} were")


def device_is_there(wanted, named):
    """CUDA has been initialised in this process."""
    # It imports torch, which the script may never do.
    from .session import Session

    Session(wanted, named).begin()
