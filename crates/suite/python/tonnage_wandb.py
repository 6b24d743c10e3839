"""Hands metrics to Weights & Biases for `tonnage suite export --to wandb`: lines of JSON on stdin, answers on stdout.

    {"begin": "ID", "project": ..., "group": ..., "job_type": ..., "name": ..., "config": {...}, "dir": ...}
    {"log": "ID", "values": {"step": 10, "loss": 0.3}}
    {"end": "ID", "exit_code": 0}

Answers `{"began": "ID"}`, `{"ended": "ID", "place": FOLDER}` and `{"error": ..., "id": "ID"}`. Offline unless WANDB_MODE says another.
"""

import json
import os
import sys

ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
# What wandb prints is talk.
os.dup2(2, 1)


def answer(**words):
    print(json.dumps(words), file=ANSWERS, flush=True)


try:
    import wandb
except ImportError as error:
    answer(error="%s has no wandb (%s): pip install wandb, or --python names another" % (sys.executable, error), fatal=True)
    sys.exit(3)

RUNS = {}


def begin(asked):
    settings = wandb.Settings(
        # This process measures nothing: the run does, and its system metrics come as values.
        x_disable_stats=True,
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
    )
    run = wandb.init(
        id=asked["begin"],
        resume="allow",
        reinit="create_new",
        mode=os.environ.get("WANDB_MODE", "offline"),
        project=asked["project"],
        group=asked["group"],
        job_type=asked["job_type"],
        name=asked["name"],
        tags=asked["tags"],
        config=asked["config"],
        dir=asked["dir"],
        settings=settings,
    )
    # The run's own steps: what comes late or is no whole number is kept.
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    run.define_metric("system.seconds", hidden=True)
    run.define_metric("system.*", step_metric="system.seconds")
    RUNS[asked["begin"]] = run
    answer(began=asked["begin"])


def take(asked):
    if "begin" in asked:
        begin(asked)
    elif "log" in asked:
        RUNS[asked["log"]].log(asked["values"])
    elif "end" in asked:
        run = RUNS.pop(asked["end"])
        # `dir` is the run's own folder's `files`.
        place = os.path.basename(os.path.dirname(run.dir))
        run.finish(exit_code=asked["exit_code"])
        answer(ended=asked["end"], place=place)


for line in sys.stdin:
    asked = json.loads(line)
    try:
        take(asked)
    # One run's trouble is no other's.
    except Exception as error:
        answer(error=repr(error), id=asked.get("begin") or asked.get("log") or asked.get("end"))
for run in RUNS.values():
    run.finish()
