"""Measures steps of TRL's DPOTrainer (the real class, trainer.train() for a few steps) as measure_rl.py measures those of
its GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trl_dpo`): id, model, precision (fp32 | amp_bf16 | bf16 | bf16_amp), batch (pairs:
per_device_train_batch_size), prompt_len, completion_len (tokens of every answer, its end token included), steps,
grad_accum, gradient_checkpointing, optim, lora {r, alpha, dropout, targets}, precompute (precompute_ref_log_probs), liger (use_liger_kernel),
max_grad_norm, world (ranks of DDP as torchrun starts them, in one process), sharded (as sharded.py has it), quantization (as measure_trainer.py has it; DPOTrainer loads the model itself, from a folder), padded (masks are made as for rows of unequal length; sizes are as without), activation_offloading
(DPOConfig's). Phases: load (with the precomputation of the reference's log-probabilities as `logps`), between, forward,
logps (the reference's pass inside forward), backward, clip, optimizer.

    measure_dpo.py --stub --lib libtonnage_phantom.so --cases dpo_cases.json --out truth.json
"""
import copy
import shutil
import tempfile

import measure_rl as harness

import sharded

DEFAULTS = dict(
    id="case", kind="trl_dpo", model={"family": "qwen2"}, precision="amp_bf16", batch=4, prompt_len=64, completion_len=64, steps=2,
    grad_accum=1, gradient_checkpointing=True, optim=None, lora=None, precompute=False, liger=False,
    max_grad_norm=1.0, world=1, sharded=None, quantization=None, padded=False, activation_offloading=False)


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def preferences(case):
    """Pairs of constant length; the trainer adds the end token to every answer."""
    from datasets import Dataset
    pairs = case["batch"] * case["grad_accum"] * case["steps"] * case["world"]
    text = "abcdefghijklmnopqrstuvwxyz" * 2000

    def part(row, length):
        return (chr(97 + row % 26) + str(row % 10) + text)[:length]
    return Dataset.from_dict({
        "prompt": [part(row, case["prompt_len"]) for row in range(pairs)],
        "chosen": [part(row + 1, case["completion_len"] - 1) for row in range(pairs)],
        "rejected": [part(row + 2, case["completion_len"] - 1) for row in range(pairs)]})


def lora_config(case, task_type="CAUSAL_LM"):
    if not case["lora"]:
        return None
    from peft import LoraConfig
    lora = case["lora"]
    return LoraConfig(r=lora["r"], lora_alpha=lora.get("alpha", 2 * lora["r"]), lora_dropout=lora.get("dropout", 0.0),
                      target_modules=lora["targets"], task_type=task_type, use_dora=lora.get("use_dora", False),
                      modules_to_save=lora.get("modules_to_save"), fan_in_fan_out=case["model"]["family"] == "gpt2")


