"""Where only the ordinary types of numbers are taken: those that tell what they decide are of a kind of their own (`numbers`). In files that
ask for the exact type (`type(loss) is float`) `type(...)` names the ordinary one; PyTorch loads and YAML writes them as such."""

import functools
import linecache
import re
import sys

from .. import imports, places
from .numbers import DeviceFloat, DeviceInt

_ASKS = re.compile(r"\btype\([^()\n]*(?:\([^()\n]*\))?[^()\n]*\)\s*(?:is|is\s+not|in|not\s+in|==|!=)[\s(\[{][^\n:]*\b(?:int|float)\b")
"""Text that compares a type with those of numbers; of modules and tensors many files ask, also in what torch.compile reads."""


def install(torch):
    """They are saved as calls of `int` and `float`, which `torch.load` takes for safe no more than any other call."""
    torch.serialization.add_safe_globals([int, float])
    imports.after("yaml.representer", _in_yaml)


def _in_yaml(module):
    # A class that has representers of its own asks none of those that its base gets later.
    for writer in (module.SafeRepresenter, module.Representer):
        writer.add_multi_representer(DeviceInt, module.SafeRepresenter.represent_int)
        writer.add_multi_representer(DeviceFloat, module.SafeRepresenter.represent_float)


class Seen:
    """How many modules there were when they were last looked at."""

    modules = 0


def see():
    """Looks at the script's modules that are new. To be called before such a number is handed out."""
    if len(sys.modules) == Seen.modules:
        return
    Seen.modules = len(sys.modules)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        filename = names.get("__file__")
        if isinstance(filename, str) and "type" not in names and places.is_own(filename) and _asks(filename):
            names["type"] = _asked()


@functools.lru_cache(maxsize=1024)
def _asks(filename):
    return bool(_ASKS.search("".join(linecache.getlines(filename))))


@functools.cache
def _asked():
    class Asking(type):
        def __call__(cls, *args, **kwargs):
            if cls is not asked:
                return super().__call__(*args, **kwargs)
            return ordinary(type(args[0])) if len(args) == 1 else type(*args, **kwargs)

        def __instancecheck__(cls, value):
            return isinstance(value, type) if cls is asked else super().__instancecheck__(value)

        def __subclasscheck__(cls, kind):
            return issubclass(kind, type) if cls is asked else super().__subclasscheck__(kind)

        def __eq__(cls, other):
            return other is cls or (cls is asked and other is type)

        __hash__ = type.__hash__

    asked = Asking("type", (type,), {})
    return asked


def ordinary(kind):
    """The type of number that a kind which tells stands for."""
    while getattr(kind, "is_of_device", False):
        kind = kind.__bases__[0]
    return kind
