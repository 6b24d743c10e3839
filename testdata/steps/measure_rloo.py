"""Measures steps of TRL's RLOOTrainer (the real class, trainer.train() for a few steps) as measure_rl.py measures those of its
GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trl_rloo`): id, model, precision (fp32 | amp_bf16 | bf16 | bf16_amp), batch (per_device_train_batch_size: completions),
prompt_len, completion_len, num_generations, steps, grad_accum, steps_per_generation (null = grad_accum), num_iterations, beta (0: no reference),
gradient_checkpointing, optim, liger, lora {r, alpha, dropout, targets}, padded (masks are made as for rows of unequal length; sizes are as
without), max_grad_norm, world (ranks of DDP as torchrun starts them, in one process), sharded (as sharded.py has it). Phases: load, between, prepare, generate, reward, logps, forward, backward, clip, optimizer.

    measure_rloo.py --stub --lib libtonnage_phantom.so --cases rloo_cases.json --out truth.json
"""
import contextlib
import copy
import tempfile

import measure_rl as harness

import sharded
from measure_dpo import lora_config, run_steps

DEFAULTS = dict(
    id="case", kind="trl_rloo", model={"family": "qwen2"}, precision="amp_bf16", prompt_len=64, completion_len=64, steps=2, batch=8,
    num_generations=2, grad_accum=1, steps_per_generation=None, num_iterations=1, beta=0.05, gradient_checkpointing=True, optim=None,
    liger=False, lora=None, padded=False, max_grad_norm=1.0, world=1, sharded=None)


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def prompts(case):
    from datasets import Dataset
    text = "abcdefghijklmnopqrstuvwxyz"
    return Dataset.from_dict({"prompt": [(text[row % 26] + str(row % 10) + text * 40)[:case["prompt_len"]] for row in range(256)]})


def config_of(case, folder):
    from trl import RLOOConfig
    optim = {"optim": case["optim"]} if case["optim"] else {}
    return RLOOConfig(
        output_dir=folder, per_device_train_batch_size=case["batch"], num_generations=case["num_generations"],
        max_completion_length=case["completion_len"], max_steps=case["steps"], gradient_accumulation_steps=case["grad_accum"],
        steps_per_generation=case["steps_per_generation"], num_iterations=case["num_iterations"], beta=case["beta"],
        gradient_checkpointing=case["gradient_checkpointing"], bf16=case["precision"] in ("amp_bf16", "bf16_amp"), report_to=[],
        logging_steps=1, save_strategy="no", use_liger_kernel=case["liger"], max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **sharded.options(case), **optim)


@contextlib.contextmanager
def scored(stub):
    """Whether a row has no reward, which is asked on the host: all have one."""
    import torch
    read = torch.Tensor.__bool__
    if stub:
        torch.Tensor.__bool__ = lambda self: read(self) and not self.is_cuda
    try:
        yield
    finally:
        torch.Tensor.__bool__ = read


def noted(phases, stub, completion_len):
    """The trainer's class, with the same methods and the phase noted."""
    import torch
    from trl import RLOOTrainer

    class Trainer(RLOOTrainer):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            with phases.within("generate"):
                ids = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            return [[65] * completion_len for _ in prompt_ids] if stub else ids

        def _calculate_rewards(self, *args, **kwargs):
            with phases.within("reward"), scored(stub):
                return super()._calculate_rewards(*args, **kwargs)

        def _get_per_token_logps_and_entropies(self, *args, **kwargs):
            if torch.is_grad_enabled():
                return super()._get_per_token_logps_and_entropies(*args, **kwargs)
            with phases.within("logps"):
                return super()._get_per_token_logps_and_entropies(*args, **kwargs)

        def _generate_and_score_completions(self, *args, **kwargs):
            with phases.within("prepare"):
                return super()._generate_and_score_completions(*args, **kwargs)

        def _compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super()._compute_loss(*args, **kwargs)
    return Trainer


def run_rloo(case, phases, stub):
    import torch
    import trl.trainer.rloo_trainer as module
    sharded.start(case)
    dtype = "float32" if case["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    rows, length = case["batch"], case["prompt_len"] + case["completion_len"] - 1
    if stub:
        # (They index by a mask.)
        module.nanmin, module.nanmax = torch.min, torch.max
    harness.EXPECT.clear()
    harness.EXPECT[(rows, length)] = rows * case["completion_len"]
    phases.set("load", 0)
    model = sharded.build(case, dtype, not stub)
    model.generation_config.eos_token_id = None
    info = dict(param_count=harness.count(model)[0])

    def reference(_path, **options):
        made = sharded.build(case, str(options.get("dtype", "float32")).replace("torch.", ""), not stub)
        phases.mark(made.parameters(), "ref_parameter")
        return made.eval()
    module.create_model_from_path = reference
    folder = tempfile.mkdtemp()
    config = config_of(case, folder)
    if not stub:
        # A GPU really samples: keep it from stopping early.
        config.generation_kwargs = {"min_new_tokens": case["completion_len"]}

    def reward(completions, **_columns):
        return [float(row % 2) for row in range(len(completions))]
    trainer = noted(phases, stub, case["completion_len"])(
        model=model, reward_funcs=reward, args=config, train_dataset=prompts(case), processing_class=harness.byte_tokenizer(),
        peft_config=lora_config(case))
    return run_steps(trainer, phases, info, folder)


def warm(_cases):
    import datasets, peft, trl.trainer.rloo_trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa


harness.RUN["trl_rloo"] = run_rloo

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_rloo, warm)
