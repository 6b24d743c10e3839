#!/usr/bin/env python3
"""Kills a training with SIGKILL at random moments, goes on, and holds the end to an undisturbed one's.

    kills.py --tonnage target/release/tonnage --kills 50

After every kill the newest checkpoint must be whole, and not older than the one that was there before. A training that ends before all kills were
made is held against the undisturbed one, and another begins. PyTorch is found as `tonnage train` finds it.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = """
framework = "loop"
micro_batch_size = 4
seq_len = 32
learning_rate = 3e-3
max_steps = {steps}
save_steps = 3
save_total_limit = 2
logging_steps = 1
[model]
model_type = "gpt2"
n_embd = 48
n_layer = 2
n_head = 4
n_positions = 32
vocab_size = 256
bos_token_id = 0
eos_token_id = 0
resid_pdrop = 0.1
[data]
train_files = "{text}"
tokenizer = "bytes"
"""


def start(tonnage, job, output):
    words = [tonnage, "trainer", str(job), "--output-dir", str(output), "--device", "cpu"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})


def finish(child):
    said = child.communicate()[1].decode(errors="replace")
    if child.returncode != 0:
        sys.exit(f"a training ended with {child.returncode}: {said}")


def newest(output):
    """The step of the newest checkpoint, every file of tensors in it being as long as its header says; 0 without one."""
    steps = sorted(int(path.name.split("-")[1]) for path in output.glob("checkpoint-*"))
    if not steps:
        return 0
    for path in (output / f"checkpoint-{steps[-1]}").glob("**/*.safetensors"):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        ends = [one["data_offsets"][1] for name, one in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"]
        if 8 + length + max(ends, default=0) != len(data):
            sys.exit(f"{path} is not whole")
    return steps[-1]


def losses(output):
    points = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [point["metrics"]["loss"] for point in points if "loss" in point.get("metrics", {})]


def held_equal(whole, killed, steps):
    """The last checkpoint's files to the byte, and every loss of the curve."""
    last = f"checkpoint-{steps}"
    names = sorted(path.name for path in (whole / last).iterdir() if path.is_file())
    if names != sorted(path.name for path in (killed / last).iterdir() if path.is_file()):
        sys.exit("the last checkpoints have other files")
    for name in names:
        if name.endswith(".safetensors") and (whole / last / name).read_bytes() != (killed / last / name).read_bytes():
            sys.exit(f"{name} differs")
    if losses(whole) != losses(killed):
        sys.exit("the curves differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", required=True, type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    folder = pathlib.Path(tempfile.mkdtemp())
    job = folder / "job.toml"
    job.write_text(JOB.format(steps=arguments.steps, text=ROOT / "examples" / "stories.txt"))
    began = time.monotonic()
    finish(start(arguments.tonnage, job, folder / "whole"))
    # Kills fall anywhere from the start of the program to the end of the training.
    longest = max(1.0, time.monotonic() - began)
    kills = rounds = in_training = 0
    while kills < arguments.kills:
        output = folder / f"killed-{rounds}"
        child = None
        while child is None and kills < arguments.kills:
            before = newest(output)
            child = start(arguments.tonnage, job, output)
            try:
                child.wait(draw.uniform(0, longest))
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
                child = None
                kills += 1
                after = newest(output)
                in_training += after > before
                if after < before:
                    sys.exit(f"kill {kills}: the checkpoint of step {before} is gone")
        finish(child or start(arguments.tonnage, job, output))
        held_equal(folder / "whole", output, arguments.steps)
        rounds += 1
    shutil.rmtree(folder)
    print(f"{kills} kills, {in_training} of them after a new checkpoint, {rounds} trainings: each ended as the undisturbed one, to the byte")


if __name__ == "__main__":
    main()
