#!/usr/bin/env python3
"""What a rehearsal costs beside the script itself: the Hugging Face Trainer script rehearsed, and beside it the same script
for as many steps over the phantom without a recorder, which is the script's imports and its Python.

    cost.py --release target/release [--runs 5] [--bar 1.2] [--whole]

`--whole` compares 200 steps of `nanogpt.py` to their end instead, with many small allocations and a trace of all of them. Wall and CPU
seconds (user and system) of each, the least and the median of the runs, which take turns. Fails where the rehearsal takes more than
the bar times imports and Python together. Run it with the Python whose PyTorch is to be rehearsed.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "scripts", "hf_trainer.py")
#: What the script imports, and the submodules that transformers loads on first use.
IMPORTS = "import sys; sys.path.insert(0, sys.argv[1]); import torch, tiny; from transformers import Trainer, TrainingArguments"
#: Steps after which a rehearsal of the script stops by itself.
STEPS = "5"


def seconds(command, environment):
    """Wall and CPU seconds of a command with all its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True)
    wall, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"cost.py: {' '.join(command)}: {done.stderr[-400:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", required=True, type=os.path.abspath, help="the folder of tonnage and libtonnage_phantom.so")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bar", type=float, default=1.2)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    tonnage, library = (os.path.join(arguments.release, name) for name in ("tonnage", "libtonnage_phantom.so"))
    phantom = {"LD_PRELOAD": library, "TONNAGE_PHANTOM_QUIET": "1", "TONNAGE_PHANTOM_DEVICES": "name=NVIDIA L4,total=23653777408,cc=8.9,sms=58"}
    commands = {
        "imports alone": ([sys.executable, "-c", IMPORTS, os.path.join(HERE, "scripts")], phantom),
        f"imports and {STEPS} steps of its Python": ([sys.executable, SCRIPT, STEPS], phantom),
        "rehearsed, stopped by itself": ([tonnage, "rehearse", "--gpu", "l4", "--", sys.executable, SCRIPT], {}),
    }
    if arguments.whole:
        script = [sys.executable, os.path.join(HERE, "scripts", "nanogpt.py")]
        commands = {
            "200 steps without a recorder": (script, phantom),
            "rehearsed to its end": ([tonnage, "rehearse", "--gpu", "l4", "--whole", "--", *script], {}),
        }
    took = {name: [] for name in commands}
    for _ in range(arguments.runs):
        for name, command in commands.items():
            took[name].append(seconds(*command))
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"the machine has {load:.1f} times as much to do as cores")
    ratios = {}
    for word, middle in (("least", min), ("median", statistics.median)):
        middles = {name: [middle(column) for column in zip(*runs)] for name, runs in took.items()}
        for name, (wall, processor) in middles.items():
            print(f"{name}, {word}: {wall:.1f} s, {processor:.1f} s of CPU time")
        *_, script, rehearsed = middles.values()
        ratios[word] = [whole / part for whole, part in zip(rehearsed, script)]
        print(f"by the {word}, the rehearsal takes {ratios[word][0]:.2f} times the script's imports and Python ({ratios[word][1]:.2f} in CPU time)")
    # The CPU time is what another busy process does not change.
    sys.exit(min(ratios["least"]) > arguments.bar)


if __name__ == "__main__":
    main()
