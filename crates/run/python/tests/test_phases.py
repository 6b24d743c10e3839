"""Phases, their peaks, and when a peak is steady; the counters are made up."""

import threading
import unittest
from types import SimpleNamespace

from tonnage_rehearse.phases import LABELLED_STEPS, Phases


class Counters:
    """A device whose peak is what the test says; every reading is 10 events later."""

    def __init__(self):
        self.now, self.peak, self.at = 0, 0, 0

    def read(self, _device):
        self.at += 10
        return SimpleNamespace(allocated=self.now, peak_allocated=self.peak, peak_reserved=2 * self.peak, events=self.at, retries=0, ooms=0)

    end_and_begin = read


class Case(unittest.TestCase):
    def setUp(self):
        self.counters = Counters()
        self.phases = Phases(self.counters, 1)
        self.optimizer = object()

    def step(self, peak):
        """One step of training; `peak` is reached in the backward pass."""
        self.phases.begin("forward")
        self.phases.begin("backward")
        self.counters.peak = peak
        self.phases.begin("between")
        self.phases.begin("optimizer")
        new = self.phases.step_done(self.optimizer)
        self.phases.begin("between")
        self.phases.note_growth()
        return new


class Labels(Case):
    def test_a_peak_belongs_to_the_phase_that_reached_it(self):
        self.counters.peak = 5
        self.step(100)
        device = self.phases.devices[0]
        self.assertEqual((device.peaks["0:load"], device.peaks["1:forward"], device.peaks["1:backward"]), (5, 5, 100))
        self.assertEqual((device.peak_allocated, device.peak_reserved), (100, 200))

    def test_the_step_counts_from_its_first_phase_to_its_optimizer(self):
        self.step(1)
        labels = [phase.label for phase in self.phases.take_history()]
        self.assertEqual(labels[:6], ["0:load", "1:forward", "1:backward", "1:between", "1:optimizer", "1:between"])
        self.assertEqual(self.phases.take_history(), [])

    def test_late_steps_share_a_label(self):
        for _ in range(LABELLED_STEPS + 3):
            self.step(1)
        self.assertEqual(self.phases.current.label, f"{LABELLED_STEPS}+:between")

    def test_a_phase_inside_another_goes_back_to_it_also_after_an_error(self):
        self.phases.begin("forward")
        with self.assertRaises(ValueError), self.phases.within("generate"):
            self.assertEqual(self.phases.current.name, "generate")
            raise ValueError
        self.assertEqual(self.phases.current.name, "forward")

    def test_another_thread_begins_no_phase(self):
        thread = threading.Thread(target=self.phases.begin, args=("forward",))
        thread.start()
        thread.join()
        self.assertEqual((self.phases.current.name, self.phases.boundaries), ("load", 0))

    def test_optimizers_that_take_turns_make_one_step_together(self):
        first, second = object(), object()
        self.assertTrue(self.phases.step_done(first))
        self.assertFalse(self.phases.step_done(second))
        self.assertEqual(self.phases.steps_done, 1)


class Steady(Case):
    def test_a_peak_that_grows_is_not_steady(self):
        for peak in (1, 2, 3):
            self.step(peak)
        self.assertIsNone(self.phases.steady_since())

    def test_steady_since_the_last_step_that_grew(self):
        for peak in (1, 9, 9, 9):
            self.step(peak)
        self.assertEqual((self.phases.steady_steps, self.phases.steady_since()), (2, 2))

    def test_a_kind_of_phase_that_never_came_again_is_named(self):
        with self.phases.within("evaluate"):
            pass
        self.step(1)
        self.step(1)
        self.assertEqual(self.phases.not_seen_again(), ["evaluate"])

    def test_a_backward_pass_without_a_step_trained_nothing(self):
        self.assertFalse(self.phases.trained_nothing())
        self.phases.begin("backward")
        self.assertTrue(self.phases.trained_nothing())
        self.phases.step_done(self.optimizer)
        self.assertFalse(self.phases.trained_nothing())

    def test_what_ran_once_is_known_from_where_it_would_begin(self):
        self.phases.begin("inference")
        self.counters.peak = 30
        self.phases.begin("forward")
        self.counters.now = self.counters.peak = 50
        self.phases.begin("between")
        self.assertEqual(self.phases.would_reach(["inference"]), 80)
        self.counters.now = 10
        self.assertIsNone(self.phases.would_reach(["inference"]))

    def test_what_the_first_of_several_left_is_not_taken_again(self):
        def infer(peak, now):
            self.phases.begin("inference")
            self.counters.peak, self.counters.now = peak, now
            self.phases.begin("between")

        infer(42, 32)  # 10 for itself, and a workspace of 32 that stays
        infer(42, 32)
        self.phases.begin("forward")
        self.counters.now = self.counters.peak = 50
        self.phases.begin("between")
        self.assertEqual(self.phases.would_reach(["inference"]), 60)
        # What each of them leaves (a buffer that grows) is taken again.
        self.counters.now = 32
        infer(62, 52)
        self.counters.now = 50
        self.assertEqual(self.phases.would_reach(["inference"]), 80)
