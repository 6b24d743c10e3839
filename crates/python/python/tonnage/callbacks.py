"""The estimate at the start of a training and the measured peak after its warm-up, in its log: for transformers' Trainer
(`tonnage.Callback`), Lightning (`tonnage.LightningCallback`) and accelerate (`tonnage.AccelerateCallback`)."""

# pyright: basic
# What this reads has no types of its own.
from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .measure import gib, peaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._answers import Estimate
    from ._job import Job

WARM_UP_STEPS = 3
"""Optimizer steps until the allocator's peaks have been seen: the optimizer's state is there from the first on."""
NEAR = 0.95
"""The part of the GPU's memory above which a run may not survive its longest batch."""


class Watch:
    """What every callback does: says the estimate, the peaks, and where the limit is near."""

    def __init__(self, job: Job | Estimate | None = None, *, log: Callable[[dict[str, float], int], None], warm_up_steps: int = WARM_UP_STEPS) -> None:
        self.job = job
        self.log = log
        self.warm_up_steps = warm_up_steps
        self.estimate: Estimate | None = None
        """What was predicted; None where there was nothing to predict from, or it failed, which is said."""
        self.is_warned = False

    def begin(self, *live: Any) -> None:
        """Estimates the job, or what `live` objects say, on this process's GPU."""
        self.estimate = self._estimated(live)
        if self.estimate is None:
            return
        found = self.estimate
        self.log(
            {
                "memory/estimated_peak_allocated_bytes": found.peak_allocated_bytes,
                "memory/estimated_peak_reserved_bytes": found.peak_reserved_bytes,
                "memory/estimated_total_bytes": found.total_bytes,
            },
            0,
        )
        beside = f" of {gib(found.usable_bytes)}" if found.usable_bytes else ""
        _say(f"estimated {gib(found.peak_reserved_bytes)} reserved by PyTorch, {gib(found.total_bytes)} in all{beside}: {found.verdict or 'no GPU'}")
        if found.verdict == "does_not_fit":
            _say("this does not fit: `tonnage plan` says what would", warns=True)

    def step(self, step: int) -> None:
        """Reads the allocator after an optimizer step."""
        cuda = _cuda()
        if cuda is None:
            return
        allocated, reserved = peaks()
        if step == self.warm_up_steps:
            self.log({"memory/measured_peak_allocated_bytes": allocated, "memory/measured_peak_reserved_bytes": reserved}, step)
            beside = "" if self.estimate is None else f", estimated {gib(self.estimate.peak_reserved_bytes)}"
            _say(f"measured {gib(reserved)} reserved by PyTorch after {step} steps{beside}")
        self._warn_near(reserved, cuda)

    def _warn_near(self, reserved: int, cuda: Any) -> None:
        total = cuda.get_device_properties(cuda.current_device()).total_memory
        # Contexts and neighbours count as well, which only the driver knows.
        used = max(reserved, total - cuda.mem_get_info()[0])
        if used > NEAR * total and not self.is_warned:
            self.is_warned = True
            _say(f"{gib(used)} of {gib(total)} are in use: a longer batch may not fit", warns=True)

    def _estimated(self, live: tuple[Any, ...]) -> Estimate | None:
        from ._answers import Estimate
        from ._errors import TonnageError
        from ._job import Job

        try:
            if isinstance(self.job, Estimate):
                return self.job
            if self.job is not None:
                return self.job.on(this_gpu()).estimate()
            return Job(*live).on(this_gpu()).estimate() if live else None
        except TonnageError as error:
            _say(f"no estimate: {error}", warns=True)
            return None


def this_gpu() -> str | None:
    """The GPU of this process as a job names it; None where PyTorch sees none."""
    cuda = _cuda()
    if cuda is None:
        return None
    from ._errors import TonnageError
    from ._job import gpus

    found = cuda.get_device_properties(cuda.current_device())
    size = f"{found.total_memory >> 20}MiB,sm_{found.major}{found.minor},multiprocessors={found.multi_processor_count}"
    try:
        known = [gpu for gpu in gpus() if found.name in gpu.nvml or found.name == gpu.name]
    except TonnageError:
        return size
    # A slice of a GPU, or one of another size under the same name, is written out.
    near = [gpu.id for gpu in known if abs(gpu.usable_bytes - found.total_memory) < gpu.usable_bytes // 20]
    return near[0] if near else size


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _say(text: str, warns: bool = False) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"tonnage: {text}", file=sys.stderr if warns else sys.stdout, flush=True)


