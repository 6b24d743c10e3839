"""What a model was given in training: how long its batches were, and what a longer one would take."""

import torch

from . import caveats

INPUTS = 16
"""Inputs of a model that are looked at."""
AFTER = 2
"""From this step on a step's peak goes by its batch: the first one makes the optimizer's state."""
PASSES = ("forward", "backward")
"""Phases whose peaks go by the batch."""
HOW = "; `--longest` fills every other batch with the longest rows, `--row-length N` makes rows of any length"


class Input:
    """The sizes that one input had, dimension by dimension."""

    def __init__(self, shape):
        self.least, self.most, self.times = list(shape), list(shape), 0

    def note(self, shape):
        """One more; of other dimensions it is another input, which is not told."""
        if len(shape) != len(self.least):
            return
        self.times += 1
        self.least = [min(pair) for pair in zip(self.least, shape, strict=True)]
        self.most = [max(pair) for pair in zip(self.most, shape, strict=True)]

    @property
    def varied(self):
        """The dimensions that had several sizes."""
        return [at for at, (least, most) in enumerate(zip(self.least, self.most, strict=True)) if least != most]

    def __str__(self):
        sizes = zip(self.least, self.most, strict=True)
        return " x ".join(str(least) if least == most else f"{least} to {most}" for least, most in sizes)


class Shapes:
    """The inputs of the outermost modules that ran with gradients."""

    def __init__(self, phases, wanted):
        self.phases = phases
        self.how = "" if wanted.longest or wanted.row_length else HOW
        self.inputs = {}
        """Kind of module, name of the input and identity of the module -> its sizes."""
        self.lengths = {}
        """Step -> the largest size of every dimension of each input in it."""

    def note(self, module, args, kwargs):
        """A module is called with these."""
        for name, value in [*enumerate(args), *kwargs.items()][:INPUTS]:
            shape = _shape(value)
            if shape is None or not len(shape) or not getattr(value, "is_cuda", False):
                continue
            shape = tuple(int(size) for size in shape)
            # Two models of one kind (a generator, a discriminator) have inputs of their own.
            key = (type(module).__name__, str(name), id(module))
            self.inputs.setdefault(key, Input(shape)).note(shape)
            sizes = self.lengths.setdefault(self.phases.steps_done + 1, {})
            sizes[key] = tuple(map(max, zip(sizes.get(key, shape), shape, strict=False)))

    def tell(self):
        """Notes the ranges of those that varied, and the slope of the peaks where one dimension alone did."""
        varied = {key: one for key, one in self.inputs.items() if one.varied}
        if not varied:
            return
        key = max(varied, key=lambda key: (varied[key].times, key[1] in ("input_ids", "0")))
        others = [name for (_, name, owner), one in varied.items() if owner == key[2] and name != key[1] and str(one) == str(varied[key])]
        named = " and ".join(f"input {int(name) + 1}" if name.isdigit() else f"`{name}`" for name in [key[1], *others][:2])
        text = f"batches had different sizes: {named} of {key[0]} {varied[key]}"
        caveats.tell_of_run("shapes", text + self._slope(key, varied[key]) + self.how)

    def _slope(self, key, one):
        """What one more would take, by the shortest and the longest batch after the first step."""
        if len(one.varied) != 1:
            return ""
        points = [(sizes[key][one.varied[0]], self._peak(step)) for step, sizes in self.lengths.items() if step >= AFTER and key in sizes]
        points = [point for point in points if point[1]]
        if not points:
            return ""
        short, long = min(points), max(points)
        if short[0] == long[0] or long[1] <= short[1]:
            return ""
        slope = (long[1] - short[1]) / (long[0] - short[0]) / 2**20
        return f"; by the shortest and the longest of them, one more there takes about {slope:.3f} MiB in the forward or backward pass"

    def _peak(self, step):
        """The most that any device had allocated in a step's passes; 0 where they have no label of their own."""
        labels = [f"{step}:{name}" for name in PASSES]
        return max((device.peaks.get(label, 0) for device in self.phases.devices for label in labels), default=0)


def _shape(value):
    """Its sizes, where it has any; of rows that lie one behind the other those of all together."""
    if getattr(value, "is_nested", False):
        return value.values().shape if value.layout is torch.jagged else None
    return getattr(value, "shape", None)
