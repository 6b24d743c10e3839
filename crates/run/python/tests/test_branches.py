"""Which way a script goes by what nobody knows, and what is added to it. There is no device here: tensors of the CPU stand for it."""

import functools
import tempfile
import unittest
from unittest import mock

from . import needs_torch
from .unknown import Phantom

TEXT = """
def dispatch(mask, limit):
    if mask.any():
        run()
    if not mask.any():
        return None
    while True:
        if not mask.any():
            break
    while mask.any():
        run()
    assert mask.all()
    assert not mask.all(), "a limit"
    if limit or not mask.all():
        raise ValueError
    has = mask.any()
"""

COUNTED = """
goes = limit = False
rounds = 0
if number > 0.5:
    goes = True
if not number:
    limit = True
while number > 0:
    rounds += 1
    break
while True:
    left = read()
    break
size = read()
"""


@needs_torch
class Unknown(Phantom):
    def setUp(self):
        super().setUp()
        from tonnage_rehearse.values import added, branches, follow

        self.added, self.branches, self.follow = added, branches, follow

    def test_the_text_says_how_a_script_goes_on(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(TEXT)
            file.flush()
            answers = {line: self.branches._chosen(file.name, line, False, True) for line in (3, 5, 8, 10, 16)}
            # Without a mask that it counts, it is as it was answered, but for exceptions.
            plain = {line: self.branches._chosen(file.name, line, False, False) for line in (3, 5, 8, 10, 12, 13, 14, 16)}
        self.assertEqual(answers, {3: True, 5: True, 8: False, 10: False, 16: True})
        self.assertEqual(plain, {3: False, 5: False, 8: False, 10: False, 12: True, 13: False, 14: True, 16: False})

    def test_a_count_of_a_mask_that_nobody_knows_has_another_side(self):
        mask, certainty = self.torch.zeros(4, dtype=self.torch.bool), self.known.Certainty
        written = self.torch.zeros(4, dtype=self.torch.bool)
        self.known.give(written, written.clone(), certainty.WRITTEN)
        count = self.branches._counting(self.torch.Tensor.sum, "sum")(mask)
        self.assertEqual((self.known.of(count).value.item(), self.known.of(count).otherwise), (0, 4))
        for name, other in (("gt", True), ("eq", False), ("__le__", False)):
            asked = getattr(self.torch.Tensor, name)
            told = self.branches._asking(self.follow._comparing(asked, name), name)(count, 0)
            self.assertEqual((name, self.known.of(told).otherwise), (name, other))
        any_of = self.branches._counting(self.torch.Tensor.any, "any")
        self.assertTrue(self.known.of(any_of(mask)).otherwise)
        self.assertIsNone(self.known.of(any_of(written)))

    def test_a_count_that_the_host_reads_goes_as_the_text_says(self):
        torch, read = self.torch, self.branches.count_of
        count = self.branches._counting(torch.Tensor.sum, "sum")(torch.zeros(4, dtype=torch.bool))
        number = read(count, "item", 0)
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(COUNTED)
            file.flush()
            names = {"number": number, "read": functools.partial(read, count, "__int__", 0)}
            exec(compile(COUNTED, file.name, "exec"), names)
        self.assertEqual([names[name] for name in ("goes", "limit", "rounds", "left", "size")], [True, False, 0, 0, 4])
        self.assertEqual((torch.zeros(number).shape[0], type(number + 1).__name__), (4, "DeviceInt"))
        self.assertIsNone(read(torch.zeros(()), "item", 0))

    def test_what_is_made_of_a_mask_keeps_the_side_on_which_it_is_full(self):
        torch, certainty = self.torch, self.known.Certainty
        mask = torch.zeros(4, 3, dtype=torch.bool)
        self.known.give(mask, self.known.uniform(mask.shape, mask.dtype), certainty.UNKNOWN)

        def called(name, tensor, *args, **kwargs):
            wrapped = self.follow._following(getattr(torch.Tensor, name), name)
            wrapped = self.branches._counting(wrapped, name) if name in self.branches.COUNTED else wrapped
            return (self.branches._casting(wrapped, name) if name in self.branches.TYPES else wrapped)(tensor, *args, **kwargs)

        def full(tensor):
            return self.known.of(tensor).otherwise

        rows = called("sum", mask, 0)
        self.assertEqual((full(rows), full(called("unbind", rows)[2]), full(called("max", rows))), (4, 4, 4))
        fractions = called("sum", called("float", mask))
        self.assertEqual((full(fractions), type(full(fractions)), self.known.of(fractions).value.item()), (12, float, 0.0))
        self.assertEqual(full(called("sum", called("long", torch.zeros(5, dtype=torch.bool)))), 5)
        # A part of a mask is a mask itself; of numbers that nobody knows there is no other side.
        self.assertIsNone(full(called("select", mask, 0, 0)))
        self.assertIsNone(self.known.of(called("sum", torch.zeros(4))))
        numbers = self.branches.counts_of(rows, [0, 0, 0])
        self.assertEqual(([number > 0 for number in numbers], [int.__pos__(number) for number in numbers]), ([True] * 3, [4] * 3))

    def test_a_count_on_the_host_keeps_the_other_side(self):
        torch = self.torch
        from tonnage_rehearse.values import births

        count = self.branches._counting(torch.Tensor.sum, "sum")(torch.zeros(4, dtype=torch.bool))
        copy = torch.ones((), dtype=torch.long)
        with mock.patch.object(self.known, "is_plain", lambda tensor: tensor is not copy):
            births.read_into(copy, count)
        self.assertEqual((copy.item(), self.known.of(copy).otherwise), (0, 4))
        self.assertEqual(int.__pos__(self.branches.count_of(copy, "item", 0)), 4)

    def test_whether_a_mask_on_the_host_is_empty_is_no_question_of_the_script(self):
        from tonnage_rehearse.values import otherwise

        mask = self.torch.zeros(4, dtype=self.torch.bool)
        self.known.host(mask, self.known.Certainty.UNKNOWN)
        with mock.patch.object(self.known, "is_plain", lambda tensor: False), mock.patch.object(self.torch.Tensor, "__bool__", side_effect=AssertionError):
            self.assertIs(otherwise.of(mask), True)

    def test_a_count_is_as_uncertain_as_a_number_of_the_device(self):
        from tonnage_rehearse import caveats
        from tonnage_rehearse.values import arrays, numbers

        count = self.branches.COUNTS[int](4)
        self.assertEqual(arrays.certainty_of([count]), self.known.Certainty.UNKNOWN)
        self.assertEqual([type(one) for one in numbers.host_numbers([count])], [int])
        self.assertIn("size", str(caveats._told))

    def test_one_more_than_what_nobody_knows_is_one(self):
        torch, certainty = self.torch, self.known.Certainty
        length, fractions, written = torch.zeros(3, dtype=torch.long), torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
        self.known.give(written, written.clone(), certainty.WRITTEN)

        def value(name, *args):
            out = self.added._adding(self.follow._following(getattr(torch.Tensor, name), name), name)(*args)
            found = self.known.of(out)
            return None if found is None else (found.value.tolist(), found.certainty)

        self.assertEqual(value("__add__", length, 1), ([1] * 3, certainty.UNKNOWN))
        self.assertEqual(value("__rsub__", fractions, 5), ([5.0] * 3, certainty.UNKNOWN))
        self.assertEqual(value("exp", fractions), ([1.0] * 3, certainty.UNKNOWN))
        self.assertEqual(value("add_", torch.zeros(2), 2), ([2.0] * 2, certainty.UNKNOWN))
        # No length is below zero; of two tensors nobody asks; what is known is followed.
        self.assertIsNone(value("__sub__", length, 1))
        self.assertIsNone(value("__add__", length, torch.ones(3, dtype=torch.long)))
        self.assertEqual(value("__add__", written, 1), ([2.0, 3.0, 4.0], certainty.WRITTEN))


if __name__ == "__main__":
    unittest.main()
