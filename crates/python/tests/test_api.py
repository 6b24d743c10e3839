"""The module `tonnage` as it is installed: its answers are the program's own."""

import contextlib
import copy
import dataclasses
import doctest
import enum
import importlib.machinery
import importlib.util
import io
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from pathlib import Path

import tonnage
from tonnage import callbacks

ROOT = Path(__file__).resolve().parents[3]
# The program of the same wheel: what else lies on PATH may be another.
PROGRAM = shutil.which("tonnage", path=os.path.dirname(sys.executable)) or shutil.which("tonnage")


def program(*words):
    """What the installed program prints with `--json`."""
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    answer = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert answer.stdout, answer.stderr
    return json.loads(answer.stdout)


def without_origins(document):
    """A document without who set each value: flags there, the caller here."""
    document = copy.deepcopy(document)
    for value in document.get("job", []):
        value.pop("origin")
    return document


class SameAsTheProgram(unittest.TestCase):
    """`.to_dict()` is what `--json` prints."""

    def test_estimate(self):
        jobs = [
            (("gpt2", "-b", "8", "-s", "512", "--gpu", "a100-80"), ("gpt2",), {"micro_batch_size": 8, "seq_len": 512, "gpu": "a100-80"}),
            (("gpt2",), ("gpt2",), {}),
            (("llama-3.2-1b", "--lora-r", "16", "--precision", "bf16"), ("llama-3.2-1b",), {"lora_r": 16, "precision": "bf16"}),
            (("examples/hrm-arc.toml",), (ROOT / "examples/hrm-arc.toml",), {}),
        ]
        for words, args, keys in jobs:
            with self.subTest(words=words):
                answer = tonnage.estimate(*args, **keys)
                expected = program("estimate", *words)
                # A file is named by its whole path here.
                self.assertEqual(without_origins(answer.to_dict()), without_origins(expected))

    def test_other_questions(self):
        pairs = [
            (tonnage.fit("gpt2", gpus=["l4", "t4"], rows=[1, 8], seq_len=[64, 128]), "fit gpt2 --gpus l4,t4 --rows 1,8 --seq-len 64,128"),
            (tonnage.fit("gpt2", gpus="l4", solve="seq_len"), "fit gpt2 --gpus l4 --solve seq_len"),
            (tonnage.plan("gpt2", micro_batch_size=32, gpu="t4"), "plan gpt2 -b 32 --gpu t4"),
            (tonnage.plan("gpt2", gpus=["l4", "t4"], counts=[1], max_steps=100), "plan gpt2 --gpus l4,t4 --counts 1 --max-steps 100"),
            (tonnage.cost("gpt2", gpu=["l4", "t4"], max_steps=100), "cost gpt2 --gpu l4,t4 --max-steps 100"),
            (tonnage.doctor(exit_status=137), "doctor --exit-status 137"),
        ]
        for answer, words in pairs:
            with self.subTest(words=words):
                self.assertEqual(answer.to_dict(), program(*words.split(" ")))

    def test_compare(self):
        answer = tonnage.compare("gpt2", precision=["fp32", "bf16"], gpu="l4", seq_len=64)
        expected = program("estimate", "gpt2", "--compare", "precision=fp32,bf16", "--gpu", "l4", "--seq-len", "64")
        for ours, theirs in zip(answer.to_dict()["compare"], expected["compare"], strict=True):
            self.assertEqual(without_origins(ours["estimate"]), without_origins(theirs["estimate"]))

    def test_replay(self):
        recording = next(iter(sorted((ROOT / "testdata/timelines").rglob("*.jsonl*"))))
        answer = tonnage.replay(recording, allocator="expandable_segments:True")
        expected = program("trace", "replay", str(recording), "--allocator", "expandable_segments:True")
        self.assertEqual(answer.to_dict(), expected)

    def test_lists(self):
        self.assertEqual([gpu.to_dict() for gpu in tonnage.gpus()], program("gpus")["gpus"])
        self.assertEqual([model.to_dict() for model in tonnage.models("qwen")], program("models", "qwen")["models"])