def transformers_callback() -> type:
    """The class `tonnage.Callback`, made when it is asked for: its base is transformers' own."""
    from transformers import TrainerCallback  # type: ignore[import-not-found]  # pyright: ignore

    class Callback(TrainerCallback):  # type: ignore[misc,no-any-unimported,unused-ignore]
        """For transformers' Trainer and TRL's: `Trainer(..., callbacks=[tonnage.Callback()])`.

        The estimate is of the trainer's own model and arguments, or of `job`; `tonnage run` predicted it where it started
        this process. Figures go through `Trainer.log`: into its history and to every tracker."""

        def __init__(self, job: Any = None, warm_up_steps: int = WARM_UP_STEPS) -> None:
            self.watch = Watch(job, log=self._log, warm_up_steps=warm_up_steps)
            self.trainer: Any = None
            self.state: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if not state.is_world_process_zero:
                return
            self.state, self.trainer = state, _trainer_of(args)
            # The first estimate is made before the first step: what a model's wrapper has, its own model says.
            model = given.get("model")
            self.watch.begin(getattr(model, "module", model), args)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                self.state = state
                self.watch.step(state.global_step)

        def _log(self, values: dict[str, float], step: int) -> None:
            if self.trainer is not None:
                self.trainer.log(dict(values))
            else:
                self.state.log_history.append({**values, "step": step})

    return Callback


def _trainer_of(args: Any) -> Any:
    """The trainer that calls: transformers hands its callbacks everything but itself (5.17, `trainer_callback.py`)."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if hasattr(caller, "callback_handler") and getattr(caller, "args", None) is args:
            return caller
        frame = frame.f_back
    return None


def lightning_callback() -> type:
    """The class `tonnage.LightningCallback`, made when it is asked for: its base is Lightning's own."""
    try:
        from lightning.pytorch import Callback as Base  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore
    except ImportError:
        from pytorch_lightning import Callback as Base  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore

    class LightningCallback(Base):  # type: ignore[misc,no-any-unimported,unused-ignore]
        """For Lightning: `Trainer(callbacks=[tonnage.LightningCallback(job)])`; figures go to the trainer's loggers.

        A module says nothing of how it is trained: `job` is what the estimate is of. Without it, the peak alone is said."""

        def __init__(self, job: Any = None, warm_up_steps: int = WARM_UP_STEPS) -> None:
            super().__init__()
            self.watch = Watch(job, log=self._log, warm_up_steps=warm_up_steps)
            self.trainer: Any = None
            self.last_step = -1

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.trainer = trainer
            self.watch.begin()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            # Of accumulated batches only the last is a step.
            if trainer.global_step != self.last_step:
                self.last_step = trainer.global_step
                self.watch.step(trainer.global_step)

        def _log(self, values: dict[str, float], step: int) -> None:
            for logger in self.trainer.loggers:
                logger.log_metrics(values, step=step)

    return LightningCallback


class AccelerateCallback:
    """For loops of accelerate, which has no callbacks: `seen = tonnage.AccelerateCallback(accelerator, job)` before the loop,
    `seen.step()` after `optimizer.step()`; figures go through `accelerator.log`."""

    def __init__(self, accelerator: Any, job: Any = None, warm_up_steps: int = WARM_UP_STEPS) -> None:
        self.accelerator = accelerator
        self.steps = 0
        self.watch = Watch(job, log=self._log, warm_up_steps=warm_up_steps)
        self.watch.begin()

    def step(self) -> None:
        """Counts an optimizer step; batches that are only accumulated are none."""
        if self.accelerator.sync_gradients:
            self.steps += 1
            self.watch.step(self.steps)

    def _log(self, values: dict[str, float], step: int) -> None:
        self.accelerator.log(values, step=step)
