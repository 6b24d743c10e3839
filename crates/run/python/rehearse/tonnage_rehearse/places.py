"""Lines of the user's own program: what is in neither an installed package, nor Python's library, nor this package."""

import functools
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
    return not path.startswith((HERE, *_STDLIB))


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
    name = frame.f_code.co_filename.split("site-packages/")[-1]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"


def here():
    """The user's line that called."""
    return of_frame(sys._getframe(1))