class Answers(unittest.TestCase):
    def test_every_field_of_the_stubs_is_there(self):
        from tonnage import _answers

        asked = {
            "Estimate": tonnage.estimate("gpt2", seq_len=64, gpu="l4"),
            "Cost": tonnage.cost("gpt2", gpu="l4", max_steps=10),
            "Diagnosis": tonnage.doctor("CUDA out of memory. Tried to allocate 2.00 GiB"),
            "Comparison": tonnage.compare("gpt2", seq_len=[32, 64]),
        }
        # Fields that only some answers have.
        optional = {"job"} if asked["Diagnosis"].to_dict().get("job") is None else set()
        for name, answer in asked.items():
            for field in getattr(_answers, name).__annotations__:
                if not field.startswith("_") and not (name == "Diagnosis" and field in optional):
                    with self.subTest(answer=name, field=field):
                        getattr(answer, field)

    def test_parts_are_objects_and_maps_stay_dictionaries(self):
        answer = tonnage.estimate("gpt2", seq_len=64, gpu="l4")
        self.assertEqual(answer.gpu.id, "l4")
        self.assertEqual(answer.range_bytes.high, answer.to_dict()["range_bytes"]["high"])
        self.assertEqual(max(answer.peak_per_phase.values()), answer.peak_allocated_bytes)
        with self.assertRaisesRegex(AttributeError, "total_byte"):
            answer.total_byte  # noqa: B018

    def test_looks(self):
        answer = tonnage.estimate("gpt2", seq_len=64, gpu="l4")
        self.assertIn("✔ fits", repr(answer))
        self.assertNotIn("\x1b", repr(answer))
        html = answer._repr_html_()
        self.assertTrue(html.startswith("<pre>") and html.rstrip().endswith("</svg>"), html[-80:])
        self.assertIn("usable", answer.plot())

    def test_without_a_gpu_the_catalog_answers(self):
        answer = tonnage.estimate("gpt2", seq_len=64)
        self.assertIsNone(answer.gpu)
        self.assertTrue(answer.fits and answer.fits_from[0].usable_bytes)

    def test_sweep_rows_say_errors(self):
        rows = tonnage.sweep("gpt2", seq_len=[64, 10**9], gpu=["l4", "t4"])
        self.assertEqual([(row["seq_len"], row["gpu"]) for row in rows], [(64, "l4"), (64, "t4"), (10**9, "l4"), (10**9, "t4")])
        self.assertTrue(all(row["error"] is None for row in rows[:2]) and all(row["error"] for row in rows[2:]), rows)
        self.assertEqual({tuple(row) for row in rows}, {tuple(rows[0])}, "every row has the same columns")

    def test_threads_agree(self):
        expected = tonnage.estimate("gpt2", seq_len=64, gpu="l4").total_bytes
        found = []
        threads = [threading.Thread(target=lambda: found.append(tonnage.estimate("gpt2", seq_len=64, gpu="l4").total_bytes)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 8)


class Warns(unittest.TestCase):
    """A callback on a GPU of 1,000 MiB, of which so many are in use."""

    def said(self, used_mib):
        mib = 1 << 20
        facts = types.SimpleNamespace(total_memory=1000 * mib)
        cuda = types.SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            get_device_properties=lambda _: facts,
            mem_get_info=lambda: ((1000 - used_mib) * mib, 1000 * mib),
            max_memory_allocated=lambda: 100 * mib,
            max_memory_reserved=lambda: 200 * mib,
        )
        watch = callbacks.Watch(log=lambda *_: None)
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)), contextlib.redirect_stderr(io.StringIO()) as errors:
            for step in range(1, 6):
                watch.step(step)
        return errors.getvalue().splitlines()

    def test_where_the_limit_is_near_it_is_said_once(self):
        self.assertEqual(self.said(used_mib=900), [])
        (warning,) = self.said(used_mib=960)
        self.assertIn("a longer batch may not fit", warning)


@dataclasses.dataclass
class TrainingArguments:
    """As transformers' own, as far as it is read here."""

    per_device_train_batch_size: int = 8
    bf16: bool = False
    optim: enum.Enum = enum.Enum("Optim", {"FUSED": "adamw_torch_fused"}).FUSED
    torch_compile: bool = False
    deepspeed: object = None


@dataclasses.dataclass
class OfOnesOwn(TrainingArguments):
    extra_heads: int = 8


