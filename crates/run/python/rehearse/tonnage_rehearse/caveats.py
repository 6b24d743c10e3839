"""What the rehearsal could not know: each is told once in the record, with the line that asked first."""

import sys

from . import places

_told = {}


def tell(code, text):
    """Notes it, with the user's line that is running."""
    _note(code, text, places.of_frame(sys._getframe(1)))


def tell_of_run(code, text):
    """Notes what no line asked."""
    _note(code, text, None)


def _note(code, text, line):
    caveat = _told.setdefault(code, {"code": code, "text": text, "line": line, "times": 0})
    caveat["times"] += 1


def told():
    """All of them; first that nothing was trained, if so."""
    return sorted(_told.values(), key=lambda caveat: caveat["code"] != "no_steps")
