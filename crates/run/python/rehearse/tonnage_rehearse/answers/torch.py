"""PyTorch's own questions: how many elements of a mask are true."""

import functools
import os
import sys

from .. import caveats
from . import batch, truth


def install(torch):
    """Answers for masks as indices; tells of shapes that only data decides."""
    tensor = torch.Tensor
    get, put = tensor.__getitem__, tensor.__setitem__

    def is_mask(index):
        return isinstance(index, tensor) and index.dtype == torch.bool and index.is_cuda and index.dim() > 0

    def getitem(self, index):
        if is_mask(index) and self.is_cuda:
            return get(self, _places(torch, index))
        return get(self, index)

    def setitem(self, index, value):
        # Nothing is written on a device that computes nothing, whatever the sizes.
        if is_mask(index) and isinstance(value, tensor) and value.dim():
            return
        put(self, index, value)

    def masked_select(self, mask):
        return getitem(*torch.broadcast_tensors(self, mask)) if is_mask(mask) else select(self, mask)

    select = tensor.masked_select
    tensor.__getitem__, tensor.__setitem__, tensor.masked_select = getitem, setitem, masked_select
    _install_scatter(torch)
    truth.install(torch)
    _install_recurrent(torch)
    _install_counts(torch)
    for owner, name in ((torch, "nonzero"), (tensor, "nonzero"), (torch, "unique"), (torch, "masked_select")):
        setattr(owner, name, _told(getattr(owner, name), name))


def _places(torch, mask):
    """The index tensors of as many true elements as are expected."""
    places = torch.nonzero_static(mask, size=batch.expected(mask.shape))
    places.zero_()
    return tuple(places[:, dimension] for dimension in range(mask.dim()))


def _install_scatter(torch):
    class MaskedScatter(torch.autograd.Function):
        """Its backward pass selects by the mask: as many elements as the source has."""

        @staticmethod
        def forward(ctx, target, mask, source):
            ctx.count, ctx.shape = source.numel(), source.shape
            return torch.ops.aten.masked_scatter(target, mask, source)

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None, gradient.reshape(-1)[: ctx.count].clone().reshape(ctx.shape)

    def masked_scatter(self, mask, source):
        if not self.is_cuda:
            return scatter(self, mask, source)
        return MaskedScatter.apply(self, mask, source)

    scatter = torch.Tensor.masked_scatter
    torch.Tensor.masked_scatter = masked_scatter


def _install_recurrent(torch):
    """cuDNN's recurrent networks take workspaces that nobody has measured; PyTorch has kernels of its own."""

    def own_kernels(function):
        @functools.wraps(function)
        def run(data, *args, **kwargs):
            if not data.is_cuda or not torch.backends.cudnn.enabled:
                return function(data, *args, **kwargs)
            text = "recurrent networks ran on PyTorch's own kernels instead of cuDNN's, which keep other things in memory"
            caveats.tell("recurrent", text)
            with torch.backends.cudnn.flags(enabled=False):
                return function(data, *args, **kwargs)

        return run

    def flatten_parameters(self):
        # Only cuDNN wants the weights in one piece.
        if not self._flat_weights[0].is_cuda:
            flatten(self)

    flatten = torch.nn.RNNBase.flatten_parameters
    torch.nn.RNNBase.flatten_parameters = flatten_parameters
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        setattr(torch._VF, name, own_kernels(getattr(torch._VF, name)))


def _install_counts(torch):
    """`bincount` has as many elements as the largest value says: as many as were asked for at least."""
    count = torch.bincount

    @functools.wraps(count)
    def bincount(input, weights=None, minlength=0):
        counted = count(input, weights, minlength)
        return counted[: max(minlength, 1)] if input.is_cuda else counted

    torch.bincount = torch.Tensor.bincount = bincount


_PRINTED = os.path.join("torch", "_tensor_str.py")
"""PyTorch's own text of a tensor asks such questions about what it prints."""


def _told(function, name):
    def told(tensor, *args, **kwargs):
        if getattr(tensor, "is_cuda", False) and not sys._getframe(1).f_code.co_filename.endswith(_PRINTED):
            caveats.tell(name, f"`{name}` of a device tensor has a size that only data decides; it was answered as empty")
        return function(tensor, *args, **kwargs)

    told.__name__, told.__doc__ = name, function.__doc__
    return told
