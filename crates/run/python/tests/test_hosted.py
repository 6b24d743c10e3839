"""Tables that the host has taken from a device, and what they decide there."""

import json
import pickle
import tempfile
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Taken(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.values import arrays, births, follow, hosted, known, loops, reads

        self.torch, self.known, self.follow, self.hosted, self.loops = torch, known, follow, hosted, loops
        self.births, self.reads, self.arrays = births, reads, arrays
        self.told = {}
        for patch in (mock.patch.object(caveats, "_told", self.told), mock.patch.dict(known.Values.by_id, clear=True)):
            patch.start()
            self.addCleanup(patch.stop)

    def taken(self, certainty=None):
        """A table of four numbers, as `.cpu()` gives it."""
        table = self.torch.zeros(4, dtype=self.torch.long)
        self.known.host(table, certainty or self.known.Certainty.UNKNOWN)
        return table

    def array(self, certainty=None):
        return self.reads._numpy(self.torch.Tensor.numpy, "numpy")(self.taken(certainty))

    def decided(self, what):
        self.told.clear()
        what()
        return list(self.told)

    def test_arrays_tell_what_they_decide(self):
        import numpy

        array, plain = self.array(), numpy.arange(4)
        for code, what in (
            ("size", lambda: range(array.max())), ("size", lambda: self.torch.zeros(array.max() + 1)), ("size", lambda: numpy.where(array > 0)),
            ("size", (array >= 0).nonzero), ("size", lambda: numpy.unique(array)), ("size", lambda: array[array >= 0]),
            ("size", lambda: plain[array >= 0]), ("size", lambda: int(array[0])), ("branch", lambda: bool((array > 3).any())),
            ("branch", lambda: [1 for one in array if one > 3]), ("size", lambda: [0] * array.tolist()[0]),
            ("chosen", lambda: numpy.unique(self.array(self.known.Certainty.CHOSEN))),
        ):  # fmt: skip
            self.assertIn(code, self.decided(what))
            self.assertIn("test_hosted.py:", self.told[code]["line"])

    def test_arrays_that_decide_nothing_are_quiet_and_ordinary(self):
        import numpy

        array = self.array()
        for made, what in (
            ("0.50", lambda: f"{(array == numpy.array([0, 0, 1, 1])).mean():.2f}"), ([0, 0, 0, 0], array.tolist),
            ("[0, 0, 0, 0]", lambda: json.dumps(array.tolist())), (type(numpy.zeros(1)), lambda: type(pickle.loads(pickle.dumps(array)))),
            (8, lambda: len(numpy.concatenate([array, array]))), (0.0, lambda: float(numpy.mean([array.mean(), array.mean()]))),
        ):  # fmt: skip
            found = []
            self.assertEqual(self.decided(lambda what=what, found=found: found.append(what())), [])
            self.assertEqual(found, [made])
        self.assertIsInstance(array, numpy.ndarray)

    def test_what_the_script_makes_of_an_array_tells_too(self):
        import numpy

        array, other = self.array(), type(self.array())
        makers = {name: self.arrays._making(getattr(numpy, name)) for name in self.arrays.MAKERS}
        with mock.patch.object(self.arrays.places, "is_own", lambda filename: True):
            self.assertEqual({name: type(make(array)) for name, make in makers.items()}, dict.fromkeys(makers, other))
            scores = makers["array"]([self.reads.number(0.0)] * 3)
            self.assertEqual(self.decided(lambda: scores[scores > 0.5]), ["size"])
            # Actions of a replay buffer, some of which are drawn: an array of them is no size.
            actions = []
            self.assertEqual(self.decided(lambda: actions.append(makers["array"]((1, self.reads.number(2))))), [])
            self.assertEqual((actions[0].tolist(), type(actions[0])), ([1, 2], other))
            self.assertIs(type(makers["asarray"]([0.5, 1.0])), numpy.ndarray)
        with mock.patch.object(self.arrays.places, "is_own", lambda filename: False):
            self.assertIs(type(makers["asarray"](array)), numpy.ndarray)

    def test_fractions_in_a_list_tell_what_they_decide(self):
        table = self.torch.zeros(3)
        self.known.host(table, self.known.Certainty.UNKNOWN)
        scores = self.reads._list(self.torch.Tensor.tolist, "tolist")(table)
        self.assertEqual((scores, json.dumps(scores), sum(scores)), ([0.0] * 3, "[0.0, 0.0, 0.0]", 0.0))
        self.assertEqual(self.decided(lambda: [one for one in scores if one > 0.5]), ["branch"])

    def test_what_the_host_wrote_is_an_ordinary_array(self):
        written = self.reads._numpy(self.torch.Tensor.numpy, "numpy")(self.torch.tensor([3, 1]))
        self.assertEqual(self.decided(lambda: range(written.max())), [])

    def test_what_follows_from_a_taken_table_is_as_uncertain(self):
        largest = self.follow._following(self.torch.Tensor.max, "max")(self.taken() + 0)
        self.assertEqual(self.known.certainty_on_host(largest), self.known.Certainty.WRITTEN)
        table = self.taken()
        largest = self.follow._following(self.torch.Tensor.max, "max")(table)
        self.assertEqual(self.known.certainty_on_host(largest), self.known.Certainty.UNKNOWN)
        number = self.reads._one(self.torch.Tensor.item, "item")(largest)
        self.assertEqual(self.decided(lambda: number > 2), ["branch"])
        back = self.births._listed(self.torch.as_tensor, "as_tensor")(self.arrays.marked(table.numpy(), self.known.Certainty.UNKNOWN))
        self.assertEqual(self.known.certainty_on_host(back), self.known.Certainty.UNKNOWN)

    def test_a_taken_mask_that_nobody_knows_is_full(self):
        mask = self.taken().bool()
        self.known.host(mask, self.known.Certainty.UNKNOWN)
        index = self.hosted.masks((slice(None), mask))
        self.assertEqual((index[1].tolist(), list(self.told)), ([True] * 4, ["size"]))
        self.assertEqual(self.decided(lambda: self.hosted.masks(self.torch.ones(4).bool())), [])

    def test_rows_of_unknown_length_are_packed_as_long_as_they_may_be(self):
        from tonnage_rehearse.values import choices, lengths

        said = []
        pack = lengths._packing(lambda data, lengths, batch_first: said.append(lengths.tolist()))
        unknown, told, rows = self.taken(), self.taken(self.known.Certainty.CHOSEN), self.torch.zeros(4, 9, 2)
        ordered = choices._chosen(self.torch.sort, "sort", choices.sorted_places)(unknown)[0]
        for one in (ordered, told, self.torch.tensor([3, 2, 1, 1])):
            pack(rows, one, True)
        self.assertEqual((said, list(self.told)), ([[9] * 4, [0] * 4, [3, 2, 1, 1]], ["size", "chosen"]))

    def test_what_is_only_shown_decides_nothing(self):
        from tonnage_rehearse.values import numbers

        for place, told in (("sklearn/metrics/_ranking.py", []), ("scipy/optimize/_lsap.py", ["branch"])):
            space = {}
            exec(compile("def show(told): told('eq')", f"/site-packages/{place}", "exec"), space)
            self.assertEqual(self.decided(lambda space=space: space["show"](numbers.told)), told)

    def test_the_script_says_what_range_takes(self):
        text = """
def padded(lengths, rows):
    most = lengths.max().item()
    width = most + 1
    return [rows[at] for at in range(width)]

def shown(right, epochs):
    for epoch in range(epochs):
        print(right.sum().item())

def cut(counts, rows):
    for count in counts.tolist():
        rows = rows[:count]
"""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(text)
            file.flush()
            takes = [line for line in range(1, text.count("\n") + 1) if self.loops._line_takes(file.name, line)]
        self.assertEqual(takes, [3, 12])
