"""Boundaries of phases from PyTorch's own hooks, on the CPU; the allocator's part is made up."""

import unittest
from types import SimpleNamespace
from unittest import mock

from . import needs_torch


@needs_torch
class Boundaries(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import hooks
        from tonnage_rehearse.named import Named
        from tonnage_rehearse.phases import Phases
        from tonnage_rehearse.shapes import Shapes

        reading = SimpleNamespace(allocated=0, peak_allocated=0, peak_reserved=0, events=0, retries=0, ooms=0)
        counters = SimpleNamespace(read=lambda _: reading, end_and_begin=lambda _: reading)
        self.torch, self.named = torch, Named()
        self.phases = self.named.phases = Phases(counters, 1)
        self.trace, self.stop = mock.Mock(), mock.Mock()
        self.hooks = hooks.Hooks(self.phases, mock.Mock(), self.trace, self.stop, self.named, mock.Mock(), Shapes(self.phases, mock.Mock()))
        before = {
            (torch.autograd, "_engine_run_backward"): torch.autograd._engine_run_backward,
            (torch._C, "_cuda_emptyCache"): getattr(torch._C, "_cuda_emptyCache", None),
            (torch.optim.Optimizer, "zero_grad"): torch.optim.Optimizer.zero_grad,
        }
        self.addCleanup(lambda: [setattr(*place, original) for place, original in before.items()])
        if before[(torch._C, "_cuda_emptyCache")] is None:
            torch._C._cuda_emptyCache = lambda: None
        handles = []
        for name in ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
            register = getattr(hooks.optimizers, name)
            patch = mock.patch.object(hooks.optimizers, name, lambda hook, register=register: handles.append(register(hook)))
            patch.start()
            self.addCleanup(patch.stop)
        self.hooks.install()
        self.addCleanup(lambda: [handle.remove() for handle in handles])
        self.addCleanup(self.hooks._ignore_forward)

    def names(self):
        return [phase.label for phase in self.phases.take_history()]

    def test_a_step_of_training(self):
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        expected = ["0:load", "1:forward", "1:backward", "1:between", "1:optimizer", "1:between", "1:zero_grad"]
        self.assertEqual(self.names()[:7], expected)
        self.assertEqual(self.phases.steps_done, 2)
        self.assertEqual((self.trace.drain.call_count, self.stop.after_step.call_count), (2, 2))
        self.assertIn("test_hooks.py:", self.phases.backward_line)

    def own_steps(self, update, drop_before=False, drop_between=False, batches=6):
        """How many steps were seen of a loop of its own; gradients are dropped every second batch, before the pass or after it."""
        torch = self.torch
        model = torch.nn.Linear(4, 1)
        for batch in range(batches):
            if drop_before and batch % 2 == 0:
                model.zero_grad()
            loss = model(torch.randn(2, 4)).sum()
            if drop_between and batch % 2 == 0:
                model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    update(parameter)
        self.assertEqual(self.stop.after_step.call_count, self.phases.steps_done)
        return self.phases.steps_done

    def test_a_step_without_an_optimizer_is_over_when_gradients_are_gone(self):
        def update(parameter):
            parameter.data.sub_(0.1 * parameter.grad)

        self.assertEqual(self.own_steps(update, drop_before=True), 2)

    def test_gradients_may_go_between_the_two_passes(self):
        def update(parameter):
            parameter.data.sub_(0.1 * parameter.grad)

        self.assertEqual(self.own_steps(update, drop_between=True), 2)

    def test_without_an_optimizer_a_parameter_that_was_written_ends_the_step(self):
        self.assertEqual(self.own_steps(lambda parameter: parameter.sub_(0.1 * parameter.grad)), 5)

    def test_without_an_optimizer_a_gradient_that_was_zeroed_ends_the_step(self):
        self.assertEqual(self.own_steps(lambda parameter: parameter.grad.zero_()), 5)

    def test_without_an_optimizer_gradients_that_add_up_are_no_step(self):
        self.assertEqual(self.own_steps(lambda parameter: None), 0)

    def test_only_outermost_modules_count_and_without_gradients_they_infer(self):
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 1)))
        with torch.no_grad():
            model(torch.randn(2, 4))
        self.assertEqual(self.names(), ["0:load", "1:inference", "0:load"])
        self.assertEqual(self.trace.drain_if_many.call_count, 1)

    def test_a_forward_pass_that_fails_leaves_the_hooks_in_order(self):
        torch = self.torch
        model = torch.nn.Linear(4, 4)
        with self.assertRaises(RuntimeError):
            model(torch.randn(2, 5))
        model(torch.randn(2, 4)).sum().backward()
        self.assertIn("1:backward", self.names())
        self.assertIsNotNone(self.hooks.before_forward)

    def test_a_recomputation_inside_the_backward_pass_is_no_forward_pass(self):
        torch = self.torch
        from torch.utils.checkpoint import checkpoint

        inner = torch.nn.Linear(4, 4)
        checkpoint(inner, torch.randn(2, 4, requires_grad=True), use_reentrant=True).sum().backward()
        self.assertEqual(self.names()[-2:], ["1:backward", "1:between"])

    def test_the_script_empties_the_cache(self):
        self.torch._C._cuda_emptyCache()
        self.trace.emptied.assert_called_once_with()


@needs_torch
class Counted(unittest.TestCase):
    """The script's view of counters whose peaks we reset."""

    def setUp(self):
        import torch
        from tonnage_rehearse import counters

        self.peak, self.current = 0, 0
        names = ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_resetAccumulatedMemoryStats")
        fakes = (self.stats, self.reset_peak, lambda device: None)
        for name, fake in zip(names, fakes, strict=True):
            patch = mock.patch.object(torch._C, name, fake, create=True)
            patch.start()
            self.addCleanup(patch.stop)
        self.counters, self.torch = counters.Counters(), torch

    def stats(self, _device):
        counter = {"current": self.current, "peak": self.peak, "allocated": 7, "freed": 3}
        return {
            "allocated_bytes": {"all": dict(counter)},
            "reserved_bytes": {"all": dict(counter)},
            "requested_bytes": {"all": dict(counter)},
            "allocation": {"all": dict(counter)},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def reset_peak(self, _device):
        self.peak = self.current

    def test_our_resets_are_not_seen_by_the_script_and_its_own_are(self):
        notes = []
        self.counters.install(before_reset=lambda: notes.append(self.peak))
        self.peak = 100
        self.assertEqual(self.counters.end_and_begin(0).peak_allocated, 100)
        self.peak = 40
        self.assertEqual(self.counters.read(0).peak_allocated, 40)
        self.assertEqual(self.torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"], 100)
        self.torch._C._cuda_resetPeakMemoryStats(0)
        self.assertEqual((notes, self.torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"]), ([40], 0))

    def test_totals_go_on_after_the_script_resets_them(self):
        self.counters.install(before_reset=lambda: None)
        self.assertEqual(self.counters.read(0).events, 10)
        self.torch._C._cuda_resetAccumulatedMemoryStats(0)
        self.assertEqual(self.counters.read(0).events, 20)
