"""Values of keys and options as the text that the program reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    Pairs: TypeAlias = list[tuple[str, str]]
    Asked: TypeAlias = tuple[str | None, Pairs, Pairs, Pairs, list[str], str | None]
    """`(model, settings, configs, objects, notes, environment)`"""

NOTHING: Asked = (None, [], [], [], [], None)


def words(*command: str | None, **options: Any) -> list[str]:
    """A command with its flags, as one types them; what is None or False is left out."""
    line = [word for word in command if word is not None]
    for name, value in options.items():
        if value is None or value is False:
            continue
        flag = "--" + name.replace("_", "-")
        line.append(flag if value is True else f"{flag}={joined(value)}")
    return line


def is_list(value: object) -> bool:
    return not isinstance(value, (str, bytes, os.PathLike)) and hasattr(value, "__iter__")


def joined(value: Any) -> str:
    return ",".join(_text(one) for one in value) if is_list(value) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Members of enumerations, as options of trainers are, mean their value.
    value = getattr(value, "value", value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value).removeprefix("torch.")
