"""A timeline from PyTorch's entries: order, owners, categories, streams."""

import json
import os
import tempfile
import unittest
from types import SimpleNamespace

from tonnage_rehearse.phases import Phase
from tonnage_rehearse.repeats import UNTOLD, signature
from tonnage_rehearse.timeline import Writer

TORCH = "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"


def alloc(address, size, frames=(), stream=0):
    """An allocation as in a snapshot's trace."""
    frames = [{"name": name, "filename": filename, "line": line} for name, filename, line in frames]
    return {"action": "alloc", "addr": address, "size": size, "stream": stream, "frames": frames}


def free(address):
    """Its end; the request before is another entry."""
    return {"action": "free_completed", "addr": address, "size": 0, "stream": 0}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.writer = Writer(0, os.path.join(folder.name, "trace.jsonl"), lambda: {"source": "test"})
        self.addCleanup(lambda: self.writer.file and self.writer.close())

    def lines(self, *takes):
        for entries, history, marks, backward_line in takes:
            self.writer.take(entries, history, marks, backward_line)
        with open(self.writer.close(), encoding="utf-8") as file:
            header, *lines = (json.loads(line) for line in file if line.strip())
        self.assertEqual(header, {"source": "test", "device": 0})
        return unrolled(lines)


def unrolled(lines):
    """As `tonnage_core::recording` reads them: a repetition as the lines that it repeats."""
    events = []
    for kind, *line in lines:
        repeated = events[-line[0] :] if kind == "r" else []
        births = sum(event[0] == "a" for event in repeated)
        for event in repeated:
            at, growth = (2, 1) if event[0] == "p" else (1, births)
            events.append([*event[:at], event[at] + growth, *event[at + 1 :]] if len(event) > 1 else event)
        if kind != "r":
            events.append([kind, *line])
    return events


