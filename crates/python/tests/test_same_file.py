"""The same file drives the real trainer over the phantom GPU and the estimate, and their peaks are equal to the byte. Needs PyTorch,
transformers, TRL, peft and accelerate: `TONNAGE_TORCH_PYTHON` names a Python that has them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("TONNAGE_TORCH_PYTHON")
PROGRAM = shutil.which("tonnage", path=os.path.dirname(sys.executable)) or shutil.which("tonnage")
SCRIPT = str(HERE / "trainers.py")
TOKENS = 192

ALWAYS = {"report_to": "none", "save_strategy": "no", "max_steps": 3, "output_dir": "out", "disable_tqdm": True}
MODEL = {**ALWAYS, "model_name_or_path": "model"}
SFT = {**MODEL, "dataset_name": "rows", "max_length": TOKENS}
DPO = {**MODEL, "dataset_name": "pairs", "max_length": TOKENS}
# No key says how long prompts are.
PROMPT = TOKENS // 2
GRPO = {**MODEL, "dataset_name": "prompts", "reward_funcs": ["rewards.constant"], "num_generations": 4, "per_device_train_batch_size": 4}
CLM = {**ALWAYS, "model_name_or_path": "model", "block_size": TOKENS, "report_to": "none"}
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 2
machine_rank: 0
main_training_function: main
gpu_ids: all
rdzv_backend: static
same_network: true
use_cpu: false
"""


@unittest.skipUnless(PYTHON, "needs PyTorch and trainers: TONNAGE_TORCH_PYTHON names a Python that has them")
class SameFile(unittest.TestCase):
    """Each test: a config, the command that trains by it, and the files that the estimate reads."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "VIRTUAL_ENV": sys.prefix}
        cls.environment["HF_HOME"] = str(cls.folder / "cache")
        # transformers loads weights in four threads, whose order is another each time; without them it is that of the names.
        cls.environment["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        cls.run_program(PYTHON, SCRIPT, "make", str(cls.folder), str(TOKENS))

    @classmethod
    def run_program(cls, *words):
        answer = subprocess.run(words, capture_output=True, text=True, cwd=cls.folder, env=cls.environment, check=False)
        assert answer.returncode == 0, f"{' '.join(words)}\n{answer.stderr[-4000:]}"
        return answer.stdout

    def write(self, name, config):
        # JSON is YAML.
        (self.folder / name).write_text(json.dumps(config))
        return name

    def peaks(self, *command, gpus=1):
        """The peaks of every rank that really ran."""
        machine = ("--gpu", "h100", "--gpus", str(gpus), "--whole", "--json")
        document = json.loads(self.run_program(PROGRAM, "rehearse", *machine, "--", PYTHON, *command))
        devices = [device for process in document["processes"] for device in process["devices"]]
        return {(device["peak_allocated_bytes"], device["peak_reserved_bytes"]) for device in devices}

    def estimated(self, *files, words=()):
        named = [word for file in files for word in ("--from", *([file] if isinstance(file, str) else file))]
        document = json.loads(self.run_program(PROGRAM, "estimate", *named, *words, "--gpu", "h100", "--json"))
        keys = [key["key"] for file in document["config"]["files"] for key in file["keys"] if key["became"] == "not_understood"]
        self.assertEqual(keys, [])
        return {(document["peak_allocated_bytes"], document["peak_reserved_bytes"])}

    def check_trl(self, trainer, config, words=(), **keys):
        file = self.write(f"{trainer}.yaml", {**config, **keys})
        peaks = self.peaks("-m", f"trl.scripts.{trainer}", "--config", file)
        self.assertEqual(self.estimated((f"trl-{trainer}", file), words=words), peaks)

    def check_sft(self, **keys):
        self.check_trl("sft", SFT, **keys)

    def check_grpo(self, **keys):
        self.check_trl("grpo", GRPO, words=("--prompt-len", str(PROMPT)), max_completion_length=32, **keys)

    def test_trl_sft_as_it_is(self):
        self.check_sft(per_device_train_batch_size=2)

    def test_trl_sft_in_16_bits_without_checkpointing(self):
        self.check_sft(per_device_train_batch_size=3, dtype="bfloat16", gradient_checkpointing=False)

    def test_trl_sft_with_adapters_and_accumulation(self):
        lora = {"use_peft": True, "lora_r": 8, "lora_target_modules": ["q_proj", "v_proj"]}
        self.check_sft(per_device_train_batch_size=2, gradient_accumulation_steps=2, dtype="bfloat16", **lora)

    def test_trl_dpo_beside_its_reference(self):
        self.check_trl("dpo", DPO, per_device_train_batch_size=2)

    def test_trl_dpo_with_adapters_and_accumulation(self):
        lora = {"use_peft": True, "lora_r": 8, "gradient_checkpointing": False}
        self.check_trl("dpo", DPO, per_device_train_batch_size=2, gradient_accumulation_steps=2, dtype="bfloat16", **lora)

    def test_trl_grpo_as_it_is(self):
        self.check_grpo()

    def test_trl_grpo_with_adapters_and_a_divergence(self):
        self.check_grpo(use_peft=True, lora_r=8, dtype="bfloat16", beta=0.04, gradient_accumulation_steps=2)

    def check_trainer(self, **keys):
        file = self.write("clm.json", {**CLM, **keys})
        self.assertEqual(self.estimated(("trainer", file)), self.peaks(SCRIPT, "clm", file))

    def test_trainer_as_it_is(self):
        self.check_trainer(per_device_train_batch_size=4)

    def test_trainer_under_autocast_with_accumulation(self):
        self.check_trainer(per_device_train_batch_size=2, gradient_accumulation_steps=2, bf16=True)

    def test_trainer_with_checkpointing(self):
        self.check_trainer(per_device_train_batch_size=2, bf16=True, gradient_checkpointing=True)

    def test_accelerate_starts_two_ranks(self):
        file = self.write("clm.json", {**CLM, "per_device_train_batch_size": 2, "bf16": True})
        (self.folder / "accelerate.yaml").write_text(ACCELERATE)
        launch = ("-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", SCRIPT, "clm", file)
        peaks = self.peaks(*launch, gpus=2)
        self.assertEqual(self.estimated(("trainer", file), ("accelerate", "accelerate.yaml")), peaks)


if __name__ == "__main__":
    unittest.main()
