"""The GPU memory of a PyTorch training job, to the byte, before you rent the GPU.

    import tonnage
    answer = tonnage.estimate("gpt2", micro_batch_size=8, seq_len=1024, gpu="a100-80")
    answer.verdict, answer.total_bytes

The program `tonnage` is installed beside this module; both answer the same questions in the same words.
"""

from typing import TYPE_CHECKING, Any

from ._answers import Answer, Comparison, Cost, Diagnosis, Estimate, Fit, Plan, Replay, Variant
from ._errors import Place, TonnageError
from ._job import Job, compare, cost, doctor, estimate, fit, gpus, models, plan, replay, sweep
from ._native import version as _version
from .parts import Gpu, Model

if TYPE_CHECKING:
    from ._guard import attempt_folder, guard, lease, log, longest_first, peaks, told, watch_out_of_memory
    from .callbacks import AccelerateCallback
    from .measure import Measured, measure

    Callback: Any
    LightningCallback: Any

__version__ = _version()

# What is asked for rarely, or needs another library, is imported when it is asked for.
_LATER = {
    "AccelerateCallback": ("callbacks", "AccelerateCallback"),
    "Measured": ("measure", "Measured"),
    "measure": ("measure", "measure"),
}
_MADE = {"Callback": "transformers_callback", "LightningCallback": "lightning_callback"}
# What a script can tell `tonnage run`, and be told by it; `tonnage_guard` is its older name.
_OF_GUARD = ("attempt_folder", "guard", "lease", "log", "longest_first", "peaks", "told", "watch_out_of_memory")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LATER:
        module, attribute = _LATER[name]
        found = getattr(import_module(f"tonnage.{module}"), attribute)
    elif name in _MADE:
        found = getattr(import_module("tonnage.callbacks"), _MADE[name])()
    elif name in _OF_GUARD:
        found = getattr(import_module("tonnage._guard"), name)
    else:
        raise AttributeError(f"module 'tonnage' has no attribute {name!r}")
    globals()[name] = found
    return found


__all__ = [
    "AccelerateCallback",
    "Answer",
    "Callback",
    "Comparison",
    "Cost",
    "Diagnosis",
    "Estimate",
    "Fit",
    "Gpu",
    "Job",
    "LightningCallback",
    "Measured",
    "Model",
    "Place",
    "Plan",
    "Replay",
    "TonnageError",
    "Variant",
    "__version__",
    "attempt_folder",
    "compare",
    "cost",
    "doctor",
    "estimate",
    "fit",
    "gpus",
    "guard",
    "lease",
    "log",
    "longest_first",
    "measure",
    "models",
    "peaks",
    "plan",
    "replay",
    "sweep",
    "told",
    "watch_out_of_memory",
]
