"""Which phase the process is in, and the peaks of each: `2:backward` is the backward pass of the second step.

Boundaries come from `hooks`; at each, the counters of every device are read.
"""

from threading import get_ident

LABELLED_STEPS = 16
"""Steps whose phases keep their own labels; later ones share the label of the last of these, marked `+`."""


class Phase:
    """A stretch of one phase, and where in the trace of each device it begins."""

    __slots__ = ("begins", "name", "readings", "step")

    def __init__(self, name, step, begins, readings=()):
        self.name, self.step, self.begins, self.readings = name, step, begins, readings

    @property
    def label(self):
        """As in the records."""
        return f"{self.step}:{self.name}" if self.step <= LABELLED_STEPS else f"{LABELLED_STEPS}+:{self.name}"


class Rise:
    """What phases of one kind took beyond what was allocated when they began."""

    def __init__(self):
        self.times = self.first = self.kept = self.later = self.kept_later = 0

    def note(self, rise, kept):
        """One more, and what it left allocated."""
        self.times += 1
        if self.times == 1:
            self.first, self.kept = rise, kept
        else:
            self.later, self.kept_later = max(self.later, rise), max(self.kept_later, kept)

    @property
    def most(self):
        """The most that another one would take. What the first left and no other did (cuBLAS's workspace) is there already."""
        once = max(self.kept - self.kept_later, 0) if self.times > 1 else 0
        return max(self.first - once, self.later)


class Device:
    """What was seen of a device."""

    def __init__(self):
        self.peaks, self.reserved = {}, {}
        self.peak_allocated = self.peak_reserved = 0
        self.began = 0
        """Allocated when the phase that runs began."""
        self.rises = {}
        """Name of a phase -> what such phases took."""
        self.retries = self.ooms = 0

    def note(self, label, reading):
        """Takes what the counters reached in a phase."""
        self.peaks[label] = max(self.peaks.get(label, 0), reading.peak_allocated)
        self.reserved[label] = max(self.reserved.get(label, 0), reading.peak_reserved)
        self.peak_allocated = max(self.peak_allocated, reading.peak_allocated)
        self.peak_reserved = max(self.peak_reserved, reading.peak_reserved)
        self.retries, self.ooms = reading.retries, reading.ooms


class Phases:
    """The phases of this process; it begins with the loading phase, as soon as the device is there."""

    def __init__(self, counters, devices):
        self.counters = counters
        self.devices = [Device() for _ in range(devices)]
        self.steps_done = 0
        self.per_optimizer = {}
        self.has_optimizer = False
        """Whether one of PyTorch's has stepped."""
        self.made_optimizer = False
        """Whether the script has made one: it means to train."""
        self.seen_since_second = set()
        self.kinds = set()
        self.thread = get_ident()
        self.boundaries = 0
        self.backward_line = None
        """The user's line that runs the backward pass."""
        self.grown = None
        self.steady_steps = 0
        self.history = []
        self.observe = None
        """Called with the history at every boundary, where somebody asked for it."""
        self.current = Phase("load", 0, [0] * len(self.devices))
        self.history.append(self.current)

    def begin(self, name):
        """A phase begins; the one before has ended."""
        if get_ident() != self.thread:
            return
        self.boundaries += 1
        if name == self.current.name and self.current.step == self._step(name):
            return
        begins, readings = [], []
        for index, device in enumerate(self.devices):
            reading = self.counters.end_and_begin(index)
            device.note(self.current.label, reading)
            device.rises.setdefault(self.current.name, Rise()).note(reading.peak_allocated - device.began, reading.allocated - device.began)
            device.began = reading.allocated
            begins.append(reading.events)
            readings.append(reading)
        self.current = Phase(name, self._step(name), begins, readings)
        self.kinds.add(name)
        if self.steps_done >= 1 and name not in ("optimizer", "between", "clip", "zero_grad"):
            self.seen_since_second.add(name)
        self.history.append(self.current)
        if self.observe is not None:
            self.observe(self.history)

    def _step(self, name):
        if name in ("load", "wrap") and self.steps_done == 0:
            return 0
        if name in ("between", "zero_grad"):
            return max(self.steps_done, self.current.step if self.current.step > self.steps_done else 0)
        return self.steps_done + 1

    def take_history(self):
        """The phases that have begun since the last call."""
        history, self.history = self.history, []
        return history

    def note_peaks(self):
        """Takes the peaks reached so far without ending the phase."""
        for index, device in enumerate(self.devices):
            device.note(self.current.label, self.counters.read(index))

    def step_done(self, optimizer):
        """An optimizer has stepped; several optimizers that take turns make one step together."""
        count = self.per_optimizer.get(id(optimizer), 0) + 1
        self.per_optimizer[id(optimizer)] = count
        new = count > self.steps_done
        self.steps_done = max(self.steps_done, count)
        return new

    def trained_nothing(self):
        """Whether a model ran with gradients, or a backward pass, and no optimizer stepped."""
        return self.steps_done == 0 and bool(self.kinds & {"forward", "backward"})

    def left_training_out(self):
        """Whether a script that means to train ran a model with gradients, and never a backward pass."""
        return self.made_optimizer and self.steps_done == 0 and "forward" in self.kinds and "backward" not in self.kinds

    def note_growth(self):
        """After a step: counts the steps since a peak last grew."""
        growth = tuple((device.peak_allocated, device.peak_reserved) for device in self.devices)
        self.steady_steps = self.steady_steps + 1 if growth == self.grown else 0
        self.grown = growth

    def steady_since(self):
        """The step after which no peak grew, or None where the last step still grew."""
        return self.steps_done - self.steady_steps if self.steady_steps else None

    def not_seen_again(self):
        """Kinds of phase that never happened with the optimizer's state in memory."""
        once = {"load", "wrap", "optimizer", "between", "clip", "zero_grad"}
        return sorted(self.kinds - once - self.seen_since_second)

    def would_reach(self, names):
        """What phases of these names would reach from here, where the first device that exceeds its peak would; else None."""
        for index, device in enumerate(self.devices):
            reached = self.counters.read(index).allocated + max(device.rises.get(name, Rise()).most for name in names)
            if reached > device.peak_allocated:
                return reached
        return None

    def within(self, name):
        """A phase inside another, which goes on afterwards."""
        return _Within(self, name)


class _Within:
    # A class, because torch.compile follows it into compiled code more surely than a generator.
    def __init__(self, phases, name):
        self.phases, self.name, self.outer = phases, name, None

    def __enter__(self):
        self.outer = self.phases.current.name
        self.phases.begin(self.name)

    def __exit__(self, *_):
        self.phases.begin(self.outer)
