"""Functions that have a phase of their own. They are wrapped as their modules are imported, before anyone takes a function
by its name; PyTorch itself may not be there yet.
"""

import functools
import sys

from . import imports

NAMED = [
    ("torch.nn.utils.clip_grad", None, "clip_grad_norm_", "clip"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__", "wrap"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "__init__", "wrap"),
    ("torch.distributed.fsdp._fully_shard._fully_shard", None, "fully_shard", "wrap"),
    ("transformers.generation.utils", "GenerationMixin", "generate", "generate"),
    ("transformers.trainer", "Trainer", "evaluate", "evaluate"),
    ("trl.trainer.grpo_trainer", "GRPOTrainer", "_calculate_rewards", "reward"),
    ("trl.trainer.grpo_trainer", "GRPOTrainer", "_generate_and_score_completions", "prepare"),
    ("trl.trainer.rloo_trainer", "RLOOTrainer", "_calculate_rewards", "reward"),
    ("trl.trainer.rloo_trainer", "RLOOTrainer", "_generate_and_score_completions", "prepare"),
]
"""Module, class (or none), function, phase."""


def install():
    """Arranges for all of them."""
    for module, owner, function, phase in NAMED:
        imports.after(module, functools.partial(_wrap_named, owner=owner, function=function, phase=phase))


def _wrap_named(module, owner, function, phase):
    holder = getattr(module, owner, None) if owner else module
    original = getattr(holder, function, None)
    if original is not None:
        setattr(holder, function, phased(original, phase))


def phased(function, phase):
    """The function as a phase; before the device is there, it is the function alone."""
    @functools.wraps(function)
    def begins(*args, **kwargs):
        phases = sys.modules.get("tonnage_rehearse.phases")
        if phases is None:
            return function(*args, **kwargs)
        with phases.within(phase):
            return function(*args, **kwargs)

    return begins
