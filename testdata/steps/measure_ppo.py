"""Measures updates of TRL's PPOTrainer (the real class of TRL 1.12, the last version that has it: put that on PYTHONPATH; trainer.train()
for a few updates) as measure_rl.py measures steps of its GRPOTrainer, whose harness this imports: put that script's folder there too.

Fields of a case (kind `trl_ppo`): id, model, value and reward (fields of their configs; null = the policy's), precision (fp32 | bf16:
all four models' weights; amp_bf16: fp32 weights under the autocast of accelerate's launcher), batch (per_device_train_batch_size),
grad_accum, num_mini_batches, num_ppo_epochs, rollout_batch (local_rollout_forward_batch_size), prompt_len, response_length, whiten_rewards,
kl_estimator (k1 | k3), stop_token (eos | null), steps (updates), optim, padded (masks are made as for rows of
unequal length; sizes are as without), lora {r, alpha, dropout, targets} of the policy (no reference then).
Phases: load, between, generate, logps (the reference's passes), reward (those of the value and reward models), forward, backward, optimizer.

    measure_ppo.py --stub --lib libtonnage_phantom.so --cases ppo_cases.json --out truth.json
"""
import copy
import os
import shutil
import tempfile

import measure_rl as harness

from measure_dpo import lora_config

DEFAULTS = dict(
    id="case", kind="trl_ppo", model={"family": "qwen2"}, value=None, reward=None, precision="fp32", batch=2, grad_accum=1, num_mini_batches=1,
    num_ppo_epochs=4, rollout_batch=64, prompt_len=64, response_length=53, whiten_rewards=False, kl_estimator="k1", stop_token=None, steps=2,
    optim=None, lora=None, padded=False)


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def prompts(case):
    """More rows than are trained on, so that no batch is the last one, after which accelerate steps whatever has accumulated."""
    from datasets import Dataset
    rows = case["batch"] * case["grad_accum"] * (case["steps"] + 2)
    return Dataset.from_dict({"input_ids": [[5 + row % 100] * case["prompt_len"] for row in range(rows)]})


def scorer(case, fields, dtype):
    """A model with one label, made on the host as `from_pretrained` leaves it."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.initialization import no_init_weights
    fields = dict(fields or case["model"])
    config = AutoConfig.for_model(fields.pop("family"), num_labels=1, pad_token_id=0, **fields)
    with no_init_weights(), torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    return harness.materialize(model, "cpu")


def config_of(case, folder):
    from trl.experimental.ppo import PPOConfig
    optim = {"optim": case["optim"]} if case["optim"] else {}
    return PPOConfig(
        output_dir=folder, per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["grad_accum"],
        num_mini_batches=case["num_mini_batches"], num_ppo_epochs=case["num_ppo_epochs"],
        local_rollout_forward_batch_size=case["rollout_batch"], response_length=case["response_length"],
        whiten_rewards=case["whiten_rewards"], kl_estimator=case["kl_estimator"], stop_token=case["stop_token"],
        total_episodes=case["steps"] * case["batch"] * case["grad_accum"], num_sample_generations=0, report_to=[], save_strategy="no",
        disable_tqdm=True, **optim)


def note_functions(module, phases):
    """The module's functions, with the phase noted."""
    import torch
    forward = module.forward

    def noted(name, function):
        def run(*args, **kwargs):
            with phases.within(name):
                return function(*args, **kwargs)
        return run

    def noted_forward(*args, **kwargs):
        if torch.is_grad_enabled():
            phases.set("forward")
            return forward(*args, **kwargs)
        with phases.within("logps"):
            return forward(*args, **kwargs)
    module.batch_generation = noted("generate", module.batch_generation)
    module.get_reward = noted("reward", module.get_reward)
    module.forward = noted_forward


def note_trainer(trainer, phases):
    accelerator, optimizer, log = trainer.accelerator, trainer.optimizer, trainer.log
    backward, step = accelerator.backward, optimizer.step

    def noted_backward(*args, **kwargs):
        phases.set("between")
        with phases.within("backward"):
            backward(*args, **kwargs)

    def noted_step(*args, **kwargs):
        with phases.within("optimizer"):
            return step(*args, **kwargs)

    def noted_log(*args, **kwargs):
        log(*args, **kwargs)
        phases.set("between", phases.step + 1)
    accelerator.backward, optimizer.step, trainer.log = noted_backward, noted_step, noted_log


def run_ppo(case, phases, stub):
    import torch
    import trl.experimental.ppo.ppo_trainer as module
    if case["precision"] == "amp_bf16":
        os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
    dtype = "bfloat16" if case["precision"] == "bf16" else "float32"
    phases.set("load", 0)
    tokenizer = harness.byte_tokenizer()
    policy, reference = (harness.build(case["model"], dtype, real=not stub, device="cpu")[0] for _ in range(2))
    for model in (policy, reference):
        model.generation_config.eos_token_id = model.generation_config.bos_token_id = None
    value, reward = (scorer(case, case[which], dtype) for which in ("value", "reward"))
    info = dict(param_count=harness.count(policy)[0])
    folder = tempfile.mkdtemp()
    note_functions(module, phases)
    trainer = module.PPOTrainer(
        args=config_of(case, folder), processing_class=tokenizer, model=policy, ref_model=None if case["lora"] else reference.eval(),
        reward_model=reward.eval(), value_model=value.eval(), train_dataset=prompts(case), eval_dataset=prompts(case),
        peft_config=lora_config(case))
    info["after_load_bytes"] = torch.cuda.memory_allocated()
    note_trainer(trainer, phases)
    read = torch.Tensor.__bool__
    if stub:
        # Whether a mask hides everything, which is asked on the host.
        torch.Tensor.__bool__ = lambda self: read(self) and not self.is_cuda
    phases.set("between", 1)
    trainer.train()
    phases.set("end", phases.step)
    phases.close()
    torch.Tensor.__bool__ = read
    shutil.rmtree(folder, ignore_errors=True)
    return info


def warm(_cases):
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import datasets, peft, trl.experimental.ppo.ppo_trainer  # noqa: shared by the children


harness.RUN["trl_ppo"] = run_ppo

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_ppo, warm)
