"""When the process ends, and that nothing is lost then."""

import os
import subprocess
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from tonnage_rehearse import caveats
from tonnage_rehearse.stop import LONG_STEADY, Stop

from . import FOLDER


class Phases(SimpleNamespace):
    def note_growth(self):
        pass

    def not_seen_again(self):
        return self.lacking

    def would_reach(self, names):
        return self.reached

    def steady_since(self):
        return self.steps_done - self.steady_steps


class AfterStep(unittest.TestCase):
    def ends(self, *, steps=0, steady=3, **phases):
        stop = Stop(SimpleNamespace(steps=steps, steady=steady), Phases(**phases), None)
        ended = []
        stop.end = lambda reason, message: ended.append((reason, message))
        stop.after_step()
        return ended

    def test_after_the_steps_that_were_asked_for(self):
        self.assertEqual(self.ends(steps=5, steps_done=4, steady_steps=0, lacking=[]), [])
        ended = self.ends(steps=5, steps_done=5, steady_steps=0, lacking=[])
        self.assertEqual(ended, [("steps", "stopped after step 5, as asked")])

    def test_after_steps_without_a_new_peak(self):
        self.assertEqual(self.ends(steps_done=4, steady_steps=2, lacking=[]), [])
        ended = self.ends(steps_done=5, steady_steps=3, lacking=[])
        self.assertEqual(ended, [("steady", "stopped after step 5: no peak grew since step 2")])
        self.assertEqual(self.ends(steady=0, steps_done=99, steady_steps=90, lacking=[]), [])

    def test_what_did_not_come_again_is_waited_for_and_then_told(self):
        self.assertEqual(self.ends(steps_done=20, steady_steps=19, lacking=["generate"]), [])
        self.assertEqual(len(self.ends(steps_done=60, steady_steps=LONG_STEADY, lacking=["generate"], reached=None)), 1)
        self.assertTrue(any(caveat["code"] == "not_again" and "generate" in caveat["text"] for caveat in caveats.told()))

    def test_an_evaluation_before_the_first_step_is_not_waited_for(self):
        with mock.patch.object(caveats, "_told", {}):
            self.assertEqual(len(self.ends(steps_done=5, steady_steps=3, lacking=["inference"], reached=3 << 30)), 1)
            self.assertIn("would reach about 3.00 GiB allocated", caveats.told()[0]["text"])


class End(unittest.TestCase):
    def test_the_record_is_written_and_output_flushed_and_nothing_else_runs(self):
        program = (
            "import atexit\n"
            "from tonnage_rehearse.stop import Stop, STUCK_EXIT\n"
            "class Record:\n"
            "    def write(self, stop): print('record', stop['reason'])\n"
            "atexit.register(print, 'saved weights')\n"
            "Stop(None, None, Record()).end('waiting', 'why', code=STUCK_EXIT)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(FOLDER / "rehearse")}
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (3, "record waiting\n", "tonnage rehearse: why\n"))
