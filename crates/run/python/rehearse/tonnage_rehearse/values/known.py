"""What is known of a device tensor: a value in the host's memory, as long as nothing has changed the tensor since."""

import ctypes
import enum
import functools
import threading
import weakref

MOST = 1 << 25
"""Elements of a value at most; uniform values take no memory and may stand for more."""

TABLE = 1 << 22
"""Elements of a copied table of whole numbers (tokens, labels, masks) at most."""


class Certainty(enum.IntEnum):
    """How a value is known; of several, the least certain counts."""

    WRITTEN = 0
    """The host wrote it, or it follows from what the host wrote."""
    ASSUMED = 1
    """By a rule that docs/rehearse.md states."""
    CHOSEN = 2
    """It follows from choices that were shared out here (`choices`)."""
    UNKNOWN = 3
    """Made up: a real GPU would compute another."""


LITTLE = 64
"""Elements of values that are kept when they have taken their time: limits, sizes, times of a solver."""


class _Whatever:
    """The version of a table in the host's memory: what it follows from stays uncertain, whatever is written into it."""

    def __ne__(self, _):
        return False

    __eq__ = object.__eq__
    __hash__ = object.__hash__


HOSTED = (_Whatever(),)
"""The family of what is known of tensors in the host's memory: that they follow from what only a device computes."""


class Values:
    """The values of this process."""

    is_on = True
    """Whether the host's values are kept. Without, only what holds by a rule is: sizes and truth values are answered all the same."""
    is_spent = False
    """Whether they took as long as they may: of what the host writes and of choices only small ones are kept. What is not known stays zero
    everywhere, so that the script's own checks go as before."""
    in_model = False
    """While an outermost module runs."""
    has_running = False
    """Whether running sums of shares were made: few scripts make any."""
    by_id = {}  # noqa: RUF012
    """Identity of a tensor -> what is known of it, until the tensor goes."""


class Known:
    """A value. Tensors that share memory share a family, which holds the version that their values are of."""

    __slots__ = ("certainty", "family", "is_running", "otherwise", "ref", "stands_for", "value")

    def __init__(self, value, certainty, family):
        self.value, self.certainty, self.family, self.ref = value, certainty, family, None
        self.stands_for = None
        """The tensor (weakly) whose `data` it is: they share memory, and no versions."""
        self.otherwise = None
        """What it would be if the mask were full that it counts and that nobody knows (`branches`)."""
        self.is_running = False
        """Whether it says where running sums of shares reach one, which is their last place (`running`)."""


class _Ref(weakref.ref):
    __slots__ = ("key",)


def _gone(ref):
    Values.by_id.pop(ref.key, None)


def version(tensor):
    """Grows with every change in place; tensors of inference mode have none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


def of(tensor):
    """What is known of it, or None."""
    known = Values.by_id.get(id(tensor))
    if known is None:
        return None
    if known.family[0] != version(tensor):
        forget(tensor)
        return None
    return known


def is_plain(tensor):
    """A tensor of a device that is no wrapper around others."""
    return is_plain_kind(type(tensor)) and tensor.is_cuda


@functools.cache
def is_plain_kind(kind):
    """PyTorch's own tensors, and those of a script or library (fastai's, torchvision's) that leave what is computed to PyTorch."""
    torch = _torch()
    if kind in (torch.Tensor, torch.nn.Parameter):
        return True
    is_own = issubclass(kind, torch.Tensor) and not issubclass(kind, torch.nn.Parameter)
    return is_own and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def give(tensor, value, certainty, family=None):
    """From now on this is the tensor's value."""
    if not (Values.is_on or certainty is Certainty.ASSUMED) or not is_plain(tensor) or value.shape != tensor.shape or value.device.type != "cpu":
        return
    if Values.is_spent and not _is_lasting(value, certainty):
        return
    torch = _torch()
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return
    if not is_uniform(value) and is_too_large(value):
        return
    if value.dtype != tensor.dtype:
        value = value.to(tensor.dtype)
    known = Known(value.detach(), certainty, [version(tensor)] if family is None else family)
    known.ref = _Ref(tensor, _gone)
    known.ref.key = id(tensor)
    before = Values.by_id.get(id(tensor))
    Values.by_id[id(tensor)] = known
    owner = before and before.stands_for and before.stands_for()
    if owner is not None:
        known.stands_for = before.stands_for
        give(owner, value, certainty)


