"""Objects of transformers, TRL and PEFT as plain values: read by attribute, nothing of theirs is imported."""

# pyright: basic
# What this reads has no types of its own.
from __future__ import annotations

from typing import Any

_PLAIN = (str, int, float, bool)


def is_config(thing: Any) -> bool:
    """Whether it is a model's config."""
    return hasattr(thing, "model_type") and hasattr(thing, "to_dict") and not hasattr(thing, "forward")


def is_model(thing: Any) -> bool:
    """Whether it is a model, also on the meta device."""
    return hasattr(thing, "forward") and hasattr(thing, "config")


def config_text(config: Any) -> str:
    """A model's config as JSON, as `config.json` has it."""
    return written(plain(config.to_dict()))


def written(values: dict[str, Any]) -> str:
    """Values as JSON."""
    import json

    return json.dumps(values)


def name_of(config: Any) -> str:
    """What answers call the model."""
    return str(getattr(config, "_name_or_path", "") or type(config).__name__)


def facts_of_model(model: Any) -> list[tuple[str, str]]:
    """What a live model says beside its config, as keys of a job."""
    first = next(iter(model.parameters()), None)
    words = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    precision = words.get(str(plain(getattr(first, "dtype", None))))
    said = [] if precision is None else [("precision", precision)]
    attention = plain(getattr(model.config, "_attn_implementation", None))
    if attention:
        said.append(("attention", str(attention)))
    if getattr(model, "is_gradient_checkpointing", False):
        said.append(("gradient_checkpointing", "true"))
    return said


def plain(value: Any) -> Any:
    """A value as JSON has it: enumerations by their value, dtypes by their name, sets as lists."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(one) for one in value), key=str)
    return str(value).removeprefix("torch.")
