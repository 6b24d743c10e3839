"""What a kernel would have chosen: places in a dimension. Any that are valid do; among few (experts, actions) all are chosen
alike, so that hand-written routing gives every expert an even share."""

import functools

from .. import caveats, imports
from . import known
from .follow import Computing, Spent, _compiling, follow, replace
from .known import Certainty
from .numbers import size_told

FEW = 512
"""Kinds to choose among that are experts or actions; more are tokens, of which the first is chosen: no model has as many
experts of a layer (256 in DeepSeek-V3, 512 in Qwen3-Next), and no tokenizer as few tokens."""


class Experts:
    """How the tokens of a batch are shared out."""

    worst = False
    """All but one token of each go to the same experts."""


def told(name):
    """A choice decided a size or a branch."""
    how = "all tokens to the same experts, as far as that goes" if Experts.worst else "an even share for each (--experts worst for the other end)"
    caveats.tell_of_value("chosen", f"what the model chose (experts, tokens, actions) decided a size or what runs (`{name}`); it was answered by {how}")


def told_of_size(certainty, name="read"):
    """The host has read a size or a place that is as uncertain as this."""
    if certainty is Certainty.CHOSEN:
        told(name)
    else:
        size_told()


def install(torch):
    """Wraps what chooses."""
    owners = (torch, torch.Tensor)
    for name, places in CHOICES.items():
        replace(torch, owners, name, functools.partial(_chosen, places=places))
    replace(torch, owners, "scatter", _placed)
    replace(torch, (torch.Tensor,), "scatter_", _placed)
    replace(torch, (torch,), "randperm", _ordered)
    replace(torch, (torch,), "randint", _integers)
    replace(torch, (torch.Tensor,), "random_", _in_place)
    imports.after("torch.distributions.categorical", _categories)


