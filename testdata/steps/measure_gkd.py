"""Measures steps of TRL's GKDTrainer (the real class, trainer.train() for a few steps) as measure_rl.py measures those of its
GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trl_gkd`): id, model, teacher (fields of its config; null = the student's), teacher_dtype (float32 | bfloat16),
precision (fp32 | amp_bf16 | bf16 | bf16_amp), batch (per_device_train_batch_size), prompt_len, completion_len (tokens of the data set's
answers), max_new_tokens, lmbda (passes generate if it is 1, none does at 0, every second one between: the first does), beta, seq_kd, steps,
grad_accum, gradient_checkpointing, optim, lora {r, alpha, dropout, targets}, liger, padded (masks are made as for rows of unequal length;
sizes are as without), max_grad_norm, world (ranks of DDP as torchrun starts them, in one process), sharded (as sharded.py has it).
Phases: load, between, generate, forward, backward, clip, optimizer.

    measure_gkd.py --stub --lib libtonnage_phantom.so --cases gkd_cases.json --out truth.json
"""
import copy
import itertools
import os
import tempfile
import types

import measure_rl as harness

import sharded
from measure_dpo import lora_config, run_steps

DEFAULTS = dict(
    id="case", kind="trl_gkd", model={"family": "qwen2"}, teacher=None, teacher_dtype="bfloat16", precision="amp_bf16", batch=4, prompt_len=64,
    completion_len=64, max_new_tokens=64, lmbda=0.5, beta=0.5, seq_kd=False, steps=2, grad_accum=1, gradient_checkpointing=True, optim=None,
    lora=None, liger=False, padded=False, max_grad_norm=1.0, world=1, sharded=None)


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def answers(case):
    """Rows of tokens, as a data set that was tokenized before has them."""
    from datasets import Dataset
    rows = case["batch"] * case["grad_accum"] * case["steps"] * case["world"]
    prompt, answer = case["prompt_len"], case["completion_len"]
    return Dataset.from_dict({
        "prompt": ["a"] * rows, "input_ids": [[5 + row % 100] * (prompt + answer) for row in range(rows)],
        "completion_mask": [[0] * prompt + [1] * answer for _ in range(rows)]})


def decide(module, case):
    """Which passes generate, which is drawn."""
    draws = {0: [1.0], 1: [0.0]}.get(case["lmbda"], [0.0, 1.0])
    module.random = types.SimpleNamespace(random=itertools.cycle(draws).__next__)


def config_of(case, folder):
    from trl.experimental.gkd import GKDConfig
    optim = {"optim": case["optim"]} if case["optim"] else {}
    return GKDConfig(
        output_dir=folder, per_device_train_batch_size=case["batch"], max_length=case["prompt_len"] + case["completion_len"],
        max_new_tokens=case["max_new_tokens"], lmbda=case["lmbda"], beta=case["beta"], seq_kd=case["seq_kd"], max_steps=case["steps"],
        gradient_accumulation_steps=case["grad_accum"], gradient_checkpointing=case["gradient_checkpointing"],
        bf16=case["precision"] in ("amp_bf16", "bf16_amp"), report_to=[], logging_steps=1, save_strategy="no", use_liger_kernel=case["liger"],
        max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **sharded.options(case), **optim)


def noted(phases):
    """The trainer's class, with the same methods and the phase noted."""
    from trl.experimental.gkd import GKDTrainer

    class Trainer(GKDTrainer):
        @staticmethod
        def generate_on_policy_outputs(*args, **kwargs):
            with phases.within("generate"):
                return GKDTrainer.generate_on_policy_outputs(*args, **kwargs)

        def compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super().compute_loss(*args, **kwargs)
    return Trainer


def run_gkd(case, phases, stub):
    import trl.experimental.gkd.gkd_trainer as module
    sharded.start(case)
    dtype = "float32" if case["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    rows, prompt = case["batch"], case["prompt_len"]
    harness.EXPECT.clear()
    for answer in (case["completion_len"], case["max_new_tokens"]):
        harness.EXPECT[(rows, prompt + answer - 1)] = rows * answer
    decide(module, case)
    phases.set("load", 0)
    model = sharded.build(case, dtype, not stub)
    tokenizer = harness.byte_tokenizer()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.bos_token_id = None
    info = dict(param_count=harness.count(model)[0])
    teacher = harness.build(case["teacher"] or case["model"], case["teacher_dtype"], real=not stub, device="cpu")[0].eval()
    teacher.generation_config.bos_token_id = None
    folder = tempfile.mkdtemp()
    trainer = noted(phases)(
        model=model, teacher_model=teacher, args=config_of(case, folder), train_dataset=answers(case), processing_class=tokenizer,
        peft_config=lora_config(case))
    phases.mark(trainer.teacher_model.parameters(), "ref_parameter")
    return run_steps(trainer, phases, info, folder)


def warm(_cases):
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import datasets, peft, trl.experimental.gkd.gkd_trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa


harness.RUN["trl_gkd"] = run_gkd

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_gkd, warm)
