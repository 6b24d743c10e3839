"""The timeline of one device, written as `tonnage trace replay` reads it: PyTorch's entries, the boundaries of phases and
the marks of roles, in the order in which they happened.
"""

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

    def take(self, entries, history, marks, backward_line):
        """Writes the entries; how many there were. The backward pass runs on a thread of its own: its allocations belong to
        `backward_line`, the user's line that began it."""
        entries = [e for e in entries if e["action"] in ("alloc", "free_completed")]
        if not entries and self.file is None:
            return 0
        if self.file is None:
            self.open()
        events = sorted(self.events(entries, history, marks), key=lambda event: event[:2])
        lines = []
        phase = ""
        for _, kind, what in events:
            if kind == 0:
                phase = what.name
                lines.append(f'["p",{json.dumps(what.name)},{what.step}]')
            elif kind == 1:
                category, addresses = what
                for address in addresses:
                    line = self.live.get(address)
                    if line is not None:
                        line[3] = category
            elif kind == 2:
                lines.append('["e"]')
            else:
                lines.append(self.event(what, backward_line if phase == "backward" else None))
        self.file.write("\n".join(line if isinstance(line, str) else _text(line) for line in lines) + "\n")
        self.place += len(entries)
        return len(entries)

    def events(self, entries, history, marks):
        """All that happened, each with its place: boundaries before marks before events at the same place."""
        for phase in history:
            yield phase.begins[self.device], 0, phase
        for device, place, category, addresses in marks:
            if device == self.device:
                yield place, 1, (category, addresses)
        for place in self.empties:
            yield place, 2, None
        self.empties = []
        for index, entry in enumerate(entries):
            yield self.place + index, 3, entry

    def event(self, entry, backward_line):
        """A line, or what becomes one when its category is known."""
        address = entry["addr"]
        if entry["action"] != "alloc":
            line = self.live.pop(address, None)
            return f'["f",{line[0]}]' if line is not None else '["f",0]'
        stream = self.streams.setdefault(entry["stream"], len(self.streams))
        op, origin = _origin(entry.get("frames") or (), backward_line)
        line = [self.number, max(entry["size"], 1), op + "\0" + origin, _category(entry), stream]
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
    op, module = origin.split("\0", 1)
    tail = f",{stream}" if stream else ""
    return f'["a",{number},{size},{json.dumps(op)},{json.dumps(module)},"{category}"{tail}]'


def _category(entry):
    """What is allocated inside a wrapper moves between ranks, until a mark says otherwise."""
    inner = (entry.get("frames") or ())[:6]
    return "communication" if any(part in frame["filename"] for frame in inner for part in _WRAPPERS) else "temporary"


def _origin(frames, backward_line):
    """The innermost function with the innermost line outside PyTorch, and the innermost line of the user's."""
    if not frames:
        return "", backward_line or ""
    op = library = line = ""
    for frame in frames:
        name, filename = frame["name"], frame["filename"]
        if filename.startswith(places.HERE):
            continue
        op = op or name
        if places.is_own(filename):
            line = f"{places.short(filename)}:{frame['line']} in {name}"
            break
        if not library and _TORCH not in filename:
            library = f" ({os.path.basename(filename)}:{frame['line']})"
    return op + library, line
