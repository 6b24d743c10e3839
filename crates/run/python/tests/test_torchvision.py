"""torchvision's suppression of boxes, which is not installed here: a function in its place keeps the first box."""

import types
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Kept(unittest.TestCase):
    def test_boxes_that_nobody_knows_are_all_kept(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.answers import torchvision
        from tonnage_rehearse.values import known

        said, told = [], {}
        module = types.SimpleNamespace(nms=lambda boxes, scores, threshold: torch.arange(said[-1][1] if said and said[-1][0] else 1))
        torchvision._suppression(module)
        boxes, scores = torch.zeros(5, 4), torch.zeros(5)
        with (
            mock.patch.object(known, "is_plain", lambda tensor: isinstance(tensor, torch.Tensor)),
            mock.patch.object(known, "_answer", lambda: lambda given, number: said.append((given, number))),
            mock.patch.object(caveats, "_told", told),
            mock.patch.dict(known.Values.by_id, clear=True),
        ):
            out = module.nms(boxes, scores, 0.5)
            self.assertEqual((known.of(out).value.tolist(), list(told)), ([0, 1, 2, 3, 4], ["nms"]))
            told.clear()
            known.give(boxes, boxes.clone(), known.Certainty.WRITTEN)
            known.give(scores, scores.clone(), known.Certainty.WRITTEN)
            self.assertEqual((module.nms(boxes, scores, 0.5).tolist(), told), ([0], {}))
