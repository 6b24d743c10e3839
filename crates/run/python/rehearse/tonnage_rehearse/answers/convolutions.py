"""Convolutions: cuDNN takes workspaces inside PyTorch's allocator, which the phantom does not know. What is known is a range.

A kernel that wants channels last keeps a copy of input, output and weights in that layout in its workspace; a product of matrices
keeps the input unfolded. Which one cuDNN takes goes by its version and the GPU; `cudnn.benchmark` tries them all.
"""

import torch

from .. import caveats
from ..values.follow import Spent, _compiling, replace

NAMES = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


class Largest:
    """What the largest convolution may take, in bytes."""

    converted = unfolded = 0

    @classmethod
    def bytes(cls):
        """At most: with `cudnn.benchmark` the unfolded input too."""
        return max(cls.converted, cls.unfolded) if torch.backends.cudnn.benchmark else cls.converted


def install(module):
    """Looks at every convolution of a device's tensors."""
    for name in NAMES:
        replace(module, (module, module.nn.functional), name, _seen)


def _seen(original, name):
    def convolution(input, weight, *args, **kwargs):
        out = original(input, weight, *args, **kwargs)
        if not _compiling() and not Spent.depth and input.is_cuda and torch.backends.cudnn.enabled:
            _note(input, weight, out)
        return out

    return convolution


def _note(input, weight, out):
    size = out.element_size()
    Largest.converted = max(Largest.converted, size * (input.numel() + weight.numel() + out.numel()))
    # Every element of the weights of one output channel meets every place of the output.
    places = out.numel() // max(out.shape[1 if out.dim() == weight.dim() else 0], 1)
    Largest.unfolded = max(Largest.unfolded, size * places * (weight.numel() // max(weight.shape[0], 1)))
    caveats.tell("convolution", _text)


def _text():
    most = Largest.bytes()
    how = "which cudnn.benchmark tries" if torch.backends.cudnn.benchmark else "as the largest convolution may convert its layout"
    return (
        f"cuDNN's workspaces for convolutions are not in the figures: 0 to {most / 2**20:.1f} MiB more are reserved ({how}; a model, not "
        "measured), and allocated where the peak is in a convolution"
    )
