#!/usr/bin/env python3
"""Two builds of the library beside each other, in turn, so that a busy machine slows both: how many times as long the second takes, and
how much more memory.

    cargo bench -p tonnage-core --bench paired --no-run      # in a checkout of each; prints where the binary is
    python testdata/speed/paired.py [--instructions] OLD NEW [JOB-QUESTION ...]

A commit before the bench gets `crates/core/benches/paired.rs` and its `[[bench]]` first. Time is the processor's, of a run without the start of
the program; each figure is the least of all rounds. With `--instructions` valgrind counts what one run takes, which no other program on the
machine changes.
"""

import re
import resource
import subprocess
import sys

ROUNDS = 9
#: Job, question, runs a round: a few tenths of a second.
ASKED = [
    ("gpt2", "simulate", 200),
    ("gpt2", "replay", 400),
    ("gpt2", "estimate", 100),
    ("7b", "simulate", 60),
    ("7b", "replay", 100),
    ("7b", "estimate", 40),
    ("grpo", "simulate", 4),
    ("grpo", "replay", 3),
    ("gpt2", "fit", 20),
    ("gpt2", "plan", 20),
    ("7b-passes-16", "estimate", 5),
    ("7b-generates", "estimate", 4),
    ("grpo-judge", "estimate", 3),
    ("swarm", "estimate", 8),
]


def run(binary, name, question, runs):
    """Nanoseconds of processor time, and KiB that the process held at most beside its own file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = subprocess.run([binary, name, question, str(runs)], capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return int(seconds * 1e9), int(printed.split()[1])


def measure(binary, name, question, runs):
    started, _ = run(binary, name, question, 0)
    taken, held = run(binary, name, question, runs)
    return max(taken - started, 1) // runs, held


def instructions(binary, name, question):
    """Millions of instructions of one run, without the first, which sets up tables."""

    def collected(runs):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, name, question, str(runs)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        return int(re.search(r"Collected : (\d+)", said)[1])

    return (collected(4) - collected(1)) / 3e6


def count(old, new, only):
    print(f"{'job, question':18}{'old, 1e6':>10}{'new, 1e6':>10}{'ratio':>8}")
    for name, question, _ in ASKED:
        if not only or f"{name}-{question}" in only:
            was, now = (instructions(binary, name, question) for binary in (old, new))
            print(f"{name + ', ' + question:18}{was:>10.2f}{now:>10.2f}{now / was:>8.2f}", flush=True)


def main():
    counts = sys.argv[1] == "--instructions"
    old, new, *only = sys.argv[1 + counts :]
    if counts:
        count(old, new, only)
        return
    print(f"{'job, question':18}{'old, us':>10}{'new, us':>10}{'ratio':>8}{'old, KiB':>10}{'new, KiB':>10}{'ratio':>8}")
    for name, question, runs in ASKED:
        if only and f"{name}-{question}" not in only:
            continue
        rows = {old: [], new: []}
        for turn in range(ROUNDS):
            for binary in (old, new) if turn % 2 else (new, old):
                rows[binary].append(measure(binary, name, question, runs))
        (was, held), (now, holds) = ([min(column) for column in zip(*rows[binary])] for binary in (old, new))
        times = f"{was / 1e3:>10.1f}{now / 1e3:>10.1f}{now / was:>8.3f}"
        print(f"{name + ', ' + question:18}{times}{held:>10}{holds:>10}{holds / held:>8.3f}", flush=True)


if __name__ == "__main__":
    main()
