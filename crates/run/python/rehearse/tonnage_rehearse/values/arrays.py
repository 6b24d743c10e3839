"""Arrays of numpy whose numbers only a device computes. They are ordinary arrays; where one decides a size or a branch, the
report says so and names the line."""

import functools
import sys

from .. import caveats, places
from . import choices, known
from .known import Certainty
from .numbers import SIZE, DeviceFloat, DeviceInt, methods, told

_SIZED = """
nonzero flatnonzero argwhere extract compress unique unique_values unique_counts bincount repeat delete trim_zeros in1d intersect1d
union1d setdiff1d setxor1d array_split split
"""
SIZED = frozenset(_SIZED.split())
"""Functions whose results are as long as values say."""


def certainty_of(data):
    """How certain what a tensor is made of is: an array, a table of the host's, a list of numbers that were read."""
    if type(data) in (list, tuple):
        return max(map(certainty_of, data[:LOOKED_AT]), default=Certainty.WRITTEN)
    if isinstance(data, (DeviceInt, DeviceFloat)):
        return Certainty.UNKNOWN
    found = getattr(data, "tonnage_certainty", None)
    return known.certainty_on_host(data) if found is None else found


LOOKED_AT = 4096
"""Numbers of a list that are looked at."""
MAKERS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy")
"""Functions of numpy that make an ordinary array of any other."""


def install():
    """What a script makes of an array that tells is another; what libraries make of it is an ordinary one."""
    numpy = _numpy()
    for name in MAKERS:
        setattr(numpy, name, _making(getattr(numpy, name)))


def _making(original):
    @functools.wraps(original, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
    def made(*args, **kwargs):
        if args and type(args[0]) in (list, tuple):
            certainty = certainty_of(args[0])
            # Numpy would ask each whole number for its index, which is no size here.
            if certainty >= Certainty.CHOSEN:
                return marked(original(_ordinary(args[0]), *args[1:], **kwargs), certainty)
        array = original(*args, **kwargs)
        if not args or type(array) is not _numpy().ndarray or not places.is_own(sys._getframe(1).f_code.co_filename):
            return array
        return marked(array, certainty_of(args[0]))

    return made


def _ordinary(data):
    """Numbers that tell nothing, also in lists."""
    if type(data) in (list, tuple):
        return type(data)(_ordinary(one) for one in data)
    if isinstance(data, DeviceInt):
        return int.__pos__(data)
    return float.__pos__(data) if isinstance(data, DeviceFloat) else data


def marked(array, certainty):
    """The array as one that tells what it decides, where it is uncertain."""
    return array if certainty < Certainty.CHOSEN or not known.Values.is_on else _marked(array, certainty)


def _marked(array, certainty):
    made = array.view(_kind())
    made.tonnage_certainty = certainty
    made.mask_of = places.here() if array.dtype == bool and array.ndim else None
    return made


def _result(made, certainty):
    """What follows from such an array: again one, or a single number that tells."""
    import numpy

    if isinstance(made, tuple):
        return type(made)(*(_result(one, certainty) for one in made)) if hasattr(made, "_fields") else tuple(_result(one, certainty) for one in made)
    if isinstance(made, numpy.ndarray):
        return _marked(made, certainty)
    if isinstance(made, numpy.bool_):
        choices.told("bool") if certainty is Certainty.CHOSEN else told("bool")
        return made
    kind = _number_kind(type(made)) if isinstance(made, (numpy.integer, numpy.floating)) else None
    return made if kind is None else kind(made)


def _plain(value):
    """Without marks, also in lists."""
    if isinstance(value, _kind()):
        value.mask_of = None
        return value.view(_numpy().ndarray)
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def _most(values):
    """The least certain of them."""
    return max((certainty_of(one) for one in values if one is not None), default=Certainty.WRITTEN)


@functools.cache
def _numpy():
    import numpy

    return numpy


@functools.cache
def _kind():
    numpy = _numpy()

    class ndarray(numpy.ndarray):
        """An array that tells."""

        def __array_finalize__(self, source):
            self.tonnage_certainty = getattr(source, "tonnage_certainty", Certainty.UNKNOWN)
            self.mask_of = None
            if source is not None and hasattr(source, "mask_of"):
                source.mask_of = None

        def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
            certainty = max(_most(inputs), _most(out or ()), Certainty.CHOSEN)
            if out is not None:
                kwargs["out"] = tuple(_plain(one) for one in out)
            if "where" in kwargs:
                kwargs["where"] = _plain(kwargs["where"])
            made = getattr(ufunc, method)(*(_plain(one) for one in inputs), **kwargs)
            if made is NotImplemented or made is None:
                return made
            return out[0] if out is not None and len(out) == 1 else _result(made, certainty)

        def __array_function__(self, function, kinds, args, kwargs):
            if function.__name__ in SIZED or (function is numpy.where and len(args) == 1):
                choices.told_of_size(self.tonnage_certainty, function.__name__)
            made = function(*_plain(tuple(args)), **{key: _plain(one) for key, one in kwargs.items()})
            return _result(made, max(_most(args), self.tonnage_certainty))

        def __getitem__(self, index):
            parts = index if isinstance(index, tuple) else (index,)
            if any(getattr(getattr(one, "dtype", None), "kind", "") == "b" and getattr(one, "ndim", 0) for one in parts):
                choices.told_of_size(max(self.tonnage_certainty, _most(parts)), "mask")
            return _result(self.view(numpy.ndarray)[_plain(index)], self.tonnage_certainty)

        def nonzero(self):
            choices.told_of_size(self.tonnage_certainty, "nonzero")
            return _result(self.view(numpy.ndarray).nonzero(), self.tonnage_certainty)

        def __iter__(self):
            return (self[at] for at in range(len(self)))

        def tolist(self):
            return _numbers(self.view(numpy.ndarray).tolist())

        def item(self, *args):
            return _numbers(self.view(numpy.ndarray).item(*args))

        def __reduce__(self):
            return self.view(numpy.ndarray).__reduce__()

        def __reduce_ex__(self, protocol):
            return self.view(numpy.ndarray).__reduce_ex__(protocol)

        def __del__(self):
            # Nothing of ours was asked: it was an index of another array, or became an ordinary one.
            if self.mask_of is not None:
                caveats.tell_of_line("size", SIZE, self.mask_of)

    ndarray.__module__ = "numpy"
    return ndarray


def _numbers(made):
    if isinstance(made, list):
        return [_numbers(one) for one in made]
    return DeviceInt(made) if type(made) is int else DeviceFloat(made) if type(made) is float else made


@functools.cache
def _number_kind(kind):
    """Single numbers of numpy's that tell; of truth values numpy allows no other kind."""
    return type(kind.__name__, (kind,), methods(kind, issubclass(kind, _numpy().integer), lambda made: _result(made, Certainty.UNKNOWN)))
