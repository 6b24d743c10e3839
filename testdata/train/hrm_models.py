"""HRM beside a plain transformer and the outer loop alone, of equal size, on Sudokus that are held out. The tables of docs/hrm.md are its
output.

    python testdata/train/hrm_models.py --tonnage target/release/tonnage --torch PYTHON --out /tmp/hrm
        [--boards 6x6 4x4] [--seeds 30 31 32] [--models hrm loop plain] [--set max_steps=4000]

All are the same program with other cycles, so they have the same weights to train: `loop` takes each board through both modules once a
segment, as a stack of two blocks that is fed what it thought before; `plain` has one segment, as a transformer of two blocks has. A run
that is there already is read and not made again. Seconds are of a processor, evaluations included.
"""

import statistics

from runs import interval, parser_of, points_of, train

ONCE = {"model.H_cycles": 1, "model.L_cycles": 1}
MODELS = {"hrm": {}, "loop": ONCE, "plain": {**ONCE, "model.halt_max_steps": 1}}
# Of 4 x 4 there are 288 solutions, and the fewest clues that leave one are four.
SMALL = {"seq_len": 16, "hrm.side": 4, "model.vocab_size": 6, "hrm.clues_min": 4, "hrm.clues_max": 7, "hrm.train_puzzles": 1000}
BOARDS = {
    "6x6": {"max_steps": 2000, "eval_steps": 500, "save_steps": 2000},
    "4x4": {"max_steps": 1600, "eval_steps": 400, "save_steps": 1600, "model.halt_max_steps": 8, **SMALL},
}


def main():
    parser = parser_of(__doc__, "examples/hrm-sudoku.toml", [30, 31, 32])
    parser.add_argument("--boards", nargs="+", default=list(BOARDS), choices=BOARDS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    arguments = parser.parse_args()
    runs = {}
    for board in arguments.boards:
        for seed in arguments.seeds:
            for model in arguments.models:
                folder, seconds = train(arguments, f"{board}-{model}-{seed}", {**BOARDS[board], **MODELS[model]}, {"seed": seed})
                held_out = [(point["step"], point["metrics"]) for point in points_of(folder) if "eval/exact_accuracy" in point["metrics"]]
                runs.setdefault((board, model), []).append((held_out, seconds))
    for board in arguments.boards:
        steps = [f"{step:.0f}" for step, _ in runs[board, arguments.models[0]][0][0]]
        print(f"\n{board}, share of held-out boards without a wrong cell, seeds {', '.join(map(str, arguments.seeds))}\n")
        print(f"| model | {' | '.join(f'step {step}' for step in steps)} | each seed at the end | cells right | CPU s a run |")
        print("|---|" + "---|" * (len(steps) + 3))
        for model in arguments.models:
            all = runs[board, model]
            curve = [interval([held_out[at][1]["eval/exact_accuracy"] for held_out, _ in all]) for at in range(len(steps))]
            last = [held_out[-1][1] for held_out, _ in all]
            each = ", ".join(f"{metrics['eval/exact_accuracy']:.3f}" for metrics in last)
            cells = statistics.fmean(metrics["eval/accuracy"] for metrics in last)
            seconds = statistics.fmean(seconds for _, seconds in all)
            print(f"| {model} | {' | '.join(curve)} | {each} | {cells:.3f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
