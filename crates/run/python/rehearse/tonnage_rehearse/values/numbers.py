"""Numbers that the host has read from a device and that only a kernel would have computed. They are ordinary numbers; where
one decides a size or a branch, the report says so and names the line."""

import dis
import os
import sys

from .. import caveats

_PRINTED = os.path.join("torch", "_tensor_str.py")
"""PyTorch's own text of a tensor asks such questions about what it prints."""


def is_printed():
    """Whether a tensor is being printed."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PRINTED):
            return True
        frame = frame.f_back
    return False


def told(name):
    """A number of the device was compared, or asked whether it is zero."""
    if is_printed():
        return
    caveats.tell_of_value(
        "branch",
        f"a value that only the device computes decided what runs (`{name}`), as if it were the one answered here, mostly zero: "
        "what another value would have run was not seen",
    )


def _telling(kind, name):
    original = getattr(kind, name)

    def telling(self, *other):
        # A number compared with itself or with infinity asks for its kind.
        if not other or not (other[0] is self or other[0] in (float("inf"), float("-inf"))):
            told(name.strip("_"))
        return original(self, *other)

    telling.__name__ = name
    return telling


def _becoming(kind, name):
    """`int(...)` of it: an ordinary number from now on, mostly a size or a place."""
    original = getattr(kind, name)

    def becoming(self):
        if not (issubclass(kind, float) and _is_formatted(sys._getframe(1))):
            size_told()
        return original(self)

    becoming.__name__ = name
    return becoming


def _is_formatted(frame):
    """Whether the frame puts a number into a text (`"%d" % share`), which is the only operator that makes a fraction whole."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("BINARY_OP", "BINARY_MODULO")


def _keeping(kind, name, keep):
    original = getattr(kind, name)

    def keeping(self, *others):
        if type(others[0] if others else None) in (list, tuple):
            size_told()
        return keep(original(self, *others))

    keeping.__name__ = name
    return keeping


COMPARED = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__")
_COMBINE = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__",
    "__neg__", "__abs__",
)  # fmt: skip


def methods(kind, is_whole, keep):
    """Of numbers that tell what they decide; `keep` makes one of what is computed of them."""
    made = {name: _telling(kind, name) for name in COMPARED}
    # What is made of it for a sum of losses is an ordinary fraction.
    kept, whole = (_COMBINE, ("__int__", "__index__")) if is_whole else (("__mul__", "__rmul__"), ("__int__", "__trunc__", "__floor__", "__ceil__"))
    made |= {name: _keeping(kind, name, keep) for name in kept if hasattr(kind, name)}
    made |= {name: _becoming(kind, name) for name in whole if hasattr(kind, name)}
    return {**made, "__hash__": kind.__hash__, "__reduce__": lambda self: (kind, (kind(self),)), "is_of_device": True, "__slots__": ()}


def number(value):
    """The same number, which tells what it decides."""
    if type(value) is int:
        return DeviceInt(value)
    return DeviceFloat(value) if type(value) is float else value


DeviceInt = type("DeviceInt", (int,), methods(int, True, number))
DeviceFloat = type("DeviceFloat", (float,), methods(float, False, number))


def host_numbers(args):
    """Sizes and places with plain numbers for those of the device; tells of them."""
    return [_host_number(value) for value in args]


def _host_number(value):
    if isinstance(value, DeviceInt):
        size_told()
        return int.__pos__(value)
    if type(value) in (list, tuple):
        return type(value)([_host_number(one) for one in value])
    if hasattr(value, "is_cuda") and value.is_cuda and not value.dim() and not value.dtype.is_floating_point and value.numel():
        # PyTorch would read it from the device.
        return value.__index__() if str(value.dtype) != "torch.bool" else value
    return value


SIZE = "a size was read from the device, where only a kernel would have computed it: the figures are those of the value answered here"


def size_told():
    """A size is a number of the device."""
    caveats.tell_of_value("size", SIZE)
