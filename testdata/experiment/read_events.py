"""Reads exported event files with TensorBoard itself and holds them against the exported tables; for .ci/lanes/suites.

    python testdata/experiment/read_events.py EVENTS metrics.csv [system.csv]
"""

import csv
import glob
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

table = {}
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            table.setdefault(row["metric"], []).append(float(row["value"]))

read = {}
folders = sorted(glob.glob(sys.argv[1] + "/*/"))
for folder in folders:
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        read.setdefault(tag, []).extend(event.value for event in events.Scalars(tag))

assert folders and read.keys() == table.keys(), (read.keys(), table.keys())
for tag, values in table.items():
    pairs = zip(sorted(values), sorted(read[tag]), strict=True)
    assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in pairs), tag
print(f"{len(folders)} runs, {sum(map(len, read.values()))} points are as the table has them")
