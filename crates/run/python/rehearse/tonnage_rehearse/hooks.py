"""The boundaries of phases, from PyTorch's own hooks: module calls, backward passes and optimizer steps."""

import functools
import warnings

import torch
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from . import named, phases, places, roles, trace

_depth = 0
backward_line = None
"""The user's line that runs the backward pass."""


def install():
    """Sets every hook."""
    # The hook is gone again when the module that was compiled calls what is inside it.
    warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
    _Root.install()
    _wrap_backward()
    optimizers.register_optimizer_step_pre_hook(_before_step)
    optimizers.register_optimizer_step_post_hook(_after_step)
    Optimizer.zero_grad = named.phased(Optimizer.zero_grad, "zero_grad")
    _wrap_empty_cache()


class _Root:
    """Sees the calls of outermost modules only: while one runs, the global hook is out of the way, so that the calls
    inside it cost nothing."""

    hook = None

    @classmethod
    def install(cls):
        """Waits for the next outermost call."""
        if cls.hook is None:
            cls.hook = modules.register_module_forward_pre_hook(cls.entered)

    @classmethod
    def remove(cls):
        """No call is outermost for now."""
        if cls.hook is not None:
            cls.hook.remove()
            cls.hook = None

    @classmethod
    def entered(cls, module, _):
        """An outermost call begins."""
        running = phases.running()
        if running is None or torch.compiler.is_compiling():
            return
        cls.remove()
        trace.drain_if_many()
        roles.note_module(module)
        outer = running.current.name
        if torch.is_grad_enabled():
            running.begin("forward")
            outer = None
        elif outer not in ("generate", "evaluate", "reward"):
            running.begin("logps" if outer == "prepare" else "inference")
        else:
            outer = None
        after = module.register_forward_hook(functools.partial(cls.left, outer), always_call=True)
        cls.after = after

    @classmethod
    def left(cls, outer, *_):
        """It has ended."""
        cls.after.remove()
        cls.install()
        if outer is not None:
            phases.running().begin(outer)


def _wrap_backward():
    original = torch.autograd._engine_run_backward

    @functools.wraps(original)
    def run_backward(*args, **kwargs):
        global _depth, backward_line
        running = phases.running()
        if running is None or _depth:
            return original(*args, **kwargs)
        _depth += 1
        _Root.remove()
        backward_line = places.here()
        running.begin("backward")
        try:
            return original(*args, **kwargs)
        finally:
            _depth -= 1
            _Root.install()
            running.begin("between")

    torch.autograd._engine_run_backward = run_backward


def _before_step(optimizer, *_):
    running = phases.running()
    if running is not None:
        roles.note_gradients(optimizer)
        running.begin("optimizer")


def _after_step(optimizer, *_):
    running = phases.running()
    if running is None:
        return
    roles.note_states(optimizer)
    new = running.step_done(optimizer)
    running.begin("between")
    if new:
        from . import stop

        trace.drain()
        stop.after_step(running)


def _wrap_empty_cache():
    original = torch._C._cuda_emptyCache

    @functools.wraps(original)
    def empty_cache(*args):
        original(*args)
        trace.emptied()

    torch._C._cuda_emptyCache = empty_cache
