"""Whose line it is."""

import os
import pathlib
import sys
import sysconfig
import tempfile
import unittest
from unittest import mock

from tonnage_rehearse import caveats, imports, places

from . import FOLDER


class Own(unittest.TestCase):
    def test_a_script_is_the_users_and_what_is_installed_is_not(self):
        self.assertTrue(places.is_own(os.path.abspath("train.py")))
        for filename in (
            os.path.join(sysconfig.get_paths()["stdlib"], "threading.py"),
            "/venv/lib/python3.11/site-packages/torch/nn/functional.py",
            "/usr/lib/python3/dist-packages/numpy/__init__.py",
            "/tmp/torchinductor_me/ab/cab.py",
            str(FOLDER / "rehearse/tonnage_rehearse/hooks.py"),
            "<string>",
            "??",
            "",
        ):
            self.assertFalse(places.is_own(filename), filename)

    def test_what_an_installer_put_into_a_folder_is_not_the_users(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            record = pathlib.Path(folder, "timm-1.0.dist-info", "RECORD")
            record.parent.mkdir()
            record.write_text("timm/__init__.py,sha256=,12\ntimm-1.0.dist-info/RECORD,,\n")
            # A project that is installed in place beside it.
            pathlib.Path(folder, "mine.egg-info").mkdir()
            self.assertEqual(places.in_package(f"{folder}/timm/layers.py"), "timm/layers.py")
            own = [places.is_own(f"{folder}/{name}.py") for name in ("timm/layers", "train", "mine/model")]
        self.assertEqual(own, [False, True, True])

    def test_paths_are_as_the_user_would_type_them(self):
        self.assertEqual(places.short(os.path.abspath("scripts/train.py")), os.path.join("scripts", "train.py"))
        self.assertEqual(places.short("/elsewhere/train.py"), "/elsewhere/train.py")

    def test_the_line_that_called_is_named(self):
        self.assertIn("test_places.py:", places.here())
        self.assertIn(" in test_the_line_that_called_is_named", places.here())


class Caveats(unittest.TestCase):
    def test_each_is_told_once_with_the_line_that_asked_first(self):
        for _ in range(2):
            caveats.tell("test-nonzero", "why")
        caveats.tell_of_run("no_steps", "nothing trained")
        told = caveats.told()
        self.assertEqual(told[0]["code"], "no_steps")
        [nonzero] = [caveat for caveat in told if caveat["code"] == "test-nonzero"]
        self.assertEqual(nonzero["times"], 2)
        self.assertIn("test_places.py:", nonzero["line"])


class Imports(unittest.TestCase):
    def test_a_function_is_called_after_the_import_whoever_imports(self):
        seen = []
        imports.after("wave", lambda module: seen.append(hasattr(module, "open")))
        self.assertEqual(seen, [])
        import wave  # noqa: F401

        self.assertEqual(seen, [True])

    def test_at_once_where_the_module_is_there(self):
        seen = []
        imports.after("os", seen.append)
        self.assertEqual(seen, [os])
