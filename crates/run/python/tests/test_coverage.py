"""Which modules of a model were reached, on the CPU."""

import copy
import io
import pickle
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Reached(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.coverage import Coverage

        self.torch, self.caveats = torch, caveats
        self.told = {}
        for patch in (
            mock.patch.object(caveats, "_told", self.told),
            mock.patch.object(caveats.Asked, "device", False),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.coverage = Coverage()

    def model(self, runs):
        torch = self.torch

        class Experts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))
                self.extra = torch.nn.Linear(4, 4)
                self.attention = torch.nn.MultiheadAttention(4, 2)

            def forward(self, x):
                x = self.attention(x, x, x)[0]
                for index in runs:
                    x = self.experts[index](x)
                return x

        return Experts()

    def train(self, model):
        self.coverage.note_outermost(model)
        model(self.torch.randn(3, 4)).sum().backward()
        self.coverage.note_gradients()

    def test_experts_without_a_token_take_the_verdict_away(self):
        self.train(self.model([0]))
        self.coverage.tell(True)
        self.assertIn("3 modules with 60 parameters (experts.1, experts.2, experts.3)", self.told["skipped"]["text"])
        self.assertNotIn("attention", str(self.told))

    def test_of_compiled_experts_gradients_tell(self):
        model = self.model([0])
        model._compiled_call_impl = model._call_impl
        model.experts[1].requires_grad_(False)
        self.train(model)
        self.assertFalse(any(one._forward_pre_hooks for one in model.modules()))
        self.caveats.Asked.device = True
        self.coverage.tell(True)
        self.assertIn("2 modules with 40 parameters (experts.2, experts.3)", self.told["skipped"]["text"])
        self.assertIn("(extra) are compiled", self.told["compiled_unused"]["text"])

    def test_what_the_script_alone_leaves_out_is_said_and_no_more(self):
        self.train(self.model(range(4)))
        self.coverage.tell(True)
        self.assertEqual(list(self.told), ["unused"])
        self.assertIn("1 modules with 20 parameters (extra)", self.told["unused"]["text"])

    def test_a_branch_on_the_device_may_have_left_it_out(self):
        self.train(self.model(range(4)))
        self.caveats.tell_of_value("branch", "a value decided")
        self.coverage.tell(True)
        self.assertIn("(extra)", self.told["skipped"]["text"])

    def test_a_model_that_only_infers_is_not_asked_for_gradients(self):
        model, reference = self.model(range(4)), self.model(range(4))
        model.extra.requires_grad_(False)
        self.train(model)
        with self.torch.no_grad():
            self.coverage.note_outermost(reference)
            reference(self.torch.randn(3, 4)) @ reference.extra.weight
        self.caveats.Asked.device = True
        self.coverage.tell(True)
        self.assertEqual(self.told, {})

    def test_a_head_whose_weights_are_used_without_a_call_is_no_gap(self):
        model, frozen = self.model(range(4)), self.model(range(4)).requires_grad_(False)
        for one in (model, frozen):
            one.experts.append(self.torch.nn.Identity())
            self.coverage.note_outermost(one)
        model.extra(model(self.torch.randn(3, 4))).sum().backward()
        with self.torch.no_grad():
            frozen(self.torch.randn(3, 4)) @ frozen.extra.weight
        self.coverage.note_gradients()
        self.caveats.Asked.device = True
        self.coverage.tell(True)
        self.assertEqual(self.told, {})

    def test_copies_and_checkpoints_are_of_the_model_alone(self):
        model = self.model([0])
        self.coverage.note_outermost(model)
        for twin in (copy.deepcopy(model.experts), pickle.load(io.BytesIO(pickle.dumps(model.experts)))):
            twin[1](self.torch.randn(3, 4))
        self.assertFalse(any(one.is_used for one in self.coverage.trees[id(model)]))
