"""What questions are answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from . import parts
from .parts import Record

if TYPE_CHECKING:
    from ._native import Estimated, Kept


class Answer(Record):
    """An answer: attributes are the fields of `--json`, sizes in bytes; `repr` is the screen."""

    __slots__ = ("_kept",)
    _kept: Kept | Estimated

    def __init__(self, kept: Kept | Estimated) -> None:
        self._kept = kept

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        try:
            return self._fields
        except AttributeError:
            self._fields = self._kept.to_dict()
            return self._fields

    def __repr__(self) -> str:
        return self._kept.screen().rstrip("\n")

    def _repr_html_(self) -> str:
        return _preformatted(repr(self))


class Estimate(Answer):
    """What a job needs, and whether it fits.

    >>> import tonnage
    >>> answer = tonnage.estimate("gpt2", micro_batch_size=8, precision="bf16", gpu="l4")
    >>> answer.verdict
    'fits'
    >>> answer.total_bytes < answer.usable_bytes
    True
    >>> answer.to_dict()["total_bytes"] == answer.total_bytes
    True
    """

    __slots__ = ()
    version: int
    model: parts.ModelFacts
    gpu: parts.GpuFacts | None
    job: list[parts.Value]
    verdict: str | None
    num_alloc_retries: int | None
    out_of_memory: parts.OutOfMemory | None
    total_bytes: int
    range_bytes: parts.Range
    margin_bytes: int
    safe_bytes: int | None
    least_bytes: int | None
    usable_bytes: int | None
    headroom_bytes: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    rounded512_peak_bytes: int
    peak_phase: str
    peak_per_phase: dict[str, int]
    peak_reserved_per_phase: dict[str, int]
    after_load_bytes: int
    steady_state_bytes: int
    context_bytes: parts.Range
    context_source: str
    engine_bytes: parts.Engine | None
    bytes_by_category_at_peak: dict[str, int]
    unsplit_bytes_at_peak: int
    bytes_by_module_at_peak: dict[str, int]
    bytes_by_model_at_peak: dict[str, int]
    largest_live_at_peak: list[parts.LiveTensor]
    n_events: int
    caveats: list[parts.Caveat]
    processes: list[parts.Process]
    gpus: list[parts.GpuLoad]
    room: list[dict[str, Any]] | None
    _parts: ClassVar[dict[str, type[Record]]] = {
        "model": parts.ModelFacts,
        "gpu": parts.GpuFacts,
        "sizes_as_on": parts.GpuFacts,
        "fits_from": parts.Carrier,
        "job": parts.Value,
        "out_of_memory": parts.OutOfMemory,
        "range_bytes": parts.Range,
        "context_bytes": parts.Range,
        "engine_bytes": parts.Engine,
        "largest_live_at_peak": parts.LiveTensor,
        "caveats": parts.Caveat,
        "processes": parts.Process,
        "gpus": parts.GpuLoad,
    }

    @property
    def fits_from(self) -> list[parts.Carrier]:
        """The GPUs of the catalog that carry the job, the smallest first; empty where the job names its GPU."""
        found: list[dict[str, Any]] = self.to_dict().get("fits_from") or []
        return [parts.Carrier(one) for one in found]

    @property
    def fits(self) -> bool:
        """Whether it surely fits: its GPU or, where none was named, one of the catalog."""
        if self.gpu is None:
            return any(carrier.verdict == "fits" for carrier in self.fits_from)
        return all(load.verdict == "fits" for load in self.gpus)

    def plot(self) -> str:
        """How the bytes rise and fall, as text."""
        return self._estimated().plot()

    def svg(self) -> str:
        """The same as a picture."""
        return self._estimated().svg()

    def _estimated(self) -> Estimated:
        return cast("Estimated", self._kept)

    def _repr_html_(self) -> str:
        return _preformatted(repr(self)) + self.svg()


class Fit(Answer):
    """Which batch fits which GPU; with `solve`, the largest value of a key that does.

    >>> import tonnage
    >>> table = tonnage.fit("gpt2", gpus=["l4"], rows=[1, 4096], seq_len=64)
    >>> [(row.micro_batch_size, row.gpus[0].verdict) for row in table.rows]
    [(1, 'fits'), (4096, 'does_not_fit')]
    """

    __slots__ = ()
    model: str
    rows: list[parts.FitRow]
    largest: list[parts.Largest | None]
    _parts = {"rows": parts.FitRow, "largest": parts.Largest}

    def cells(self) -> list[dict[str, Any]]:
        """A flat dictionary for every variant and GPU, as pandas and polars take them."""
        of_row = ("micro_batch_size", "gradient_accumulation_steps", "rows_per_step")
        return [
            {**row["changes"], **{name: row[name] for name in of_row if name in row}, **_flat(cell)}
            for row in self.to_dict()["rows"]
            for cell in row["gpus"]
        ]


class Plan(Answer):
    """What a job takes, and what makes it fit; after a search, the cheapest way within budget and deadline."""

    __slots__ = ()
    base: parts.Way
    remedies: list[parts.Way]
    together: parts.Way | None
    other_gpu: parts.Way | None
    declined: list[dict[str, str]]
    choice: str
    chosen: int | None
    ways: list[parts.Way]
    left_out: list[str]
    patch: dict[str, Any]
    _parts = {"base": parts.Way, "remedies": parts.Way, "together": parts.Way, "other_gpu": parts.Way, "ways": parts.Way}


class Cost(Answer):
    """Hours, energy and dollars of a job, or of each of its configurations."""

    __slots__ = ()
    model: str
    configurations: list[parts.Priced]
    total: dict[str, Any]
    _parts = {"configurations": parts.Priced}


class Diagnosis(Answer):
    """What killed a job.

    >>> import tonnage
    >>> tonnage.doctor(exit_status=137).cause.figures
    {'exit_code': -9}
    """

    __slots__ = ()
    logs: int
    lines: int
    cause: parts.Cause | None
    first_rank: int | None
    lines_after: int
    others: list[parts.Cause]
    echoes: list[parts.Cause]
    warnings: list[parts.Cause]
    job: dict[str, Any] | None
    _parts = {"cause": parts.Cause, "others": parts.Cause, "echoes": parts.Cause, "warnings": parts.Cause}


class Replay(Answer):
    """A recorded job under other settings of the allocator, or on a smaller GPU."""

    __slots__ = ()
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    rounded512_peak_bytes: int
    num_alloc_retries: int
    out_of_memory: dict[str, Any] | None
    phases: list[dict[str, Any]]


class Variant(Record):
    """A job of a comparison: what it changes, and its estimate or why there is none."""

    changes: dict[str, str]
    estimate: dict[str, Any] | None
    error: str | None


class Comparison(Answer):
    """One job with other values, side by side.

    >>> import tonnage
    >>> both = tonnage.compare("gpt2", precision=["fp32", "bf16"], gpu="l4", seq_len=64)
    >>> [variant.changes["precision"] for variant in both.compare]
    ['fp32', 'bf16']
    """

    __slots__ = ()
    compare: list[Variant]
    _parts = {"compare": Variant}


def _flat(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cell.items() if not isinstance(value, (dict, list))}


def _preformatted(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, entity)
    return f"<pre>{text}</pre>"
