"""Running sums of fractions that nobody knows are taken for shares: they add up to one at their last place, and are zero before it. So
`(sums < share).sum() + 1`, by which the likeliest tokens are cut off (top-p), is all of them and never one more than there are; and the
first place whose sum is above the share (`nonzero`, `argmax`) is the last that there is."""

from . import known, otherwise
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
    if _compiling() or Spent.depth or not known.Values.is_on or out.requires_grad or not out.dtype.is_floating_point or not out.dim():
        return
    dimension = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if type(dimension) is not int or not 0 < out.numel() <= known.TABLE:
        return
    if not known.is_plain(out):
        _sum_on_host(out, dimension)
    elif known.of(out) is None:
        with Computing():
            shares = known._torch().zeros(out.shape, dtype=out.dtype, device="cpu")
            shares.select(dimension, -1).fill_(1)
        known.give(out, shares, Certainty.UNKNOWN)
        found = known.of(out)
        if found is not None:
            found.is_running = known.Values.has_running = True


def _sum_on_host(out, dimension):
    """The same of fractions that the host took from a device, which are zero there."""
    if known.certainty_on_host(out) is Certainty.UNKNOWN:
        with Computing():
            if not out.any():
                out.select(dimension, -1).fill_(1)


@after
def _above(original, name, out, args, kwargs):
    # As a mask, those above a share are all, as any that nobody knows: one at most would be the other end.
    found = known.of(out) if known.Values.has_running and args and id(out) in known.Values.by_id else None
    if found is not None and found.is_running and out.dim():
        otherwise.note(out, True)


def is_above(tensor):
    """A mask of the places whose sums are above a share: full as an index, and true at the last place where a place is asked for."""
    found = known.of(tensor)
    return found is not None and found.is_running and found.otherwise is True


def last_places(original, above, mask, *args, **kwargs):
    """The places of the full mask, each the one at which the share is reached at the latest."""
    torch, is_reached = known._torch(), bool(above.value.any())
    # Above a share of one or more there is none; a GPU's sums may be above it at their end.
    made = original(above.value if is_reached else mask, *args, **kwargs)
    places = made if isinstance(made, tuple) else (made,)
    last, count = len(places[0]), mask.numel()
    chosen = torch.arange(count, device="cpu") * last // count if is_reached else torch.full((count,), last - 1, device="cpu")
    return tuple(one[chosen] for one in places)
