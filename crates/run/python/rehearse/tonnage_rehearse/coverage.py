"""Modules with parameters that no forward pass has reached: what they would have taken is in no figure."""

import torch

from . import caveats

NAMED = 5
"""Modules that are named."""


class Unreached:
    """A hook that a module calls once, and is gone then; copies of the module have one that does nothing. Compiled code would be
    compiled again for every hook that goes: of that only gradients show that it was used."""

    def __init__(self, name, module, tree, is_compiled=False):
        self.name, self.module, self.tree, self.is_compiled = name.replace("_orig_mod.", ""), module, tree, is_compiled
        self.is_used = is_compiled and not any(p.requires_grad for p in self.parameters())
        self.handle = None if is_compiled else module.register_forward_pre_hook(self)

    def __call__(self, *_):
        self.handle.remove()
        self.is_used = True

    def __deepcopy__(self, _memo):
        return {}.get

    def __reduce__(self):
        return getattr, ({}, "get")

    def parameters(self):
        """Its own."""
        return [one for one in self.module._parameters.values() if one is not None]

    @property
    def family(self):
        """What its siblings of a list share: the model, the place with a star for numbers, and the kind; None where there is no
        list. Weights of others may be used without a call (a head whose weights the loss takes)."""
        parts = ["*" if part.isdigit() else part for part in self.name.split(".")]
        return (self.tree, ".".join(parts), type(self.module)) if "*" in parts else None


class Coverage:
    """Which modules were reached."""

    def __init__(self):
        self.trees = {}
        """Identity of an outermost module -> what is known of its modules."""
        self.trained = set()
        """Those that have run with gradients: what has not (a reference model) has none to show."""

    def note_outermost(self, module):
        """A module is called from outside of any: those inside it are watched from now on."""
        if torch.is_grad_enabled():
            self.trained.add(id(module))
        if id(module) in self.trees:
            return
        inner = [(name, one) for name, one in module.named_modules() if any(p is not None for p in one._parameters.values())]
        plain = [(name, one) for name, one in inner if name and not isinstance(one, torch.jit.ScriptModule)]
        is_compiled = _is_compiled(module)
        self.trees[id(module)] = [Unreached(name, one, id(module), is_compiled) for name, one in plain]

    def note_gradients(self):
        """Before a step: a module whose parameters have gradients was used, whoever called it."""
        for watched in self.trees.values():
            for one in watched:
                if not one.is_used and any(p.grad is not None for p in one.parameters()):
                    one.is_used = True

    def tell(self, stepped):
        """Notes what was never reached; `stepped`: an optimizer has stepped, so that gradients would have been seen."""
        used = {one.family for watched in self.trees.values() for one in watched if one.is_used} - {None}
        # A layer of no width, which some models make and never call, takes nothing.
        never = [one for watched in self.trees.values() for one in watched if not one.is_used and any(p.numel() for p in one.parameters())]
        skipped = [one for one in never if one.family in used or (stepped and caveats.Asked.device and not one.is_compiled and self._is_trained(one))]
        unused = [one for one in never if one not in skipped and stepped and self._is_trained(one) and not one.is_compiled]
        if skipped:
            caveats.tell_of_run("skipped", f"{_names(skipped)} got no forward pass: what they would take is in no figure, so it is not known whether it fits")
        hidden = [one for one in never if one not in skipped and stepped and one.is_compiled and self._is_trained(one)]
        if hidden and caveats.Asked.device:
            caveats.tell_of_run(
                "compiled_unused",
                f"{_names(hidden)} are compiled and got no gradient: where a value of the device decides whether they run, what they would take "
                "is in no figure",
            )
        if unused:
            caveats.tell_of_run("unused", f"{_names(unused)} got neither a forward pass nor a gradient; nothing of the device was asked that decides it")

    def _is_trained(self, one):
        return one.tree in self.trained and any(p.requires_grad for p in one.parameters())


def _names(modules):
    count = sum(p.numel() for one in modules for p in one.parameters())
    names = ", ".join(one.name for one in modules[:NAMED])
    more = f" and {len(modules) - NAMED} more" if len(modules) > NAMED else ""
    return f"{len(modules)} modules with {count:,} parameters ({names}{more})"


def _is_compiled(module):
    return any(type(one).__name__ == "OptimizedModule" or one._compiled_call_impl is not None for one in module.modules())
