"""What a tensor would hold if the mask were full that it was made of and that nobody knows: as an index such a mask is full, and whoever
asks for its count dispatches by it (`branches`). It goes with the value, through other types, shapes and places of memory."""

from . import known
from .known import Certainty
from .names import CARRIED


def of(tensor):
    """What every element would be: one of a mask that nobody knows; None of all that is made of none."""
    if not hasattr(tensor, "dtype"):
        return None
    is_mask = tensor.dtype is known._torch().bool and tensor.dim() > 0
    found = known.of(tensor)
    if found is not None and found.otherwise is not None:
        return found.otherwise if found.otherwise or not is_mask else None
    if not is_mask:
        return None
    is_unknown = known.is_plain(tensor) if found is None else found.certainty is Certainty.UNKNOWN and _is_empty(found.value)
    return True if is_unknown else None


def _is_empty(mask):
    """By PyTorch's own functions: ours would tell that a value was asked for."""
    own = known._torch()._C.TensorBase
    return not own.item(own.any(mask))


def note(tensor, element):
    """Every element of the tensor would be this."""
    found = known.of(tensor)
    if found is not None:
        torch = known._torch()
        kind = bool if tensor.dtype is torch.bool else float if tensor.dtype.is_floating_point else int
        found.otherwise = kind(element)


def begin(out, mask):
    """The numbers of a mask of which nothing is known: zero as all such, and one."""
    if mask.dtype is known._torch().bool and known.of(mask) is None and known.is_plain(mask) and mask.dim() and out.dtype is not mask.dtype:
        known.give(out, known.uniform(out.shape, out.dtype), Certainty.UNKNOWN)
        note(out, 1)


def carry(name, results, args):
    """The results of a function that only gives what is known another form keep the other side; a part of a mask is a mask itself."""
    if name not in CARRIED or not args:
        return
    element = of(args[0])
    if element is None:
        return
    is_mask = known.of(args[0]) is None or known.of(args[0]).otherwise is None
    for one in results:
        if not (is_mask and one.dtype is known._torch().bool):
            note(one, element)
