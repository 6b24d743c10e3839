"""Objects of transformers, TRL and PEFT as plain values: read by attribute, nothing of theirs is imported."""

# pyright: basic
# What this reads has no types of its own.
from __future__ import annotations

import os
from typing import Any

from ._errors import TonnageError

_PLAIN = (str, int, float, bool)


class Gathered:
    """What the objects of a question say: the model's name, configs of models, and objects by their attributes, both as JSON."""

    def __init__(self, things: tuple[Any, ...]) -> None:
        self.name: str | None = None
        self.configs: list[tuple[str, str]] = []
        self.objects: list[tuple[str, str]] = []
        self.parameters: int | None = None
        """Of a live model: how many parameters it has."""
        self._has_objects = False
        arguments: list[Any] = []
        for thing in _spread(things):
            is_named = isinstance(thing, (str, os.PathLike))
            if self.name is not None and (is_named or is_model(thing) or is_config(thing)):
                problem = f"two models are given: {self.name}, and {_short(thing)}"
                raise TonnageError(problem, "an estimate is of one; `tonnage.compare` is of several values of a key")
            if is_named:
                self.name = os.fspath(thing)
            elif is_model(thing):
                self._take_model(thing)
            elif is_config(thing):
                self._take_config(thing, dtype=getattr(thing, "dtype", None))
            elif hasattr(thing, "forward"):
                problem = f"{type(thing).__name__} is a module without a config of transformers"
                raise TonnageError(problem, "`tonnage rehearse -- python train.py` runs the script itself without a GPU", kind="model")
            else:
                arguments.append(thing)
        self.objects += [(_classes(one), written(attributes(one))) for one in arguments]
        if not self._has_objects and not arguments:
            # A config alone is the model as it is published.
            self.objects = []

    def differing(self, parameters: int) -> Gathered:
        """The same, with the model said to have another size than its config builds."""
        said = f"{self.parameters} instead of {parameters}"
        self.objects = [("model", _with(text, other_size=said)) if name == "model" else (name, text) for name, text in self.objects]
        return self

    def _take_config(self, config: Any, **facts: Any) -> None:
        self.name = name_of(config)
        self.configs.append((self.name, config_text(config)))
        said = {name: plain(value) for name, value in facts.items() if value is not None}
        self.objects.insert(0, ("model", written(said)))

    def _take_model(self, model: Any) -> None:
        self._has_objects = True
        self._take_config(model.config, **facts_of_model(model))
        parameters = _parameters(model)
        adapters = getattr(model, "peft_config", None)
        if isinstance(adapters, dict):
            self.objects += [(_classes(one), written(attributes(one))) for one in adapters.values()]
        elif not _is_quantized(model):
            self.parameters = sum(size for _, size, _ in parameters)


def _short(thing: Any) -> str:
    return repr(thing) if isinstance(thing, (str, os.PathLike)) else type(thing).__name__


def _spread(things: tuple[Any, ...]) -> list[Any]:
    """The objects, a trainer as its model and its arguments."""
    spread: list[Any] = []
    for thing in things:
        if thing is None:
            continue
        if hasattr(thing, "model") and hasattr(thing, "args") and hasattr(thing, "train"):
            spread += [thing.model, thing.args]
        else:
            spread.append(thing)
    return spread


def is_config(thing: Any) -> bool:
    """Whether it is a model's config."""
    return hasattr(thing, "model_type") and hasattr(thing, "to_dict") and not hasattr(thing, "forward")


def is_model(thing: Any) -> bool:
    """Whether it is a model, also on the meta device."""
    return hasattr(thing, "forward") and hasattr(getattr(thing, "config", None), "to_dict")


def config_text(config: Any) -> str:
    """A model's config as JSON, as `config.json` has it."""
    return written(plain(config.to_dict()))


def written(values: dict[str, Any]) -> str:
    """Values as JSON."""
    import json

    return json.dumps(values)


