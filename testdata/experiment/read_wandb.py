"""Reads what `tonnage suite export --to wandb` wrote with wandb itself and holds it against the exported tables; for .ci/lanes/suites.

    python testdata/experiment/read_wandb.py OFFLINE metrics.csv system.csv
"""

import csv
import glob
import json
import math
import os
import pathlib
import subprocess
import sys
import sysconfig

import wandb

program = os.path.join(sysconfig.get_path("scripts"), "wandb")


def table(path, axis):
    """Values by run and metric, as pairs of axis and value."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            run = f"{row['configuration']} seed {row['seed']}"
            found.setdefault((run, row["metric"]), []).append((float(row[axis]), float(row["value"])))
    return found


expected = {**table(sys.argv[2], "step"), **table(sys.argv[3], "seconds")}
read, runs = {}, set()
for folder in sorted(glob.glob(sys.argv[1] + "/wandb/offline-run-*")):
    lines = subprocess.run([program, "leet", "inspect", "--json", folder], capture_output=True, text=True, check=True).stdout
    name = None
    for record in map(json.loads, lines.splitlines()):
        if record["type"] == "run":
            name = record["run"]["display_name"]
            identity = record["run"]["run_id"]
            assert folder.endswith(identity) and identity not in runs, (folder, identity)
            runs.add(identity)
        if record["type"] == "history":
            item = record["history"]["item"]
            for metric, value in item.items():
                is_system = "system.seconds" in item and metric.startswith("system.")
                if metric.startswith("_") or metric in ("step", "system.seconds") or is_system != ("system.seconds" in item):
                    continue
                axis = item["system.seconds"] if is_system else item["step"]
                read.setdefault((name, metric), []).append((axis, value))

assert runs and read.keys() == expected.keys(), (read.keys() ^ expected.keys())
for key, pairs in expected.items():
    for (a, b), (c, d) in zip(sorted(pairs), sorted(read[key]), strict=True):
        assert math.isclose(a, c, rel_tol=1e-6) and math.isclose(b, d, rel_tol=1e-6, abs_tol=1e-9), (key, a, b, c, d)

# Names of system metrics are those that wandb's own sampler writes.
sampler = pathlib.Path(wandb.__file__).parent / "bin" / "wandb-symon"
known = sampler.read_bytes() if sampler.exists() else b""
names = ("memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "powerPercent", "enforcedPowerLimitWatts", "smClock",
         "memoryClock", "fanSpeed", "uncorrectedMemoryErrors", "proc.memory.rssMB")
missing = [name for name in names if name.encode() not in known]
assert not missing, missing
print(f"{len(runs)} runs, {sum(map(len, read.values()))} points are as the tables have them")
