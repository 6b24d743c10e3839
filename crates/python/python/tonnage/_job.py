"""A job, and the questions about it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._answers import Comparison, Cost, Diagnosis, Estimate, Fit, Plan, Replay
from ._errors import TonnageError
from ._native import ask, estimates
from ._native import doctor as ask_doctor
from ._native import estimate as ask_estimate
from ._settings import NOTHING, is_list, joined, words
from .parts import Gpu, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._live import Gathered
    from ._native import Estimated
    from ._settings import Asked, Pairs

    Setting = str | int | float | bool | None
    """A value of a key; None is what nobody says."""
    Settings = Setting | Sequence[Setting]
    """A value, or a list: a job of each value."""


class Job:
    """What is trained, on what: a model, and the keys of a job (`tonnage keys`) as keywords.

    A `.` of a key is written `_` (`lora_r`); `settings` takes any name as it is (`{"model.n_layer": 2}`). Names of Hugging Face's
    options mean what they mean there (`per_device_train_batch_size`). Nothing is read or calculated before a question is asked.

    The model may be a live one of transformers or its config; beside it, or instead of a name, stand a trainer's own objects
    (`SFTConfig`, `TrainingArguments`, `LoraConfig`, ...) or the trainer itself. Keywords go before what they say.

    >>> import tonnage
    >>> job = tonnage.Job("gpt2", micro_batch_size=8, gpu="l4")
    >>> job
    Job('gpt2', micro_batch_size=8, gpu='l4')
    >>> job.estimate().total_bytes < job.replace(micro_batch_size=16).estimate().total_bytes
    True
    """

    __slots__ = ("_keys", "_live", "_model")

    def __init__(
        self,
        model: Any = None,
        *live: Any,
        settings: Mapping[str, Settings] | None = None,
        **keys: Settings,
    ) -> None:
        self._model = model
        self._live = live
        self._keys: dict[str, Settings] = {**(settings or {}), **keys}

    def __repr__(self) -> str:
        live = (repr(self._model) if isinstance(self._model, str) else type(self._model).__name__, *(type(one).__name__ for one in self._live))
        return f"Job({', '.join((*live, *(f'{key}={value!r}' for key, value in self._keys.items())))})"

    def replace(self, **keys: Settings) -> Job:
        """The same job with other values."""
        return Job(self._model, *self._live, settings={**self._keys, **keys})

    def on(self, gpu: str | None) -> Job:
        """The same job on a GPU, unless it names one itself."""
        return self if gpu is None or "gpu" in self._keys else self.replace(gpu=gpu)

    def estimate(self) -> Estimate:
        """What it needs, and whether it fits."""
        return Estimate(ask_estimate(self._asked(self._keys)))

    def sweep(self) -> list[dict[str, Any]]:
        """A row for every combination of the values that are lists, on all cores: see `tonnage.sweep`."""
        jobs = _combinations(self._keys)
        lists = [key for key, value in self._keys.items() if is_list(value)]
        answers = estimates([self._asked(keys) for keys in jobs])
        return [{**{key: keys[key] for key in lists}, **_row(answer)} for keys, answer in zip(jobs, answers, strict=True)]

    def compare(self) -> Comparison:
        """Its estimates for every combination of the values that are lists, side by side."""
        line = ["estimate"]
        for key, value in self._keys.items():
            if is_list(value):
                line += ["--compare", f"{key}={joined(value)}"]
        one = {key: value for key, value in self._keys.items() if not is_list(value)}
        return Comparison(ask(line, self._asked(one)))

    def fit(
        self,
        *,
        gpus: Sequence[str] | str | None = None,
        rows: Iterable[int] | None = None,
        models: Sequence[str] | None = None,
        solve: str | None = None,
        largest: bool = True,
        prune: bool = False,
    ) -> Fit:
        """Which batch fits which GPU, as `tonnage fit`: of keys that are lists, every combination."""
        line = words("fit", gpus=gpus, rows=rows, models=models, solve=solve, no_largest=not largest and solve is None, prune=prune)
        return Fit(ask(line, self._asked(self._keys, lists=True)))

    def plan(
        self,
        *,
        budget: float | None = None,
        deadline: str | None = None,
        gpus: Sequence[str] | str | None = None,
        counts: Iterable[int] | None = None,
        change_training: bool = False,
        write: str | os.PathLike[str] | None = None,
    ) -> Plan:
        """What makes it fit, as `tonnage plan`; with a budget, a deadline or GPUs, the cheapest way to run it."""
        line = words("plan", budget=budget, deadline=deadline, gpus=gpus, counts=counts, change_training=change_training, write=write)
        return Plan(ask(line, self._asked(self._keys)))

    def cost(self, *, suite: str | os.PathLike[str] | None = None) -> Cost:
        """Hours, energy and dollars, as `tonnage cost`: of keys that are lists, every combination."""
        return Cost(ask(words("cost", suite=suite), self._asked(self._keys, lists=True)))

    def _asked(self, keys: Mapping[str, Settings], lists: bool = False) -> Asked:
        said = {key: value for key, value in keys.items() if value is not None}
        if not lists:
            for key, value in said.items():
                if is_list(value) and not isinstance(value, frozenset):
                    raise TonnageError(
                        f"`{key}` is a list", "one estimate is of one value: `tonnage.sweep` and `compare` take lists", [key], None, "value"
                    )
        settings = [(key, joined(value)) for key, value in said.items()]
        model, configs, objects = self._gathered()
        return (model, settings, configs, objects, [], sys.prefix)

    def _gathered(self) -> tuple[str | None, Pairs, Pairs]:
        """The model's name, configs of models, and what objects say."""
        things = [one for one in (self._model, *self._live) if one is not None]
        if not things:
            return (None, [], [])
        if len(things) == 1 and isinstance(things[0], str):
            return (things[0], [], [])
        from ._live import Gathered

        gathered = Gathered(tuple(things))
        if gathered.parameters is not None:
            builds = _parameters_of(gathered)
            if builds is not None and builds != gathered.parameters:
                gathered = gathered.differing(builds)
        return gathered.name, gathered.configs, gathered.objects


