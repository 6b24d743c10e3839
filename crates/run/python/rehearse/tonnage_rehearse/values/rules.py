"""Answers by a rule: a run without infinities has none, arguments of distributions are valid, and what is clamped is within its bound."""

import functools

from .. import imports
from . import known
from .follow import _compiling, replace
from .known import Answered, Certainty


def install(torch):
    """`isfinite` is true and `isnan`, `isinf` are not, of what the device would compute; so are constraints."""
    for name, answer in (("isfinite", True), ("isnan", False), ("isinf", False), ("isposinf", False), ("isneginf", False)):
        replace(torch, (torch, torch.Tensor), name, functools.partial(_ruled, answer=answer))
    for name in ("clamp", "clamp_min", "clip"):
        replace(torch, (torch, torch.Tensor), name, _clamping)
    for name in ("normal", "poisson", "binomial", "segment_reduce"):
        replace(torch, (torch,), name, _checking)
    imports.after("torch.distributions.constraints", _constraints)


def assume(tensor, answer):
    """By a rule every element is this."""
    known.give(tensor, known.uniform(tensor.shape, tensor.dtype, answer), Certainty.ASSUMED)


def _ruled(original, name, answer):
    def ruled(*args, **kwargs):
        out = original(*args, **kwargs)
        if not _compiling() and known.is_plain(out):
            assume(out, answer)
        return out

    return ruled


def _clamping(original, name):
    """What only a device would compute is zero, but no less than one or more that it is clamped to: a length is at least one."""

    def clamping(*args, **kwargs):
        out = original(*args, **kwargs)
        least = kwargs["min"] if "min" in kwargs else args[1] if len(args) > 1 else None
        if type(least) in (int, float) and least >= 1 and not _compiling() and known.is_plain(out) and known.of(out) is None:
            known.give(out, known.uniform(out.shape, out.dtype, least), Certainty.UNKNOWN)
        return out

    return clamping


def _checking(original, name):
    """It asks the device whether its arguments are valid."""

    def checking(*args, **kwargs):
        if _compiling():
            return original(*args, **kwargs)
        with Answered(1):
            return original(*args, **kwargs)

    return checking


def _constraints(module):
    """What a model computes satisfies the constraints of the distributions that it is for."""
    for kind in vars(module).values():
        check = vars(kind).get("check") if isinstance(kind, type) else None
        if check is not None:
            kind.check = _checked(check)


def _checked(check):
    @functools.wraps(check)
    def checked(self, value):
        out = check(self, value)
        if not _compiling() and known.is_plain(out):
            found = known.of(out)
            if found is None or found.certainty is not Certainty.WRITTEN:
                assume(out, True)
        return out

    return checked
