"""Whole numbers that the host has read and that only `range` or a part of a list takes: Python asks an int nothing then, so the text of
the script says it."""

import ast
import functools
import linecache
import sys

from .. import places


def takes(frame=None):
    """Whether the user's line that runs reads a number by which its function counts or cuts."""
    frame = frame or sys._getframe(1)
    while frame is not None and not places.is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and _line_takes(frame.f_code.co_filename, frame.f_lineno)


@functools.lru_cache(maxsize=1024)
def _line_takes(filename, line):
    scope = next((one for one in _scopes(filename) if one.lineno <= line <= (one.end_lineno or line)), None)
    if scope is None:
        return False
    within = [one for one in ast.walk(scope) if isinstance(one, (ast.Call, ast.Slice))]
    counted = [one for one in within if isinstance(one, ast.Slice) or getattr(one.func, "id", "") == "range"]
    if any(_reads(one, line) for one in counted):
        return True
    names = _named_by(scope, line)
    return any(isinstance(one, ast.Name) and one.id in names for call in counted for one in ast.walk(call))


@functools.lru_cache(maxsize=64)
def _scopes(filename):
    """Functions of a file, the innermost first, and then the file itself."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ()
    tree.lineno, tree.end_lineno = 0, None
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return (*sorted(functions, key=lambda one: -one.lineno), tree)


def _reads(node, line):
    """Whether a call on this line within it reads a tensor."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and one.lineno <= line <= one.end_lineno]
    return any(isinstance(one.func, ast.Attribute) and one.func.attr in ("item", "tolist") for one in calls)


def _named_by(scope, line):
    """The names that what is read on this line gets, also by way of others."""
    given = [(_names(one), one) for one in ast.walk(scope) if isinstance(one, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)) and one]
    names = set()
    for targets, one in given:
        if _reads(one.iter if isinstance(one, ast.For) else one.value or one, line):
            names |= targets
    for _ in range(3):
        for targets, one in given:
            source = one.iter if isinstance(one, ast.For) else one.value
            if source is not None and any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(source)):
                names |= targets
    return names


def _names(one):
    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
