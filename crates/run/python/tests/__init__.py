"""Tests of the Python that the program carries: `python -m unittest discover -s crates/run/python/tests -t crates/run/python`.

Those that need PyTorch say that they are skipped where there is none; no GPU is used.
"""

import importlib.util
import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
for part in ("rehearse", "guard"):
    sys.path.insert(0, str(FOLDER / part))

needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
