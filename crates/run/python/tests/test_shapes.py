"""Sizes of what a model is called with."""

import types
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Noted(unittest.TestCase):
    def test_rows_of_a_nested_tensor_count_together(self):
        import torch
        from tonnage_rehearse import shapes

        noted = shapes.Shapes(types.SimpleNamespace(steps_done=0), types.SimpleNamespace(longest=False, row_length=None))
        rows = [torch.zeros(2, 3), torch.zeros(4, 3)]
        jagged, strided = (torch.nested.nested_tensor(rows, layout=layout) for layout in (torch.jagged, torch.strided))
        with mock.patch.object(torch.Tensor, "is_cuda", True):
            noted.note(torch.nn.Linear(3, 3), (jagged, strided), {})
        self.assertEqual(list(noted.lengths[1].values()), [(6, 3)])
