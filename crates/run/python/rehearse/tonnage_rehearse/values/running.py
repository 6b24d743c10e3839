"""Running sums of fractions that nobody knows are taken for shares: they add up to one at their last place, and are zero before it. So
`(sums < share).sum() + 1`, by which the likeliest tokens are cut off (top-p), is all of them and never one more than there are."""

from . import known
from .follow import Computing, Spent, _compiling, after, replace
from .known import Certainty

ABOVE = ("gt", "ge", "greater", "greater_equal", "__gt__", "__ge__")


def install(torch):
    """Wraps what adds up, and what asks which sums are larger, over what follows known values."""
    replace(torch, (torch, torch.Tensor), "cumsum", _summing)
    for name in ABOVE:
        replace(torch, (torch, torch.Tensor), name, _above)


@after
def _summing(original, name, out, args, kwargs):
    # Who samples asks for no gradient; what a model adds up along its way is left unknown.
    if _compiling() or Spent.depth or not known.Values.is_on or not known.is_plain(out) or out.requires_grad or not out.dtype.is_floating_point:
        return
    dimension = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if type(dimension) is int and 0 < out.numel() <= known.TABLE and out.dim() and known.of(out) is None:
        with Computing():
            shares = known._torch().zeros(out.shape, dtype=out.dtype, device="cpu")
            shares.select(dimension, -1).fill_(1)
        known.give(out, shares, Certainty.UNKNOWN)


@after
def _above(original, name, out, args, kwargs):
    # As a mask, those above a share are all, as any that nobody knows: one at most would be the other end.
    if args and id(args[0]) in known.Values.by_id and _is_running(known.of(args[0])) and known.is_plain(out):
        known.give(out, known.uniform(out.shape, out.dtype), Certainty.UNKNOWN)


def _is_running(found):
    return found is not None and found.certainty is Certainty.UNKNOWN and found.value.dtype.is_floating_point and not known.is_uniform(found.value)
