"""What memory holds, as far as Python objects tell: parameters, buffers, gradients, optimizer state.

A mark says: at this place of the trace, what is alive at this address is a ...
"""

import torch

from .values.known import memory

MARKED_STEPS = 8
"""Optimizer steps whose gradients and states are looked up; later ones only repeat."""


class Roles:
    """The marks of this process."""

    def __init__(self, counters):
        self.counters = counters
        self.marks = []
        self.known_modules = set()
        self.steps = {}

    def take(self):
        """The marks since the last call: (device, place, category, addresses)."""
        marks, self.marks = self.marks, []
        return marks

    def note_module(self, module):
        """Marks the weights of an outermost module, once."""
        if id(module) in self.known_modules:
            return
        self.known_modules.add(id(module))
        self._mark("parameter", module.parameters())
        self._mark("buffer", module.buffers())

    def note_gradients(self, optimizer):
        """Marks parameters and their gradients, before a step."""
        count = self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
        if count > MARKED_STEPS:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._mark("parameter", parameters)
        self._mark("gradient", (p.grad for p in parameters if p.grad is not None))

    def note_states(self, optimizer):
        """Marks what the optimizer keeps, after a step."""
        if self.steps.get(id(optimizer), 0) > MARKED_STEPS:
            return
        state = getattr(optimizer, "state", None) or {}
        kept = [value for one in state.values() if isinstance(one, dict) for value in one.values()]
        self._mark("optimizer_state", (value for value in kept if isinstance(value, torch.Tensor)))

    def _mark(self, category, tensors):
        addresses = {}
        for tensor in tensors:
            here = getattr(tensor, "_local_tensor", tensor)
            if here.device.type == "cuda":
                addresses.setdefault(here.device.index or 0, []).extend(memories(here))
        for device, here in addresses.items():
            self.marks.append((device, self.counters.read(device).events, category, here))


def memories(tensor):
    """Where its memory begins; a sparse tensor has several, and one that wraps others none of its own."""
    if tensor.layout is torch.sparse_coo:
        return [memory(tensor._indices()), memory(tensor._values())]
    if tensor.layout is not torch.strided:
        return []
    try:
        return [memory(tensor)]
    except RuntimeError:
        return []
