"""Which way a script goes by a truth value that nobody knows, as its text says: not into an exception, and not past what a mask that nobody
knows would dispatch (`if mask.any(): out[mask] = expert(x[mask])`), for as an index such a mask counts as full."""

import ast
import functools
import operator
import sys

from .. import places
from . import known, otherwise
from .follow import Computing, Spent, _compiling, after, replace
from .known import Certainty
from .loops import _scopes
from .names import TYPES
from .numbers import COMPARED, DeviceFloat, DeviceInt, told

COUNTED = ("any", "sum", "count_nonzero", "max", "amax")
ASKED = ("gt", "ge", "lt", "le", "eq", "ne", "__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__")
LEAVES = (ast.Raise, ast.Return, ast.Break, ast.Continue)


def install(torch):
    """Wraps what counts a mask, and what compares the count."""
    for name in COUNTED:
        replace(torch, (torch, torch.Tensor), name, _counting)
    for name in TYPES:
        replace(torch, (torch.Tensor,), name, _casting)
    for name in ASKED:
        replace(torch, (torch, torch.Tensor), name, _asking)


@after
def _counting(original, name, out, args, kwargs):
    # Asked of every sum.
    element = otherwise.of(args[0]) if args and not (Spent.depth or _compiling()) else None
    if element is None or not known.is_plain_kind(type(out)) or not out.numel():
        return
    known.give(out, known.uniform(out.shape, out.dtype), Certainty.UNKNOWN)
    adds = name in ("sum", "count_nonzero")
    if out.dtype is not known._torch().bool or not out.dim():
        otherwise.note(out, element * (args[0].numel() // out.numel()) if adds else element)


@after
def _casting(original, name, out, args, kwargs):
    otherwise.begin(out, args[0])


@after
def _asking(original, name, out, args, kwargs):
    # Asked of everything that a script compares.
    before = known.Values.by_id.get(id(args[0])) if args else None
    if before is not None and before.otherwise is not None and len(args) == 2 and type(args[1]) in (int, float) and not _compiling():
        with Computing():
            full = bool(original(known.uniform((), args[0].dtype, before.otherwise), args[1]))
        otherwise.note(out, full)


def answer_of(tensor, value):
    """The truth value that the script is told, of a tensor whose value is made up."""
    found = known.of(tensor)
    return _by_text(value, value if found is None or found.otherwise is None else bool(found.otherwise))


def _by_text(value, otherwise):
    frame = places.frame_of_caller(sys._getframe(1))
    return _chosen(frame.f_code.co_filename, frame.f_lineno, value, otherwise)


def count_of(tensor, name, number):
    """The number that the host reads of a mask's count: as an index such a mask is full, and so it is here; None of other tensors. By
    `int` it asks no more how the text goes on, so that none is left where `while` may ask."""
    full = _full(tensor)
    if full is None or type(number) not in (int, float):
        return None
    if name == "item":
        return COUNTS[type(full)](full)
    frame = places.frame_of_caller(sys._getframe(1))
    return number if _is_in_while(frame.f_code.co_filename, frame.f_lineno) else type(number)(full)


def counts_of(tensor, numbers):
    """The list that the host reads of masks' counts; None of other tensors."""
    full = _full(tensor)
    return None if full is None else _each(numbers, COUNTS[type(full)](full))


def _full(tensor):
    found = known.of(tensor)
    return None if found is None or type(found.otherwise) not in COUNTS else found.otherwise


def _each(numbers, count):
    return [_each(one, count) for one in numbers] if isinstance(numbers, list) else count


def _deciding(name, plain):
    compare = getattr(operator, name.strip("_"), operator.truth)

    def deciding(self, *other):
        told(name.strip("_"))
        return _by_text(compare(0, *other), compare(plain.__pos__(self), *other))

    return deciding


def _count(kind, plain):
    return type("Count", (kind,), {name: _deciding(name, plain) for name in COMPARED} | {"__hash__": plain.__hash__, "__slots__": ()})


COUNTS = {int: _count(DeviceInt, int), float: _count(DeviceFloat, float)}
"""How many elements a mask has that nobody knows: all; a branch by it goes as the script's text says."""


@functools.lru_cache(maxsize=1024)
def _chosen(filename, line, value, otherwise):
    test = _innermost_test(filename, line)
    if test is None:
        return otherwise
    node, is_turned, is_in_while = test
    if isinstance(node, ast.Assert):
        return not is_turned
    if isinstance(node, ast.While):
        return value
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
        return is_turned
    if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES):
        # Who goes on until nothing is left would never end.
        return value if is_in_while or otherwise != is_turned else otherwise
    return otherwise


@functools.lru_cache(maxsize=1024)
def _is_in_while(filename, line):
    """Whether the line stands within `while`, or is its test."""
    return any(isinstance(one, ast.While) and one.lineno <= line <= one.end_lineno for scope in _scopes(filename)[-1:] for one in ast.walk(scope))


def _innermost_test(filename, line):
    """The statement whose test stands on the line, whether that is turned by `not`, and whether it stands within `while`."""
    scope = next((one for one in _scopes(filename) if one.lineno <= line <= (one.end_lineno or line)), None)
    if scope is None:
        return None
    tests = [one for one in ast.walk(scope) if isinstance(one, (ast.If, ast.While, ast.Assert)) and _covers(one.test, line)]
    if not tests:
        return None
    node = max(tests, key=lambda one: one.lineno)
    loops = [one for one in ast.walk(scope) if isinstance(one, ast.While) and one.lineno < line <= one.end_lineno]
    return node, _is_turned(node.test), bool(loops)


def _covers(node, line):
    return node.lineno <= line <= node.end_lineno


def _is_turned(test):
    """Whether `not` stands before it; of several parts, before the first that calls anything."""
    if isinstance(test, ast.BoolOp):
        calling = (part for part in test.values if any(isinstance(one, ast.Call) for one in ast.walk(part)))
        return _is_turned(next(calling, test.values[0]))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and not _is_turned(test.operand)