def _with(text: str, **more: Any) -> str:
    import json

    return json.dumps({**json.loads(text), **more})


def name_of(config: Any) -> str:
    """What answers call the model."""
    return str(getattr(config, "_name_or_path", "") or type(config).__name__)


def facts_of_model(model: Any) -> dict[str, Any]:
    """What a live model says beside its config; what the estimate cannot express is a text that says how much of it there is."""
    parameters = _parameters(model)
    dtypes = [dtype for dtype, _, _ in parameters]
    first = dtypes[0] if dtypes else None
    facts: dict[str, Any] = {
        "dtype": first,
        "attn_implementation": getattr(model.config, "_attn_implementation", None),
        "gradient_checkpointing": bool(getattr(model, "is_gradient_checkpointing", False)),
    }
    adapters = getattr(model, "peft_config", None)
    if isinstance(adapters, dict):
        kinds = [type(one).__name__ for one in adapters.values()]
        if kinds != ["LoraConfig"]:
            facts["adapters"] = ", ".join(kinds)
        # Adapters are fp32 beside weights of 16 bits (peft 0.21, `autocast_adapter_dtype`): the estimate has that itself.
        dtypes = [dtype for dtype, _, is_trained in parameters if not is_trained]
        facts["dtype"] = dtypes[0] if dtypes else first
    else:
        frozen = sum(not is_trained for _, _, is_trained in parameters)
        if frozen:
            facts["frozen"] = f"{frozen} of {len(parameters)}"
    others = sum(dtype != facts["dtype"] for dtype in dtypes)
    if others:
        facts["other_dtypes"] = f"{others} of {len(dtypes)}"
    places = getattr(model, "hf_device_map", None)
    if isinstance(places, dict) and len({str(place) for place in places.values()}) > 1:
        facts["hooks"] = ", ".join(sorted({str(place) for place in places.values()}))
    return facts


def _parameters(model: Any) -> list[tuple[Any, int, bool]]:
    """Of each parameter, tied ones once: dtype, size, and whether it is trained."""
    return [(parameter.dtype, parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]


def _is_quantized(model: Any) -> bool:
    return getattr(model.config, "quantization_config", None) is not None


def _classes(thing: Any) -> str:
    """The names of its type and of those that it is made of."""
    kinds = [one.__name__ for one in type(thing).__mro__ if one is not object]
    return " ".join(kinds or ["object"])


def attributes(thing: Any) -> dict[str, Any]:
    """What an object says: the fields of a dataclass, or whatever it has, without a leading `_`."""
    if isinstance(thing, dict):
        return {str(name): plain(value) for name, value in thing.items()}
    said = {name.lstrip("_"): plain(getattr(thing, name)) for name in _names(type(thing), thing) if hasattr(thing, name)}
    if isinstance(said.get("deepspeed"), str):
        said["deepspeed"] = _file(said["deepspeed"])
    ranks = getattr(thing, "world_size", None)
    if isinstance(ranks, int) and ranks > 1:
        said["world_size"] = ranks
    return said


def _names(kind: Any, thing: Any) -> list[str]:
    """The attributes that an object was told: its fields and what its `__init__` takes, or all that it has."""
    fields = list(getattr(kind, "__dataclass_fields__", ()))
    code = getattr(kind.__init__, "__code__", None)
    told = [] if code is None else list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    if not fields:
        told += list(getattr(thing, "__dict__", {}))
    return list(dict.fromkeys([*fields, *told]))


def _file(path: str) -> Any:
    """What a JSON file says; its name where there is none."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return path


def plain(value: Any) -> Any:
    """A value as JSON has it: enumerations by their value, dtypes by their name, sets as lists, dataclasses as dictionaries."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, _PLAIN):
        # JSON has neither infinity nor what is not a number.
        return str(value) if isinstance(value, float) and value - value != 0 else value
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(one) for one in value), key=str)
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in type(value).__dataclass_fields__ if hasattr(value, name)}
    return str(value).removeprefix("torch.")
