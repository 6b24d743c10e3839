"""Ranks of a trainer over a model in shards, in one process as fake_ranks.py starts them: what the scripts here share.

Field `sharded` of a case, beside `world`: null, {"fsdp1": fields of the Trainer's fsdp_config for version 1} or {"zero":
zero_optimization of DeepSpeed's JSON}. The model is made on the host then, as the Trainer leaves it there; under
stage 3 the trainer loads it and its reference from a folder.
"""
import measure_rl as harness

from fake_ranks import start_ranks


def start(case):
    if case["world"] == 1:
        return
    start_ranks(case["world"])
    if "zero" in (case["sharded"] or {}):
        import measure_deepspeed
        measure_deepspeed.answer_checks()


def options(case):
    """Those of TrainingArguments."""
    sharded = case["sharded"] or {}
    if "fsdp1" in sharded:
        return dict(fsdp=True, fsdp_config={"version": 1, **sharded["fsdp1"]})
    if "zero" in sharded:
        half = case["precision"] in ("amp_bf16", "bf16_amp")
        return dict(deepspeed={
            "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto", "bf16": {"enabled": half}, "zero_optimization": sharded["zero"],
            "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9})
    return {}


def is_loaded(case):
    """Whether the trainer loads the model itself, from a folder, which under stage 3 is in parts."""
    return (case["sharded"] or {}).get("zero", {}).get("stage") == 3


def build(case, dtype, real):
    return harness.build(case["model"], dtype, real=real, device="cpu" if case["sharded"] else "cuda")[0]
