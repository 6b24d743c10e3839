"""What the rehearsal could not know: each is told once in the record, with the lines that asked."""

import sys

from . import places

ANSWERED = ("transformers/generation/", "trl/trainer/grpo_trainer.py", "trl/trainer/rloo_trainer.py", "torch/optim/lbfgs.py")
"""Libraries whose questions are answered (docs/rehearse.md): what they ask is no caveat."""
SHOWN = ("matplotlib/", "seaborn/", "PIL/", "pandas/", "sklearn/metrics/", "torch/utils/tensorboard/", "tensorboardX/", "wandb/")
"""Libraries that show what they are given; whatever numbers decide within them is no size of a device's."""
LINES = 5
"""Lines that are named of each."""
_told = {}


class Asked:
    """Whether a value that only a kernel computes has decided anything."""

    device = False


def tell(code, text):
    """Notes it, with the user's line that is running."""
    _note(code, text, places.of_frame(sys._getframe(1)))


def tell_of_value(code, text):
    """The same of a value that decided something, unless a library asked whose questions are answered."""
    frame = sys._getframe(1)
    if not places.innermost(frame).startswith(ANSWERED) and not _is_shown(frame):
        Asked.device = True
        _note(code, text, places.of_frame(frame))


def _is_shown(frame):
    """Whether the user's line only shows the value, by way of a library."""
    while frame is not None and not places.is_own(frame.f_code.co_filename):
        if places.in_package(frame.f_code.co_filename).startswith(SHOWN):
            return True
        frame = frame.f_back
    return False


def tell_of_line(code, text, line):
    """The same of a value that another line than the running one took."""
    Asked.device = True
    _note(code, text, line)


def tell_of_run(code, text):
    """Notes what no line asked."""
    _note(code, text, None)


def _note(code, text, line):
    caveat = _told.setdefault(code, {"code": code, "text": text, "line": line, "lines": [], "times": 0})
    caveat["times"] += 1
    if line is not None and line not in caveat["lines"] and len(caveat["lines"]) < LINES:
        caveat["lines"].append(line)


def told():
    """All of them; first those that take the verdict away or the figures their sense."""
    for caveat in _told.values():
        if callable(caveat["text"]):
            caveat["text"] = caveat["text"]()
    return sorted(_told.values(), key=lambda caveat: caveat["code"] not in ("skipped", "sparse_product", "no_steps"))
