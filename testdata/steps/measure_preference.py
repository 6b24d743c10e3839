"""Measures steps of TRL's KTOTrainer, ORPOTrainer and CPOTrainer (the real classes, trainer.train() for a few steps) as measure_rl.py
measures those of its GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trl_kto`, `trl_orpo` or `trl_cpo`): id, model, precision (fp32 | amp_bf16 | bf16 | bf16_amp), batch
(per_device_train_batch_size: pairs, or answers for KTO), prompt_len, completion_len (tokens of every answer, its end token included), steps,
grad_accum, gradient_checkpointing, optim, lora {r, alpha, dropout, targets}, liger (use_liger_kernel), max_grad_norm, padded
(masks are made as for rows of unequal length; sizes are as without), quantization (as measure_trainer.py has it; the trainer loads the model
itself, from a folder), world (ranks of DDP as torchrun starts them, in one process), sharded (as sharded.py has it). KTO: precompute (precompute_ref_log_probs), activation_offloading, loss_type (kto |
apo_zero_unpaired), desirable (rows of a batch that are; null = half). CPO: loss_type (sigmoid | hinge | ipo | simpo), cpo_alpha. Phases: load (with
the precomputation as `logps`), between, forward, logps (KTO's passes of the reference inside forward), backward, clip, optimizer.

    measure_preference.py --stub --lib libtonnage_phantom.so --cases kto_cases.json --out truth.json
"""
import copy
import itertools
import os
import tempfile

import measure_rl as harness

import sharded
from measure_dpo import lora_config, run_steps

DEFAULTS = dict(
    id="case", kind="trl_kto", model={"family": "qwen2"}, precision="amp_bf16", batch=4, prompt_len=64, completion_len=64, steps=2,
    grad_accum=1, gradient_checkpointing=True, optim=None, lora=None, liger=False, max_grad_norm=1.0, padded=False,
    quantization=None, world=1, sharded=None)
OWN = {"trl_kto": dict(precompute=False, activation_offloading=False, loss_type="kto", desirable=None), "trl_orpo": {},
       "trl_cpo": dict(loss_type="sigmoid", cpo_alpha=1.0)}


def full_case(case):
    defaults = {**DEFAULTS, **OWN[case.get("kind", DEFAULTS["kind"])]}
    unknown = set(case) - set(defaults) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(defaults), **case}


def answers(case):
    """Answers of constant length; the trainers add the end token to each."""
    from datasets import Dataset
    count = case["batch"] * case["grad_accum"] * case["steps"] * case["world"]
    text = "abcdefghijklmnopqrstuvwxyz" * 2000

    def part(row, length):
        return (chr(97 + row % 26) + str(row % 10) + text)[:length]

    def column(shift, length):
        return [part(row + shift, length) for row in range(count)]
    prompts = column(0, case["prompt_len"])
    if case["kind"] == "trl_kto":
        labels = [row % case["batch"] < desirable(case) for row in range(count)]
        return Dataset.from_dict({"prompt": prompts, "completion": column(1, case["completion_len"] - 1), "label": labels})
    return Dataset.from_dict({"prompt": prompts, "chosen": column(1, case["completion_len"] - 1),
                              "rejected": column(2, case["completion_len"] - 1)})


def desirable(case):
    return case["batch"] // 2 if case["desirable"] is None else case["desirable"]


def know_masks(case):
    """How many elements are true of the masks that select, and of KTO's labels."""
    import torch
    rows, length = case["batch"], case["prompt_len"] + case["completion_len"] - 1
    harness.EXPECT.clear()
    if case["kind"] != "trl_kto":
        return
    chosen = desirable(case)
    for count in (rows, chosen, rows - chosen):
        harness.EXPECT[(count, length)] = count * case["completion_len"]
    nonzero, counts = torch.nonzero, []

    def known(mask, *, as_tuple=False):
        if not (mask.is_cuda and mask.dtype == torch.bool and mask.dim() == 1):
            return nonzero(mask, as_tuple=as_tuple)
        if not counts:
            counts.extend([chosen, rows - chosen])
        found = torch.nonzero_static(mask, size=counts.pop(0))
        return found.zero_()
    torch.nonzero = known
    # What the loss reads as integers: tokens of the batch, tokens of answers of both kinds, and how many there are.
    read, numbers = torch.Tensor.item, itertools.cycle([1, chosen, rows - chosen, chosen, rows - chosen])
    torch.Tensor.item = lambda self: next(numbers) if self.is_cuda and self.dtype == torch.int64 else read(self)


