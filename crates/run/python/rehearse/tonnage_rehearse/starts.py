"""Sets the rehearsal up in a process: answers when PyTorch is imported, a session when it first touches the device."""

import sys

from . import answers, caveats, values

TRIED = ((2, 6), (2, 15))
"""The oldest and the newest PyTorch of docs/phantom-versions.md."""
CANNOT_EXIT = 2


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
