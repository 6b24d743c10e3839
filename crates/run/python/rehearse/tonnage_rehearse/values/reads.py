"""Where values reach the host: what is known is handed over; what is not is zero, never what the memory held before."""

import importlib.util

from . import arrays, branches, choices, kinds, known, loops
from .births import FEW, read_into, told_of_table
from .follow import Computing, Spent, _compiling, replace
from .known import Answered, Certainty
from .numbers import DeviceInt, is_printed, number, told


def install(torch):
    """Wraps every way to read a device's tensor."""
    tensor = torch.Tensor
    for name in ("item", "__int__", "__float__", "__index__"):
        replace(torch, (tensor,), name, _one)
    replace(torch, (tensor,), "__bool__", _truth)
    replace(torch, (torch, tensor), "is_nonzero", _truth)
    replace(torch, (tensor,), "tolist", _list)
    replace(torch, (tensor,), "cpu", _cpu)
    replace(torch, (tensor,), "numpy", _numpy)
    replace(torch, (tensor,), "__array__", _array)
    if importlib.util.find_spec("numpy") is not None:
        arrays.install()
    for name in ("equal", "allclose"):
        replace(torch, (torch, tensor), name, _same)
    replace(torch, (tensor,), "__contains__", _contains)


def value_of(tensor):
    """What the host reads, and how certain it is; None for tensors that are neither of a phantom alone nor made of what is."""
    if Spent.depth or not known.is_plain_kind(type(tensor)) or not (tensor.is_cuda or id(tensor) in known.Values.by_id):
        return None, Certainty.WRITTEN
    found = known.of(tensor)
    if found is not None:
        return found.value, found.certainty
    if not known.Values.is_on:
        return None, Certainty.WRITTEN
    return known.uniform(tensor.shape, tensor.dtype), Certainty.UNKNOWN


def _one(original, name):
    def one(self):
        value, certainty = (None, None) if _compiling() else value_of(self)
        if value is None:
            return original(self)
        # Waits for the device, as the script does; what the memory holds may be no number at all.
        with Answered(0):
            original(self)
        with Computing():
            made = original(value)
        if type(made) is bool:
            return _told_truth(self, made, certainty)
        if certainty < Certainty.CHOSEN or type(made) not in (int, float):
            return made
        kinds.see()
        count = branches.count_of(self, name, made)
        if name == "item":
            return _in_model(number(made) if count is None else count, certainty)
        made = made if count is None else count
        if type(made) is int and not is_printed():
            choices.told_of_size(certainty)
        return made

    return one


def _truth(original, name):
    def truth(self):
        value, certainty = (None, None) if _compiling() else value_of(self)
        if value is None:
            return original(self)
        with Answered(0):
            original(self)
        with Computing():
            made = original(value)
        return _told_truth(self, made, certainty)

    return truth


def _told_truth(tensor, made, certainty):
    """The truth value that a script goes by; of what nobody knows the one by which it goes on."""
    if certainty is Certainty.CHOSEN:
        choices.told("bool")
    elif certainty is Certainty.UNKNOWN:
        told("bool")
        return branches.answer_of(tensor, made)
    return made


def _list(original, name):
    def tolist(self):
        value, certainty = (None, None) if _compiling() else value_of(self)
        if value is None:
            return original(self)
        # Waits for the device, as the script does.
        original(self)
        with Computing():
            made = original(value)
        if certainty < Certainty.CHOSEN:
            return made
        if value.dtype.is_floating_point and value.numel() > FEW:
            return made
        kinds.see()
        numbers = branches.counts_of(self, made) or _numbers(made)
        return numbers if value.dtype.is_floating_point else _in_model(numbers, certainty)

    return tolist


def _in_model(made, certainty):
    """What a model reads of whole numbers decides a size or a place, also where no comparison tells so; of what others read the script's
    text says it."""
    if not known.Values.in_model or isinstance(made, float):
        if not isinstance(made, float) and loops.takes():
            choices.told_of_size(certainty)
        return made
    if not is_printed():
        choices.told_of_size(certainty)
    return _plain(made)


def _plain(made):
    if isinstance(made, list):
        return [_plain(one) for one in made]
    # A count stays one: how a model goes on by it, its text says.
    return int.__pos__(made) if type(made) is DeviceInt else made


def _numbers(made):
    if isinstance(made, list):
        return [_numbers(one) for one in made]
    return number(made)


def _cpu(original, name):
    def cpu(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        if not _compiling() and not Spent.depth and self.is_cuda and out.device.type == "cpu":
            read_into(out, self)
            told_of_table(self)
        return out

    return cpu


def _numpy(original, name):
    def numpy(self, *args, **kwargs):
        made = original(self, *args, **kwargs)
        return made if _compiling() or Spent.depth else arrays.marked(made, known.certainty_on_host(self))

    return numpy


def _array(original, name):
    """What numpy's own functions and other libraries make of it is an ordinary array, of which nothing is seen any more; `arrays` sees
    to those that the script itself makes."""

    def array(self, *args, **kwargs):
        made = original(self, *args, **kwargs)
        if not _compiling() and not Spent.depth and not self.dtype.is_floating_point:
            certainty = known.certainty_on_host(self)
            if certainty >= Certainty.CHOSEN:
                choices.told_of_size(certainty, "numpy")
        return made

    return array


def _same(original, name):
    def same(self, other, *args, **kwargs):
        made = original(self, other, *args, **kwargs)
        if _compiling():
            return made
        (mine, sure), (others, also) = value_of(self), value_of(other)
        if mine is None or others is None:
            return made
        if max(sure, also) is Certainty.UNKNOWN:
            told(name)
        with Computing():
            return original(mine, others, *args, **kwargs)

    return same


def _contains(original, name):
    def contains(self, element):
        if _compiling() or not self.is_cuda:
            return original(self, element)
        return bool((element == self).any())

    return contains