class Take(Case):
    def test_nothing_is_written_where_nothing_was_allocated(self):
        self.assertEqual(self.writer.take([], [], [], None), 0)
        self.assertFalse(os.path.exists(self.writer.path))

    def test_frees_name_their_allocation_and_unknown_ones_none(self):
        entries = [alloc(1, 512), alloc(2, 0), free(1), {"action": "free_requested", "addr": 2}, alloc(1, 256), free(1), free(9)]
        lines = self.lines((entries, [], [], None))
        self.assertEqual([line[:3] for line in lines], [["a", 0, 512], ["a", 1, 1], ["f", 0], ["a", 2, 256], ["f", 2], ["f", 0]])

    def test_boundaries_and_emptied_caches_stand_before_what_follows_them(self):
        self.writer.empties = [1]
        history = [Phase("load", 0, [0]), Phase("forward", 1, [1])]
        lines = self.lines(([alloc(1, 1), alloc(2, 2)], history, [], None), ([free(1)], [Phase("backward", 1, [2])], [], None))
        short = [line[0] if line[0] != "p" else line[1] for line in lines]
        self.assertEqual(short, ["load", "a", "forward", "e", "a", "backward", "f"])

    def test_a_mark_says_what_is_alive_at_an_address(self):
        marks = [(0, 2, "parameter", [1]), (1, 2, "gradient", [2])]
        lines = self.lines(([alloc(1, 1), alloc(2, 2), alloc(1, 3)], [], marks, None))
        self.assertEqual([line[5] for line in lines], ["parameter", "temporary", "temporary"])

    def test_the_users_line_and_the_innermost_function(self):
        frames = [("linear", TORCH, 3), ("forward", "/venv/site-packages/peft/lora.py", 7), ("main", os.path.abspath("train.py"), 41)]
        self.assertEqual(self.lines(([alloc(1, 1, frames)], [], [], None))[0][3:5], ["linear (lora.py:7)", "train.py:41 in main"])

    def test_the_backward_pass_belongs_to_the_line_that_began_it(self):
        history = [Phase("forward", 1, [0]), Phase("backward", 1, [1])]
        lines = self.lines(([alloc(1, 1), alloc(2, 1)], history, [], "train.py:9 in step"))
        self.assertEqual([line[4] for line in lines if line[0] == "a"], ["", "train.py:9 in step"])

    def test_streams_are_numbered_as_they_come_and_wrappers_communicate(self):
        wrapper = [("all_gather", "/venv/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 1)]
        lines = self.lines(([alloc(1, 1), alloc(2, 1, wrapper, stream=7700)], [], [], None))
        self.assertEqual((len(lines[0]), lines[1][5:]), (6, ["communication", 1]))


class Repeat(Case):
    def step(self, addresses, size=256, kept=128):
        """A batch that outlives its step and what is freed in it; addresses of the batch before, of this one, and of the rest."""
        before, batch, rest = addresses
        frees = [free(before)] if before else []
        return [alloc(batch, kept), alloc(rest, size), *frees, {**free(rest), "size": size}]

    def take(self, number, entries, **more):
        place = self.writer.place
        self.writer.take(entries, [Phase("forward", number, [place])], [], None, is_step=True, **more)

    def test_steps_that_are_alike_are_written_as_they_would_have_been(self):
        for number in (1, 2, 3):
            self.take(number, self.step((number - 1, number, 9)))
        self.assertIsNotNone(self.writer.template)
        self.assertEqual((self.writer.repeat(), self.writer.repeat()), (4, 4))
        # The addresses of what was not read are found by their sizes.
        blocks = [(70, 128), (50, 512)]
        self.take(6, [alloc(70, 128), alloc(50, 512), {**free(60), "size": 128}], blocks=blocks)
        steps = [["p", "forward", number] for number in (1, 2, 3, 4, 5, 6)]
        lines = self.lines()
        self.assertEqual([line for line in lines if line[0] == "p"], steps)
        self.assertEqual([line[1] for line in lines if line[0] == "f"], [1, 0, 3, 2, 5, 4, 7, 6, 9, 8])
        self.assertEqual([line[1] for line in lines if line[0] == "a"], list(range(12)))

    def test_without_stacks_lines_are_those_of_the_step_before_as_long_as_it_goes_alike(self):
        main = [("linear", os.path.abspath("train.py"), 41)]
        for number in (1, 2):
            self.take(number, [alloc(1, 128, main), free(1), alloc(2, 256, main), alloc(3, 8, main), free(2), free(3)])
        other = [("embed", os.path.abspath("train.py"), 7)]
        self.take(3, [alloc(1, 128), free(1), alloc(2, 257), alloc(3, 8), alloc(4, 64, other), free(2), free(3), free(4)], is_like=True)
        told = [line[4] for line in self.lines() if line[0] == "a"][6:]
        self.assertEqual(told, ["train.py:41 in linear", UNTOLD, UNTOLD, "train.py:7 in embed"])

    def test_a_step_without_stacks_that_goes_as_before_is_no_other(self):
        main = [("linear", os.path.abspath("train.py"), 41)]
        for number in (1, 2):
            self.take(number, [alloc(1, 128, main), free(1)])
        self.take(3, [alloc(1, 128), free(1)], is_like=True)
        self.assertIsNotNone(self.writer.template)

    def test_what_does_not_follow_is_seen(self):
        for number in (1, 2, 3):
            self.take(number, self.step((number - 1, number, 9)))
        self.writer.repeat()
        self.assertIsNone(self.writer.take([alloc(7, 5)], [], [], None, blocks=[(7, 5), (6, 999)]))

    def test_steps_of_other_sizes_are_no_repetition(self):
        for number, size in enumerate((256, 256, 512), 1):
            self.take(number, self.step((number - 1, number, 9), size))
        self.assertIsNone(self.writer.template)

    def test_the_counters_tell_a_step_from_another(self):
        def reading(*sums, peak=9):
            return SimpleNamespace(sums=sums, allocated=1, peak_allocated=peak, reserved=20)

        def told(start, boundary, end, place, **more):
            history = [Phase("forward", place, [place], [reading(*boundary)])]
            return signature(reading(*start), history, reading(*end, **more), 0, place)

        first = told((0, 0), (0, 0), (4, 800), 0)
        self.assertEqual(first, told((4, 800), (4, 800), (8, 1600), 4))
        self.assertNotEqual(first, told((4, 800), (4, 800), (8, 1601), 4))
        self.assertNotEqual(first, told((4, 800), (4, 800), (8, 1600), 4, peak=10))
