"""How a rehearsal begins in a process: once, whatever else is on the path."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from . import FOLDER

SHIM, GUARD = str(FOLDER / "rehearse"), str(FOLDER / "guard" / "observe.py")
STARTS = "import tonnage_rehearse.imports as imports; print('starts', len(imports._waiting['torch']))"
OWN = "import sys\nsys.own = getattr(sys, 'own', 0) + 1\nprint('own', sys.own)\n"


class Start(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.copy = self.place("copy")
        shutil.copytree(SHIM, self.copy)

    def place(self, name, text=None):
        """A folder for the path, with this for a sitecustomize."""
        place = os.path.join(self.folder, name)
        if text is not None:
            os.mkdir(place)
            with open(os.path.join(place, "sitecustomize.py"), "w", encoding="utf-8") as file:
                file.write(text)
        return place

    def lines(self, *path):
        """What Python says with these on its path; nothing may go wrong."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TONNAGE_REHEARSE_DIR": self.folder}
        done = subprocess.run(
            [sys.executable, "-c", STARTS], env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout.splitlines()

    def test_once(self):
        self.assertEqual(self.lines(SHIM), ["starts 1"])

    def test_once_where_copies_are_on_the_path(self):
        self.assertEqual(self.lines(SHIM, self.copy, SHIM), ["starts 1"])
        self.assertEqual(self.lines(self.copy, SHIM, os.path.join(SHIM, "")), ["starts 1"])

    def test_the_environments_own_runs_once_behind_copies(self):
        own = self.place("own", OWN)
        self.assertEqual(self.lines(SHIM, self.copy, own), ["own 1", "starts 1"])

    def test_once_beside_one_that_runs_what_it_hides(self):
        with open(GUARD, encoding="utf-8") as observe:
            chaining = self.place("chaining", observe.read().replace("import tonnage_guard", "#"))
        self.assertEqual(self.lines(SHIM, chaining), ["starts 1"])
        self.assertEqual(self.lines(chaining, SHIM), ["starts 1"])


if __name__ == "__main__":
    unittest.main()
