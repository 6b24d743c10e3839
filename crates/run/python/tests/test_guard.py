"""What a training script can tell `tonnage run`; without PyTorch."""

import json
import os
import tempfile
import unittest
from unittest import mock

import tonnage_guard

GIB = 1 << 30


class NextBatch(unittest.TestCase):
    def test_equal_in_rows_times_passes(self):
        with mock.patch.object(tonnage_guard, "_predicted", return_value={}):
            self.assertEqual(tonnage_guard.next_batch(12, 2, None), (8, 3))
            self.assertEqual(tonnage_guard.next_batch(2, 3, None), (1, 6))
            self.assertIsNone(tonnage_guard.next_batch(1, 6, None))

    def test_the_largest_that_fits_what_was_seen(self):
        totals = {8: 10 * GIB, 4: 6 * GIB, 2: 4 * GIB, 1: 3 * GIB}
        with mock.patch.object(tonnage_guard, "_predicted", return_value=totals):
            # 12 GiB were in use where 10 were predicted: 2 more for every batch.
            self.assertEqual(tonnage_guard.next_batch(8, 1, (12 * GIB, 8 * GIB)), (4, 2))
            self.assertEqual(tonnage_guard.next_batch(8, 1, (12 * GIB, 7 * GIB)), (2, 4))
            self.assertIsNone(tonnage_guard.next_batch(8, 1, (12 * GIB, 4 * GIB)))


class Guard(unittest.TestCase):
    def run_guarded(self, fails, **environment):
        calls = []

        @tonnage_guard.guard
        def train(micro_batch_size, gradient_accumulation_steps):
            calls.append((micro_batch_size, gradient_accumulation_steps))
            if micro_batch_size > 2:
                raise fails
            return "trained"

        with mock.patch.dict(os.environ, environment, clear=True), mock.patch("sys.stderr"):
            return train(micro_batch_size=8, gradient_accumulation_steps=1), calls

    def test_again_with_a_smaller_batch(self):
        ended, calls = self.run_guarded(RuntimeError("CUDA out of memory. Tried"))
        self.assertEqual((ended, calls), ("trained", [(8, 1), (4, 2), (2, 4)]))

    def test_the_attempts_own_sizes_win(self):
        told = {"TONNAGE_MICRO_BATCH_SIZE": "2", "TONNAGE_GRADIENT_ACCUMULATION_STEPS": "4"}
        self.assertEqual(self.run_guarded(RuntimeError("out of memory"), **told)[1], [(2, 4)])

    def test_other_errors_and_other_ranks_are_the_supervisors(self):
        with self.assertRaises(RuntimeError):
            self.run_guarded(RuntimeError("shape mismatch"))
        with self.assertRaises(RuntimeError):
            self.run_guarded(RuntimeError("out of memory"), WORLD_SIZE="2")


class Log(unittest.TestCase):
    def test_points_are_lines_and_only_where_somebody_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records.jsonl")
            with mock.patch.dict(os.environ, {"TONNAGE_METRICS": path}):
                tonnage_guard.log(1, loss=2, seconds=0.5)
                tonnage_guard.log(2, **{"eval/accuracy": 0.25})
                with mock.patch.dict(os.environ, {"RANK": "1"}):
                    tonnage_guard.log(3, loss=0)
            with mock.patch.dict(os.environ, clear=True):
                tonnage_guard.log(4, loss=0)
            with open(path, encoding="utf-8") as file:
                points = [json.loads(line) for line in file]
        first = {"record": "point", "step": 1, "seconds": 0.5, "metrics": {"loss": 2.0}}
        self.assertEqual(points, [first, {"record": "point", "step": 2, "metrics": {"eval/accuracy": 0.25}}])


class LongestFirst(unittest.TestCase):
    ROWS = ({"input_ids": [1]}, {"input_ids": [1, 2, 3]}, {"input_ids": [1, 2]})

    def test_only_in_a_probe(self):
        with mock.patch.dict(os.environ, clear=True):
            self.assertIs(tonnage_guard.longest_first(self.ROWS), self.ROWS)
        with mock.patch.dict(os.environ, {"TONNAGE_PROBE": "1"}):
            found = [len(row["input_ids"]) for row in tonnage_guard.longest_first(self.ROWS)]
        self.assertEqual(found, [3, 2, 1])


class Lease(unittest.TestCase):
    def test_everyone_may_in_without_one(self):
        with mock.patch.dict(os.environ, clear=True), tonnage_guard.lease():
            pass
