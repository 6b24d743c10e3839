"""The GPU memory of a PyTorch training job, to the byte, before you rent the GPU.

    import tonnage
    answer = tonnage.estimate("gpt2", micro_batch_size=8, seq_len=1024, gpu="a100-80")
    answer.verdict, answer.total_bytes

The program `tonnage` is installed beside this module; both answer the same questions in the same words.
"""

from ._answers import Answer, Comparison, Cost, Diagnosis, Estimate, Fit, Plan, Replay, Variant
from ._errors import Place, TonnageError
from ._job import Job, compare, cost, doctor, estimate, fit, gpus, models, plan, replay, sweep
from ._native import version as _version
from .parts import Gpu, Model

__version__ = _version()

__all__ = [
    "Answer",
    "Comparison",
    "Cost",
    "Diagnosis",
    "Estimate",
    "Fit",
    "Gpu",
    "Job",
    "Model",
    "Place",
    "Plan",
    "Replay",
    "TonnageError",
    "Variant",
    "__version__",
    "compare",
    "cost",
    "doctor",
    "estimate",
    "fit",
    "gpus",
    "models",
    "plan",
    "replay",
    "sweep",
]
