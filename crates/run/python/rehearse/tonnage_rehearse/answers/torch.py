"""PyTorch's own functions that need another way over a phantom."""

import functools
import sys

from .. import caveats, imports
from ..values import known
from ..values.follow import replace

SENT = 1 << 12
"""Elements of a table whose values go to another process with it."""


def install(torch):
    """Recurrent networks, LBFGS, and memory that is shared between processes."""
    _install_recurrent(torch)
    imports.after("torch.optim.lbfgs", functools.partial(_install_lbfgs, torch))
    _install_sharing(torch)


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


def _install_lbfgs(torch, module):
    """LBFGS ends where gradients vanish, and keeps a step only where they have changed. On a GPU they do, and its history fills up."""
    step = module.LBFGS.step

    @functools.wraps(step)
    def goes_on(self, closure):
        group = self.param_groups[0]
        kept = {name: group[name] for name in ("tolerance_grad", "tolerance_change")}
        group.update(dict.fromkeys(kept, -1.0))
        try:
            return step(self, closure)
        finally:
            group.update(kept)

    module.LBFGS.step = goes_on
    replace(torch, (torch.Tensor,), "dot", functools.partial(_curved, asks=module.__file__))


def _curved(original, name, asks):
    """A product of two of its vectors is positive."""

    def dot(self, other):
        out = original(self, other)
        if self.is_cuda and sys._getframe(1).f_code.co_filename == asks:
            known.give(out, known.uniform(out.shape, out.dtype, 1), known.Certainty.ASSUMED)
        return out

    return dot


def _install_sharing(torch):
    """Tensors for another process: it opens the sender's memory over the phantom, and is told what is known of their values."""
    reductions = torch.multiprocessing.reductions
    share = torch.UntypedStorage._share_cuda_

    @functools.wraps(share)
    def shared(storage, *args, **kwargs):
        try:
            return share(storage, *args, **kwargs)
        except RuntimeError as error:
            raise NotImplementedError(
                "tonnage rehearse: a phantom's memory can be sent to another process only from the allocator's ordinary segments, not "
                "with expandable_segments:True or cudaMallocAsync"
            ) from error

    torch.UntypedStorage._share_cuda_ = shared
    reduce_tensor = reductions.reduce_tensor

    def reduced(tensor):
        build, args = reduce_tensor(tensor)
        return (received, (build, args, *_sent_value(tensor))) if tensor.is_cuda else (build, args)

    for kind in (*torch._tensor_classes, torch.Tensor, torch.nn.Parameter):
        reductions.reduction.register(kind, reduced)


def _sent_value(tensor):
    """What is known of a small or uniform table, as a list, and how certain it is."""
    found = known.of(tensor)
    if found is None or not tensor.numel():
        return None, 0
    value = found.value[(slice(1),) * tensor.dim()] if known.is_uniform(found.value) else found.value
    return (value.tolist(), int(found.certainty)) if value.numel() <= SENT else (None, 0)


def received(build, args, value, certainty):
    """Another process's tensor, which this process's session follows from here."""
    import torch

    tensor = build(*args)
    if value is not None:
        known.give(tensor, torch.tensor(value, dtype=tensor.dtype, device="cpu").expand(tensor.shape), known.Certainty(certainty))
    return tensor
