"""Scripts that ask for the exact type of a number are told the ordinary one."""

import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

from . import needs_torch

SCRIPT = """
def shown(value):
    if type(value) in (int, str):
        return "whole"
    if type(value) is not float:
        return "other"
    return "fraction"

class Kind(type):
    pass

def made():
    return type("Made", (), {"x": 1}), isinstance(int, type), isinstance(1, type), Kind("Other", (), {}), type(Kind) == type
"""


@needs_torch
class Kinds(unittest.TestCase):
    def loaded(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "script_of_kinds.py")
        path.write_text(text)
        module = types.ModuleType("script_of_kinds")
        module.__file__ = str(path)
        exec(compile(text, str(path), "exec"), vars(module))
        return module

    def seen(self, text):
        from tonnage_rehearse.values import kinds

        module = self.loaded(text)
        with mock.patch.dict(sys.modules, {module.__name__: module}), mock.patch.object(kinds.Seen, "modules", 0):
            kinds.see()
        return module

    def test_numbers_that_tell_are_of_the_ordinary_type_there(self):
        from tonnage_rehearse.values import branches, numbers

        module = self.seen(SCRIPT)
        told = [numbers.DeviceFloat(0.5), numbers.DeviceInt(3), branches.COUNTS[int](4), 0.5, 3, "text", None]
        self.assertEqual([module.shown(one) for one in told], ["fraction", "whole", "whole", "fraction", "whole", "whole", "other"])

    def test_all_else_of_type_is_as_before(self):
        made, is_kind, is_number, other, is_type = self.seen(SCRIPT).made()
        self.assertEqual((made.x, made.__name__, other.__name__, is_kind, is_number, is_type), (1, "Made", "Other", True, False, True))

    def test_files_that_ask_for_other_kinds_are_left_alone(self):
        module = self.seen("def is_layer(one):\n    return type(one) == dict or type(one) is list\n")
        self.assertNotIn("type", vars(module))
