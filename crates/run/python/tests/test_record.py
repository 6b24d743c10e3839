"""The record when signals come while it is written."""

import os
import signal
import threading
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Signals(unittest.TestCase):
    def session(self):
        from tonnage_rehearse.record import Record
        from tonnage_rehearse.session import Session

        session = Session.__new__(Session)
        session.record = Record(None, None, None, None, (None, None))
        return session

    def ends(self, session):
        """How often the process is ended where it is asked to."""
        with mock.patch.object(os, "kill") as kill, mock.patch.object(signal, "signal"):
            session._asked_to_end(signal.SIG_DFL, os.getpid(), signal.SIGTERM, None)
        return kill.call_count

    def test_the_first_writes_and_the_second_lets_it(self):
        session, again = self.session(), []
        with mock.patch.object(session.record, "_write", lambda stop: again.append((stop["message"], self.ends(session)))):
            self.assertEqual(self.ends(session), 1)
        self.assertEqual(again, [("ended by SIGTERM", 0)])

    def test_what_another_thread_writes_is_waited_for(self):
        session, begun, goes_on = self.session(), threading.Event(), threading.Event()

        def write(stop):
            begun.set()
            goes_on.wait(10)

        with mock.patch.object(session.record, "_write", write):
            writer = threading.Thread(target=session.record.write, args=({"message": ""},))
            writer.start()
            begun.wait(10)
            self.assertEqual(self.ends(session), 0)
            goes_on.set()
            writer.join()
            self.assertEqual(self.ends(session), 1)


if __name__ == "__main__":
    unittest.main()