def _parameters_of(gathered: Gathered) -> int | None:
    """How many parameters the configs of a live model build; None where they build none, which the question itself will say."""
    alone: Asked = (gathered.name, [("micro_batch_size", "1"), ("seq_len", "1")], gathered.configs, [], [], sys.prefix)
    try:
        return Estimate(ask_estimate(alone)).model.param_count
    except TonnageError:
        return None


def estimate(model: Any = None, *live: Any, settings: Mapping[str, Settings] | None = None, **keys: Settings) -> Estimate:
    """What a job needs, and whether it fits: `Job(...).estimate()`.

    >>> import tonnage
    >>> tonnage.estimate("gpt2", micro_batch_size=8, seq_len=1024, gpu="a100-80").verdict
    'fits'
    """
    return Job(model, *live, settings=settings, **keys).estimate()


def sweep(model: Any = None, *live: Any, settings: Mapping[str, Settings] | None = None, **keys: Settings) -> list[dict[str, Any]]:
    """A row for every combination of values given as lists, which pandas and polars take; of a job that cannot be, `error` says why.

    >>> import tonnage
    >>> rows = tonnage.sweep("gpt2", micro_batch_size=[1, 2], gpu=["l4", "t4"], seq_len=64)
    >>> [(row["micro_batch_size"], row["gpu"], row["verdict"]) for row in rows]
    [(1, 'l4', 'fits'), (1, 't4', 'fits'), (2, 'l4', 'fits'), (2, 't4', 'fits')]
    """
    return Job(model, *live, settings=settings, **keys).sweep()


def compare(model: Any = None, *live: Any, settings: Mapping[str, Settings] | None = None, **keys: Settings) -> Comparison:
    """Estimates of one job with other values, side by side: `Job(...).compare()`."""
    return Job(model, *live, settings=settings, **keys).compare()


def fit(
    model: Any = None,
    *live: Any,
    gpus: Sequence[str] | str | None = None,
    rows: Iterable[int] | None = None,
    models: Sequence[str] | None = None,
    solve: str | None = None,
    largest: bool = True,
    prune: bool = False,
    settings: Mapping[str, Settings] | None = None,
    **keys: Settings,
) -> Fit:
    """Which batch fits which GPU: `Job(...).fit(...)`."""
    job = Job(model, *live, settings=settings, **keys)
    return job.fit(gpus=gpus, rows=rows, models=models, solve=solve, largest=largest, prune=prune)


