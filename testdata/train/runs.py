"""What scripts that train several seeds share: a run that is made once, what it cost, and intervals."""

import argparse
import json
import math
import resource
import statistics
import subprocess
from pathlib import Path

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def parser_of(description, job, seeds):
    """What all of them are told."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--tonnage", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--job", default=job)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the job in all runs")
    return parser


def spent():
    """Processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(arguments, name, keys, fixed=None, job=None):
    """One training, unless it is there already; its folder and its processor seconds. `--set` changes keys, and nothing that is fixed."""
    folder = Path(arguments.out) / name
    cost = folder / "cost.json"
    if not cost.exists():
        before = spent()
        folder.mkdir(parents=True, exist_ok=True)
        keys = {**keys, **dict(one.split("=", 1) for one in arguments.set), **(fixed or {}), "output_dir": folder}
        call = [arguments.tonnage, "train", str(job or arguments.job), "--torch", arguments.torch, "--overwrite", "--no-rehearsal"]
        call += [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        with open(folder / "said.txt", "w") as said:
            subprocess.run(call, check=True, stdout=said, stderr=said)
        cost.write_text(json.dumps({"cpu_seconds": spent() - before}))
    return folder, json.loads(cost.read_text())["cpu_seconds"]


def points_of(folder):
    """Points of a curve, in their order."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["record"] == "point"]


def half_interval(values):
    """Half the width of the 95 % t interval of a mean."""
    return T95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))


def interval(values, signed=False):
    """Mean and half-width in words; without an interval where one value is all there is."""
    sign = "+" if signed else ""
    mean = f"{statistics.fmean(values):{sign}.3f}"
    return mean if len(values) < 2 else f"{mean} +-{half_interval(values):.3f}"
