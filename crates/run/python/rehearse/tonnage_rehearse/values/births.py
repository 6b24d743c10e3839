"""Where values begin: what the host copies to a device, and what it asks a device to be filled with."""

from .. import imports
from . import arrays, choices, known, otherwise
from .follow import Computing, Spent, _compiling, change, follow, replace
from .known import Certainty
from .numbers import host_numbers, is_printed

SMALL = 1 << 16
"""Elements of a filled tensor whose values are kept one by one."""
FEW = 1 << 12
"""The same of fractions: images and embeddings decide nothing."""
FILLS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
    "empty": None, "empty_like": None, "new_empty": None, "empty_strided": None, "full": "fill", "full_like": "fill", "new_full": "fill",
}  # fmt: skip
"""Functions that make a tensor, and the element it is filled with: `fill` is their argument after the sizes, None what the memory holds."""
LISTED = ("arange", "linspace", "eye", "tensor", "as_tensor", "asarray", "new_tensor", "tril_indices", "triu_indices")
"""Functions that make small tensors, whose values are those that they make in the host's memory."""
MOVES = ("to", "cuda", "type", "type_as")
"""Functions that copy a tensor to a device, or to another type of elements; `type()` alone tells the type's name."""
TURNED = ("T", "mT", "H", "mH")
"""Attributes of a tensor that are a view of it."""
SAME = ("as_subclass", "__deepcopy__")
"""Functions whose result has the values of its tensor."""


def install(torch):
    """Wraps the functions that make or fill tensors, and those that copy them."""
    tensor = torch.Tensor
    for name in FILLS:
        replace(torch, (torch, tensor), name, _filled)
    for name in LISTED:
        replace(torch, (torch, tensor), name, _listed)
    for name in MOVES:
        replace(torch, (tensor,), name, _moved)
    for name in SAME:
        replace(torch, (tensor,), name, _same)
    tensor.data = _data(tensor.data)
    turned = {name: getattr(tensor, name) for name in TURNED}
    for name, original in turned.items():
        setattr(tensor, name, _turned(original))
    # Dynamo takes what is there by the kind that PyTorch's own attributes have.
    imports.after("torch._dynamo.variables.tensor", lambda module: getattr(module, "all_tensor_attrs", {}).update(turned))
    replace(torch, (torch,), "from_numpy", _listed)
    replace(torch, (tensor,), "copy_", _copied)
    replace(torch, (tensor,), "fill_", _overwritten)
    replace(torch, (tensor,), "zero_", _overwritten)


def written(tensor, source):
    """The host's tensor was copied to the device's."""
    most = FEW if source.is_floating_point() or source.is_complex() else known.TABLE
    if source.numel() <= (known.LITTLE if known.Values.is_spent else most):
        with Computing():
            known.give(tensor, source.detach().clone(), known.certainty_on_host(source))


def _filled(original, name):
    def filled(*args, **kwargs):
        if _compiling():
            return original(*args, **kwargs)
        out = original(*_sizes(name, args), **kwargs)
        if Spent.depth or not known.is_plain(out) or not known.Values.is_on:
            return out
        element, certainty = FILLS[name], Certainty.WRITTEN
        if element == "fill":
            element = kwargs["fill_value"] if "fill_value" in kwargs else args[2 if name == "new_full" else 1]
            element = element.item() if isinstance(element, known._torch().Tensor) else element
        elif element is None:
            element, certainty = 0, Certainty.UNKNOWN
        known.give(out, known.uniform(out.shape, out.dtype, element), certainty)
        return out

    return filled


def _sizes(name, args):
    """The arguments with plain numbers for sizes of the device; what a tensor is made of stays."""
    if name in ("tensor", "as_tensor", "asarray", "new_tensor"):
        return [_numbers_of(one) for one in args]
    kept = 1 if name.endswith("_like") or name.startswith("new_") else 0
    return [*args[:kept], *host_numbers(args[kept:])]


def _numbers_of(data):
    """A list with numbers for the tensors of one element in it: our `__getitem__` makes PyTorch take these for lists."""
    if type(data) not in (list, tuple):
        return data
    return [one.item() if isinstance(one, known._torch().Tensor) and not one.dim() else _numbers_of(one) for one in data]


def _listed(original, name):
    def listed(*args, **kwargs):
        if _compiling():
            return original(*args, **kwargs)
        args = _sizes(name, args)
        out = original(*args, **kwargs)
        if Spent.depth or not known.is_plain_kind(type(out)) or any(out is one for one in args):
            return out
        certainty = arrays.certainty_of(args[0]) if args else Certainty.WRITTEN
        if not known.is_plain(out):
            known.host(out, certainty)
        elif out.numel() <= SMALL:
            _list(original, out, args, kwargs, certainty)
        return out

    return listed


