"""Steps that repeat the one before. Two that PyTorch's history tells alike stand for those after them whose phases take as many
allocations and bytes: these are written as the second once more, in one line, and what the history says of them is not read."""

import operator


def signature(start, history, now, device, place):
    """What the allocator did between two drains, boundary by boundary; `start` and `now` are the readings at both ends."""
    told, step = [], history[0].step if history else 0
    for phase, reading in [*((phase, phase.readings[device]) for phase in history if phase.readings), (None, now)]:
        told.append(told_of(phase, step, reading, start, device, place))
        start = reading
    return tuple(told)


def told_of(phase, step, reading, start, device, place):
    """The same at one boundary, where this phase began (None: the step's end); `step`: that of the first phase."""
    name = (phase.name, phase.step - step, phase.begins[device] - place) if phase else None
    return name, tuple(map(operator.sub, reading.sums, start.sums)), reading.allocated, reading.peak_allocated, reading.reserved


class Block:
    """The lines of a step, with numbers of allocations counted from its first one and steps from its own: births, frees, and what lies
    between them. Of lists Python's collector would look at every one, of tuples of numbers and texts at none."""

    def __init__(self, lines, first, births):
        self.births = births
        step = next((line[1] for line in lines if type(line) is tuple), 0)
        self.lines = [_relative(line, first, step) for line in lines]

    @property
    def events(self):
        """Births and frees."""
        return [line for line in self.lines if type(line) is int or _is_birth(line)]


def _is_birth(line):
    """Number, size, origin, category and stream; a phase is its name and step."""
    return type(line) is tuple and len(line) > 2


def _relative(line, first, step):
    if type(line) is list:
        return (line[0] - first, *line[1:])
    if type(line) is tuple:
        return (line[0], line[1] - step)
    return None if line is None else line - first


UNTOLD = "a step that began like those before it"
"""In place of the line, where no stack was taken and the step before does not say it."""


class Lockstep:
    """What a step's allocations were, for one that had no stacks: the same, as long as one goes with the other."""

    def __init__(self, block):
        self.lines = iter(block.events if block is not None else ())

    def next(self, size):
        """Origin and category of the allocation of this size that is next; None for a free (no size), and once the two have parted."""
        line = next(self.lines, None)
        if _is_birth(line) and line[1] == size:
            return line[2], line[3]
        if type(line) is not int or size is not None:
            self.lines = iter(())
        return None


class Template:
    """A block that is repeated again and again."""

    def __init__(self, block):
        events = block.events
        self.births, self.events = block.births, len(events)
        self.line = f'["r",{len(block.lines)}]\n'
        born = {event[0]: event[1] for event in events if type(event) is tuple}
        freed = [event for event in events if type(event) is int]
        self.older = [number for number in freed if number not in born]
        """Freed in it and born before it, counted from its first allocation."""
        gone = set(freed)
        self.kept = [(number, size) for number, size in born.items() if number not in gone]
        """Born in it and alive at its end."""


class Adrift:
    """Allocations of steps that were not read: their addresses are not known."""

    def __init__(self):
        self.sizes, self.where = {}, {}

    def follow(self, template, first, live):
        """The step whose first allocation has this number repeats the template."""
        for number in template.older:
            if self.sizes.pop(first + number, None) is None:
                live.pop(self.where.pop(first + number, None), None)
        self.sizes.update((first + number, size) for number, size in template.kept)

    def find(self, entries, blocks, live):
        """Their addresses before the first of these entries, by their sizes: what is alive after the last, taken back. Whether all were found."""
        here = dict(blocks)
        for entry in reversed(entries):
            if entry["action"] == "alloc":
                here.pop(entry["addr"], None)
            else:
                here[entry["addr"]] = max(entry["size"], 1)
        by_size = {}
        for number, size in sorted(self.sizes.items(), reverse=True):
            by_size.setdefault(size, []).append(number)
        for address, size in sorted(here.items()):
            if address not in live:
                if not by_size.get(size):
                    return False
                live[address] = [by_size[size].pop()]
        self.sizes = {}
        return not any(by_size.values())
