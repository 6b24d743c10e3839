"""The longest rows first, and rows of a given length: PyTorch's own loaders, on the CPU."""

import unittest
from types import SimpleNamespace
from unittest import mock

from tonnage_rehearse import caveats

from . import needs_torch


@needs_torch
class Longest(unittest.TestCase):
    def setUp(self):
        import torch
        from tonnage_rehearse import loaders
        from torch.utils.data import dataloader

        self.torch, self.loaders, self.dataloader, self.told = torch, loaders, dataloader, {}
        for patch in (mock.patch.object(caveats, "_told", self.told), self.restored(dataloader.DataLoader, "_index_sampler")):
            patch.start()
            self.addCleanup(patch.stop)
        self.rows = [[1] * (3 + 7 * number % 11) for number in range(40)]

    def restored(self, owner, name):
        return mock.patch.object(owner, name, getattr(owner, name))

    def batches(self, data, **options):
        self.loaders._loaders(self.dataloader, SimpleNamespace(longest=True, row_length=0))
        return list(self.dataloader.DataLoader(data, **options))

    def test_every_other_batch_is_of_the_longest_rows(self):
        sizes = [[len(row) for row in batch] for batch in self.batches(self.rows, batch_size=4, collate_fn=lambda rows: rows)]
        self.assertEqual(len(sizes), 10)
        self.assertEqual(sizes[0::2], [[13] * 3 + [12]] * 5 if sizes[0] != [13] * 4 else [[13] * 4] * 5)
        own = [[len(row) for row in self.rows[at : at + 4]] for at in range(0, 40, 4)]
        self.assertEqual(sizes[1::2], own[1::2])
        self.assertIn("up to 13 elements; the shortest has 3", self.told["longest"]["text"])

    def test_a_batch_is_of_the_longest_also_where_there_are_few(self):
        sizes = [[len(row) for row in batch] for batch in self.batches(self.rows[:3], batch_size=8, collate_fn=lambda rows: rows)]
        self.assertEqual(sizes, [sorted(map(len, self.rows[:3]), reverse=True)])

    def test_the_columns_of_datasets_tell_their_lengths(self):
        try:
            from datasets import Dataset
        except ImportError:
            self.skipTest("needs datasets")
        data = Dataset.from_dict({"input_ids": self.rows, "number": list(range(40))})
        for one in (data, data.select([5, 1, 7])):
            lengths, whole = self.loaders.row_lengths(one)
            self.assertEqual((lengths, whole), ([len(row["input_ids"]) for row in one], True))

    def test_rows_that_cannot_be_seen_are_said(self):
        class Stream(self.torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter([1, 2, 3])

        self.assertEqual(len(self.batches(Stream(), batch_size=None)), 3)
        self.assertIn("Stream gives its rows one after another", self.told["longest_unknown"]["text"])

    def test_looking_takes_a_while_at_most(self):
        with mock.patch.object(self.loaders, "LOOKED_AT", -1.0):
            self.assertEqual(self.loaders.row_lengths(self.rows), ([], False))

    def test_rows_of_a_given_length(self):
        torch = self.torch
        batch = {
            "input_ids": torch.tensor([[5, 6, 0, 0], [7, 8, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]),
            "labels": torch.tensor([[-100, 6, -100, -100], [-100, 8, 9, -100]]), "images": torch.zeros(2, 3),
        }
        made = self.loaders.as_long(dict(batch), 7)
        self.assertEqual(made["input_ids"].tolist(), [[7, 8, 9, 7, 8, 9, 7]] * 2)
        self.assertEqual(made["attention_mask"].tolist(), [[1] * 7] * 2)
        self.assertEqual(made["labels"].tolist(), [[-100, 8, 9, -100, 8, 9, -100]] * 2)
        self.assertIs(made["images"], batch["images"])
        self.assertEqual([one.shape for one in self.loaders.as_long((batch["input_ids"], batch["labels"]), 2)], [(2, 2), (2, 2)])
        self.assertIs(self.loaders.as_long(batch["images"], 7), batch["images"])
        self.assertIn("no tables of tokens", self.told["row_length_unknown"]["text"])


@needs_torch
class Ranges(unittest.TestCase):
    def setUp(self):
        from tonnage_rehearse.shapes import Shapes

        self.device = SimpleNamespace(peaks={})
        self.phases = SimpleNamespace(steps_done=0, devices=[self.device])
        self.shapes, self.told = Shapes(self.phases, SimpleNamespace(longest=False, row_length=0)), {}
        patch = mock.patch.object(caveats, "_told", self.told)
        patch.start()
        self.addCleanup(patch.stop)

    def step(self, *shape, peak):
        self.shapes.note(self, (), {"input_ids": SimpleNamespace(shape=shape, is_cuda=True)})
        self.phases.steps_done += 1
        self.device.peaks[f"{self.phases.steps_done}:backward"] = peak << 20

    def test_a_range_and_what_one_more_takes(self):
        for length, peak in ((9, 50), (5, 110), (7, 114), (10, 120)):
            self.step(8, length, peak=peak)
        self.shapes.tell()
        self.assertIn("`input_ids` of Ranges 8 x 5 to 10; by the shortest", self.told["shapes"]["text"])
        self.assertIn("one more there takes about 2.000 MiB", self.told["shapes"]["text"])

    def test_inputs_of_two_models_of_one_kind_are_not_one_that_varies(self):
        for module, width in ((self, 64), (SimpleNamespace(), 784), (type(self)(), 784)):
            self.shapes.note(module, (SimpleNamespace(shape=(8, width), is_cuda=True),), {})
        self.shapes.tell()
        self.assertEqual(self.told, {})

    def test_batches_of_one_size_are_not_told(self):
        for _ in range(3):
            self.step(8, 4, peak=3)
        self.shapes.tell()
        self.assertEqual(self.told, {})

    def test_of_two_sizes_that_vary_no_slope_is_told(self):
        for rows, length in ((8, 4), (8, 6), (3, 5)):
            self.step(rows, length, peak=rows * length)
        self.shapes.tell()
        self.assertIn("3 to 8 x 4 to 6; `--longest`", self.told["shapes"]["text"])
