"""Why a question has no answer."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A place in a file: lines and columns count from 1."""

    file: str
    line: int
    column: int


class TonnageError(ValueError):
    """A job, an option or a file that has no answer.

    >>> import tonnage
    >>> try:
    ...     tonnage.estimate("gpt2", seq_len="many")
    ... except tonnage.TonnageError as error:
    ...     print(error.key, error.kind)
    seq_len value
    """

    problem: str
    """What is wrong; begins with the place where there is one."""
    hint: str | None
    """What to do next."""
    keys: tuple[str, ...]
    """The job's keys that it is about, the one at fault first."""
    place: Place | None
    """Where it stands, where it stands in a file."""
    kind: str
    """`unreadable`, `unknown_key`, `value`, `model`, `refused`, `unsimulated`; `input` where it is not about a job's keys."""

    def __init__(
        self,
        problem: str,
        hint: str | None = None,
        keys: list[str] | None = None,
        place: tuple[str, int, int] | None = None,
        kind: str = "input",
    ) -> None:
        super().__init__(problem, hint, keys, place, kind)
        self.problem = problem
        self.hint = hint
        self.keys = tuple(keys or ())
        self.place = Place(*place) if place else None
        self.kind = kind

    @property
    def key(self) -> str | None:
        """The key at fault."""
        return self.keys[0] if self.keys else None

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem
