"""Which loops wait."""

import linecache
import sys
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


@needs_torch
class Left(unittest.TestCase):
    def test_a_function_that_was_left_and_called_again_has_not_stayed(self):
        from tonnage_rehearse.watchdog import Stayed

        began = [1.0]
        stayed = Stayed(lambda: began[0])

        def solve():
            stayed.look(sys._getframe())
            return solve.__code__ in stayed.codes

        def own():
            return sys._getframe().f_back.f_code in stayed.codes

        self.assertTrue(solve())
        stayed.look(sys._getframe())
        self.assertFalse(solve())
        self.assertTrue(own())
        began[0] = 2.0
        self.assertTrue(solve())
