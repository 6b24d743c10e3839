"""Computes what follows from known values: the same function of PyTorch, once more, on the values in the host's memory."""

import functools
import time

from .. import caveats
from . import known, otherwise
from .known import Certainty
from .names import COMPARED, ELEMENTWISE, FOLLOWED, FUNCTIONAL, IN_PLACE, PLACED, REDUCED

PATIENCE = 60.0
"""Seconds of processor time that values may take in all, which no other program shortens; none are kept after that."""
SMALL = 1 << 16
"""Uniform values of more elements are computed from one of them."""


_by_id = known.Values.by_id
"""What is known, under a name that hundreds of functions can share."""


class Unknowable(Exception):
    """A value that is needed is not known."""


class Spent:
    """What values have cost so far."""

    seconds = 0.0
    depth = 0
    """Inside a computation of values nothing is followed."""


class Computing:
    """Bounds the time, and keeps gradients and our own wrappers out. What `torch.no_grad` asks of PyTorch, without its two objects
    each time: a step enters here hundreds of times."""

    __slots__ = ("began", "had_grad")

    def __enter__(self):
        grad = known._torch()._C
        self.had_grad = grad.is_grad_enabled()
        grad._set_grad_enabled(False)
        Spent.depth += 1
        self.began = time.thread_time()

    def __exit__(self, *_):
        Spent.seconds += time.thread_time() - self.began
        Spent.depth -= 1
        known._torch()._C._set_grad_enabled(self.had_grad)
        if Spent.seconds > PATIENCE and not known.Values.is_spent:
            known.turn_off()
            caveats.tell_of_value(
                "values_off", f"following values took {PATIENCE:.0f} s; few were known from here on: sizes, branches and places may be those of others"
            )


class Recorded:
    """How PyTorch tells that it records what is called. Most calls of a script ask: `torch.compiler.is_compiling` calls two more
    functions for the same."""

    of_dynamo, of_jit = bool, type(None)
    flags = {"_is_compiling_flag": False}  # noqa: RUF012


def _compiling():
    """Where the script's calls are recorded: our own would be too, and `torch.jit.trace` makes tensors of sizes."""
    return Recorded.of_dynamo() or Recorded.flags["_is_compiling_flag"] or Recorded.of_jit() is not None


def install(torch):
    """Wraps the functions under both of their names."""
    Recorded.of_dynamo, Recorded.of_jit = torch.compiler.is_dynamo_compiling, torch._C._get_tracing_state
    Recorded.flags = vars(torch.compiler)
    tensor = torch.Tensor
    for name in FOLLOWED | REDUCED:
        replace(torch, (torch, tensor), name, _following)
    for name in FUNCTIONAL:
        replace(torch, (torch.nn.functional,), name, _following)
    for name in COMPARED:
        replace(torch, (torch, tensor), name, _comparing)
    for name in IN_PLACE:
        replace(torch, (tensor,), name, _changing)
    replace(torch, (torch,), "_foreach_add_", _counting_on)


def replace(torch, owners, name, wrap):
    """Puts the wrapped function in the place of each owner's, and tells TorchScript that it is still its own."""
    for owner in owners:
        original = getattr(owner, name, None)
        # `torch.float` is a type of elements, `torch.Tensor.float` a function.
        if not callable(original):
            continue
        wrapped = functools.wraps(original, assigned=("__name__", "__doc__"), updated=())(wrap(original, name))
        table = torch.jit._builtins._builtin_table
        if table is not None and id(original) in table:
            table[id(wrapped)] = table[id(original)]
        keep_from_dynamo(torch, wrapped.__code__)
        setattr(owner, name, wrapped)


def after(answer):
    """Wraps a function by one that looks at what came out of it (`answer(original, name, out, args, kwargs)`). torch.compile must see
    the first question."""

    def wrap(original, name):
        def asked(*args, **kwargs):
            if Recorded.of_dynamo():
                return original(*args, **kwargs)
            out = original(*args, **kwargs)
            answer(original, name, out, args, kwargs)
            return out

        return asked

    return wrap


