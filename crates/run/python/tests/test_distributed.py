"""DDP's buckets: waited for once, before the second pass of those that were sent."""

import unittest
from types import SimpleNamespace
from unittest import mock

from . import needs_torch


@needs_torch
class Buckets(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.answers import distributed

        self.torch, self.told, self.slept = torch, {}, []
        for patch in (mock.patch.object(caveats, "_told", self.told), mock.patch.object(distributed.time, "sleep", self.slept.append)):
            patch.start()
            self.addCleanup(patch.stop)

        class Wrapper(torch.nn.Module):
            require_backward_grad_sync = True

            def _pre_forward(self, x):
                return x

        distributed._ddp(SimpleNamespace(DistributedDataParallel=Wrapper))
        self.wrapped = Wrapper()
        self.wrapped.inner = torch.nn.Linear(256, 1024, bias=False)

    def passes(self, *sent):
        for one in sent:
            self.wrapped.require_backward_grad_sync = one
            self.assertEqual(self.wrapped._pre_forward(3), 3)
        return len(self.slept)

    def test_before_the_second_pass_and_no_later(self):
        self.assertEqual((self.passes(True), self.told), (0, {}))
        self.assertEqual(self.passes(True, True, True), 1)
        self.assertIn("1.0 MiB more", self.told["buckets"]["text"])

    def test_passes_that_are_not_sent_make_none(self):
        self.assertEqual(self.passes(False, False, True), 0)
        self.assertEqual(self.passes(False, True), 1)

    def test_an_evaluation_makes_none(self):
        with self.torch.no_grad():
            self.assertEqual(self.passes(True, True, True), 0)


if __name__ == "__main__":
    unittest.main()
