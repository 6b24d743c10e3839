"""Tables that the host has taken from a device: sizes that they decide there are as uncertain as they are."""

from . import choices, known
from .follow import Computing, Spent, _compiling, follow
from .known import Certainty


def computed(original, name, decides, *args, **kwargs):
    """The same of a table that the host has taken: its size is as uncertain as what decides it."""
    out = original(*args, **kwargs)
    if is_told(decides, name):
        follow(original, name, out, args, kwargs)
    return out


def is_told(decides, name):
    """Whether a table in the host's memory decides a size with numbers of a device; that is told."""
    certainty = Certainty.WRITTEN if _compiling() or Spent.depth or not known.Values.by_id else known.certainty_on_host(decides)
    if certainty < Certainty.CHOSEN or decides.is_cuda:
        return False
    choices.told_of_size(certainty, name)
    return True


def mask_of(mask, name):
    """A mask in the host's memory; full where nobody knows it, as a device's."""
    if not is_told(mask, name) or known.certainty_on_host(mask) is Certainty.CHOSEN:
        return mask
    with Computing():
        full = mask if bool(mask.any()) else known._torch().ones_like(mask)
    known.host(full, Certainty.UNKNOWN)
    return full


def repeated(original, name, input, args, kwargs):
    if "repeats" in kwargs:
        return original(input, *args, **{**kwargs, "repeats": mask_of(kwargs["repeats"], name)})
    return original(input, mask_of(args[0], name), *args[1:], **kwargs) if args else original(mask_of(input, name), **kwargs)


def masks(index):
    """The index with masks of the host as they are answered."""
    if type(index) is tuple:
        return tuple(masks(one) for one in index) if any(id(one) in known.Values.by_id for one in index) else index
    is_told = id(index) in known.Values.by_id and not index.is_cuda and index.dtype in (known._torch().bool, known._torch().uint8)
    return mask_of(index, "mask") if is_told else index
