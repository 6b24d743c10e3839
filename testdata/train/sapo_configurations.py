"""The four configurations of SAPO, with foreign rollouts of both signs and of positive advantages only, over several seeds: what held-out
questions earn by rounds, by generated tokens and by updates. The tables of docs/sapo.md are its output.

    python testdata/train/sapo_configurations.py --tonnage target/release/tonnage --torch PYTHON --out /tmp/sapo
        [--seeds 20 21 22 23 24] [--splits 8/0 6/2 4/4 2/6] [--signs positive both] [--job examples/sapo-arithmetic.toml]
        [-- --max-steps 100]

The unit is a run: nodes share data, so they are averaged and never counted. Words behind `--` go to `tonnage train`. A run that is there
already is read and not made again.
"""

import argparse
import json
import math
import statistics
import subprocess
from pathlib import Path

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def make_run(arguments, split, sign, seed):
    """One swarm; its folder."""
    folder = Path(arguments.out) / f"{split.replace('/', '-')}-{sign}-{seed}"
    if not (folder / "done").exists():
        local, external = split.split("/")
        words = [arguments.tonnage, "train", arguments.job, "--torch", arguments.torch, "--seed", str(seed)]
        words += ["--set", f"swarm.local_questions={local}", "--set", f"swarm.external_questions={external}"]
        words += ["--set", f"swarm.foreign_advantages={sign}", "--output-dir", str(folder), "--overwrite", "--no-rehearsal"]
        subprocess.run(words + arguments.more, check=True, stdout=subprocess.DEVNULL)
        (folder / "done").touch()
    return folder


def points_of(folder):
    """Points of each node, in their order."""
    nodes = sorted(folder.glob("node-*/metrics.jsonl"))
    return [[json.loads(line) for line in node.read_text().splitlines()] for node in nodes]


def summary_of(folder):
    """Means over nodes: held-out rewards by round, and what the run took."""
    curve, last = {}, []
    for node in points_of(folder):
        points = [record for record in node if record["record"] == "point"]
        for point in points:
            if "eval/reward" in point["metrics"]:
                curve.setdefault(int(point["step"]), []).append(point["metrics"])
        rounds = [point for point in points if "reward/on_policy" in point["metrics"]]
        last.append((rounds[-1], statistics.fmean(point["metrics"]["reward/on_policy"] for point in rounds)))
    mean = lambda name: {step: statistics.fmean(one[name] for one in all) for step, all in sorted(curve.items())}
    return {
        "greedy": mean("eval/reward"),
        "sampled": mean("eval/reward_sampled"),
        "on_policy": statistics.fmean(reward for _, reward in last),
        "cumulative": sum(point["metrics"]["reward/cumulative"] for point, _ in last),
        "updates": statistics.fmean(point["metrics"]["updates"] for point, _ in last),
        "generated": sum(point["tokens_generated"] for point, _ in last),
        "trained": sum(point["tokens_trained"] for point, _ in last),
    }


def interval_of(values):
    """Mean and half-width of the 95 % interval; without one where a seed is all there is."""
    if len(values) < 2:
        return f"{statistics.fmean(values):.3f}"
    half = T95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):.3f} +-{half:.3f}"


def print_tables(runs, seeds):
    """Both tables, in Markdown."""
    print(f"{len(seeds)} seeds: {', '.join(map(str, seeds))}\n")
    print("| I/J, foreign advantages | held-out greedy, first | middle | last | sampled, last | on-policy | cumulative | updates | generated | trained |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (split, sign), all in runs.items():
        steps = list(all[0]["greedy"])
        greedy = [interval_of([run["greedy"][step] for run in all]) for step in (steps[0], steps[len(steps) // 2], steps[-1])]
        sampled = interval_of([run["sampled"][steps[-1]] for run in all])
        rest = [statistics.fmean(run[name] for run in all) for name in ("on_policy", "cumulative", "updates", "generated", "trained")]
        row = [f"{split} {sign}", *greedy, sampled, f"{rest[0]:.3f}", *(f"{number:.0f}" for number in rest[1:])]
        print("| " + " | ".join(row) + " |")
    baseline = runs.get(("8/0", "positive")) or runs.get(("8/0", "both"))
    if not baseline:
        return
    print("\nGains over 8/0, paired by seed: at equal rounds, and at equal generated tokens (8/0 at its middle evaluation).\n")
    print("| I/J, foreign advantages | equal rounds | equal generated tokens |")
    print("|---|---|---|")
    for (split, sign), all in runs.items():
        if split == "8/0":
            continue
        steps = list(all[0]["greedy"])
        last, middle = steps[-1], steps[len(steps) // 2]
        gains = [run["greedy"][last] - other["greedy"][last] for run, other in zip(all, baseline)]
        saved = [run["greedy"][last] - other["greedy"][middle] for run, other in zip(all, baseline)] if split == "4/4" else None
        print(f"| {split} {sign} | {interval_of(gains)} | {interval_of(saved) if saved else 'no evaluation there'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tonnage", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[20, 21, 22, 23, 24])
    parser.add_argument("--splits", nargs="+", default=["8/0", "6/2", "4/4", "2/6"])
    parser.add_argument("--signs", nargs="+", default=["positive", "both"])
    parser.add_argument("--job", default="examples/sapo-arithmetic.toml")
    parser.add_argument("more", nargs="*", help="what else `tonnage train` is told")
    arguments = parser.parse_args()
    runs = {}
    for split in arguments.splits:
        # Without foreign groups their sign means nothing.
        for sign in arguments.signs[:1] if split.endswith("/0") else arguments.signs:
            folders = [make_run(arguments, split, sign, seed) for seed in arguments.seeds]
            runs[split, sign] = [summary_of(folder) for folder in folders]
    print_tables(runs, arguments.seeds)


if __name__ == "__main__":
    main()