def spread(shape, dimension, size):
    """Places in a dimension of `size`: row after row the next ones, so that all are chosen alike."""
    torch = known._torch()
    shape = list(shape)
    chosen = shape.pop(dimension) if shape else 1
    rows = 1
    for one in shape:
        rows *= one
    if rows * chosen > known.MOST:
        return None
    if size > FEW:
        places = torch.arange(chosen, device="cpu").expand(rows, chosen)
    else:
        # One row shares nothing out, and its first place often stands for nothing: the mean in a transform, padding.
        first = int(rows == 1 and chosen < size)
        places = torch.arange(first, first + rows * chosen, device="cpu").remainder_(size).reshape(rows, chosen)
        if Experts.worst:
            places[-(-size // max(chosen, 1)) :] = torch.arange(chosen, device="cpu")
    return places.reshape(*shape, chosen).movedim(-1, dimension) if shape else places.reshape(chosen)


def _chosen(original, name, places):
    def chosen(input, *args, **kwargs):
        out = original(input, *args, **kwargs)
        if _compiling() or Spent.depth or not known.Values.is_on:
            return out
        if not getattr(input, "is_cuda", False):
            if id(input) in known.Values.by_id:
                follow(original, "", out, (input, *args), kwargs)
            return out
        found = known.of(input)
        # What was chosen, or written into empty memory, is sorted as any numbers; who is chosen among it is another choice.
        is_told = found is not None and places is sorted_places and (found.certainty is Certainty.CHOSEN or not known.is_uniform(found.value))
        # Where running sums reach a share is no choice.
        is_told = is_told or (found is not None and found.is_running and places in (_arg, _pairs))
        if is_told or (found is not None and found.certainty < Certainty.CHOSEN):
            follow(original, "", out, (input, *args), kwargs)
            return out
        with Computing():
            for one, value in places(out, input, args, kwargs):
                _give(one, value)
        return out

    return chosen


def _dimension(args, kwargs, at=0, default=-1):
    dimension = kwargs.get("dim", args[at] if len(args) > at else default)
    return dimension if isinstance(dimension, int) and not isinstance(dimension, bool) else None


def _topk(out, input, args, kwargs):
    dimension = _dimension(args, kwargs, at=1)
    if input.dim() and dimension is not None:
        yield out[1], spread(out[1].shape, dimension % input.dim(), input.shape[dimension])


def _arg(out, input, args, kwargs):
    dimension = _dimension(args, kwargs, default=None)
    if dimension is None or not input.dim():
        yield out, known.uniform(out.shape, out.dtype)
        return
    dimension %= input.dim()
    shape = list(input.shape)
    shape[dimension] = 1
    places = spread(shape, dimension, input.shape[dimension])
    yield out, None if places is None else places.reshape(out.shape)


def _pairs(out, input, args, kwargs):
    """`max` over a dimension gives places too; over all, or of two tensors, it chooses nothing."""
    if isinstance(out, tuple) and len(out) == 2:
        yield from _arg(out[1], input, args, kwargs)


def sorted_places(out, input, args, kwargs):
    """Of few kinds (experts) every row begins with another one; else in the order in which it was."""
    torch = known._torch()
    dimension = _dimension([one for one in args if not isinstance(one, bool)], kwargs)
    places = out[1] if isinstance(out, tuple) else out
    if not places.dim() or dimension is None or places.numel() > known.MOST:
        return
    size = places.shape[dimension]
    rows = places.numel() // max(size, 1)
    order = torch.arange(size, device="cpu").repeat(rows, 1)
    if size <= FEW and not Experts.worst:
        order.add_(torch.arange(rows, device="cpu").unsqueeze(1)).remainder_(max(size, 1))
    shape = list(places.shape)
    shape.append(shape.pop(dimension))
    yield places, order.reshape(shape).movedim(-1, dimension).contiguous()


def _drawn(out, input, args, kwargs):
    yield out, spread(out.shape, out.dim() - 1, input.shape[-1])


def _give(tensor, places):
    if places is not None:
        known.give(tensor, places, Certainty.CHOSEN)


CHOICES = {
    "topk": _topk, "argmax": _arg, "argmin": _arg, "max": _pairs, "min": _pairs, "median": _pairs, "mode": _pairs,
    "sort": sorted_places, "argsort": sorted_places, "multinomial": _drawn,
}  # fmt: skip
"""Function -> the places that it gives, each with the tensor that gets them."""


def _categories(module):
    """It turns what it has drawn by a property, which nobody follows."""
    draw = module.Categorical.sample

    @functools.wraps(draw)
    def sample(self, *args, **kwargs):
        out = draw(self, *args, **kwargs)
        if out.dim() and not _compiling() and known.is_plain(out) and known.of(out) is None:
            with Computing():
                places = spread((*out.shape, 1), out.dim(), self._num_events)
                _give(out, None if places is None else places.squeeze(-1))
        return out

    module.Categorical.sample = sample


def _placed(original, name):
    """What a model puts at the places that it chose (weights of experts) is there, not zero: one."""

    def placed(self, dim, index, *args, **kwargs):
        source = args[0] if args else kwargs.get("src")
        base, places = (None, None) if _compiling() or Spent.depth else (known.of(self), known.of(index))
        out = original(self, dim, index, *args, **kwargs)
        if base is None or places is None or places.certainty is not Certainty.CHOSEN or len(args) + len(kwargs) > 1:
            return out
        torch = known._torch()
        if isinstance(source, torch.Tensor) and known.of(source) is None and base.value.numel() <= known.MOST:
            with Computing():
                known.give(out, torch.scatter(base.value, dim, places.value, torch.ones_like(source, device="cpu")), Certainty.CHOSEN)
        return out

    return placed


def _ordered(original, name):
    """An order as good as any: mixed, because rows that stand together have much in common (steps after an episode's end)."""

    def randperm(*args, **kwargs):
        out = original(*args, **kwargs)
        if not _compiling() and not Spent.depth and known.is_plain(out) and out.numel() <= known.MOST:
            with Computing():
                _give(out, mixed(out.numel()))
        return out

    return randperm


def mixed(count):
    """Always the same order of as many."""
    torch = known._torch()
    return torch.randperm(count, generator=torch.Generator().manual_seed(count), device="cpu")


def _integers(original, name):
    def randint(*args, **kwargs):
        out = original(*args, **kwargs)
        if not _compiling() and not Spent.depth and known.is_plain(out):
            low, high = _bounds(args, kwargs)
            with Computing():
                _give(out, _shared(out, low, high))
        return out

    return randint


def _in_place(original, name):
    """As `randint` gives them: of numbers between bounds zero may be none."""

    def random_(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        ends = [*args, *(kwargs[end] for end in ("from", "to") if end in kwargs)]
        if ends and not _compiling() and not Spent.depth and known.is_plain(self) and all(type(end) is int for end in ends):
            with Computing():
                _give(self, _shared(self, *(ends if len(ends) == 2 else (0, *ends))))
        return out

    return random_


def _bounds(args, kwargs):
    """Of `randint(high, size)` and `randint(low, high, size)`."""
    numbers = [one for one in args[:2] if not isinstance(one, (tuple, list))]
    low = kwargs.get("low", numbers[0] if len(numbers) > 1 or ("high" in kwargs and numbers) else 0)
    return int(low), int(kwargs.get("high", numbers[-1] if numbers else low + 1))


def _shared(out, low, high):
    """Row after row the next of few numbers, and column after column more slowly, so that their combinations are as many; of one row, or
    of many numbers, the lowest."""
    torch, kinds = known._torch(), high - low
    rows = out.shape[0] if out.dim() else 1
    columns = out.numel() // max(rows, 1)
    if Experts.worst or rows == 1 or not 1 < kinds <= FEW or not 0 < columns <= FEW or out.numel() > known.MOST:
        return known.uniform(out.shape, out.dtype, low)
    slower = torch.tensor([kinds ** min(column, 62 // kinds.bit_length()) for column in range(columns)], device="cpu")
    places = torch.arange(rows, device="cpu").unsqueeze(1).div(slower, rounding_mode="floor")
    return places.remainder_(kinds).add_(low).reshape(out.shape).to(out.dtype)
