"""What needs PyTorch: over the phantom GPU, with the Python that `TONNAGE_TORCH_PYTHON` names (the lane `wheel` sets it)."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tonnage

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("TONNAGE_TORCH_PYTHON")
PROGRAM = shutil.which("tonnage", path=os.path.dirname(sys.executable)) or shutil.which("tonnage")
MODULE = str(Path(tonnage.__file__).resolve().parents[1])

TEST = """
import pytest, torch

@pytest.mark.gpu_memory(gpu="l4", max="MOST")
def test_step():
    model = torch.nn.Linear(1000, 1000, device="cuda")
    model(torch.ones(ROWS, 1000, device="cuda")).sum().backward()

def test_of_another_kind():
    assert not torch.cuda.is_available()
"""


@unittest.skipUnless(PYTHON, "needs PyTorch: TONNAGE_TORCH_PYTHON names a Python that has it")
class Phantom(unittest.TestCase):
    """A folder, and programs that find the module."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        paths = [MODULE, *filter(None, [os.environ.get("TONNAGE_PYTEST")])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        self.environment["PATH"] = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]

    def run_program(self, *words):
        return subprocess.run(words, capture_output=True, text=True, cwd=self.folder, env=self.environment, check=False)


class OverThePhantom(Phantom):
    def test_a_trainer_logs_estimate_and_measured_peak(self):
        self.check_trainer()

    def test_the_callback_reads_the_trainer_where_it_is_told_no_job(self):
        self.check_trainer("bare")

    def check_trainer(self, *words):
        script = str(HERE / "trainer_with_callback.py")
        rehearsed = (PROGRAM, "rehearse", "--gpu", "h100", "--whole", "--json", "--", PYTHON, script, str(self.folder), *words)
        answer = self.run_program(*rehearsed)
        self.assertTrue(answer.stdout.startswith("{"), answer.stderr[-3000:])
        device = json.loads(answer.stdout)["processes"][0]["devices"][0]
        said = json.loads(next(line for line in answer.stderr.splitlines() if line.startswith('{"history"')))
        logged = {key: value for entry in said["history"] for key, value in entry.items() if key.startswith("memory/")}
        self.assertEqual(logged["memory/estimated_peak_reserved_bytes"], device["peak_reserved_bytes"])
        self.assertEqual(logged["memory/measured_peak_reserved_bytes"], device["peak_reserved_bytes"])
        self.assertEqual(logged["memory/measured_peak_allocated_bytes"], device["peak_allocated_bytes"])
        measured = said["measured"]
        self.assertEqual((measured["peak_allocated_bytes"], measured["peak_phase"], measured["steps"]), (device["peak_allocated_bytes"], "backward", 5))

    def check_loop(self, kind):
        script = str(HERE / "loops_with_callbacks.py")
        words = (PROGRAM, "rehearse", "--gpu", "h100", "--whole", "--json", "--", PYTHON, script, kind, str(self.folder))
        answer = self.run_program(*words)
        self.assertTrue(answer.stdout.startswith("{"), answer.stderr[-3000:])
        device = json.loads(answer.stdout)["processes"][0]["devices"][0]
        said = json.loads(next(line for line in answer.stderr.splitlines() if line.startswith('{"logged"')))
        memory = {key: (value, entry["step"]) for entry in said["logged"] for key, value in entry.items() if key.startswith("memory/")}
        self.assertEqual(len(memory), 5, memory)
        self.assertEqual(memory["memory/measured_peak_allocated_bytes"], (device["peak_allocated_bytes"], 3), "after three steps")
        self.assertEqual(memory["memory/measured_peak_reserved_bytes"], (device["peak_reserved_bytes"], 3))
        self.assertEqual(memory["memory/estimated_peak_allocated_bytes"][1], 0)
        self.assertGreater(memory["memory/estimated_total_bytes"][0], memory["memory/estimated_peak_reserved_bytes"][0])
        self.assertFalse(said["warned"], "this is far below the limit")

    def test_a_loop_of_accelerate_logs_estimate_and_measured_peak(self):
        self.check_loop("accelerate")

    @unittest.skipUnless(os.environ.get("TONNAGE_LIGHTNING"), "TONNAGE_LIGHTNING names the folder of Lightning")
    def test_lightning_logs_estimate_and_measured_peak(self):
        self.environment["PYTHONPATH"] += os.pathsep + os.environ["TONNAGE_LIGHTNING"]
        self.check_loop("lightning")

    def test_live_objects_of_the_real_libraries(self):
        answer = self.run_program(PYTHON, str(HERE / "live_objects.py"), str(self.folder))
        self.assertEqual(answer.returncode, 0, answer.stderr[-3000:])
        said = json.loads(answer.stdout.splitlines()[-1])
        cpu = {kind: [f"{kind}(use_cpu)"] for kind in ("TrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig")}
        expected = {
            # What they are by default is no caveat, but that they are for the CPU.
            "arguments": cpu["TrainingArguments"],
            "sft": cpu["SFTConfig"],
            "dpo": cpu["DPOConfig"],
            "grpo": cpu["GRPOConfig"],
            "lora": cpu["SFTConfig"],
            "peft_model": cpu["TrainingArguments"],
            "no_bits": cpu["SFTConfig"],
            "in_half": ["model(other_dtypes)", *cpu["TrainingArguments"]],
            "frozen": ["model(frozen)", *cpu["TrainingArguments"]],
            "with_a_head": ["model(other_size)", *cpu["TrainingArguments"]],
            "compiled": ["TrainingArguments(torch_compile)", "TrainingArguments(torch_compile_backend)", *cpu["TrainingArguments"]],
        }
        for name, keys in expected.items():
            with self.subTest(name):
                self.assertEqual(sorted(said[name].get("open", said[name])), sorted(keys))
        values = {
            "meta": {"precision": "fp32", "attention": "sdpa"},
            "arguments": {"precision": "fp32", "micro_batch_size": 2, "seq_len": 64, "framework": "trainer"},
            "bf16": {"precision": "bf16-amp", "gradient_checkpointing": True},
            "sft": {"precision": "amp-bf16", "seq_len": 256, "micro_batch_size": 4, "framework": "trl", "device_map": True},
            "sft_of_model": {"precision": "amp-bf16", "seq_len": 256, "device_map": False},
            "dpo": {"task": "dpo"},
            "grpo": {"task": "grpo", "num_generations": 4, "completion_len": 64},
            "lora": {"lora.r": 4, "lora.targets": ["q_proj", "v_proj"]},
            "peft_model": {"lora.r": 4, "precision": "fp32"},
        }
        for name, keys in values.items():
            with self.subTest(name):
                found = said[name]["values"]
                self.assertEqual({key: found.get(key) for key in keys}, keys)
        self.assertEqual(said["arguments"]["peak"], said["keywords"]["peak"])
        self.assertIn("quantization", said["four_bits"]["error"])
        self.assertIn("lora", said["four_bits"]["error"])
        self.assertIn("no model", said["without_a_model"]["error"])
        for name in ("in_half", "with_a_head", "compiled"):
            self.assertEqual(said[name]["verdict"], "not_known", "what is not known surely fits nowhere")

    @unittest.skipUnless(os.environ.get("TONNAGE_PYTEST"), "TONNAGE_PYTEST names the folder of pytest")
    def test_pytest_rehearses_what_is_marked(self):
        def run(rows, most, *options):
            (self.folder / "test_it.py").write_text(TEST.replace("ROWS", str(rows)).replace("MOST", most))
            # The installed module is a plugin by its entry point.
            words = (PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options)
            answer = self.run_program(*words)
            return answer.returncode, answer.stdout

        baseline = ("--memory-baseline", "memory.json")
        code, said = run(10, "2GiB", *baseline, "--memory-update")
        self.assertEqual((code, "2 passed" in said), (0, True), said)
        self.assertEqual(run(10, "2GiB", *baseline)[0], 0)
        code, said = run(20000, "2GiB", *baseline)
        self.assertTrue(code == 1 and "takes more than memory.json allows" in said and "baseline" in said, said)
        code, said = run(10, "100MiB")
        self.assertTrue(code == 1 and "more than 100MiB" in said, said)
        code, said = run(10, "2GiB", "--memory-baseline", "none.json")
        self.assertTrue(code == 1 and "--memory-update writes it" in said, said)
