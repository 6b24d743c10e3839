"""When PyTorch takes stacks: not in steps that repeat, and again as soon as something else happens."""

import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from . import needs_torch

PHASES = ("forward", "backward")


@needs_torch
class Plain(unittest.TestCase):
    def setUp(self):
        from tonnage_rehearse import trace
        from tonnage_rehearse.phases import Phase

        self.phase, self.contexts, self.bytes = Phase, [], 0
        self.phases = SimpleNamespace(history=[], observe=None, backward_line=None, take_history=self.taken, current=None)
        counters = SimpleNamespace(read=lambda _: self.reading())
        roles = SimpleNamespace(take=list)
        self.trace = trace.Trace(SimpleNamespace(trace_events=10**6, trace_entries=1000), counters, self.phases, roles)
        self.trace.record_history = lambda enabled, context=None, **_: self.contexts.append(context if enabled else "off")
        self.trace.is_on = True
        self.writer = SimpleNamespace(device=0, place=0, empties=[], template=True, file=True, adrift=SimpleNamespace(sizes={}))
        self.writer.repeat = lambda: 1
        self.trace.writers = [self.writer]
        self.trace._take = lambda **_: self.took.append(self.trace.was_plain) or self.trace._end_plain() or self.trace._empty(self.trace._read())
        self.took, self.alike = [], trace.ALIKE

    def taken(self):
        history, self.phases.history = self.phases.history, []
        return history

    def reading(self):
        return SimpleNamespace(sums=(self.bytes,), events=self.writer.place, allocated=0, peak_allocated=0, reserved=0)

    def begin(self, name, step, size=1):
        self.bytes += size
        self.phases.history.append(self.phase(name, step, [self.writer.place], [self.reading()]))
        if self.phases.observe is not None:
            self.phases.observe(self.phases.history)

    def step(self, number, size=1):
        for name in PHASES:
            self.begin(name, number, size)
        self.trace.drain(is_step=True)
        self.taken()

    def steps(self, count):
        for number in range(1, count + 1):
            self.step(number)

    def test_steps_that_repeat_are_kept_without_stacks(self):
        # The first has no reading at its start, the second none to be compared with.
        self.steps(1 + self.alike)
        self.assertEqual(self.contexts[-2:], ["off", "alloc"])
        self.step(9)
        self.assertEqual(self.contexts[-2:], ["off", None])

    def test_a_phase_that_does_something_else_has_stacks_from_its_end_on(self):
        self.steps(3 + self.alike)
        self.begin("forward", 9)
        self.assertIsNone(self.contexts[-1])
        self.begin("backward", 9, size=5)
        self.assertEqual(self.contexts[-1], "alloc")
        self.trace.drain(is_step=True)
        self.assertTrue(self.took[-1])

    def test_a_phase_that_was_not_in_the_steps_has_stacks_from_its_beginning(self):
        self.steps(3 + self.alike)
        self.begin("evaluate", 9)
        self.assertEqual(self.contexts[-1], "alloc")


@needs_torch
class Snapshot(unittest.TestCase):
    def test_nothing_is_imported_for_it(self):
        import torch
        from tonnage_rehearse import trace

        seen = []

        def looks():
            seen.append(hasattr(torch, "_inductor") and hasattr(torch._inductor, "codecache"))

        with mock.patch.dict(sys.modules), mock.patch.dict(vars(torch)), mock.patch.object(torch.cuda.memory, "_snapshot", looks):
            sys.modules.pop("torch._inductor", None)
            vars(torch).pop("_inductor", None)
            trace.take_snapshot()
            self.assertNotIn("_inductor", vars(torch))
            self.assertNotIn("torch._inductor", sys.modules)
        self.assertEqual(seen, [False])
