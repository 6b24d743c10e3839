"""A gradient bandit (Sutton and Barto, 2.8): a softmax policy over arms learns which pays most. Nothing but Python.

Run by examples/suites/policies.toml. It writes its metrics as JSON lines to the file that TONNAGE_METRICS names (docs/report.md).
"""

import argparse
import json
import math
import os
import random

STEPS, EVERY = 400, 20

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--baseline", choices=("true", "false"), required=True)
parser.add_argument("--arms", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
args = parser.parse_args()

world, choice = random.Random(f"world {args.seed}"), random.Random(f"choices {args.seed}")
means = [world.gauss(4, 1) for _ in range(args.arms)]
preferences, mean_reward = [0.0] * args.arms, 0.0
best = max(range(args.arms), key=means.__getitem__)


def policy():
    top = max(preferences)
    weights = [math.exp(preference - top) for preference in preferences]
    return [weight / sum(weights) for weight in weights]


with open(os.environ.get("TONNAGE_METRICS", os.devnull), "a", encoding="utf-8") as out:
    for step in range(STEPS + 1):
        p = policy()
        if step % EVERY == 0:
            metrics = {"eval/best_arm": p[best], "eval/regret": means[best] - sum(a * b for a, b in zip(p, means, strict=True))}
            print(json.dumps({"record": "point", "step": step, "tokens_generated": step, "metrics": metrics}), file=out)
            print(f"step {step}/{STEPS} best_arm {p[best]:.3f}", flush=True)
        arm = choice.choices(range(args.arms), weights=p)[0]
        reward = means[arm] + world.gauss(0, 1)
        mean_reward += (reward - mean_reward) / (step + 1)
        advantage = reward - (mean_reward if args.baseline == "true" else 0.0)
        for other in range(args.arms):
            preferences[other] += args.lr * advantage * ((other == arm) - p[other])
