"""The boundaries of phases, from PyTorch's own hooks: module calls, backward passes and optimizer steps."""

import functools
import warnings
import weakref

import torch
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from . import places
from .values.known import Values


class Hooks:
    """The hooks of a session. While an outermost module runs, the global hook is out of the way, so that the calls inside
    it cost nothing."""

    def __init__(self, phases, roles, trace, stop, named, coverage, shapes):
        self.phases, self.roles, self.trace, self.stop, self.named = phases, roles, trace, stop, named
        self.coverage, self.shapes = coverage, shapes
        self.handle = None
        self.before_forward = self.after_forward = None
        """The global hook that sees the next call of a module, while that is an outermost one; what sees its end."""
        self.in_backward = False
        self.latest = self.trained = None
        """The outermost module with parameters that ran last with gradients, while no optimizer has stepped; a parameter of it that
        has had a gradient, until a step is over."""
        self.left = None
        """How often that parameter and its gradient had been written when the last backward pass was over."""

    def install(self):
        """Sets every hook."""
        # The hook is gone again when the module that was compiled calls what is inside it.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
        self._await_forward()
        self._wrap_backward()
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)
        Optimizer.zero_grad = self.named.phased(Optimizer.zero_grad, "zero_grad")
        self._wrap_optimizers()
        self._wrap_empty_cache()

    def _await_forward(self):
        """The next call of a module is an outermost one."""
        if self.handle is None:
            self.handle = modules.register_module_forward_pre_hook(self._enter)
        self.before_forward = self._enter
        modules._global_forward_pre_hooks[self.handle.id] = self.before_forward

    def _ignore_forward(self):
        """No call of a module is outermost for now."""
        self.before_forward = None
        if self.handle is not None:
            # Made anew it would cost more than the phase.
            modules._global_forward_pre_hooks.pop(self.handle.id, None)

    def _enter(self, module, _):
        # Parameters under a transform of torch.func stand for others and have no memory.
        if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        self._ignore_forward()
        Values.in_model = True
        self.trace.drain_if_many()
        self.roles.note_module(module)
        self.coverage.note_outermost(module)
        self._note_module(module)
        outer = self.phases.current.name
        if torch.is_grad_enabled():
            self.phases.begin("forward")
            outer = None
        elif outer not in ("generate", "evaluate", "reward"):
            self.phases.begin("logps" if outer == "prepare" else "inference")
        else:
            outer = None
        leave = functools.partial(self._leave, outer)
        self.after_forward = module.register_forward_hook(leave, with_kwargs=True, always_call=True)

    def _note_module(self, module):
        if self.phases.has_optimizer or not torch.is_grad_enabled():
            return
        if next(module.parameters(), None) is not None:  # a loss has none
            self.latest = weakref.ref(module)
        self._note_own_step()

    def _note_own_step(self):
        """Without an optimizer of PyTorch's a step is over where a gradient is gone, or it or its parameter was written since the
        backward pass that left it."""
        if self.trained is None or self.phases.has_optimizer or _versions(self.trained) == self.left:
            return
        self.trained = None
        if self.phases.step_done(self):
            self.trace.drain(is_step=True)
            self.stop.after_step()

    def _note_own_gradients(self):
        module = self.latest() if self.latest is not None and not self.phases.has_optimizer else None
        if module is None:
            return
        if self.trained is None:
            self.coverage.note_gradients()
            self.trained = next((p for p in module.parameters() if p.grad is not None), None)
        self.left = _versions(self.trained)

    def _leave(self, outer, module, args, kwargs, _):
        self.after_forward.remove()
        if torch.is_grad_enabled():
            self.shapes.note(module, args, kwargs)
        Values.in_model = False
        self._await_forward()
        if outer is not None:
            self.phases.begin(outer)

    def _wrap_backward(self):
        original = torch.autograd._engine_run_backward

        @functools.wraps(original)
        def run_backward(*args, **kwargs):
            if self.in_backward:
                return original(*args, **kwargs)
            self.in_backward = True
            # Some models run backward passes inside their forward pass, which goes on afterwards.
            is_outermost, outer = self.before_forward is not None, self.phases.current.name
            if is_outermost:
                # Gradients that are dropped between the two passes.
                self._note_own_step()
            self._ignore_forward()
            self.phases.backward_line = places.here()
            self.phases.begin("backward")
            try:
                return original(*args, **kwargs)
            finally:
                self.in_backward = False
                self._note_own_gradients()
                if is_outermost:
                    self._await_forward()
                self.phases.begin("between" if is_outermost else outer)

        torch.autograd._engine_run_backward = run_backward

    def _before_step(self, optimizer, *_):
        self.phases.has_optimizer = True
        self.roles.note_gradients(optimizer)
        self.coverage.note_gradients()
        self.phases.begin("optimizer")

    def _after_step(self, optimizer, *_):
        self.roles.note_states(optimizer)
        new = self.phases.step_done(optimizer)
        self.phases.begin("between")
        if new:
            self.trace.drain(is_step=True)
            self.stop.after_step()

    def _wrap_optimizers(self):
        original = Optimizer.__init__

        @functools.wraps(original)
        def init(optimizer, *args, **kwargs):
            self.phases.made_optimizer = True
            original(optimizer, *args, **kwargs)

        Optimizer.__init__ = init

    def _wrap_empty_cache(self):
        original = torch._C._cuda_emptyCache

        @functools.wraps(original)
        def empty_cache(*args):
            original(*args)
            self.trace.emptied()

        torch._C._cuda_emptyCache = empty_cache


def _versions(parameter):
    """How often a parameter and its gradient were written in place; None without a gradient."""
    grad = None if parameter is None else parameter.grad
    return None if grad is None else (parameter._version, grad._version)
