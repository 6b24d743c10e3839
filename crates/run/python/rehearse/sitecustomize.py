"""Loaded by Python at start-up because `tonnage rehearse` put this folder first on PYTHONPATH.

Runs the environment's own sitecustomize, if there is one, and then starts the rehearsal, once in a process: another copy of this
folder on the path is passed over, and a sitecustomize that runs the ones it hides comes here again in vain.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BEGUN = "_tonnage_rehearse_begun"
"""Set in `sys` by the first copy that runs."""


def run_own_sitecustomize():
    """Executes the sitecustomize that this file hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if not is_ours(place)])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def is_ours(place):
    """Whether this folder of the path is this file's, or a copy of it."""
    place = os.path.abspath(place or ".")
    return place == HERE or os.path.isfile(os.path.join(place, "tonnage_rehearse", "__init__.py"))


if not hasattr(sys, BEGUN):
    setattr(sys, BEGUN, HERE)
    try:
        run_own_sitecustomize()
    finally:
        if os.environ.get("TONNAGE_REHEARSE_DIR"):
            import tonnage_rehearse

            tonnage_rehearse.start()
