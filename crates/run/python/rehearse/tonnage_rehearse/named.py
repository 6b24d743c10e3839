"""Functions that have a phase of their own. They are wrapped as their modules are imported, before anyone takes a function
by its name; PyTorch itself may not be there yet.
"""

import functools

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


class Named:
    """Begins and ends the phases of named functions, once there is a session."""

    def __init__(self):
        self.phases = None
        """Set when the device is there; before, a named function is the function alone."""

    def install(self):
        """Arranges for all of them."""
        for module, owner, function, phase in NAMED:
            imports.after(module, functools.partial(self._wrap, owner=owner, function=function, phase=phase))

    def _wrap(self, module, owner, function, phase):
        holder = getattr(module, owner, None) if owner else module
        original = getattr(holder, function, None)
        if original is not None:
            setattr(holder, function, self.phased(original, phase))

    def phased(self, function, phase):
        """The function as a phase."""

        @functools.wraps(function)
        def begins(*args, **kwargs):
            if self.phases is None:
                return function(*args, **kwargs)
            with self.phases.within(phase):
                return function(*args, **kwargs)

        return begins
