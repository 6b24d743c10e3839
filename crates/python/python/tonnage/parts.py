"""The parts of answers: what JSON has as fields are attributes here, under the same names (docs/json.md). Sizes are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar


class Record:
    """A part of an answer."""

    __slots__ = ("_fields",)
    _fields: dict[str, Any]
    # The fields that are records themselves, or lists of them.
    _parts: ClassVar[dict[str, type[Record]]] = {}

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        return self._fields

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.to_dict()]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Copy and pickle ask for such names before there are fields.
            if name.startswith("_"):
                raise AttributeError(name)
            try:
                value = self.to_dict()[name]
            except KeyError:
                raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self.to_dict())}") from None
            return _part(self._parts.get(name), value)


def _part(kind: type[Record] | None, value: dict[str, Any] | list[Any] | None) -> Any:
    if kind is None or value is None:
        return value
    return kind(value) if isinstance(value, dict) else [_part(kind, one) for one in value]


class Range(Record):
    low: int
    high: int


class Span(Record):
    """A range with what is likely: seconds, hours or dollars."""

    low: float
    typical: float
    high: float


class ModelFacts(Record):
    name: str
    model_type: str
    param_count: int
    trainable_params: int


class GpuFacts(Record):
    id: str
    name: str
    usable_bytes: int
    compute_capability: str
    multiprocessors: int


class Carrier(Record):
    """A GPU of the catalog that carries the job."""

    gpu: str
    name: str
    sold_gb: int
    verdict: str
    total_bytes: int
    safe_bytes: int | None
    usable_bytes: int


class Value(Record):
    """A value of the job, and who decided it."""

    key: str
    value: Any
    origin: str


class OutOfMemory(Record):
    event: int
    phase: str | None
    op: str
    module: str
    node: str | None
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


class LiveTensor(Record):
    bytes: int
    category: str
    op: str
    module: str
    node: str | None
    phase: str


class Caveat(Record):
    """What is not known of the answer, and by how many bytes it widens the range."""

    code: str
    text: str
    widens_bytes: int


class Process(Record):
    name: str
    count: int
    total_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    context_bytes: int
    peak_phase: str
    peak_per_phase: dict[str, int]
    verdict: str | None


class GpuLoad(Record):
    first: int
    count: int
    processes: list[dict[str, int]]
    total_bytes: int
    safe_bytes: int | None
    usable_bytes: int | None
    verdict: str | None


class Engine(Record):
    awake: int
    asleep: int
    source: str


class Price(Record):
    dollars_per_gpu_hour: float
    source: str


class Bill(Record):
    """What a job takes in time and money."""

    step_seconds: Span
    basis: str
    parts: list[dict[str, Any]]
    flops_per_step: int
    notes: list[str]
    steps: int
    steps_are_given: bool
    gpus: int
    wall_seconds: Span
    gpu_hours: Span
    kilowatt_hours: Span | None
    dollars: Span | None
    price: Price | None
    _parts = {
        "step_seconds": Span,
        "wall_seconds": Span,
        "gpu_hours": Span,
        "kilowatt_hours": Span,
        "dollars": Span,
        "price": Price,
    }


class Cell(Record):
    """A variant of a job on a GPU."""

    gpu: str
    verdict: str | None
    total_bytes: int | None
    safe_bytes: int | None
    usable_bytes: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_phase: str | None
    value: int | None
    """With `solve`: the largest value that fits."""
    error: str | None


class FitRow(Record):
    changes: dict[str, Any]
    micro_batch_size: int | None
    gradient_accumulation_steps: int | None
    rows_per_step: int | None
    gpus: list[Cell]
    _parts = {"gpus": Cell}


class Largest(Record):
    micro_batch_size: int
    gradient_accumulation_steps: int
    total_bytes: int
    safe_bytes: int | None
    more_may_fit: bool


class Way(Record):
    """A job as it is, or changed: whether it fits, and what it costs."""

    name: str
    text: str
    gpu: str
    remedies: list[str]
    results: str
    slowdown: float
    slowdown_range: Span
    basis: str
    caution: str | None
    saves_bytes: int
    changes: dict[str, Any]
    patch: dict[str, Any]
    verdict: str
    total_bytes: int
    usable_bytes: int
    cost: Bill | None
    _parts = {"slowdown_range": Span, "cost": Bill}


class Priced(Record):
    """A configuration and its cost."""

    name: str
    count: int
    changes: dict[str, Any]
    gpu: str | None
    factor: float | None
    verdict: str | None
    total_bytes: int | None
    cost: Bill | None
    error: str | None
    _parts = {"cost": Bill}


class Evidence(Record):
    log: str
    line: int
    rank: int | None
    count: int
    signature: str
    quoted: str


class Cause(Record):
    title: str
    reasons: list[str]
    figures: dict[str, Any]
    evidence: Evidence
    advice: list[dict[str, Any]]
    _parts = {"evidence": Evidence}


class Gpu(Record):
    """A GPU of the catalog."""

    id: str
    name: str
    usable_bytes: int
    context_bytes: int | None
    sold_gb: int
    compute_capability: str
    multiprocessors: int
    bandwidth_gb_s: float | None
    tflops: dict[str, float | None]
    interconnect: str | None
    link_gb_s: float | None
    watts: int | None
    aliases: list[str]
    nvml: list[str]
    mig: list[dict[str, Any]]
    prices: list[dict[str, Any]]
    source: str


class Model(Record):
    """A model that is built in."""

    name: str
    parameters: int
    model_type: str
    simulated: bool
