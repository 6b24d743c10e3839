"""Lengths that PyTorch's own code copies to the host and allocates by: what is known of them is laid where it reads."""

import ctypes
import functools

from . import choices, known
from .follow import Computing, Spent, _compiling, replace
from .known import Certainty
from .numbers import size_told


def install(torch):
    """Of the CTC loss, which takes tables of a device, and of packed sequences, which take the host's."""
    replace(torch, (torch,), "ctc_loss", _connected)
    torch._VF._pack_padded_sequence = functools.wraps(torch._VF._pack_padded_sequence)(_packing(torch._VF._pack_padded_sequence))


def _packing(original):
    """Rows whose lengths nobody knows are as long as they may be."""

    def pack(data, lengths, batch_first):
        certainty = known.certainty_on_host(lengths)
        if _compiling() or certainty < Certainty.CHOSEN:
            return original(data, lengths, batch_first)
        choices.told_of_size(certainty, "lengths")
        if certainty is Certainty.UNKNOWN:
            lengths = known._torch().full_like(lengths, data.shape[1 if batch_first else 0])
        return original(data, lengths, batch_first)

    return pack


def _connected(original, name):
    def ctc_loss(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
        if not _compiling() and not Spent.depth and known.Values.is_on:
            torch = known._torch()
            rows = log_probs.shape[1] if log_probs.dim() == 3 else 1
            if isinstance(input_lengths, torch.Tensor):
                lay(input_lengths, [log_probs.shape[0]] * rows)
            if isinstance(target_lengths, torch.Tensor):
                lay(target_lengths, _target_lengths(targets, rows))
        return original(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return ctc_loss


def _target_lengths(targets, rows):
    """The longest that they may be; targets of all rows in one must add up."""
    if targets.dim() == 2:
        return [targets.shape[1]] * rows
    each = targets.numel() // rows
    return [*[each] * (rows - 1), targets.numel() - each * (rows - 1)]


def lay(tensor, longest):
    """Writes into the memory of a device's table what is known of it, else the longest that it may say, which is told."""
    if not known.is_plain(tensor) or not tensor.is_contiguous() or tensor.numel() not in (1, len(longest)):
        return
    found = known.of(tensor)
    certainty = Certainty.UNKNOWN if found is None else found.certainty
    if certainty is Certainty.UNKNOWN:
        size_told()
    elif certainty is Certainty.CHOSEN:
        choices.told("lengths")
    with Computing():
        torch = known._torch()
        longest = torch.tensor(longest[: tensor.numel()], dtype=tensor.dtype, device="cpu").reshape(tensor.shape)
        value = longest if certainty is Certainty.UNKNOWN else found.value.contiguous()
        ctypes.memmove(tensor.data_ptr(), value.data_ptr(), value.numel() * value.element_size())
