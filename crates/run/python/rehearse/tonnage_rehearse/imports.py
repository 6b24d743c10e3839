"""Calls functions right after a module has been imported, whoever imports it.

A finder in front of all others lets the others find the module and wraps the loader's `exec_module`.
"""

import importlib.util
import sys

_waiting = {}


def after(name, function):
    """Calls `function(module)` once `name` is imported; at once if it is."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function(module)
        return
    _waiting.setdefault(name, []).append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds nothing itself."""

    def __init__(self):
        self.asking = set()

    def find_spec(self, name, path=None, target=None):
        """The spec that the other finders have, with a loader that calls us back."""
        if name not in _waiting or name in self.asking:
            return None
        self.asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _wrap(spec.loader, name)
        return spec


def _wrap(loader, name):
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        for function in _waiting.pop(name, []):
            function(module)

    loader.exec_module = exec_module


_finder = _Finder()
