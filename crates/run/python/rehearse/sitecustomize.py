"""Loaded by Python at start-up because `tonnage rehearse` put this folder first on PYTHONPATH.

Runs the environment's own sitecustomize, if there is one, and then starts the rehearsal.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run_own_sitecustomize():
    """Executes the sitecustomize that this file hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    places = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    run_own_sitecustomize()
finally:
    if os.environ.get("TONNAGE_REHEARSE_DIR"):
        import tonnage_rehearse

        tonnage_rehearse.start()
