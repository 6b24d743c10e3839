"""torch.compile's constants: Inductor computes tensors of one element on the device and reads them back."""

import functools

from .. import imports
from ..values import known
from ..values.follow import follow


def install():
    """Once its passes are there."""
    imports.after("torch._inductor.fx_passes.joint_graph", _constants)


def _constants(module):
    folder = getattr(module, "UniformValueConstantFolder", None)
    deduce = getattr(folder, "_deduce_value", None)
    if deduce is None:
        return

    @functools.wraps(deduce)
    def deduce_value(self, node):
        out = deduce(self, node)
        if known.is_plain(out) and known.of(out) is None and node.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            if node.target is module.aten.full.default:
                args = ([1], args[1])
            follow(node.target, "", out, args, dict(kwargs))
        return out

    folder._deduce_value = deduce_value
