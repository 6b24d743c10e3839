"""What the command asks of the shim."""

import os
import unittest
from unittest import mock

from tonnage_rehearse import settings


class Read(unittest.TestCase):
    def setUp(self):
        settings.read.cache_clear()
        self.addCleanup(settings.read.cache_clear)

    def test_a_process_without_a_folder_is_no_rehearsal(self):
        with mock.patch.dict(os.environ, clear=True):
            self.assertIsNone(settings.read())

    def test_what_is_not_said_or_empty_is_the_default(self):
        with mock.patch.dict(os.environ, {"TONNAGE_REHEARSE_DIR": "/records", "TONNAGE_REHEARSE_STEADY": ""}, clear=True):
            read = settings.read()
        self.assertEqual((read.folder, read.steps, read.steady, read.patience), ("/records", 0, 3, 60))

    def test_what_is_said_holds(self):
        said = {"DIR": "/records", "STEPS": "7", "SECONDS": "1.5", "STEADY": "0", "TRACE_ENTRIES": "1000"}
        said = {"TONNAGE_REHEARSE_" + name: value for name, value in said.items()}
        with mock.patch.dict(os.environ, said, clear=True):
            read = settings.read()
        self.assertEqual((read.steps, read.seconds, read.steady, read.trace_entries), (7, 1.5, 0, 1000))