class Config:
    model_type = "gpt2"
    _name_or_path = "mine"

    def to_dict(self):
        return {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 100, "n_positions": 64}


class LiveObjects(unittest.TestCase):
    """Those of the real libraries: test_torch.py."""

    def values(self, answer):
        return {value.key: value.value for value in answer.job}

    def test_arguments_are_read_by_attribute(self):
        answer = tonnage.estimate(Config(), TrainingArguments(2, bf16=True), seq_len=32, gpu="l4")
        values = self.values(answer)
        found = [values[key] for key in ("micro_batch_size", "precision", "optimizer", "framework", "seq_len")]
        self.assertEqual(found, [2, "amp-bf16", "adamw_fused", "trainer", 32])
        keys = {key["key"]: key["became"] for key in answer.to_dict()["config"]["files"][-1]["keys"]}
        self.assertEqual(keys["TrainingArguments(per_device_train_batch_size)"], "used")
        self.assertEqual(len(keys), len(dataclasses.fields(TrainingArguments)))
        said = tonnage.estimate("gpt2", TrainingArguments(2), micro_batch_size=4, seq_len=32)
        self.assertEqual(self.values(said)["micro_batch_size"], 4, "keywords go before objects")

    def test_what_cannot_be_expressed_is_a_caveat_that_names_it(self):
        for arguments, name in ((TrainingArguments(torch_compile=True), "torch_compile"), (OfOnesOwn(), "extra_heads"), (object(), "object")):
            with self.subTest(name):
                answer = tonnage.estimate("gpt2", arguments, seq_len=32, gpu="h100")
                self.assertTrue(any(name in caveat.text for caveat in answer.caveats), answer.caveats)
                self.assertEqual((answer.verdict, answer.safe_bytes), ("not_known", None))

    def test_a_trainer_is_its_model_and_its_arguments(self):
        trainer = types.SimpleNamespace(model=Config(), args=TrainingArguments(3), train=None)
        self.assertEqual(self.values(tonnage.estimate(trainer, seq_len=32))["micro_batch_size"], 3)

    def test_deepspeeds_file_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "ds.json"
            file.write_text('{"zero_optimization": {"stage": 2}}')
            answer = tonnage.estimate("gpt2", TrainingArguments(deepspeed=str(file)), world_size=2, seq_len=32)
            self.assertEqual(self.values(answer)["deepspeed.stage"], 2)
            with self.assertRaisesRegex(tonnage.TonnageError, "none.json"):
                tonnage.estimate("gpt2", TrainingArguments(deepspeed="none.json"), seq_len=32)

    def test_every_question_takes_objects(self):
        job = tonnage.Job(Config(), TrainingArguments(2), seq_len=32, gpu="l4")
        self.assertEqual(job.fit(gpus=["l4"], rows=[1, 2], largest=False).rows[1].gpus[0].total_bytes, job.estimate().total_bytes)
        self.assertEqual(job.plan().base.total_bytes, job.estimate().total_bytes)
        self.assertEqual(job.replace(max_steps=10).cost().configurations[0].total_bytes, job.estimate().total_bytes)
        self.assertEqual(job.replace(micro_batch_size=[1, 2]).sweep()[1]["total_bytes"], job.estimate().total_bytes)
        both = job.replace(micro_batch_size=[1, 2]).compare().compare
        self.assertEqual(both[1].estimate["total_bytes"], job.estimate().total_bytes)
        text = "CUDA out of memory. Tried to allocate 2.00 GiB"
        self.assertIsNotNone(tonnage.doctor(text, job=job).job)

    def test_nothing_is_printed(self):
        line = "class LoraConfig: pass\nthing = LoraConfig(); thing.r = 4\nimport tonnage\n"
        line += "tonnage.compare('gpt2', thing, seq_len=[32, 64]); tonnage.fit('gpt2', thing, gpus='l4', rows=[1], largest=False)"
        answer = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
        self.assertEqual(answer.stdout + answer.stderr, "")

    def test_a_module_that_is_no_transformers_model_is_refused(self):
        module = types.SimpleNamespace(forward=None)
        with self.assertRaisesRegex(tonnage.TonnageError, "tonnage rehearse"):
            tonnage.estimate(module)

    def test_one_model_is_asked_about(self):
        with self.assertRaisesRegex(tonnage.TonnageError, "two models"):
            tonnage.estimate("gpt2", Config())
        with self.assertRaisesRegex(tonnage.TonnageError, "no model"):
            tonnage.estimate(TrainingArguments())


