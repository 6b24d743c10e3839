"""Lines of the user's own program: what is in neither an installed package, nor Python's library, nor this package."""

import functools
import glob
import os
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
_STDLIB = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib")})
_GENERATED = (os.sep + "torchinductor_", os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.sep + "torchinductor_")
"""What torch.compile writes and runs."""
_own = {}


def is_own(filename):
    """Whether the file is the user's."""
    known = _own.get(filename)
    if known is None:
        known = _own[filename] = _judge(filename)
    return known


def _judge(filename):
    if not filename or filename.startswith("<") or filename == "??":
        return False
    if any(part in filename for part in ("site-packages", "dist-packages", *_GENERATED)):
        return False
    path = os.path.abspath(filename)
    return not path.startswith((HERE, *_STDLIB)) and in_package(path) == path


@functools.lru_cache(maxsize=4096)
def in_package(filename):
    """The path below the folder that it was installed into (`torch/nn/functional.py`); all of it where no installer put it."""
    if "site-packages/" in filename:
        return filename.split("site-packages/")[-1]
    for folder in {os.path.abspath(one) + os.sep for one in sys.path}:
        below = filename.removeprefix(folder)
        if below != filename and below.split(os.sep)[0] in _installed(folder):
            return below
    return filename


@functools.cache
def _installed(folder):
    """What an installer put into a folder of PYTHONPATH (`pip install --target`), as it recorded it; a project that is installed in place
    has no such record."""
    names = set()
    for record in glob.glob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
        with open(record, encoding="utf-8", errors="replace") as lines:
            names |= {line.split(",")[0].split("/")[0] for line in lines}
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def short(filename):
    """The path as the user would type it, where the script was when it was first asked for."""
    path = os.path.abspath(filename)
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def of_frame(frame):
    """`train.py:41 in main`: the innermost line of the user's at or above `frame`; None if there is none."""
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return None


def frame_of_caller(frame):
    """The innermost frame that is not ours."""
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame


def innermost(frame):
    """The innermost line that is not ours."""
    frame = frame_of_caller(frame)
    if frame is None:
        return "?"
    return f"{in_package(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


def here():
    """The user's line that called."""
    return of_frame(sys._getframe(1))
