"""What happens when PyTorch is imported, with a PyTorch that is made up; named functions before and after the device."""

import io
import os
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

from tonnage_rehearse import answers, caveats, starts, values
from tonnage_rehearse.named import Named


def pytorch(version="2.11.0+cu130", cuda="13.0"):
    calls = []
    torch = SimpleNamespace(__version__=version, version=SimpleNamespace(cuda=cuda), calls=calls)
    torch.cuda = SimpleNamespace(_lazy_call=calls.append)
    return torch


class Starts(unittest.TestCase):
    def test_builds_that_cannot_be_rehearsed_are_told_apart(self):
        self.assertIsNone(starts.cannot(pytorch()))
        self.assertIsNone(starts.cannot(pytorch(cuda="12.4")))
        self.assertIn("without CUDA", starts.cannot(pytorch(cuda=None)))
        self.assertIn("built for CUDA 11.8", starts.cannot(pytorch(cuda="11.8")))

    def test_one_that_cannot_be_rehearsed_ends_the_process_and_says_why(self):
        with mock.patch("sys.stderr") as stderr, self.assertRaises(SystemExit) as ended:
            starts.torch_is_there(pytorch(cuda=None), None, Named())
        self.assertEqual(ended.exception.code, starts.CANNOT_EXIT)
        self.assertIn("built without CUDA", "".join(call.args[0] for call in stderr.write.call_args_list))

    def test_a_session_begins_when_the_device_is_touched(self):
        torch = pytorch()
        with mock.patch.object(answers, "torch_is_there") as answered, mock.patch.object(values, "install") as followed:
            starts.torch_is_there(torch, None, Named())
        answered.assert_called_once_with(torch)
        followed.assert_called_once_with(torch, None)
        self.assertEqual(len(torch.calls), 1)

    def test_a_run_that_uses_no_device_is_told_of_once(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("sys.stderr", io.StringIO()) as stderr:
            starts.tell_if_idle(folder)
            starts.tell_if_idle(folder)
            self.assertEqual(stderr.getvalue().count("nothing has used the GPU yet"), 1)
        with tempfile.TemporaryDirectory() as folder, mock.patch("sys.stderr", io.StringIO()) as stderr:
            open(os.path.join(folder, "used-7"), "w").close()
            starts.tell_if_idle(folder)
            self.assertEqual(stderr.getvalue(), "")

    def test_a_version_that_was_never_tried_is_a_caveat(self):
        def told():
            return [caveat for caveat in caveats.told() if caveat["code"] == "version"]

        starts.note_version(pytorch())
        self.assertEqual(told(), [])
        starts.note_version(pytorch("3.0.1"))
        self.assertIn("PyTorch 3.0.1 was never tried", told()[0]["text"])


class NamedFunctions(unittest.TestCase):
    def test_a_named_function_is_itself_before_the_device_and_a_phase_after(self):
        named = Named()
        module = SimpleNamespace(clip=lambda value: value + 1)
        named._wrap(module, owner=None, function="clip", phase="clip")
        self.assertEqual(module.clip(1), 2)
        named.phases = mock.MagicMock()
        self.assertEqual(module.clip(2), 3)
        named.phases.within.assert_called_once_with("clip")

    def test_what_a_version_lacks_is_left_alone(self):
        module = SimpleNamespace(other=1)
        Named()._wrap(module, owner="Trainer", function="evaluate", phase="evaluate")
        Named()._wrap(module, owner=None, function="evaluate", phase="evaluate")
        self.assertEqual(vars(module), {"other": 1})