def is_too_large(value):
    """More elements than are kept: masks take an eighth of what whole numbers do."""
    return value.numel() > (MOST << 3 if value.dtype is _torch().bool else MOST)


def host(tensor, certainty):
    """The host has a table that is as uncertain as this; it is its own value."""
    if certainty < Certainty.CHOSEN or not Values.is_on or tensor.is_cuda or not is_plain_kind(type(tensor)):
        return
    known = Known(tensor.detach(), certainty, HOSTED)
    known.ref = _Ref(tensor, _gone)
    known.ref.key = id(tensor)
    Values.by_id[id(tensor)] = known


def certainty_on_host(tensor):
    """How certain a table in the host's memory is."""
    found = Values.by_id.get(id(tensor))
    return Certainty.WRITTEN if found is None else found.certainty


def stand_for(data, tensor):
    """What is known of `data` from now on, its `tensor` is too."""
    known = Values.by_id.get(id(data))
    if known is not None:
        known.stands_for = weakref.ref(tensor)


def turn_off():
    """From now on only what holds by a rule and what is small is known."""
    Values.is_spent = True
    for key in [key for key, one in Values.by_id.items() if one.family is not HOSTED and not _is_lasting(one.value, one.certainty)]:
        Values.by_id.pop(key, None)


def _is_lasting(value, certainty):
    """What costs next to nothing to go on with."""
    return certainty in (Certainty.ASSUMED, Certainty.UNKNOWN) or value.numel() <= LITTLE


def forget(tensor):
    """Nothing is known of it any more."""
    known = Values.by_id.pop(id(tensor), None)
    owner = known and known.stands_for and known.stands_for()
    if owner is not None:
        forget(owner)


def memory(tensor):
    """Where its memory begins. Whoever asks for its storage owns that from then on, and PyTorch adds to no gradient in place whose memory
    two own (torch 2.11, csrc/autograd/input_buffer.cpp)."""
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


def is_uniform(value):
    """One element stands for all."""
    return value.dim() == 0 or not any(value.stride())


def uniform(shape, dtype, element=0):
    """A value with this element everywhere."""
    return _single(dtype, element).expand(tuple(shape))


@functools.lru_cache(maxsize=1024)
def _single(dtype, element):
    """One element; nobody writes into values that stand for many."""
    torch = _torch()
    with torch.no_grad(), torch.inference_mode(False):
        return torch.full((), element, dtype=dtype, device="cpu")


class Answered:
    """While it lasts, PyTorch's own code reads this number from the device: it allocates by it as it would on a GPU."""

    def __init__(self, number):
        self.number = int(number)

    def __enter__(self):
        _open.answers.append(self.number)
        _answer()(1, self.number)

    def __exit__(self, *_):
        # A layer that is recomputed for a backward pass asks within the answer to that.
        _open.answers.pop()
        _answer()(*((1, _open.answers[-1]) if _open.answers else (0, 0)))


class _Open(threading.local):
    """Answers that last in this thread, the innermost last."""

    def __init__(self):
        self.answers = []


_open = _Open()


@functools.cache
def _answer():
    function = getattr(ctypes.CDLL(None), "tonnagePhantomAnswer", None)
    if function is None:
        return lambda given, number: 0
    function.argtypes = (ctypes.c_int, ctypes.c_int64)
    return function


@functools.cache
def _torch():
    import torch

    return torch
