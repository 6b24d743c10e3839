"""The four configurations of SAPO, with foreign rollouts of both signs and of positive advantages only, over several seeds: what held-out
questions earn by rounds, by generated tokens and by updates. The tables of docs/sapo.md are its output.

    python testdata/train/sapo_configurations.py --tonnage target/release/tonnage --torch PYTHON --out /tmp/sapo
        [--seeds 20 21 22 23 24] [--splits 8/0 6/2 4/4 2/6] [--signs positive both] [--job examples/sapo-arithmetic.toml]
        [--set max_steps=60 --set eval_steps=30]

The unit is a run: nodes share data, so they are averaged and never counted. The warm start of a seed is made once, as it is the same on all
nodes and in all configurations; runs of a seed differ in nothing else. A run that is there already is read and not made
again.
"""

import json
import re
import statistics
from pathlib import Path

from runs import interval, parser_of, points_of, train


def warm_start(arguments, seed):
    """The job of a seed with the weights that all its nodes begin with: those of one node after one round in which nothing is learnt."""
    fixed = {"seed": seed, "max_steps": 1, "learning_rate": "1e-30", "swarm.nodes": 1}
    fixed |= {"swarm.external_questions": 0, "grpo.eval_questions": 0}
    folder, _ = train(arguments, f"warm-{seed}", {}, fixed)
    job, found = re.subn(r"(?ms)^\[model\].*?(?=^\[)", "", Path(arguments.job).read_text())
    if found != 1:
        raise SystemExit(f"{arguments.job} has no [model]")
    path = folder / "job.toml"
    path.write_text(f"model = {json.dumps(str((folder / 'node-0' / 'checkpoint-1').resolve()))}\n{job}")
    return path


def make_run(arguments, split, sign, seed):
    """One swarm; its folder."""
    local, external = split.split("/")
    fixed = {"seed": seed, "swarm.local_questions": local, "swarm.external_questions": external}
    # However busy the machine is, nobody is left behind.
    fixed |= {"swarm.foreign_advantages": sign, "grpo.warm_start_reward": "0.0", "swarm.round_seconds": "600.0"}
    return train(arguments, f"{split.replace('/', '-')}-{sign}-{seed}", {}, fixed, warm_start(arguments, seed))[0]


def summary_of(folder):
    """Means over nodes: held-out rewards by round and by generated tokens, and what the run took."""
    greedy, sampled, last = {}, {}, []
    spent = {}
    for node in sorted(folder.glob("node-*")):
        points = points_of(node)
        rounds = [point for point in points if "reward/on_policy" in point["metrics"]]
        for point in points:
            if "eval/reward" in point["metrics"]:
                step = int(point["step"])
                greedy.setdefault(step, []).append(point["metrics"]["eval/reward"])
                sampled.setdefault(step, []).append(point["metrics"]["eval/reward_sampled"])
                before = [one["tokens_generated"] for one in rounds if one["step"] <= step]
                spent[step] = spent.get(step, 0) + (before[-1] if before else 0)
        last.append((rounds[-1], statistics.fmean(point["metrics"]["reward/on_policy"] for point in rounds)))
    mean = lambda curve: {step: statistics.fmean(values) for step, values in sorted(curve.items())}
    of_nodes = greedy[max(greedy)]
    return {
        "greedy": mean(greedy),
        "sampled": mean(sampled),
        "spent": spent,
        "spread": max(of_nodes) - min(of_nodes),
        "on_policy": statistics.fmean(reward for _, reward in last),
        "cumulative": sum(point["metrics"]["reward/cumulative"] for point, _ in last),
        "updates": statistics.fmean(point["metrics"]["updates"] for point, _ in last),
        "generated": sum(point["tokens_generated"] for point, _ in last),
        "trained": sum(point["tokens_trained"] for point, _ in last),
        "lost": sum(point["metrics"]["lost_rounds"] for point, _ in last),
        "identical": "the same weights" in (folder / "said.txt").read_text(),
    }


def at_tokens(run, tokens):
    """What a run earned when all its nodes had generated so many tokens, between two evaluations; `None` where it never did."""
    steps = sorted(run["spent"])
    for first, second in zip(steps, steps[1:]):
        before, after = run["spent"][first], run["spent"][second]
        if before <= tokens <= after:
            share = (tokens - before) / max(after - before, 1)
            return run["greedy"][first] * (1 - share) + run["greedy"][second] * share
    return None


def words_of(split, sign):
    return "8/0" if split == "8/0" else f"{split} {sign}"


def print_runs(runs, seeds):
    """What each configuration came to."""
    steps = list(next(iter(runs.values()))[0]["greedy"])
    middle = steps[len(steps) // 2]
    print(f"\nSeeds {', '.join(map(str, seeds))}; tokens are of all nodes.\n")
    print(f"| I/J, foreign advantages | greedy, round {steps[0]} | round {middle} | round {steps[-1]} | sampled, round {steps[-1]} | own questions "
          "| cumulative | updates | generated | trained | lost rounds | nodes apart | said identical |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for (split, sign), all in runs.items():
        greedy = [interval([run["greedy"][step] for run in all]) for step in (steps[0], middle, steps[-1])]
        sampled = interval([run["sampled"][steps[-1]] for run in all])
        mean = lambda name: statistics.fmean(run[name] for run in all)
        counts = " | ".join(f"{mean(name):.0f}" for name in ("cumulative", "updates", "generated", "trained", "lost"))
        said = f"{sum(run['identical'] for run in all)} of {len(all)}"
        print(f"| {words_of(split, sign)} | {' | '.join(greedy)} | {sampled} | {mean('on_policy'):.3f} | {counts} | {mean('spread'):.3f} | {said} |")


def print_gains(runs):
    """Each against 8/0, paired by seed."""
    baseline = runs.get(("8/0", "positive")) or runs.get(("8/0", "both"))
    if not baseline:
        return
    print("\nGreedy against 8/0, paired by seed: after as many rounds (and as many updates), and where both had generated as many tokens.\n")
    print("| I/J, foreign advantages | equal rounds | each seed | equal generated tokens |")
    print("|---|---|---|---|")
    for (split, sign), all in runs.items():
        if split == "8/0":
            continue
        gains = [run["greedy"][max(run["greedy"])] - other["greedy"][max(other["greedy"])] for run, other in zip(all, baseline)]
        saved = []
        for run, other in zip(all, baseline):
            tokens = run["spent"][max(run["spent"])]
            there = at_tokens(other, tokens)
            saved += [] if there is None else [run["greedy"][max(run["greedy"])] - there]
        each = ", ".join(f"{gain:+.3f}" for gain in gains)
        print(f"| {words_of(split, sign)} | {interval(gains, signed=True)} | {each} | {interval(saved, signed=True) if saved else 'none'} |")


def main():
    parser = parser_of(__doc__, "examples/sapo-arithmetic.toml", [20, 21, 22, 23, 24])
    parser.add_argument("--splits", nargs="+", default=["8/0", "6/2", "4/4", "2/6"])
    parser.add_argument("--signs", nargs="+", default=["positive", "both"])
    arguments = parser.parse_args()
    runs = {}
    # Seed by seed, so that what is there is comparable whenever it is looked at.
    for seed in arguments.seeds:
        for split in arguments.splits:
            # Without foreign groups their sign means nothing.
            for sign in arguments.signs[:1] if split.endswith("/0") else arguments.signs:
                runs.setdefault((split, sign), []).append(summary_of(make_run(arguments, split, sign, seed)))
    print_runs(runs, arguments.seeds)
    print_gains(runs)


if __name__ == "__main__":
    main()
