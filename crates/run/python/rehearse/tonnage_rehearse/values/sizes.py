"""Functions whose results have a size that only values decide. PyTorch reads that size from the device and allocates by it;
here it reads the size that is known, or one that is never too small, and the report says which."""

import functools
import math

from .. import caveats
from ..answers import batch
from . import choices, hosted, known, running
from .follow import Computing, Spent, _compiling, any_known, follow, replace
from .known import Answered, Certainty
from .numbers import DeviceInt, host_numbers, is_printed, size_told

SIZED = (
    "view", "reshape", "expand", "repeat", "narrow", "split", "split_with_sizes", "select", "tile", "unflatten", "topk", "kthvalue", "chunk",
)  # fmt: skip
"""Functions whose arguments after the first are sizes and places, which PyTorch would read itself where they are tensors."""


def install(torch):
    """Wraps them all."""
    owners = (torch, torch.Tensor)
    for name in ("nonzero", "argwhere"):
        replace(torch, owners, name, _nonzero)
    replace(torch, owners, "where", _where)
    replace(torch, owners, "masked_select", _selected)
    replace(torch, (torch, torch.Tensor), "masked_scatter", _scattered)
    replace(torch, (torch,), "combinations", _combined)
    for name in ("unique", "unique_consecutive", "_unique2"):
        replace(torch, owners, name, _unique)
    replace(torch, owners, "repeat_interleave", _repeated)
    replace(torch, owners, "bincount", _counted)
    replace(torch, (torch.nn.functional,), "one_hot", _one_hot)
    replace(torch, (torch.Tensor,), "__getitem__", _indexed)
    for name in SIZED:
        replace(torch, owners, name, _sized)
    replace(torch, (torch.nn.functional,), "pad", _sized)
    for name in ("rand", "randn", "randint"):
        replace(torch, (torch,), name, functools.partial(_sized, first=0))


def is_of_device(tensor):
    """A tensor of a device, outside compiled code and our own computing."""
    return not _compiling() and not Spent.depth and known.is_plain(tensor)


def elements(mask, name):
    """How many elements of a mask are not zero, and the mask itself as it was answered."""
    found = known.of(mask)
    if found is not None and (found.certainty < Certainty.UNKNOWN or not known.is_uniform(found.value)) and not running.is_above(mask):
        with Computing():
            count = int(found.value.count_nonzero())
        # None at all is no answer where somebody guessed.
        if count or found.certainty < Certainty.UNKNOWN:
            if found.certainty >= Certainty.CHOSEN:
                choices.told_of_size(found.certainty, name)
            return count, found.value
    count = batch.expected(mask.shape, _is_followed(mask))
    if not batch.is_known(mask.shape, _is_followed(mask)):
        caveats.tell_of_value(name, f"`{name}` of a device tensor has a size that only data decides; it was answered with all {count} elements")
    full = count == mask.numel()
    return count, known.uniform(mask.shape, mask.dtype, 1) if full else None


def _is_followed(mask):
    """Whether a mask that follows from the labels would be known: one that is not is no mask of theirs, whatever its shape."""
    return known.Values.is_on and not known.Values.is_spent and mask.numel() <= known.TABLE


def _nonzero(original, name):
    def nonzero(input, *args, **kwargs):
        if not is_of_device(input):
            return original(hosted.mask_of(input, name), *args, **kwargs)
        count, value = elements(input, name)
        with Answered(count):
            out = original(input, *args, **kwargs)
        places_of = functools.partial(running.last_places, original, known.of(input)) if running.is_above(input) else original
        _give_places(places_of, out, value, found_certainty(input), args, kwargs)
        return out

    return nonzero


def found_certainty(tensor):
    """How certain what is known of it is."""
    found = known.of(tensor)
    return Certainty.UNKNOWN if found is None else found.certainty


def _give_places(places_of, out, value, certainty, args, kwargs):
    outs = out if isinstance(out, tuple) else (out,)
    if value is None or value.numel() > known.MOST:
        places = None
    else:
        with Computing():
            places = places_of(value, *args, **kwargs)
            places = places if isinstance(places, tuple) else (places,)
    for at, one in enumerate(outs):
        known.give(one, known.uniform(one.shape, one.dtype) if places is None else places[at], certainty)


def _where(original, name):
    single = _nonzero(original, name)

    def where(condition, *args, **kwargs):
        return original(condition, *args, **kwargs) if args or kwargs else single(condition)

    return where