@functools.cache
def keep_from_dynamo(torch, code):
    """Where compiled code breaks off, because values decide how it goes on, Dynamo would compile our function by itself, in which nothing
    is known then. Within a model's own function it is compiled as before."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(code)


def any_known(values):
    """Whether anything is known of one of them, or of the tensors in a list among them."""
    by_id = known.Values.by_id
    if not by_id:
        return False
    for value in values:
        if id(value) in by_id:
            return True
        if type(value) in (list, tuple) and any(id(one) in by_id for one in value):
            return True
    return False


def _following(original, name):
    def followed(*args, **kwargs):
        # Called for most of what a script computes: torch.compile must see the first question, nothing else is asked in vain.
        if Recorded.of_dynamo() or not _by_id or Spent.depth:
            return original(*args, **kwargs)
        for value in args:
            if id(value) in _by_id or (type(value) in (list, tuple) and any(id(one) in _by_id for one in value)):
                break
        else:
            return original(*args, **kwargs)
        out = original(*args, **kwargs)
        if not _compiling():
            follow(original, name, out, args, kwargs)
        return out

    return followed


def _comparing(original, name):
    def compared(*args, **kwargs):
        out = original(*args, **kwargs)
        if _compiling() or Spent.depth or not ((known.Values.is_on and known.is_plain(out)) or any_known(args)):
            return out
        follow(original, name, out, args, kwargs, unknown_is_zero=known.Values.is_on)
        return out

    return compared


def _changing(original, name):
    def changed(self, *args, **kwargs):
        if _compiling() or Spent.depth or id(self) not in known.Values.by_id or not known.is_plain(self):
            return original(self, *args, **kwargs)
        before = known.of(self)
        out = original(self, *args, **kwargs)
        if before is not None:
            change(original, self, before, args, kwargs)
        return out

    return changed


def _counting_on(original, name):
    """Optimizers count their steps so, on the device where scripts make it the place of all new tensors, and read them there."""

    def counted(tensors, *args, **kwargs):
        if _compiling() or Spent.depth or not _by_id or kwargs or len(args) != 1 or type(args[0]) not in (int, float):
            return original(tensors, *args, **kwargs)
        few = [one for one in tensors if id(one) in _by_id and one.numel() <= known.LITTLE]
        before = [known.of(one) for one in few]
        out = original(tensors, *args, **kwargs)
        for one, found in zip(few, before, strict=True):
            if found is not None:
                change(known._torch().Tensor.add_, one, found, args, kwargs)
        return out

    return counted


def change(original, tensor, before, args, kwargs):
    """The tensor was changed in place: so is its value, where everything is known."""
    try:
        with Computing():
            args, certainty = map_all(args, before.certainty)
            kwargs, certainty = map_all(kwargs, certainty)
            value, family = before.value, before.family
            if known.is_uniform(value):
                if value.numel() > known.MOST:
                    return
                value, family = value.clone(memory_format=known._torch().contiguous_format), [0]
            original(value, *args, **kwargs)
    except Exception:
        known.forget(tensor)
        return
    family[0] = known.version(tensor)
    known.give(tensor, value, certainty, family)


def follow(original, name, out, args, kwargs, unknown_is_zero=False):
    """Gives the results of a function their values, where those of its arguments are known."""
    if not (known.Values.is_on or known.Values.by_id):
        return
    first = next(tensors_in((out,)), None)
    if first is None or not known.is_plain(first):
        _host_all(out, args, kwargs)
        otherwise.carry(name, tensors_in((out,)), args)
        return
    try:
        with Computing():
            mapped, certainty = map_all(args, Certainty.WRITTEN, unknown_is_zero)
            named, certainty = map_all(kwargs, certainty, unknown_is_zero)
            named.pop("out", None)
            if "device" in named:
                named["device"] = "cpu"
            values = _computed(original, name, out, mapped, named)
            _give_all(out, values, certainty, args)
            otherwise.carry(name, tensors_in((out,)), args)
            if known.Values.has_running and name in PLACED:
                _carry_running(out, args)
    except Exception:
        # Whatever cannot be computed is not known; the script's own call has been made.
        return


def _carry_running(out, args):
    """What follows place by place from running sums says where these reach one. A single element is asked what it is itself."""
    if any(found is not None and found.is_running for found in map(known.of, tensors_in(args))):
        for found in filter(None, map(known.of, tensors_in((out,)))):
            found.is_running = True
            found.otherwise = found.otherwise if found.value.dim() else None


def _host_all(out, args, kwargs):
    """What the host computes of a table that it has taken from a device is no more certain than that."""
    certainty = max(map(known.certainty_on_host, tensors_in((*args, *kwargs.values()))), default=Certainty.WRITTEN)
    if certainty >= Certainty.CHOSEN:
        for one in tensors_in((out,)):
            known.host(one, certainty)


def _computed(original, name, out, args, kwargs):
    tensors = list(tensors_in(args)) + list(tensors_in(kwargs.values()))
    if max((tensor.numel() for tensor in tensors), default=0) <= SMALL:
        return original(*args, **kwargs)
    if all(known.is_uniform(tensor) for tensor in tensors) and known.is_plain(out):
        uniform = _of_uniform(original, name, out, args, kwargs, tensors)
        if uniform is not None:
            return uniform
    if any(map(known.is_too_large, tensors)) or any(map(known.is_too_large, tensors_in((out,)))):
        raise Unknowable
    return original(*args, **kwargs)


def _of_uniform(original, name, out, args, kwargs, tensors):
    """From one element, as far as that says it."""
    if name in REDUCED:
        one = tensors[0][(0,) * tensors[0].dim()]
        if name in ("sum", "count_nonzero"):
            one = getattr(known._torch(), name)(one.reshape(1)) * (tensors[0].numel() // max(out.numel(), 1))
        return one.to(out.dtype).expand(out.shape)
    if name in COMPARED or name in ELEMENTWISE:
        torch = known._torch()

        def single(value):
            # One element in as many dimensions, by which PyTorch chooses the type of the result.
            return value[(slice(1),) * value.dim()] if isinstance(value, torch.Tensor) else value

        one = original(*(single(value) for value in args), **{key: single(value) for key, value in kwargs.items()})
        return one.expand(out.shape)
    return None


def tensors_in(values):
    """The tensors among the values and in lists of them."""
    torch = known._torch()
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def map_all(values, certainty, unknown_is_zero=False):
    """The values in place of the device's tensors, and how certain all of it is."""
    if isinstance(values, dict):
        pairs = {key: _mapped(value, unknown_is_zero) for key, value in values.items()}
        return {key: value for key, (value, _) in pairs.items()}, max([certainty, *(one for _, one in pairs.values())])
    pairs = [_mapped(value, unknown_is_zero) for value in values]
    return type(values)([value for value, _ in pairs]) if type(values) in (list, tuple) else [value for value, _ in pairs], max(
        [certainty, *(one for _, one in pairs)]
    )