def make_reference(case, phases, stub):
    def reference(_path, **options):
        made = sharded.build(case, str(options.get("dtype", "float32")).replace("torch.", ""), not stub)
        phases.mark(made.parameters(), "ref_parameter")
        return made.eval()
    return reference


def trainer_of(case, phases, stub):
    """The trainer's class, its config's and the options of its own."""
    if case["kind"] == "trl_kto":
        import trl.trainer.kto_trainer as module
        from trl import KTOConfig, KTOTrainer
        if not case["quantization"] and not sharded.is_loaded(case):
            module.create_model_from_path = make_reference(case, phases, stub)
        return KTOTrainer, KTOConfig, dict(
            precompute_ref_log_probs=case["precompute"], loss_type=case["loss_type"],
            activation_offloading=case["activation_offloading"])
    if case["kind"] == "trl_orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer
        return ORPOTrainer, ORPOConfig, {}
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    return CPOTrainer, CPOConfig, dict(loss_type=case["loss_type"], cpo_alpha=case["cpo_alpha"])


def model_of(case, dtype, folder, stub):
    """The model, or the folder that the trainer loads a quantized one from; what is known of it, options of the config that say how."""
    if not case["quantization"] and not sharded.is_loaded(case):
        model = sharded.build(case, dtype, not stub)
        return model, dict(param_count=harness.count(model)[0]), {}
    import measure_trainer
    info = dict(param_count=measure_trainer.written(case, dtype, folder + "/model"))
    asked = dict(dtype=dtype, attn_implementation="sdpa")
    if case["quantization"]:
        asked["quantization_config"] = measure_trainer.quantization_config(case)
    return folder + "/model", info, dict(model_init_kwargs=asked)


def run_preference(case, phases, stub):
    sharded.start(case)
    dtype = "float32" if case["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    know_masks(case)
    phases.set("load", 0)
    folder = tempfile.mkdtemp()
    model, info, loads = model_of(case, dtype, folder, stub)
    base, config_class, own = trainer_of(case, phases, stub)
    own.update(loads)
    optim = {"optim": case["optim"]} if case["optim"] else {}
    length = {"max_length": None if case["kind"] == "trl_kto" else case["prompt_len"] + case["completion_len"]}
    config = config_class(
        output_dir=folder, per_device_train_batch_size=case["batch"], max_steps=case["steps"],
        gradient_accumulation_steps=case["grad_accum"], gradient_checkpointing=case["gradient_checkpointing"],
        bf16=case["precision"] in ("amp_bf16", "bf16_amp"), report_to=[], logging_steps=1, save_strategy="no", use_liger_kernel=case["liger"],
        max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **sharded.options(case), **length, **own, **optim)

    if sharded.is_loaded(case) and case["kind"] != "trl_kto":
        # These trainers ask for a device map, which stage 3 refuses: whoever runs them loads the model.
        from transformers import AutoModelForCausalLM
        model, config.model_init_kwargs = AutoModelForCausalLM.from_pretrained(model, **config.model_init_kwargs), None

    class Trainer(base):
        """The same methods, with the phase noted."""

        def compute_ref_log_probs(self, *args, **kwargs):
            with phases.within("logps"):
                return super().compute_ref_log_probs(*args, **kwargs)

        def compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super().compute_loss(*args, **kwargs)
    trainer = Trainer(model=model, args=config, train_dataset=answers(case), processing_class=harness.byte_tokenizer(),
                      peft_config=lora_config(case))
    return run_steps(trainer, phases, info, folder)


def warm(cases):
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    if any(case["quantization"] for case in cases):
        # bitsandbytes, which peft imports, asks for the GPU at once: no child could use it then.
        return
    import datasets, peft, trl.trainer.kto_trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa
    if any(case["kind"] != "trl_kto" for case in cases):
        import trl.experimental.cpo, trl.experimental.orpo  # noqa


for kind in OWN:
    harness.RUN[kind] = run_preference

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_preference, warm)
