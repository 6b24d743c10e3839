"""What the command asks of the shim: environment variables, read once."""

import functools
import os
from dataclasses import dataclass


@dataclass
class Settings:
    """See `crates/run/src/rehearse/environment.rs`, which writes them."""

    folder: str
    """Where records and traces go."""
    steps: int
    """Optimizer steps after which to stop; 0: no bound."""
    seconds: float
    """Seconds of the process after which to stop; 0: no bound."""
    steady: int
    """Steps without a new peak after which to stop; 0: never."""
    patience: float
    """Seconds that a loop may read device values without anything else happening."""
    generate_length: int
    """Tokens that `generate` makes; 0: as many as it may."""
    trace_events: int
    """Allocations and frees to record at most."""
    trace_entries: int
    """Entries of PyTorch's buffer between two drains; what makes more without a boundary is not recorded to its end."""
    values: bool = True
    """Whether values of device tensors are followed."""
    worst_experts: bool = False
    """Whether tokens go to the same experts as far as they can, instead of to all alike."""
    longest: bool = False
    """Whether data loaders give the longest rows first."""
    row_length: int = 0
    """Tokens of every row that a data loader gives; 0: as they are."""


@functools.cache
def read():
    """The settings, or None in a process that is no rehearsal."""
    folder = os.environ.get("TONNAGE_REHEARSE_DIR")
    if not folder:
        return None
    return Settings(
        folder=folder,
        steps=int(_number("STEPS", 0)),
        seconds=_number("SECONDS", 0),
        steady=int(_number("STEADY", 3)),
        patience=_number("PATIENCE", 60),
        generate_length=int(_number("GENERATE_LENGTH", 0)),
        trace_events=int(_number("TRACE_EVENTS", 4_000_000)),
        trace_entries=int(_number("TRACE_ENTRIES", 2_000_000)),
        values=_number("VALUES", 1) != 0,
        worst_experts=_number("WORST_EXPERTS", 0) != 0,
        longest=_number("LONGEST", 0) != 0,
        row_length=int(_number("ROW_LENGTH", 0)),
    )


def _number(name, default):
    return float(os.environ.get("TONNAGE_REHEARSE_" + name) or default)
