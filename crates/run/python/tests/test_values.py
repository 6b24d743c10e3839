"""Values that are followed beside a tensor. There is no device here: tensors of the CPU stand for it, each with a value of its own."""

import math
import sys
import unittest
from unittest import mock

from . import needs_torch


@needs_torch
class Followed(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.values import choices, follow, known, numbers

        self.torch, self.choices, self.follow, self.known, self.numbers = torch, choices, follow, known, numbers
        self.told = {}
        for patch in (
            mock.patch.object(caveats, "_told", self.told),
            mock.patch.object(known, "is_plain", lambda tensor: isinstance(tensor, torch.Tensor)),
            mock.patch.object(known.Values, "by_id", {}),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_value_lasts_until_the_tensor_changes(self):
        tensor = self.torch.zeros(3)
        self.known.give(tensor, self.torch.tensor([1.0, 2.0, 3.0]), self.known.Certainty.WRITTEN)
        self.assertEqual(self.known.of(tensor).value.tolist(), [1.0, 2.0, 3.0])
        tensor.add_(1)
        self.assertIsNone(self.known.of(tensor))

    def test_what_comes_to_the_device_by_another_tensors_type_is_known(self):
        from tonnage_rehearse.values import births

        moved = births._moved(self.torch.Tensor.type_as, "type_as")
        times = moved(self.torch.tensor([0, 1]), self.torch.zeros(1))
        self.assertEqual(self.known.of(times).value.tolist(), [0.0, 1.0])
        self.assertEqual(births._moved(self.torch.Tensor.type, "type")(self.torch.tensor([0])), "torch.LongTensor")

    def test_values_that_took_too_long_end_with_a_word(self):
        with (
            mock.patch.object(self.known.Values, "is_spent", False),
            mock.patch.object(self.follow, "PATIENCE", -1.0),
            mock.patch.object(self.follow.Spent, "seconds", 0.0),
        ):
            with self.follow.Computing():
                pass
            self.assertTrue(self.known.Values.is_spent)
            kept = {}
            for certainty, size in ((self.known.Certainty.UNKNOWN, 100), (self.known.Certainty.WRITTEN, 100), (self.known.Certainty.WRITTEN, 2)):
                tensor = self.torch.ones(size)
                self.known.give(tensor, self.torch.zeros(size), certainty)
                kept[certainty, size] = self.known.of(tensor) is not None
            self.assertEqual(list(kept.values()), [True, False, True])
        self.assertEqual(list(self.told), ["values_off"])

    def test_an_answer_within_another_leaves_that_one(self):
        said = []
        answer = mock.patch.object(self.known, "_answer", lambda: lambda given, number: said.append((given, number)))
        with answer, self.known.Answered(7), self.known.Answered(2):
            pass
        self.assertEqual(said, [(1, 7), (1, 2), (1, 7), (0, 0)])

    def test_a_mask_that_somebody_guessed_is_full_where_nothing_is_in_it(self):
        from tonnage_rehearse.values import sizes

        certainty = self.known.Certainty
        for value, sure, count in (
            ([False] * 4, certainty.UNKNOWN, 4), ([True, False, False, False], certainty.UNKNOWN, 1), ([False] * 4, certainty.WRITTEN, 0),
        ):  # fmt: skip
            mask = self.torch.zeros(4, dtype=self.torch.bool)
            self.known.give(mask, self.torch.tensor(value), sure)
            self.told.clear()
            self.assertEqual(sizes.elements(mask, "mask")[0], count)
            self.assertEqual(list(self.told), [] if sure is certainty.WRITTEN else ["mask"] if count == 4 else ["size"])

    def test_a_mask_that_only_has_the_shape_of_the_labels_counts_as_full(self):
        from tonnage_rehearse.answers import batch
        from tonnage_rehearse.values import sizes

        with mock.patch.object(batch, "_counts", {(2, 3): 4}):
            mask = self.torch.zeros(2, 3, dtype=self.torch.bool)
            self.assertEqual((sizes.elements(mask, "mask")[0], list(self.told)), (6, ["mask"]))
            with mock.patch.object(self.known.Values, "is_spent", True):
                self.assertEqual(sizes.elements(mask, "mask")[0], 4)

    def test_rows_by_a_mask_that_nobody_knows_keep_their_values(self):
        from tonnage_rehearse.values import sizes

        edges, chosen = self.torch.tensor([3, 1, 2]), self.torch.ones(3, dtype=self.torch.bool)
        self.known.give(edges, edges.clone(), self.known.Certainty.WRITTEN)
        kept = sizes._by_mask(self.torch.Tensor.__getitem__, edges, chosen, [chosen])
        found = self.known.of(kept)
        self.assertEqual((found.value.tolist(), found.certainty, list(self.told)), ([3, 1, 2], self.known.Certainty.UNKNOWN, ["mask"]))

    def test_a_tensor_that_is_turned_keeps_its_value(self):
        from tonnage_rehearse.values import births

        tensor = self.torch.arange(6.0).view(2, 3)
        self.known.give(tensor, tensor.clone(), self.known.Certainty.WRITTEN)
        for name in births.TURNED:
            turned = births._turned(getattr(self.torch.Tensor, name)).fget(tensor)
            self.assertEqual(self.known.of(turned).value.tolist(), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])

    def test_kinds_of_tensors_that_leave_computing_to_pytorch_are_plain(self):
        torch = self.torch

        class Labels(torch.Tensor):
            pass

        class Wrapper(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                raise NotImplementedError

        plain = [kind for kind in (torch.Tensor, torch.nn.Parameter, Labels, Wrapper, int) if self.known.is_plain_kind(kind)]
        self.assertEqual(plain, [torch.Tensor, torch.nn.Parameter, Labels])

    def test_what_is_written_into_data_is_the_tensors(self):
        certainty = self.known.Certainty
        tensor, data = self.torch.zeros(2), self.torch.zeros(2)
        self.known.give(tensor, self.torch.zeros(2), certainty.WRITTEN)
        self.known.give(data, self.torch.zeros(2), certainty.WRITTEN)
        self.known.stand_for(data, tensor)
        self.known.give(data, self.torch.ones(2), certainty.WRITTEN)
        self.assertEqual(self.known.of(tensor).value.tolist(), [1.0, 1.0])
        data.add_(1)
        self.assertIsNone(self.known.of(data))
        self.assertIsNone(self.known.of(tensor))

    def test_lengths_are_laid_where_the_device_is_read(self):
        from tonnage_rehearse.values import lengths

        known_one, unknown = self.torch.zeros(2, dtype=self.torch.long), self.torch.zeros(2, dtype=self.torch.int32)
        self.known.give(known_one, self.torch.tensor([3, 1]), self.known.Certainty.WRITTEN)
        lengths.lay(known_one, [9, 9])
        self.assertEqual((known_one.tolist(), self.told), ([3, 1], {}))
        lengths.lay(unknown, lengths._target_lengths(self.torch.zeros(7), 2))
        self.assertEqual((unknown.tolist(), list(self.told)), ([3, 4], ["size"]))
        self.assertEqual(lengths._target_lengths(self.torch.zeros(2, 5), 2), [5, 5])

    def test_what_was_chosen_is_sorted_truly(self):
        sort = self.choices._chosen(self.torch.sort, "sort", self.choices.sorted_places)
        argsort = self.choices._chosen(self.torch.argsort, "argsort", self.choices.sorted_places)
        cuda = mock.patch.object(self.torch.Tensor, "is_cuda", True)
        written, uniform = self.torch.tensor([3, 1, 2]), self.known.uniform((3,), self.torch.long)
        sorted_truly = [1, 2, 3], [1, 2, 0]
        for certainty, value, (numbers, places) in (
            (self.known.Certainty.CHOSEN, written, sorted_truly),
            (self.known.Certainty.UNKNOWN, written, sorted_truly),
            (self.known.Certainty.UNKNOWN, uniform, (None, [0, 1, 2])),
        ):
            tensor = value.clone()
            self.known.give(tensor, value, certainty)
            with cuda:
                ordered, order = sort(tensor), argsort(tensor)
            found = self.known.of(ordered[0])
            self.assertEqual(None if found is None else found.value.tolist(), numbers)
            for one in (ordered[1], order):
                self.assertEqual(self.known.of(one).value.tolist(), places)

    def test_drawn_numbers_are_shared_out_in_every_combination(self):
        draw = self.choices._integers(self.torch.randint, "randint")

        def drawn(*args, **kwargs):
            out = draw(*args, **kwargs)
            self.assertIs(self.known.of(out).certainty, self.known.Certainty.CHOSEN)
            return self.known.of(out).value

        shifts = drawn(-2, 3, size=(50, 2))
        self.assertEqual(shifts.unique(dim=0, return_counts=True)[1].tolist(), [2] * 25)
        self.assertEqual(drawn(3, (7,)).tolist(), [0, 1, 2, 0, 1, 2, 0])
        self.assertEqual(drawn(low=4, high=6, size=(3,), dtype=self.torch.int32).tolist(), [4, 5, 4])
        # Of one row, and of tokens, the first.
        self.assertEqual((drawn(2, 9, (1,)).tolist(), drawn(5000, (3,)).tolist(), drawn(1, 9, ()).item()), ([2], [0, 0, 0], 1))
        self.assertLess(int(drawn(512, (3, 400)).max()), 512)
        with mock.patch.object(self.choices.Experts, "worst", True):
            self.assertEqual(drawn(3, (7,)).tolist(), [0] * 7)

    def test_whole_numbers_that_a_model_takes_to_the_host_are_told(self):
        from tonnage_rehearse.values import births

        places, written = self.torch.zeros(3, dtype=self.torch.long), self.torch.zeros(3, dtype=self.torch.long)
        self.known.give(places, self.torch.arange(3), self.known.Certainty.CHOSEN)
        self.known.give(written, self.torch.arange(3), self.known.Certainty.WRITTEN)
        births.told_of_table(places)
        self.assertEqual(self.told, {})
        with mock.patch.object(self.known.Values, "in_model", True):
            for quiet in (written, self.torch.zeros(3)):
                births.told_of_table(quiet)
            self.assertEqual(self.told, {})
            births.told_of_table(places)
        self.assertEqual(list(self.told), ["chosen"])

    def test_a_value_goes_with_its_tensor(self):
        tensor = self.torch.zeros(3)
        self.known.give(tensor, self.torch.ones(3), self.known.Certainty.WRITTEN)
        self.assertEqual(len(self.known.Values.by_id), 1)
        del tensor
        self.assertEqual(len(self.known.Values.by_id), 0)

    def test_gradients_are_added_in_place_as_without_values(self):
        torch, made = self.torch, []

        class Head(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.sizes = weight.shape
                return x.sum()

            @staticmethod
            def backward(ctx, grad):
                grad_weight = torch.zeros(ctx.sizes)
                made.append(grad_weight.data_ptr())
                self.known.give(grad_weight, torch.zeros(ctx.sizes), self.known.Certainty.WRITTEN)
                piece = (grad_weight, slice(0, 2))
                self.follow.follow(torch.Tensor.__getitem__, "__getitem__", grad_weight[:2], piece, {})
                return grad.expand(4), grad_weight

        weight = torch.nn.Parameter(torch.ones(8, 4))
        rows = torch.nn.functional.embedding(torch.tensor([1]), weight)
        Head.apply(rows[0], weight).backward()
        self.assertEqual(weight.grad.data_ptr(), made[0])

    def test_values_of_another_shape_are_not_taken(self):
        tensor = self.torch.zeros(3)
        self.known.give(tensor, self.torch.ones(4), self.known.Certainty.WRITTEN)
        self.assertIsNone(self.known.of(tensor))

    def test_without_values_only_what_holds_by_a_rule_is_known(self):
        certainty, uniform = self.known.Certainty, self.known.uniform((3,), self.torch.bool, True)
        written, ruled, later = self.torch.zeros(99), self.torch.zeros(3, dtype=self.torch.bool), self.torch.zeros(3, dtype=self.torch.bool)
        self.known.give(written, self.torch.ones(99), certainty.WRITTEN)
        self.known.give(ruled, uniform, certainty.ASSUMED)
        self.addCleanup(setattr, self.known.Values, "is_spent", False)
        self.known.turn_off()
        self.known.give(later, uniform, certainty.ASSUMED)
        self.assertIsNone(self.known.of(written))
        for tensor in (ruled, later):
            self.assertTrue(self.known.of(tensor).value.all())
        self.known.give(written, self.torch.ones(99), certainty.WRITTEN)
        self.assertIsNone(self.known.of(written))

    def test_even_shares_and_the_worst(self):
        counts = lambda places: self.torch.bincount(places.flatten(), minlength=8).tolist()  # noqa: E731
        self.assertEqual(counts(self.choices.spread((64, 2), 1, 8)), [16] * 8)
        with mock.patch.object(self.choices.Experts, "worst", True):
            worst = self.choices.spread((64, 2), 1, 8)
        self.assertEqual(counts(worst), [61, 61, 1, 1, 1, 1, 1, 1])
        for row in (self.choices.spread((2, 64), 0, 8).T, worst):
            self.assertTrue(all(len(set(one)) == 2 for one in row.tolist()), "an expert once a token")

    def test_the_first_of_sorted_kinds_are_an_even_share(self):
        sort = self.choices._chosen(self.torch.sort, "sort", self.choices.sorted_places)
        with mock.patch.object(self.torch.Tensor, "is_cuda", True):
            places = self.known.of(sort(self.torch.rand(64, 8), descending=True)[1]).value
            turned = self.known.of(sort(self.torch.rand(8, 64), dim=0)[1]).value
        for chosen in (places[:, :2], turned[:2]):
            self.assertEqual(self.torch.bincount(chosen.flatten()).tolist(), [16] * 8)
        self.assertEqual(places.sort(-1)[0].tolist(), [list(range(8))] * 64)

    def test_rows_that_are_mixed_have_their_share_in_every_part(self):
        alive = self.torch.arange(64) < 32
        parts = alive[self.choices.mixed(64)].split(16)
        self.assertTrue(all(0 < int(part.sum()) < 16 for part in parts))
        self.assertEqual(self.choices.mixed(64).sort()[0].tolist(), list(range(64)))
        self.assertTrue(self.torch.equal(self.choices.mixed(64), self.choices.mixed(64)))

    def test_among_many_kinds_the_first_is_chosen(self):
        self.assertEqual(self.choices.spread((2, 3), 1, 50_000).tolist(), [[0, 1, 2], [0, 1, 2]])

    def test_what_follows_from_uniform_values_is_uniform(self):
        many = self.known.uniform((1 << 12, 1 << 12), self.torch.int64, 7)
        half = self.known.uniform((1, 1 << 12), self.torch.float16, 0.5)
        nowhere = self.known.uniform((1, 1 << 12), self.torch.bool, 0)
        cases = (("add", (many, half), 7.5), ("where", (nowhere, many, 3), 3), ("clamp", (many, None, 2), 2), ("long", (many,), 7))
        for name, arguments, expected in cases:
            original = getattr(self.torch.Tensor if name == "long" else self.torch, name)
            value = self.follow._computed(original, name, many, arguments, {})
            self.assertTrue(self.known.is_uniform(value), name)
            self.assertEqual((value.shape, value[0, 0].item()), (many.shape, expected), name)

    def test_what_is_known_goes_with_a_tensor_to_another_process(self):
        from tonnage_rehearse.answers import torch as answers

        certainty, table, many = self.known.Certainty, self.torch.tensor([[3], [1]]), self.known.uniform((1 << 9, 1 << 9), self.torch.long, 2)
        for value, known_as in ((table, certainty.WRITTEN), (many, certainty.CHOSEN), (self.torch.zeros(1 << 13).bool(), None)):
            tensor, other = value.clone(), self.torch.empty_like(value)
            self.known.give(tensor, value, known_as or certainty.WRITTEN)
            self.assertIs(answers.received(lambda other=other: other, (), *answers._sent_value(tensor)), other)
            found = self.known.of(other)
            self.assertEqual(None if found is None else (found.certainty, found.value.tolist()), None if known_as is None else (known_as, value.tolist()))
        self.assertEqual(answers._sent_value(self.torch.zeros(3)), (None, 0))

    def test_a_uniform_value_takes_no_memory(self):
        value = self.known.uniform((1 << 20, 1 << 20), self.torch.int64, 7)
        self.assertTrue(self.known.is_uniform(value))
        self.assertEqual(value.untyped_storage().nbytes(), 8)

    def test_fractions_of_the_device_become_sizes(self):
        share = self.numbers.number(0.0)
        self.assertEqual((share + 0.5, round(share, 2), "%d%%" % (100 * share), self.told), (0.5, 0.0, "0%", {}))
        for whole in (int, math.floor, math.ceil):
            self.told.clear()
            self.assertEqual((whole(share * 512), list(self.told)), (0, ["size"]))

    def test_numbers_of_the_device_tell_what_they_decide(self):
        number = self.numbers.number(3)
        self.assertEqual((number, f"{number + 1}", repr(number * 2)), (3, "4", "6"))
        self.told.clear()
        total = 0.5 + number
        self.assertEqual((self.told, total, type(total)), ({}, 3.5, float))
        self.assertTrue(number > 2)
        self.assertEqual(list(self.told), ["branch"])
        self.assertIn("test_values.py:", self.told["branch"]["line"])
        self.assertEqual(self.numbers.host_numbers([number, (number, 4)]), [3, (3, 4)])
        self.assertIn("size", self.told)
        self.assertIs(type(int(number)), int)

    def test_names_are_of_functions(self):
        from tonnage_rehearse.values import names

        unknown = [
            name
            for name in names.FOLLOWED | names.REDUCED | names.COMPARED | names.IN_PLACE
            if not callable(getattr(self.torch, name, None)) and not callable(getattr(self.torch.Tensor, name, None))
        ]
        self.assertEqual(unknown, [])
        self.assertNotIn("tonnage_rehearse.values.phantom", sys.modules)
