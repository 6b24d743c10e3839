"""Measures steps of TRL's RewardTrainer (the real class, trainer.train() for a few steps) as measure_rl.py measures those of
its GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trl_reward`): id, model (of which num_labels is 1), precision (fp32 | amp_bf16 | bf16 | bf16_amp), batch (pairs:
per_device_train_batch_size), seq_len (tokens of every chosen and every rejected row), steps, grad_accum, gradient_checkpointing,
optim, lora {r, alpha, dropout, targets} (task type SEQ_CLS), center_rewards_coefficient, disable_dropout, attn, max_grad_norm, world (ranks of DDP as torchrun starts them, in one process), sharded (as sharded.py has it), padded (masks are made
as for rows of unequal length; sizes are as without), activation_offloading (RewardConfig's). Phases: load, between, forward, backward, clip, optimizer.

    measure_reward.py --stub --lib libtonnage_phantom.so --cases reward_cases.json --out truth.json
"""
import copy
import tempfile

import measure_rl as harness

import sharded
from measure_dpo import lora_config, run_steps
from measure_trainer import answer, build

DEFAULTS = dict(
    id="case", kind="trl_reward", model={"family": "qwen2"}, precision="amp_bf16", batch=4, seq_len=128, steps=2, grad_accum=1,
    gradient_checkpointing=True, optim=None, lora=None, center_rewards_coefficient=None, disable_dropout=True, attn="sdpa",
    max_grad_norm=1.0, world=1, sharded=None, padded=False, activation_offloading=False)


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def preferences(case):
    """Pairs of token ids of constant length."""
    from datasets import Dataset
    pairs = case["batch"] * case["grad_accum"] * case["steps"] * case["world"]
    row = (list(range(10, 74)) * (case["seq_len"] // 64 + 1))[:case["seq_len"]]
    return Dataset.from_dict({"chosen_ids": [row] * pairs, "rejected_ids": [row[::-1]] * pairs})


def run_reward(case, phases, stub):
    from trl import RewardConfig, RewardTrainer
    sharded.start(case)
    dtype = "float32" if case["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    harness.EXPECT.clear()
    phases.set("load", 0)
    answer(phases, case["padded"])
    fields = {**case["model"], "num_labels": 1}
    folder = tempfile.mkdtemp()
    model = build({"task": "sequence_classification", "model": fields, "attn": case["attn"], "device": "cpu" if case["sharded"] else "cuda"}, dtype, stub)
    info = dict(param_count=harness.count(model)[0])
    loads = {}
    if sharded.is_loaded(case):
        model.save_pretrained(folder + "/model")
        model, loads = folder + "/model", {"model_init_kwargs": {"dtype": dtype, "attn_implementation": case["attn"]}}
    optim = {"optim": case["optim"]} if case["optim"] else {}
    config = RewardConfig(
        output_dir=folder, per_device_train_batch_size=case["batch"], max_length=None, max_steps=case["steps"],
        gradient_accumulation_steps=case["grad_accum"], gradient_checkpointing=case["gradient_checkpointing"],
        bf16=case["precision"] in ("amp_bf16", "bf16_amp"), report_to=[], logging_steps=1, save_strategy="no",
        center_rewards_coefficient=case["center_rewards_coefficient"], disable_dropout=case["disable_dropout"],
        activation_offloading=case["activation_offloading"],
        max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **loads, **sharded.options(case), **optim)

    class Trainer(RewardTrainer):
        """The same methods, with the phase noted."""

        def compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super().compute_loss(*args, **kwargs)
    adapters = lora_config({**case, "model": fields}, "SEQ_CLS")
    trainer = Trainer(model=model, args=config, train_dataset=preferences(case), processing_class=harness.byte_tokenizer(),
                      peft_config=adapters)
    return run_steps(trainer, phases, info, folder)


def warm(_cases):
    import datasets, peft, trl.trainer.reward_trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa


harness.RUN["trl_reward"] = run_reward

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_reward, warm)
