"""The small example of GRPO with several seeds: what held-out questions earn before and after, and what that took. The tables of
docs/grpo.md are its output.

    python testdata/train/grpo_seeds.py --tonnage target/release/tonnage --torch PYTHON --out /tmp/grpo-seeds [--seeds 10 11 12 13 14]
        [--job examples/grpo-arithmetic.toml] [-- --learning-rate 1e-3]

Words behind `--` go to `tonnage train`. A run that is there already is read and not made again.
"""

import argparse
import json
import math
import statistics
import subprocess
from pathlib import Path

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def points(folder):
    """What metrics.jsonl says by step."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [record for record in records if record["record"] == "point"], records[-1]


def run(arguments, seed, more):
    """One training; its folder."""
    folder = Path(arguments.out) / f"seed-{seed}"
    if not (folder / "done").exists():
        words = [arguments.tonnage, "train", arguments.job, "--torch", arguments.torch, "--seed", str(seed)]
        words += ["--output-dir", str(folder), "--overwrite", "--no-rehearsal", *more]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        (folder / "done").touch()
    return folder


def summary(folder):
    """Before, after and costs of a run."""
    found, _ = points(folder)
    held_out = [point for point in found if "eval/reward" in point["metrics"]]
    trained = [point for point in found if "reward" in point["metrics"]]
    warm = next(point for point in found if "warm_start/steps" in point["metrics"])
    last = trained[-1]["metrics"]
    return {
        "warm steps": warm["metrics"]["warm_start/steps"],
        "before": (held_out[0]["metrics"]["eval/reward"], held_out[0]["metrics"]["eval/reward_sampled"]),
        "after": (held_out[-1]["metrics"]["eval/reward"], held_out[-1]["metrics"]["eval/reward_sampled"]),
        "alive": 1 - last["frac_reward_zero_std"],
        "generated": last["tokens_generated"],
        "sampling": last["seconds_sampling"],
        "training": last["seconds_training"],
        "seconds": held_out[-1]["seconds"],
    }


def interval(numbers):
    """Mean and half a 95 % t interval."""
    half = T95[len(numbers) - 1] * statistics.stdev(numbers) / math.sqrt(len(numbers))
    return statistics.mean(numbers), half


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tonnage", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--job", default="examples/grpo-arithmetic.toml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("more", nargs="*")
    arguments = parser.parse_args()
    found = {seed: summary(run(arguments, seed, arguments.more)) for seed in arguments.seeds}
    print("| seed | steps from answers | held out, before: greedy / sampled | after: greedy / sampled | groups alive at the end | tokens generated | seconds sampling + training |")
    print("|---|---|---|---|---|---|---|")
    for seed, one in found.items():
        (greedy, sampled), (then, then_sampled) = one["before"], one["after"]
        print(
            f"| {seed} | {one['warm steps']:.0f} | {greedy:.3f} / {sampled:.3f} | {then:.3f} / {then_sampled:.3f} | {one['alive']:.2f} "
            f"| {one['generated']:.0f} | {one['sampling']:.0f} + {one['training']:.0f} |"
        )
    for at, name in enumerate(["greedy", "sampled"]):
        gains = [one["after"][at] - one["before"][at] for one in found.values()]
        mean, half = interval(gains)
        print(f"\n{name}: {mean:+.3f} +-{half:.3f} (95 % t interval of the paired differences, n = {len(gains)})")


main()