def run_dpo(case, phases, stub):
    import trl.trainer.dpo_trainer as module
    from trl import DPOConfig, DPOTrainer
    sharded.start(case)
    dtype = "float32" if case["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    rows, length = case["batch"], case["prompt_len"] + case["completion_len"] - 1
    harness.EXPECT.clear()
    harness.EXPECT[(2 * rows, length)] = 2 * rows * case["completion_len"]
    harness.EXPECT[(rows, length)] = rows * case["completion_len"]
    phases.set("load", 0)
    folder = tempfile.mkdtemp()
    is_loaded = case["quantization"] or sharded.is_loaded(case)
    if is_loaded:
        import measure_trainer
        info, model = dict(param_count=measure_trainer.written(case, dtype, folder + "/model")), folder + "/model"
        loads = dict(quantization_config=measure_trainer.quantization_config(case)) if case["quantization"] else {}
    else:
        model = sharded.build(case, dtype, not stub)
        info, loads = dict(param_count=harness.count(model)[0]), {}

    def reference(_path, **options):
        made = sharded.build(case, str(options.get("dtype", "float32")).replace("torch.", ""), not stub)
        phases.mark(made.parameters(), "ref_parameter")
        return made
    if not is_loaded:
        module.create_model_from_path = reference
    optim = {"optim": case["optim"]} if case["optim"] else {}
    config = DPOConfig(
        output_dir=folder, per_device_train_batch_size=rows, max_length=None, max_steps=case["steps"],
        gradient_accumulation_steps=case["grad_accum"], gradient_checkpointing=case["gradient_checkpointing"],
        bf16=case["precision"] in ("amp_bf16", "bf16_amp"), precompute_ref_log_probs=case["precompute"], report_to=[],
        logging_steps=1, save_strategy="no", use_liger_kernel=case["liger"], activation_offloading=case["activation_offloading"], max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **sharded.options(case), **optim)
    if is_loaded:
        config.model_init_kwargs = {"dtype": dtype, "attn_implementation": "sdpa"}

    class Trainer(DPOTrainer):
        """The same methods, with the phase noted."""

        def compute_ref_log_probs(self, *args, **kwargs):
            with phases.within("logps"):
                return super().compute_ref_log_probs(*args, **kwargs)

        def compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super().compute_loss(*args, **kwargs)
    trainer = Trainer(model=model, args=config, train_dataset=preferences(case), processing_class=harness.byte_tokenizer(),
                      peft_config=lora_config(case), **loads)
    return run_steps(trainer, phases, info, folder)


def run_steps(trainer, phases, info, folder):
    """`trainer.train()` with its phases; what is known of the run, whose folder is removed."""
    import torch
    info["trainable_params"] = harness.count(trainer.model)[1]
    info["after_load_bytes"] = torch.cuda.memory_allocated()
    phases.mark(list(trainer.model.parameters()), "parameter")
    note_phases(trainer, phases)
    phases.set("between", 1)
    trainer.train()
    phases.set("end", phases.step)
    phases.close()
    if getattr(trainer.args, "activation_offloading", False):
        info["host_pinned_bytes"] = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    shutil.rmtree(folder, ignore_errors=True)
    return info


def note_phases(trainer, phases):
    import torch
    accelerator = trainer.accelerator
    backward, clip, create_optimizer = accelerator.backward, accelerator.clip_grad_norm_, trainer.create_optimizer

    def note_engine(engine):
        step = engine.step

        def noted_step(*args, **kwargs):
            with phases.within("optimizer"):
                return step(*args, **kwargs)
        engine.step = noted_step

    def noted_backward(*args, **kwargs):
        if trainer.is_deepspeed_enabled and not hasattr(accelerator, "noted_engine"):
            accelerator.noted_engine = accelerator.deepspeed_engine_wrapped.engine
            note_engine(accelerator.noted_engine)
        with phases.within("backward"):
            backward(*args, **kwargs)
        phases.mark([p.grad for p in trainer.model.parameters() if p.grad is not None], "gradient")
        if trainer.is_deepspeed_enabled and accelerator.sync_gradients:
            # The engine has stepped.
            phases.set("between", phases.step + 1)

    def noted_clip(*args, **kwargs):
        with phases.within("clip"):
            return clip(*args, **kwargs)

    def noted_optimizer(*args, **kwargs):
        optimizer = create_optimizer(*args, **kwargs)
        if trainer.is_deepspeed_enabled:
            return optimizer
        step = optimizer.step

        def noted_step(*args, **kwargs):
            with phases.within("optimizer"):
                result = step(*args, **kwargs)
            state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
            phases.mark(state, "optimizer_state")
            phases.set("between", phases.step + 1)
            return result
        optimizer.step = noted_step
        return optimizer
    accelerator.backward, accelerator.clip_grad_norm_, trainer.create_optimizer = noted_backward, noted_clip, noted_optimizer


def warm(cases):
    if any(case["quantization"] for case in cases):
        # bitsandbytes, which peft imports, asks for the GPU at once: no child could use it then.
        return
    import datasets, peft, trl.trainer.dpo_trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa


harness.RUN["trl_dpo"] = run_dpo

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_dpo, warm)