class Errors(unittest.TestCase):
    def refused(self, *args, **keys):
        with self.assertRaises(tonnage.TonnageError) as raised:
            tonnage.estimate(*args, **keys)
        return raised.exception

    def test_say_key_hint_and_kind(self):
        error = self.refused("gpt2", seq_lenn=8)
        self.assertEqual((error.kind, error.hint), ("unknown_key", "did you mean `seq_len`?"))
        error = self.refused("gpt2", seq_len="many")
        self.assertEqual((error.key, error.kind), ("seq_len", "value"))
        error = self.refused("gpt2", micro_batch_size=[1, 2])
        self.assertEqual((error.key, "sweep" in error.hint), ("micro_batch_size", True))
        self.assertIn("autocast", self.refused("gpt2", bf16=True).hint)

    def test_say_the_place_in_a_job_file(self):
        path = Path(self.enterContext_folder()) / "job.toml"
        path.write_text('model = "gpt2"\nseq_len = "many"\n')
        error = self.refused(path)
        self.assertEqual((error.place.file, error.place.line), (str(path), 2))

    def enterContext_folder(self):
        import tempfile

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_names_of_hugging_face_are_taken(self):
        ours = tonnage.estimate("gpt2", micro_batch_size=2, seq_len=64).total_bytes
        self.assertEqual(tonnage.estimate("gpt2", per_device_train_batch_size=2, max_seq_length=64).total_bytes, ours)
        with self.assertRaises(tonnage.TonnageError):
            tonnage.doctor()
        with self.assertRaises(tonnage.TonnageError):
            tonnage.fit("gpt2", rows=[0])


class Module(unittest.TestCase):
    def test_doctests(self):
        count = 0
        for found in pkgutil.iter_modules(tonnage.__path__, "tonnage."):
            # The first is compiled, the second is imported by pytest alone.
            if found.name in ("tonnage._native", "tonnage.pytest_plugin"):
                continue
            result = doctest.testmod(importlib.import_module(found.name))
            self.assertEqual(result.failed, 0, found.name)
            count += result.attempted
        self.assertGreater(count, 20)

    def test_the_reference_is_made_of_the_docstrings(self):
        loader = importlib.machinery.SourceFileLoader("reference", str(ROOT / "crates/python/reference.py"))
        reference = types.ModuleType("reference")
        reference.__file__ = loader.path
        loader.exec_module(reference)
        self.assertEqual(reference.PAGE.read_text(encoding="utf-8"), reference.page(), "python crates/python/reference.py writes it anew")

    def test_rows_make_data_frames(self):
        rows = tonnage.sweep("gpt2", seq_len=[64, 10**9], gpu=["l4", "t4"])
        # A folder of its own: nothing else here may see them.
        folder = os.environ.get("TONNAGE_FRAMES")
        with unittest.mock.patch.object(sys, "path", [*sys.path, *filter(None, [folder])]):
            frames = [name for name in ("pandas", "polars") if importlib.util.find_spec(name)]
            if not frames:
                self.skipTest("TONNAGE_FRAMES names no folder with pandas and polars")
            self.assertTrue(folder is None or len(frames) == 2, frames)
            for name in frames:
                frame = importlib.import_module(name).DataFrame(rows)
                self.assertEqual((frame.shape[0], list(frame.columns)), (4, list(rows[0])), name)

    def test_needs_nothing_and_imports_little(self):
        heavy = ["json", "dataclasses", "inspect", "subprocess", "torch", "transformers", "typing_extensions"]
        text = f"import sys; before = set(sys.modules); import tonnage; print([m for m in {heavy} if m in set(sys.modules) - before])"
        answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        self.assertEqual(answer.stdout.strip(), "[]")

    def test_one_version(self):
        printed = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed.split()[1], tonnage.__version__)


if __name__ == "__main__":
    unittest.main()