def _mapped(value, unknown_is_zero):
    torch = known._torch()
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu":
            return value, known.certainty_on_host(value)
        found = known.of(value)
        if found is not None:
            return found.value, found.certainty
        if unknown_is_zero and known.is_plain(value):
            return known.uniform(value.shape, value.dtype), Certainty.UNKNOWN
        raise Unknowable
    if type(value) in (list, tuple):
        return map_all(value, Certainty.WRITTEN, unknown_is_zero)
    if isinstance(value, torch.device):
        return torch.device("cpu"), Certainty.WRITTEN
    return value, Certainty.WRITTEN


def _give_all(out, values, certainty, args):
    torch = known._torch()
    if isinstance(out, torch.Tensor):
        if isinstance(values, torch.Tensor):
            known.give(out, *_in_family(out, values, certainty, args))
    elif isinstance(out, (list, tuple)) and isinstance(values, (list, tuple)) and len(out) == len(values):
        for one, value in zip(out, values, strict=True):
            _give_all(one, value, certainty, args)


def _in_family(out, value, certainty, args):
    """The value with the family of the argument whose memory it shares, on the device and here alike."""
    here, there = known.memory(value), known.memory(out)
    for argument in tensors_in(args):
        found = known.of(argument) if argument.device.type != "cpu" else None
        if found is not None and known.memory(found.value) == here:
            if known.memory(argument) == there:
                return value, certainty, found.family
            return (value if known.is_uniform(value) else value.clone()), certainty, None
    return value, certainty, None
