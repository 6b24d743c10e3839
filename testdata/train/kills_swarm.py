#!/usr/bin/env python3
"""Kills nodes, the coordinator and the supervisor of swarms with SIGKILL at random moments, goes on, and counts what the experiment says.

    kills_swarm.py --tonnage target/release/tonnage --torch PYTHON --kills 100

Every experiment must come to its last round. Of each node every round is there once, or is said to be lost; its cumulative reward is the sum
of the rounds that it tells; and after the supervisor's end none of its processes is left.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODES = 3
SMALL = {
    "swarm.nodes": NODES,
    "swarm.local_questions": 1,
    "swarm.external_questions": 1,
    "swarm.generate_rows": 8,
    "swarm.filter": "none",
    "swarm.round_seconds": 5,
    "swarm.specialties": "false",
    "grpo.questions": '["addition"]',
    "grpo.question_level": 1,
    "grpo.warm_start_reward": 0.0,
    "grpo.eval_questions": 0,
    "model.n_embd": 32,
    "model.n_layer": 1,
}


def words_of(arguments, output, *more):
    words = [arguments.tonnage, "train", str(ROOT / "examples" / "sapo-arithmetic.toml"), "--torch", arguments.torch]
    words += ["--no-rehearsal", "--output-dir", str(output), "--max-steps", str(arguments.rounds), "--save-steps", "7"]
    words += ["--logging-steps", "1", "--max-attempts", "1000", *more]
    return words + [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


def processes_of(output, node=None):
    """Processes that train for this output folder, or one node of them."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        at = line.index(b"--node") + 1 if b"--node" in line else None
        if line[1:2] == [b"trainer"] and at and f"output_dir={output}".encode() in line and node in (None, int(line[at])):
            found.append(int(entry.name))
    return found


def kill_all(pids):
    """How many there were."""
    sent = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            sent += 1
        except ProcessLookupError:
            pass
    return sent


def wait_gone(output):
    until = time.monotonic() + 60
    while processes_of(output):
        if time.monotonic() > until:
            sys.exit(f"processes {processes_of(output)} outlive their supervisor")
        time.sleep(0.05)


def checked(output, rounds):
    """What an experiment that ended says of itself; rounds that its nodes lost."""
    lost = ended = 0
    for index in range(NODES):
        node = output / f"node-{index}"
        records = [json.loads(line) for line in (node / "metrics.jsonl").read_text().splitlines()]
        told = [(record["step"], record["metrics"]) for record in records if "reward/on_policy" in record.get("metrics", {})]
        steps = [step for step, _ in told]
        if len(set(steps)) != len(steps):
            sys.exit(f"{node}: a round counts twice")
        last = told[-1][1]
        # Who came back after the last round has nothing to tell any more.
        missed = int(last["lost_rounds"] + rounds - steps[-1])
        if len(steps) + missed != rounds:
            sys.exit(f"{node}: {len(steps)} rounds, {missed} without it, of {rounds}")
        total = sum(metrics["reward/on_policy"] for _, metrics in told)
        if abs(total - last["reward/cumulative"]) > 1e-6:
            sys.exit(f"{node}: rounds earned {total}, and their sum is said to be {last['reward/cumulative']}")
        lost += missed
        ended += steps[-1] == rounds
    if ended == 0:
        sys.exit(f"{output}: no node came to round {rounds}")
    return lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", required=True, type=os.path.abspath)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds between two kills, at most")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    folder = pathlib.Path(tempfile.mkdtemp())
    environment = {**os.environ, "TONNAGE_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    killed = {"node": 0, "coordinator": 0, "supervisor": 0}
    experiments = lost = 0
    while sum(killed.values()) < arguments.kills:
        output = folder / f"swarm-{experiments}"
        more = []
        while True:
            with open(folder / "said.txt", "w") as said:
                child = subprocess.Popen(words_of(arguments, output, *more), stdout=said, stderr=said, env=environment)
            ended = None
            while ended is None and sum(killed.values()) < arguments.kills:
                try:
                    ended = child.wait(draw.uniform(0, arguments.longest))
                except subprocess.TimeoutExpired:
                    whom = draw.choice(["node", "node", "coordinator", "supervisor"])
                    if whom == "supervisor":
                        child.kill()
                        child.wait()
                        killed[whom] += 1
                        wait_gone(output)
                        break
                    index = 0 if whom == "coordinator" else draw.randrange(1, NODES)
                    killed[whom] += kill_all(processes_of(output, index))
            if ended is None and child.returncode is None:
                ended = child.wait()
            if ended == 0:
                break
            if ended is not None:
                sys.exit(f"an experiment ended with {ended}: {(folder / 'said.txt').read_text()}")
            has_checkpoint = any(output.glob("node-*/checkpoint-*"))
            more = ["--resume"] if has_checkpoint else ["--overwrite"]
        lost += checked(output, arguments.rounds)
        experiments += 1
        shutil.rmtree(output)
    shutil.rmtree(folder)
    told = ", ".join(f"{count} of a {whom}" for whom, count in killed.items())
    print(f"{sum(killed.values())} kills ({told}) in {experiments} experiments of {NODES} nodes and {arguments.rounds} rounds: each came to its end,")
    print(f"every round counts once; {lost} rounds of {experiments * NODES * arguments.rounds} went by without the node that was down")


if __name__ == "__main__":
    main()
