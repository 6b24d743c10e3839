"""The timeline of one device, written as `tonnage trace replay` reads it: PyTorch's entries, the boundaries of phases and
the marks of roles, in the order in which they happened.
"""

import functools
import json
import os

from . import places
from .repeats import UNTOLD, Adrift, Block, Lockstep, Template

_TORCH = "torch" + os.sep
_WRAPPERS = (os.path.join("nn", "parallel", "distributed.py"), os.path.join("fsdp", "_fully_shard"))


class Writer:
    """Writes the timeline of one device."""

    def __init__(self, device, path, header):
        self.device, self.path, self.header, self.file = device, path, header, None
        self.place, self.number = 0, 0
        self.live, self.streams, self.empties = {}, {0: 0}, []
        self.stacks = {}
        """The frames of a stack by identity -> what is told of it. PyTorch makes each frame once a snapshot."""
        self.block = self.template = None
        """The last step, where it was taken as a whole; the lines of those that repeat it."""
        self.adrift = Adrift()

    def take(self, entries, history, marks, backward_line, is_step=False, blocks=(), is_like=False):
        """Writes the entries; how many there were, or None where they do not follow from what was written. The backward pass runs
        on a thread of its own: its allocations belong to `backward_line`, the user's line that began it. `blocks`: address and
        size of what is alive after them; `is_step`: they are a step, from its end to the next's; `is_like`: they had no stacks at first,
        because they went like the step before."""
        entries = [e for e in entries if e["action"] in ("alloc", "free_completed")]
        if not entries and self.file is None:
            return 0
        if self.file is None:
            self.open()
        if self.adrift.sizes and not self.adrift.find(entries, blocks, self.live):
            return None
        lines, phase, at, first = [], "", 0, self.number
        self.stacks.clear()
        like = Lockstep(self.block) if is_like else None
        between = sorted(self.between(history, marks), key=lambda event: event[:2])
        for index, entry in enumerate(entries):
            while at < len(between) and between[at][0] <= self.place + index:
                phase = self.note(between[at], lines) or phase
                at += 1
            lines.append(self.event(entry, backward_line if phase == "backward" else None, like))
        for event in between[at:]:
            self.note(event, lines)
        self.file.write("\n".join(map(_text, lines)) + "\n")
        self.place += len(entries)
        self._note_block(Block(lines, first, self.number - first) if is_step else None)
        return len(entries)

    def _note_block(self, block):
        """The template is there once two steps were alike."""
        is_alike = block is not None and self.block is not None and block.lines == self.block.lines
        self.template = Template(block) if is_alike else None
        self.adrift.where = {line[0]: address for address, line in self.live.items()} if is_alike else {}
        self.block = block

    def repeat(self):
        """Writes the last step once more; how many entries it had."""
        if self.file is None:
            return 0
        self.file.write(self.template.line)
        self.adrift.follow(self.template, self.number, self.live)
        self.number += self.template.births
        self.place += self.template.events
        self.empties = []
        return self.template.events

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
            lines.append((what.name, what.step))
            return what.name
        if kind == 1:
            category, addresses = what
            for address in addresses:
                line = self.live.get(address)
                if line is not None and len(line) > 1:
                    line[3] = category
        else:
            lines.append(None)
        return None

    def event(self, entry, backward_line, like=None):
        """A line, or what becomes one when its category is known; `like` tells of it where it has no stack."""
        address = entry["addr"]
        if entry["action"] != "alloc":
            if like:
                like.next(None)
            line = self.live.pop(address, None)
            return line[0] if line is not None else 0
        stream = self.streams.setdefault(entry["stream"], len(self.streams))
        size = max(entry["size"], 1)
        line = [self.number, size, *self._told(entry.get("frames") or (), backward_line, like and like.next(size), like), stream]
        self.number += 1
        self.live[address] = line
        return line

    def _told(self, frames, backward_line, before, like):
        """Origin and category of an allocation, by its stack or as they were in the step before."""
        if like and not frames:
            return before or ("\0" + (backward_line or UNTOLD), "temporary")
        stack = (backward_line, *map(id, frames))
        told = self.stacks.get(stack)
        if told is None:
            told = self.stacks[stack] = ("\0".join(_origin(frames, backward_line)), _category(frames))
        return told

    def open(self):
        """The file begins with a header."""
        self.file = open(self.path, "w", encoding="utf-8")  # noqa: SIM115
        self.file.write(json.dumps({**self.header(), "device": self.device}) + "\n")

    def close(self):
        """Ends the file; its path."""
        self.file.close()
        return self.path


def _text(line):
    """An allocation is a list, a free the number of its allocation, a phase its name and step, None an emptied cache."""
    if type(line) is int:
        return f'["f",{line}]'
    if type(line) is list:
        number, size, origin, category, stream = line
        tail = f",{stream}" if stream else ""
        return f'["a",{number},{size},{_quoted(origin)},"{category}"{tail}]'
    return '["e"]' if line is None else f'["p",{json.dumps(line[0])},{line[1]}]'


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
    return "" if places.in_package(filename).startswith(_TORCH) else "library"


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
