#!/usr/bin/env python3
"""Several sizes at once: one run's trace replayed within several sizes, and a run of the script at each of these sizes. The
two must agree in verdict, retries and, where memory runs out, in the phase and the bytes of that moment.

    sizes.py --tonnage target/release/tonnage --script hf_trainer --mib 1700 1860 1900 1960 2000
    PYTORCH_ALLOC_CONF=expandable_segments:True sizes.py --tonnage target/release/tonnage --script nanogpt --mib 2300 2400 2500

Run it with the Python whose PyTorch is to be rehearsed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
#: So that the sizes differ from the GPU of the one run in nothing else.
LIKE_H100 = "{}MiB,sm_90,multiprocessors=132"
MOMENT = ("phase", "requested_bytes", "allocated_bytes", "reserved_bytes")


def answers(arguments, gpus):
    """What is said of each GPU, without what only a replay knows."""
    script = os.path.join(HERE, "scripts", f"{arguments.script}.py")
    command = [arguments.tonnage, "rehearse", "--gpu", ",".join(gpus), "--json", "--", sys.executable, script]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"sizes.py: {done.stderr[-400:]}")
    found = {}
    for gpu in json.loads(done.stdout)["gpus"]:
        moment = gpu["out_of_memory"]
        said = (gpu["verdict"], gpu["num_alloc_retries"], moment and tuple(moment[name] for name in MOMENT))
        found[gpu["usable_bytes"] >> 20] = said
    return found


def words(answer):
    verdict, retries, moment = answer
    return f"{verdict}, {retries} retries" + (f", {dict(zip(MOMENT, moment))}" if moment else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", required=True, type=os.path.abspath)
    parser.add_argument("--script", required=True, help="one of the scripts beside this one")
    parser.add_argument("--mib", required=True, nargs="+", type=int, help="sizes")
    arguments = parser.parse_args()
    replayed = answers(arguments, ["h100", *(LIKE_H100.format(size) for size in arguments.mib)])
    differing = []
    for size in arguments.mib:
        run = answers(arguments, [LIKE_H100.format(size)])[size]
        equal = run == replayed[size]
        print(f"{size} MiB: {words(run)}" + ("" if equal else f"\n    but by replay {words(replayed[size])}"), flush=True)
        differing += [] if equal else [size]
    sys.exit(f"sizes.py: replay and run differ at {differing} MiB" if differing else 0)


if __name__ == "__main__":
    main()