def _list(original, out, args, kwargs, certainty):
    if len(args) and hasattr(args[0], "is_cuda") and args[0].is_cuda and not hasattr(original, "__self__"):
        follow(original, "", out, args, kwargs)
        return
    kwargs = {key: value for key, value in kwargs.items() if key not in ("out", "requires_grad", "pin_memory")}
    try:
        with Computing():
            known.give(out, original(*_on_host(args), **{**kwargs, "device": "cpu"}), certainty)
    except Exception:
        return


def _on_host(args):
    """`new_tensor` begins with a tensor of the device."""
    torch = known._torch()
    return [torch.empty(0, dtype=one.dtype, device="cpu") if isinstance(one, torch.Tensor) and one.is_cuda else one for one in args]


def _moved(original, name):
    def moved(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        if _compiling() or Spent.depth or out is self or type(out) is str:
            return out
        if known.is_plain(out):
            if not self.is_cuda:
                written(out, self)
            elif id(self) in known.Values.by_id:
                follow(lambda value: value.to(out.dtype), "to", out, (self,), {})
            else:
                otherwise.begin(out, self)
        elif self.is_cuda and out.device.type == "cpu":
            read_into(out, self)
            told_of_table(self)
        return out

    return moved


def _same(original, name):
    def same(self, *args):
        out = original(self, *args)
        if not _compiling() and out is not self and id(self) in known.Values.by_id:
            follow(lambda value, *_: value, "to", out, (self,), {})
        return out

    return same


def _turned(original):
    def get(self):
        out = original.__get__(self)
        if not _compiling() and not Spent.depth and id(self) in known.Values.by_id:
            follow(original.__get__, "t", out, (self,), {})
        return out

    return property(get)


def _data(original):
    """The property `data` of tensors, whose result no longer shares its versions."""

    def get(self):
        out = original.__get__(self)
        found = None if _compiling() or Spent.depth else known.of(self)
        if found is not None:
            known.give(out, found.value.clone() if not known.is_uniform(found.value) else found.value, found.certainty)
            known.stand_for(out, self)
        return out

    def put(self, source):
        original.__set__(self, source)
        found = None if _compiling() or Spent.depth else known.of(source)
        if found is None:
            known.forget(self)
        else:
            known.give(self, found.value.clone() if not known.is_uniform(found.value) else found.value, found.certainty)

    return property(get, put, original.__delete__)


def read_into(out, source):
    """The host has copied a device's tensor: what is known of it, or zeros."""
    if not known.is_plain_kind(type(source)):
        return
    found = known.of(source)
    with Computing():
        if found is not None:
            out.data.copy_(found.value)
        elif known.Values.is_on and 0 < out.numel() * out.element_size() <= SMALL:
            out.data.zero_()
        known.host(out, Certainty.UNKNOWN if found is None else found.certainty)
    otherwise.carry("cpu", (out,), (source,))


def told_of_table(source):
    """Whole numbers that a model takes to the host decide a size, a place or what runs, also where numpy goes on with them."""
    if not known.Values.in_model or source.dtype.is_floating_point or source.dtype.is_complex or is_printed():
        return
    if not known.is_plain_kind(type(source)):
        return
    found = known.of(source)
    if found is None and not known.Values.is_on:
        return
    certainty = Certainty.UNKNOWN if found is None else found.certainty
    if certainty >= Certainty.CHOSEN:
        choices.told_of_size(certainty)


def _copied(original, name):
    def copied(self, source, *args, **kwargs):
        out = original(self, source, *args, **kwargs)
        if _compiling() or Spent.depth or not hasattr(source, "is_cuda"):
            return out
        if known.is_plain(self):
            found = known.of(source) if source.is_cuda else None
            if not source.is_cuda and source.shape == self.shape:
                written(self, source)
            elif found is not None and source.shape == self.shape:
                known.give(self, found.value if known.is_uniform(found.value) else found.value.clone(), found.certainty)
            else:
                known.forget(self)
        elif self.device.type == "cpu" and source.is_cuda and self.shape == source.shape:
            read_into(self, source)
        return out

    return copied


def _overwritten(original, name):
    def overwritten(self, *args):
        before = None if _compiling() or Spent.depth else known.of(self)
        out = original(self, *args)
        if _compiling() or Spent.depth or not known.is_plain(self):
            return out
        if before is not None and not known.is_uniform(before.value):
            change(original, self, before, args, {})
        elif not any(hasattr(one, "is_cuda") for one in args):
            known.give(self, known.uniform(self.shape, self.dtype, *args), Certainty.WRITTEN)
        return out

    return overwritten
