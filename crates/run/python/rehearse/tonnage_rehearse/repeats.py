"""Steps that repeat the one before. Two that PyTorch's history tells alike stand for those after them whose phases take as many
allocations and bytes: these are written by the lines of the second, and what the history says of them is not read."""

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
    """The lines of a step, with numbers of allocations counted from its first one and steps from its own."""

    def __init__(self, lines, first, births):
        self.lines, self.first, self.births = lines, first, births
        step = next((line[1] for line in lines if type(line) is tuple), 0)
        self.key = [self._relative(line, step) for line in lines]

    def _relative(self, line, step):
        if type(line) is list:
            return (line[0] - self.first, *line[1:])
        if type(line) is tuple:
            return (line[0], line[1] - step)
        return None if line is None else line - self.first


UNTOLD = "a step that began like those before it"
"""In place of the line, where no stack was taken and the step before does not say it."""


class Lockstep:
    """What a step's allocations were, for one that had no stacks: the same, as long as one goes with the other."""

    def __init__(self, block):
        lines = block.lines if block is not None else []
        self.lines = iter([line for line in lines if type(line) in (list, int)])

    def next(self, size):
        """Origin and category of the allocation of this size that is next; None for a free (no size), and once the two have parted."""
        line = next(self.lines, None)
        if type(line) is list and line[1] == size:
            return line[2], line[3]
        if type(line) is not int or size is not None:
            self.lines = iter(())
        return None


class Template:
    """A block that is written again and again."""

    def __init__(self, block, text):
        self.births, self.events = block.births, sum(type(line) in (list, int) for line in block.lines)
        numbered = [line for line in block.lines if line is not None]
        self.format = "\n".join(text(line) for line in block.lines) + "\n"
        self.numbers = [line if type(line) is int else line[1] if type(line) is tuple else line[0] for line in numbered]
        self.growth = [1 if type(line) is tuple else block.births for line in numbered]
        born = {line[0] - block.first: line[1] for line in block.lines if type(line) is list}
        freed = [line - block.first for line in block.lines if type(line) is int]
        self.older = [number for number in freed if number not in born]
        """Freed in it and born before it, counted from its first allocation."""
        self.kept = [(number, size) for number, size in born.items() if number not in set(freed)]
        """Born in it and alive at its end."""

    def again(self):
        """Its text once more."""
        self.numbers = list(map(operator.add, self.numbers, self.growth))
        return self.format % tuple(self.numbers)


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
