"""The timeline of one device, written as `tonnage trace replay` reads it: PyTorch's entries, the boundaries of phases and
the marks of roles, in the order in which they happened.
"""

import functools
import json
import os

from . import places

_TORCH = os.path.join("site-packages", "torch") + os.sep
_WRAPPERS = (os.path.join("nn", "parallel", "distributed.py"), os.path.join("fsdp", "_fully_shard"))


class Writer:
    """Writes the timeline of one device."""

    def __init__(self, device, path, header):
        self.device, self.path, self.header, self.file = device, path, header, None
        self.place, self.number = 0, 0
        self.live, self.streams, self.empties = {}, {0: 0}, []
        self.stacks = {}
        """The frames of a stack by identity -> what is told of it. PyTorch makes each frame once a snapshot."""

    def take(self, entries, history, marks, backward_line):
        """Writes the entries; how many there were. The backward pass runs on a thread of its own: its allocations belong to
        `backward_line`, the user's line that began it."""
        entries = [e for e in entries if e["action"] in ("alloc", "free_completed")]
        if not entries and self.file is None:
            return 0
        if self.file is None:
            self.open()
        lines, phase, at = [], "", 0
        self.stacks.clear()
        between = sorted(self.between(history, marks), key=lambda event: event[:2])
        for index, entry in enumerate(entries):
            while at < len(between) and between[at][0] <= self.place + index:
                phase = self.note(between[at], lines) or phase
                at += 1
            lines.append(self.event(entry, backward_line if phase == "backward" else None))
        for event in between[at:]:
            self.note(event, lines)
        self.file.write("\n".join(line if isinstance(line, str) else _text(line) for line in lines) + "\n")
        self.place += len(entries)
        return len(entries)

    def between(self, history, marks):
        """What happened between entries, each with its place: boundaries before marks at the same place."""
        for phase in history:
            yield phase.begins[self.device], 0, phase
        for device, place, category, addresses in marks:
            if device == self.device:
                yield place, 1, (category, addresses)
        for place in self.empties:
            yield place, 2, None
        self.empties = []

    def note(self, event, lines):
        """Takes one of them; the name of the phase that it begins, if it does."""
        _, kind, what = event
        if kind == 0:
            lines.append(f'["p",{json.dumps(what.name)},{what.step}]')
            return what.name
        if kind == 1:
            category, addresses = what
            for address in addresses:
                line = self.live.get(address)
                if line is not None:
                    line[3] = category
        else:
            lines.append('["e"]')
        return None

    def event(self, entry, backward_line):
        """A line, or what becomes one when its category is known."""
        address = entry["addr"]
        if entry["action"] != "alloc":
            line = self.live.pop(address, None)
            return f'["f",{line[0]}]' if line is not None else '["f",0]'
        stream = self.streams.setdefault(entry["stream"], len(self.streams))
        frames = entry.get("frames") or ()
        stack = (backward_line, *map(id, frames))
        told = self.stacks.get(stack)
        if told is None:
            told = self.stacks[stack] = ("\0".join(_origin(frames, backward_line)), _category(frames))
        line = [self.number, max(entry["size"], 1), *told, stream]
        self.number += 1
        self.live[address] = line
        return line

    def open(self):
        """The file begins with a header."""
        self.file = open(self.path, "w", encoding="utf-8")  # noqa: SIM115
        self.file.write(json.dumps({**self.header(), "device": self.device}) + "\n")

    def close(self):
        """Ends the file; its path."""
        self.file.close()
        return self.path


def _text(line):
    number, size, origin, category, stream = line
    tail = f",{stream}" if stream else ""
    return f'["a",{number},{size},{_quoted(origin)},"{category}"{tail}]'


@functools.lru_cache(maxsize=4096)
def _quoted(origin):
    op, module = origin.split("\0", 1)
    return f"{json.dumps(op)},{json.dumps(module)}"


@functools.lru_cache(maxsize=4096)
def _is_wrapper(filename):
    return any(part in filename for part in _WRAPPERS)


def _category(frames):
    """What is allocated inside a wrapper moves between ranks, until a mark says otherwise."""
    for frame in frames[:6]:
        if _is_wrapper(frame["filename"]):
            return "communication"
    return "temporary"


@functools.lru_cache(maxsize=4096)
def _whose(filename):
    """`ours`, the `user`'s, a `library`'s or PyTorch's (empty)."""
    if filename.startswith(places.HERE):
        return "ours"
    if places.is_own(filename):
        return "user"
    return "" if _TORCH in filename else "library"


def _origin(frames, backward_line):
    """The innermost function with the innermost line outside PyTorch, and the innermost line of the user's."""
    if not frames:
        return "", backward_line or ""
    op = library = line = ""
    for frame in frames:
        whose = _whose(frame["filename"])
        if whose == "ours":
            continue
        op = op or frame["name"]
        if whose == "user":
            line = f"{places.short(frame['filename'])}:{frame['line']} in {frame['name']}"
            break
        if whose and not library:
            library = f" ({os.path.basename(frame['filename'])}:{frame['line']})"
    return op + library, line
