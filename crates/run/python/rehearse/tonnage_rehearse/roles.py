"""What memory holds, as far as Python objects tell: parameters, buffers, gradients, optimizer state.

A mark says: at this place of the trace, what is alive at this address is a ...
"""

import torch

from . import counters

_marks = []
_known_modules = set()
MARKED_STEPS = 8
"""Optimizer steps whose gradients and states are looked up; later ones only repeat."""
_steps = {}


def take():
    """The marks since the last call: lists of (places by device, category, addresses)."""
    global _marks
    marks, _marks = _marks, []
    return marks


def note_module(module):
    """Marks the weights of an outermost module, once."""
    if id(module) in _known_modules:
        return
    _known_modules.add(id(module))
    _mark("parameter", module.parameters())
    _mark("buffer", module.buffers())


def note_gradients(optimizer):
    """Marks parameters and their gradients, before a step."""
    count = _steps[id(optimizer)] = _steps.get(id(optimizer), 0) + 1
    if count > MARKED_STEPS:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    _mark("parameter", parameters)
    _mark("gradient", (p.grad for p in parameters if p.grad is not None))


def note_states(optimizer):
    """Marks what the optimizer keeps, after a step."""
    if _steps.get(id(optimizer), 0) > MARKED_STEPS:
        return
    state = getattr(optimizer, "state", None) or {}
    kept = [value for one in state.values() if isinstance(one, dict) for value in one.values()]
    _mark("optimizer_state", (value for value in kept if isinstance(value, torch.Tensor)))


def _mark(category, tensors):
    addresses = {}
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.device.type == "cuda":
            addresses.setdefault(tensor.device.index or 0, []).append(tensor.untyped_storage().data_ptr())
    for device, here in addresses.items():
        _marks.append((device, counters.read(device).events, category, here))
