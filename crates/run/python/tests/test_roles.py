"""Marks of what memory holds."""

import unittest

from . import needs_torch


@needs_torch
class Marked(unittest.TestCase):
    def test_gradients_of_a_sparse_embedding_have_two_memories(self):
        import torch
        from tonnage_rehearse import roles

        table = torch.nn.Embedding(9, 4, sparse=True)
        table(torch.tensor([1, 1, 5])).sum().backward()
        grad = table.weight.grad
        self.assertEqual(roles.memories(grad), [grad._indices().data_ptr(), grad._values().data_ptr()])
        self.assertEqual(roles.memories(table.weight), [table.weight.data_ptr()])

    def test_a_tensor_that_wraps_others_has_no_memory_of_its_own(self):
        import torch
        from tonnage_rehearse import roles

        rows = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
        self.assertEqual(roles.memories(rows), [])
