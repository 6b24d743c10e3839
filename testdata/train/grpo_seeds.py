"""GRPO over several seeds: does it lift the reward of held-out questions beyond the spread of seeds? The table of docs/grpo.md is its
output.

    python testdata/train/grpo_seeds.py --tonnage target/release/tonnage --torch PYTHON --out /tmp/grpo
        [--seeds 10 11 12 13 14] [--job examples/grpo-arithmetic.toml] [--set learning_rate=1e-3]

A run that is there already is read and not made again. Seconds are of a processor, whatever else
the machine does.
"""

from runs import interval, parser_of, points_of, train


def summary(folder, seconds):
    """Before, after and costs of a run."""
    found = points_of(folder)
    held_out = [point["metrics"] for point in found if "eval/reward" in point["metrics"]]
    trained = [point["metrics"] for point in found if "reward" in point["metrics"]]
    warm = next(point["metrics"] for point in found if "warm_start/steps" in point["metrics"])
    earned = lambda metrics: (metrics["eval/reward"], metrics["eval/reward_sampled"])
    return {
        "warm steps": warm["warm_start/steps"],
        "before": earned(held_out[0]),
        "after": earned(held_out[-1]),
        "alive": 1 - trained[-1]["frac_reward_zero_std"],
        "generated": trained[-1]["tokens_generated"],
        "seconds": seconds,
    }


def main():
    arguments = parser_of(__doc__, "examples/grpo-arithmetic.toml", [10, 11, 12, 13, 14]).parse_args()
    found = {}
    for seed in arguments.seeds:
        found[seed] = summary(*train(arguments, f"seed-{seed}", {"seed": seed}))
    print("| seed | steps from answers | greedy before | after | sampled before | after | groups alive at the end | tokens generated | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for seed, one in found.items():
        (greedy, sampled), (then, then_sampled) = one["before"], one["after"]
        print(
            f"| {seed} | {one['warm steps']:.0f} | {greedy:.3f} | {then:.3f} | {sampled:.3f} | {then_sampled:.3f} "
            f"| {one['alive']:.2f} | {one['generated']:.0f} | {one['seconds']:.0f} |"
        )
    for at, name in enumerate(["greedy", "sampled"]):
        gains = [one["after"][at] - one["before"][at] for one in found.values()]
        print(f"\n{name}: {interval(gains, signed=True)} (95 % t interval of the paired differences, n = {len(gains)})")


if __name__ == "__main__":
    main()
