"""PyTorch's own functions that need another way over a phantom."""

import functools

from .. import caveats


def install(torch):
    """Recurrent networks, and memory that is shared between processes."""
    _install_recurrent(torch)
    torch.UntypedStorage._share_cuda_ = _not_shared


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


def _not_shared(*_):
    raise NotImplementedError(
        "tonnage rehearse: a phantom's memory cannot be sent to another process (CUDA IPC: share_memory, queues of device tensors): "
        "rehearse with one process, or send tensors of the host's memory"
    )
