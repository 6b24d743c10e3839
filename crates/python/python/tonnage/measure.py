"""What a training takes, measured where it runs: the allocator's peaks by phase, beside the estimate.

    with tonnage.measure(model, args) as seen:
        train()
    print(seen)
"""

# pyright: basic
# What this reads has no types of its own.
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from ._answers import Estimate
    from ._job import Job

# Modules that call others do so many times a step; only the outermost call is a phase.
_active: list[Measured] = []
_ORDER = ("load", "forward", "backward", "optimizer", "between")


class Peak:
    """Peaks of a phase in bytes, of all its times; what was alive when it began counts."""

    __slots__ = ("allocated_bytes", "reserved_bytes")

    def __init__(self, allocated_bytes: int = 0, reserved_bytes: int = 0) -> None:
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes

    def raise_to(self, allocated_bytes: int, reserved_bytes: int) -> None:
        """Takes the higher of what it has and what was seen."""
        self.allocated_bytes = max(self.allocated_bytes, allocated_bytes)
        self.reserved_bytes = max(self.reserved_bytes, reserved_bytes)

    def __repr__(self) -> str:
        return f"Peak(allocated_bytes={self.allocated_bytes}, reserved_bytes={self.reserved_bytes})"


class Measured:
    """What `tonnage.measure()` saw on one device."""

    def __init__(self, device: Any = None, estimate: Estimate | None = None) -> None:
        self.device = device
        self.estimate = estimate
        """What was predicted, where a job was given."""
        self.phases: dict[str, Peak] = {}
        """`load` until the first forward pass; `forward`, `backward` and `optimizer`; `between` for all else."""
        self.steps = 0
        """Calls of an optimizer's `step`."""
        self._phase = "load"
        self._undo: list[Any] = []
        self._in_backward = False
        self._depth = 0

    @property
    def peak_allocated_bytes(self) -> int:
        """The highest `torch.cuda.max_memory_allocated()` of the phases."""
        return max((peak.allocated_bytes for peak in self.phases.values()), default=0)

    @property
    def peak_reserved_bytes(self) -> int:
        """The highest `torch.cuda.max_memory_reserved()` of the phases."""
        return max((peak.reserved_bytes for peak in self.phases.values()), default=0)

    @property
    def peak_phase(self) -> str | None:
        """The phase in which most was allocated."""
        return max(self.phases, key=lambda name: self.phases[name].allocated_bytes, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The same in the words of an estimate."""
        estimated = self.estimate
        return {
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "peak_phase": self.peak_phase,
            "peak_per_phase": {name: peak.allocated_bytes for name, peak in self.phases.items()},
            "peak_reserved_per_phase": {name: peak.reserved_bytes for name, peak in self.phases.items()},
            "steps": self.steps,
            "estimated_peak_allocated_bytes": None if estimated is None else estimated.peak_allocated_bytes,
            "estimated_peak_reserved_bytes": None if estimated is None else estimated.peak_reserved_bytes,
        }

    def __repr__(self) -> str:
        lines = [f"{'phase':<12}{'peak allocated':>16}{'reserved':>14}"]
        for name in sorted(self.phases, key=_ORDER.index):
            peak = self.phases[name]
            lines.append(f"{name:<12}{gib(peak.allocated_bytes):>16}{gib(peak.reserved_bytes):>14}")
        lines.append(f"{'measured':<12}{gib(self.peak_allocated_bytes):>16}{gib(self.peak_reserved_bytes):>14}  over {self.steps} steps")
        if self.estimate is not None:
            lines.append(f"{'estimated':<12}{gib(self.estimate.peak_allocated_bytes):>16}{gib(self.estimate.peak_reserved_bytes):>14}")
        return "\n".join(lines)

    def __enter__(self) -> Measured:
        torch = _torch()
        torch.cuda.reset_peak_memory_stats(self.device)
        _active.append(self)
        self._hook_modules()
        self._hook_backward(torch)
        self._hook_optimizers()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_phase()
        _active.remove(self)
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _begin(self, phase: str) -> None:
        if phase != self._phase:
            self._end_phase()
            self._phase = phase

    def _end_phase(self) -> None:
        cuda = _torch().cuda
        peak = self.phases.setdefault(self._phase, Peak())
        peak.raise_to(cuda.max_memory_allocated(self.device), cuda.max_memory_reserved(self.device))
        # The next phase's peaks are its own.
        cuda.reset_peak_memory_stats(self.device)

    def _hook_modules(self) -> None:
        modules = sys.modules["torch.nn.modules.module"]

        def enter(*_: object) -> None:
            # What checkpointing runs again belongs to the backward pass.
            if not self._in_backward and self._depth == 0:
                self._begin("forward")
            self._depth += 1

        def leave(*_: object) -> None:
            self._depth -= 1

        before = modules.register_module_forward_pre_hook(enter)
        after = modules.register_module_forward_hook(leave, always_call=True)
        self._undo += [before.remove, after.remove]

    def _hook_backward(self, torch: Any) -> None:
        # What every way into PyTorch's autograd goes through (torch 2.1 to 2.11, `torch/autograd/graph.py`).
        graph: Any = sys.modules.get("torch.autograd.graph")
        places = [module for module in (torch.autograd, graph) if hasattr(module, "_engine_run_backward")]
        for module in places:
            self._undo.append(self._wrapped(module, module._engine_run_backward))

    def _wrapped(self, module: Any, original: Any) -> Any:
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            if self._in_backward:
                return original(*args, **kwargs)
            self._in_backward = True
            self._begin("backward")
            try:
                return original(*args, **kwargs)
            finally:
                self._in_backward = False
                self._begin("between")

        module._engine_run_backward = run_backward

        def undo() -> None:
            module._engine_run_backward = original

        return undo

    def _hook_optimizers(self) -> None:
        optimizers = sys.modules["torch.optim.optimizer"]

        def before(*_: object) -> None:
            self._begin("optimizer")

        def after(*_: object) -> None:
            self.steps += 1
            self._begin("between")

        pre = optimizers.register_optimizer_step_pre_hook(before)
        post = optimizers.register_optimizer_step_post_hook(after)
        self._undo += [pre.remove, post.remove]


def measure(job: Job | Any = None, *live: Any, device: Any = None, **keys: Any) -> Measured:
    """Measures what runs in the block on a CUDA device: peaks by phase, beside the estimate of a job where one is given.

    `job` is a `tonnage.Job`, or what `tonnage.estimate` takes. The block resets PyTorch's peaks at every phase: read those of
    `torch.cuda` before or after it, not in it.
    """
    from ._job import Job

    asked = job if isinstance(job, Job) or job is None else Job(job, *live, **keys)
    return Measured(device, None if asked is None else asked.estimate())


def peaks() -> tuple[int, int]:
    """Peaks of allocated and reserved bytes on the current device, with those that a measurement has set back."""
    cuda = _torch().cuda
    allocated, reserved = cuda.max_memory_allocated(), cuda.max_memory_reserved()
    for seen in _active:
        allocated, reserved = max(allocated, seen.peak_allocated_bytes), max(reserved, seen.peak_reserved_bytes)
    return allocated, reserved


def gib(size: int) -> str:
    """A size for people."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _torch() -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports]

    if not torch.cuda.is_available():
        raise RuntimeError("tonnage.measure() reads the CUDA allocator, and PyTorch sees no GPU: `tonnage rehearse -- python train.py` runs without one")
    return torch