def plan(
    model: Any = None,
    *live: Any,
    budget: float | None = None,
    deadline: str | None = None,
    gpus: Sequence[str] | str | None = None,
    counts: Iterable[int] | None = None,
    change_training: bool = False,
    write: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Settings] | None = None,
    **keys: Settings,
) -> Plan:
    """What makes a job fit, or the cheapest way to run it: `Job(...).plan(...)`.

    >>> import tonnage
    >>> found = tonnage.plan("gpt2", micro_batch_size=32, gpu="t4")
    >>> found.base.verdict, found.together.verdict
    ('does_not_fit', 'fits')
    """
    job = Job(model, *live, settings=settings, **keys)
    return job.plan(budget=budget, deadline=deadline, gpus=gpus, counts=counts, change_training=change_training, write=write)


def cost(
    model: Any = None,
    *live: Any,
    suite: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Settings] | None = None,
    **keys: Settings,
) -> Cost:
    """Hours, energy and dollars: `Job(...).cost(...)`."""
    return Job(model, *live, settings=settings, **keys).cost(suite=suite)


def doctor(
    text: str | bytes | None = None,
    *,
    paths: Iterable[str | os.PathLike[str]] = (),
    exit_status: int | None = None,
    job: Job | str | None = None,
) -> Diagnosis:
    """What killed a job, by the text of its log, by logs and folders of logs, or by its exit status; beside the estimate of `job`.

    >>> import tonnage
    >>> text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.56 GiB"
    >>> tonnage.doctor(text).cause.title
    'the job needs more memory than the GPU has'
    """
    texts = [] if text is None else [("text", text.encode() if isinstance(text, str) else text)]
    files = [os.fspath(path) for path in paths]
    if not texts and not files and exit_status is None:
        raise TonnageError("there is no log", "give its text, `paths` of logs, or an `exit_status`")
    if exit_status is not None and not (-64 <= exit_status <= -1 or 1 <= exit_status <= 255):
        raise TonnageError(f"`exit_status` {exit_status} is not of a failure", "a shell's is 1 to 255, a signal as Python states it -1 to -64")
    beside = Job(job) if isinstance(job, str) else job
    asked = None if beside is None else beside._asked(beside._keys)  # pyright: ignore[reportPrivateUsage]
    return Diagnosis(ask_doctor(files, texts, exit_status, asked))


def replay(
    snapshot: str | os.PathLike[str] | Mapping[str, Any],
    *,
    allocator: str | None = None,
    capacity: str | None = None,
    device: int = 0,
) -> Replay:
    """A recording through PyTorch's caching allocator, with other settings or on a smaller GPU: a timeline, a file of
    `torch.cuda.memory._dump_snapshot()`, or what `torch.cuda.memory._snapshot()` returns."""
    if isinstance(snapshot, (str, os.PathLike)):
        path = os.fspath(snapshot)
        return Replay(ask(words("trace", "replay", path, allocator=allocator, capacity=capacity, device=device), NOTHING))
    import pickle
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tonnage-") as folder:
        path = os.path.join(folder, "snapshot.pickle")
        with open(path, "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        return replay(path, allocator=allocator, capacity=capacity, device=device)


def gpus(containing: str | None = None) -> list[Gpu]:
    """The GPUs of the catalog, of those whose id or name contains a text.

    >>> import tonnage
    >>> [gpu.id for gpu in tonnage.gpus("L40S")]
    ['l40s']
    """
    return [Gpu(fields) for fields in ask(words("gpus", containing), NOTHING).to_dict()["gpus"]]


def models(containing: str | None = None) -> list[Model]:
    """The published models that are built in, of those whose name contains a text.

    >>> import tonnage
    >>> tonnage.models("gpt2-xl")[0].parameters
    1557611200
    """
    return [Model(fields) for fields in ask(words("models", containing), NOTHING).to_dict()["models"]]


def _combinations(keys: Mapping[str, Settings]) -> list[dict[str, Setting]]:
    import itertools

    axes: list[list[Any]] = [list(value) if is_list(value) else [value] for value in keys.values()]  # type: ignore[arg-type]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*axes)]


def _row(answer: Estimated | Exception) -> dict[str, Any]:
    names = ("verdict", "total_bytes", "safe_bytes", "usable_bytes", "headroom_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "peak_phase")
    if isinstance(answer, Exception):
        return {**dict.fromkeys(names), "low_bytes": None, "high_bytes": None, "error": str(answer)}
    found = answer.to_dict()
    span = found["range_bytes"]
    return {**{name: found[name] for name in names}, "low_bytes": span["low"], "high_bytes": span["high"], "error": None}