def _selected(original, name):
    def masked_select(input, mask, **kwargs):
        if not is_of_device(mask) or not is_of_device(input):
            return original(input, hosted.mask_of(mask, name), **kwargs)
        if is_printed():
            with Answered(mask.numel()):
                return original(input, mask, **kwargs)
        count, value = elements(mask, name)
        torch = known._torch()
        shape = torch.broadcast_shapes(input.shape, mask.shape)
        times = (shape.numel() // max(mask.numel(), 1)) if mask.numel() else 0
        with Answered(count * times):
            out = original(input, mask, **kwargs)
        found = known.of(input)
        if found is not None and value is not None:
            with Computing():
                known.give(out, original(found.value, value.bool()), max(found.certainty, found_certainty(mask)))
        return out

    return masked_select


def _scattered(original, name):
    """Its backward pass selects by the mask: as many elements as the source has, or fewer."""

    def masked_scatter(input, mask, source):
        out = original(input, mask, source)
        if is_of_device(input) and out.grad_fn is not None:
            answer_within(out.grad_fn, Answered(min(source.numel(), _true_elements(mask, out))))
        if any_known((input, mask, source)):
            follow(original, name, out, (input, mask, source), {})
        return out

    return masked_scatter


def _combined(original, name):
    """PyTorch counts them by a mask of its own."""

    def combinations(input, r=2, with_replacement=False):
        if not is_of_device(input):
            return original(input, r, with_replacement)
        kinds = input.numel() + (r - 1 if with_replacement else 0)
        with Answered(math.comb(kinds, r)):
            out = original(input, r, with_replacement)
        follow(original, "", out, (input, r, with_replacement), {})
        return out

    return combinations


def _true_elements(mask, out):
    """As far as it is known, when the mask is spread over `out`; else all of them."""
    found = known.of(mask)
    if found is None or not mask.numel():
        return out.numel()
    with Computing():
        return int(found.value.count_nonzero()) * (out.numel() // mask.numel())


def _unique(original, name):
    def unique(input, *args, **kwargs):
        if not is_of_device(input):
            return hosted.computed(original, name, input, input, *args, **kwargs)
        found = known.of(input)
        sure = found is not None and found.certainty < Certainty.UNKNOWN
        if found is None or (known.is_uniform(found.value) and not sure):
            caveats.tell_of_value(name, f"`{name}` of a device tensor has a size that only data decides; it was answered as if all elements were the same")
            value = known.uniform(input.shape, input.dtype)
        else:
            value = found.value
            if found.certainty >= Certainty.CHOSEN:
                choices.told(name)
        with Computing():
            values = original(value, *args, **kwargs)
        first = values[0] if isinstance(values, tuple) else values
        dimension = kwargs.get("dim")
        with Answered(first.shape[dimension] if dimension is not None else first.numel()):
            out = original(input, *args, **kwargs)
        certainty = found_certainty(input)
        outs, made = (out, values) if isinstance(out, tuple) else ((out,), (values,))
        for one, value in zip(outs, made, strict=True):
            known.give(one, value, certainty)
        return out

    return unique


def _repeated(original, name):
    def repeat_interleave(input, *args, **kwargs):
        repeats = kwargs.get("repeats", args[0] if args else input)
        if not hasattr(repeats, "is_cuda") or not is_of_device(repeats) or kwargs.get("output_size") is not None:
            return hosted.repeated(original, name, input, host_numbers(args), kwargs)
        found = known.of(repeats)
        if found is None:
            caveats.tell_of_value(name, "`repeat_interleave` by counts of the device has a size that only data decides; it was answered as once each")
        elif found.certainty >= Certainty.CHOSEN:
            choices.told(name)
        value = known.uniform(repeats.shape, repeats.dtype, 1) if found is None else found.value
        dimension = kwargs.get("dim", args[1] if len(args) > 1 else None)
        times = repeats.numel() if repeats is input else input.numel() if dimension is None else input.shape[dimension]
        with Computing():
            total = int(value.sum()) if value.numel() > 1 or repeats is input else int(value) * times
        with Answered(total):
            out = original(input, *args, **kwargs)
        follow(original, "", out, (input, *args), kwargs)
        return out

    return repeat_interleave


def _largest(tensor, name):
    found = known.of(tensor)
    if found is None or (found.certainty is Certainty.UNKNOWN and known.is_uniform(found.value)):
        caveats.tell_of_value(name, f"`{name}` of a device tensor is as long as its largest value says; it was answered as if all were zero")
        return 0
    if found.certainty >= Certainty.CHOSEN:
        choices.told(name)
    with Computing():
        return int(found.value.max()) if found.value.numel() else 0


def _counted(original, name):
    def bincount(input, weights=None, minlength=0):
        if not is_of_device(input):
            return hosted.computed(original, name, input, input, weights, minlength)
        found = known.of(input)
        # At least as many as were asked for: then the largest value decides nothing.
        largest = min(minlength - 1, 0) if found is None and minlength else _largest(input, name)
        with Answered(max(largest, 0)):
            out = original(input, weights, minlength)
        if weights is None:
            follow(original, "", out, (input, weights, minlength), {})
        return out

    return bincount


def _one_hot(original, name):
    def one_hot(tensor, num_classes=-1):
        if not is_of_device(tensor):
            return hosted.computed(original, name, tensor, tensor, num_classes) if num_classes == -1 else original(tensor, num_classes)
        largest = _largest(tensor, name) if num_classes == -1 else num_classes - 1
        with Answered(largest):
            out = original(tensor, num_classes)
        follow(original, "", out, (tensor, num_classes), {})
        return out

    return one_hot


def _mapping():
    """Within `vmap`, where an index of one element stands for one of each row."""
    return known._torch()._C._functorch.peek_interpreter_stack() is not None


def is_mask(index):
    torch = known._torch()
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) and index.dim() > 0 and is_of_device(index)


def _indexed(original, name):
    def getitem(self, index):
        if _compiling() or _mapping() or Spent.depth or type(index) is int:
            if type(index) is int and not Spent.depth and id(self) in known.Values.by_id and not _compiling():
                out = original(self, index)
                follow(original, name, out, (self, index), {})
                return out
            return original(self, index)
        index = hosted.masks(host_index(index, self.shape))
        masks = [one for one in (index if isinstance(index, tuple) else (index,)) if is_mask(one)]
        out = _by_mask(original, self, index, masks) if masks and self.is_cuda else original(self, index)
        if id(self) in known.Values.by_id:
            follow(_valid(original), name, out, (self, index), {})
        return out

    return getitem


def _valid(original):
    """What was chosen among all columns of a table that is filled up may lie beyond what a row has: there it is another valid choice."""

    def indexed(values, index):
        try:
            return original(values, index)
        except IndexError:
            parts = index if isinstance(index, tuple) else (index,)
            sizes = zip(parts, values.shape, strict=False)
            valid = tuple(part.remainder(size) if size and _is_places(part) else part for part, size in sizes)
            return original(values, valid if isinstance(index, tuple) else valid[0])

    return indexed


def _is_places(part):
    torch = known._torch()
    return isinstance(part, torch.Tensor) and part.dtype not in (torch.bool, torch.uint8)


def _by_mask(original, self, index, masks):
    count, value = elements(masks[0], "mask")
    with Answered(count):
        out = original(self, index)
    answer_backward(out, count)
    _give_rows(self, index, value, out)
    return out


def _give_rows(self, index, value, out):
    """By a mask that nobody knows and that counts as full, the rows are all there."""
    found, mask = known.of(self), None if isinstance(index, tuple) else known.of(index)
    if found is None or value is None or isinstance(index, tuple) or (mask is not None and mask.certainty < Certainty.UNKNOWN):
        return
    if found.value.numel() <= known.MOST and value.numel() <= known.MOST:
        with Computing():
            known.give(out, found.value[value.bool()], Certainty.UNKNOWN)


def answer_backward(tensor, count):
    """The backward pass counts the mask again."""
    node = tensor.grad_fn
    for _ in range(4):
        if node is None:
            return
        if node.name().startswith("IndexPut") or node.name().startswith("IndexBackward"):
            answer_within(node, Answered(count))
            return
        node = node.next_functions[0][0] if node.next_functions else None


def answer_within(node, answered):
    node.register_prehook(lambda _: answered.__enter__())
    node.register_hook(lambda *_: answered.__exit__())


def host_index(index, shape=()):
    """The index with numbers in place of single numbers of the device, which PyTorch would read; those that nobody knows lie within the
    tensor's shape where that is given."""
    torch = known._torch()

    def one(part, at=0):
        if isinstance(part, slice) and any(hasattr(end, "is_cuda") or (type(end) is not int and end is not None) for end in (part.start, part.stop, part.step)):
            return slice(*host_numbers([end.item() if hasattr(end, "is_cuda") else end for end in (part.start, part.stop, part.step)]))
        if isinstance(part, torch.Tensor) and not part.dim() and is_of_device(part) and part.dtype not in (torch.bool, torch.uint8):
            found = known.of(part)
            if found is None or found.certainty is Certainty.UNKNOWN:
                size_told()
                return _within(0 if found is None else int(found.value), index, at, shape)
            return int(found.value)
        number = host_numbers([part])[0]
        return _within(number, index, at, shape) if isinstance(part, DeviceInt) else number

    return tuple(map(one, index, range(len(index)))) if type(index) is tuple else one(index)


def _within(place, index, at, shape):
    """The nearest place that there is, where every part of the index before it is of one dimension."""
    before = index[:at] if type(index) is tuple else ()
    if at >= len(shape) or not shape[at] or not all(type(part) in (int, slice) or isinstance(part, DeviceInt) or _is_place(part) for part in before):
        return place
    return max(-shape[at], min(place, shape[at] - 1))


def _is_place(part):
    return _is_places(part) and not part.dim()


def _sized(original, name, first=1):
    def sized(*args, **kwargs):
        if _compiling():
            return original(*args, **kwargs)
        for value in args[first:]:
            if type(value) is not int:
                return original(*args[:first], *host_numbers(args[first:]), **kwargs)
        return original(*args, **kwargs)

    return sized
