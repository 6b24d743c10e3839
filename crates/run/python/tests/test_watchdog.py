"""Which loops wait."""

import linecache
import unittest

from . import needs_torch

SCRIPT = """\
def spin(flag):
    while True:
        for part in range(3):
            part
        flag.item()

def walk(rows):
    while rows:
        for row in rows:
            row.item()
"""


@needs_torch
class Loops(unittest.TestCase):
    def test_a_while_that_is_the_innermost_loop_waits_and_a_for_does_not(self):
        from tonnage_rehearse.watchdog import is_while

        name = "/home/me/spin.py"
        linecache.cache[name] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), name)
        self.addCleanup(linecache.cache.pop, name)
        code = compile(SCRIPT, name, "exec")
        found = [line for line in range(1, 11) if is_while(code, line)]
        self.assertEqual(found, [2, 5, 8])

    def test_installed_code_is_not_looked_into(self):
        from tonnage_rehearse.watchdog import is_while

        self.assertFalse(is_while(compile("while True: 1", "/venv/site-packages/x.py", "exec"), 1))
