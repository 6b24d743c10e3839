"""Starts `scripts/loop.py` in the ways in which people start a training, each rehearsed, and writes a table of docs/rehearse.md.

    python testdata/rehearse/launches.py --tonnage target/release/tonnage [--only uv,ray] [--write]

Run with the Python whose PyTorch is to be rehearsed; launchers are taken from its folder. What is not installed there is said. Each
way is tried thrice: until the rehearsal stops it, ended by Ctrl-C at a terminal, and by SIGTERM, both while all ranks train.
"""

import argparse
import json
import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "rehearse.md"
BEGIN, END = "<!-- launches -->", "<!-- /launches -->"
LOOP = HERE / "scripts" / "loop.py"
BIN = pathlib.Path(sys.executable).parent
NODE = "torchrun --nnodes 2 --nproc-per-node 1 --master-addr localhost --master-port 29477 --node-rank"
LIMIT = 300
"""Seconds that a way may take."""


class Way(NamedTuple):
    """A way to start a training, in a folder that holds `train.py` and its kin."""

    shown: str
    command: str
    need: str = ""
    """A program in Python's folder or a package."""
    ranks: int = 1
    options: str = ""
    """Of `tonnage rehearse`."""


WAYS = {
    "script": Way("`python train.py`", "python train.py"),
    "module": Way("`python -m train`", "python -m train"),
    "path": Way("`sh -c 'PYTHONPATH=src python train.py'`", "PYTHONPATH=src python train.py"),
    "isolated": Way("`python -E train.py`, and so `-I`, `-S`", "python -E train.py"),
    "cleared": Way("`env -i python train.py`", "env -i STEPPING=$STEPPING {bin}/python train.py"),
    "uv": Way("`uv run train.py`", "uv run --no-project --python {bin}/python train.py", "uv"),
    "conda": Way("`conda run python train.py`", "conda run --no-capture-output python train.py", "conda"),
    "conda-like": Way("the same by a stand-in: a shell in which the environment is activated runs it", "sh conda-like run --no-capture-output python train.py"),
    "hogwild": Way("two processes of `torch.multiprocessing` that share a model", "python hogwild.py", ranks=2),
    "torchrun": Way("`torchrun --nproc-per-node 2`", "torchrun --nproc-per-node 2 train.py", "torchrun", 2),
    "nodes": Way(
        "`torchrun --nnodes 2`, both nodes on this machine",
        f"CUDA_VISIBLE_DEVICES=1 {NODE} 1 train.py & CUDA_VISIBLE_DEVICES=0 {NODE} 0 train.py; code=$?; wait; exit $code", "torchrun", 2,
    ),
    "accelerate": Way(
        "`accelerate launch --num_processes 2`",
        "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no train.py", "accelerate", 2,
    ),
    "deepspeed": Way("`deepspeed --num_gpus 2`", "deepspeed --num_gpus 2 train.py", "deepspeed", 2),
    "notebook": Way("`jupyter nbconvert --execute`", "jupyter-nbconvert --to notebook --execute train.ipynb", "jupyter-nbconvert"),
    "lightning": Way("`lightning.Trainer` in a script", "python lit.py", "lightning"),
    "lightning-longest": Way("the same with `--longest`", "python lit.py", "lightning", options="--longest"),
    "trainer-longest": Way("transformers' `Trainer` with `--longest`", "python hf.py", "transformers", options="--longest"),
    "ray": Way("Ray Train's `TorchTrainer`", "python ray_train.py", "ray", 2),
}  # fmt: skip
#: What `conda run` does, for where there is no conda: a script in a shell of its own activates the environment and runs the command.
CONDA_LIKE = """
shift
while [ "${1#-}" != "$1" ]; do shift; done
echo '. {bin}/activate; "$@"' > activated.sh
bash activated.sh "$@"
exit $?
"""
#: Rows of 8 to 64 tokens, the longest last.
ROWS = "[[1] * (8 + 56 * at // 255) for at in range(256)]"
TOLD = """
import os, pathlib
stepping = os.environ.get("STEPPING")
def told(step):
    if stepping and step == 5:
        pathlib.Path(stepping + "-0").touch()
"""
LIT = f"""{TOLD}
import lightning, torch
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.embedding, self.net = torch.nn.Embedding(100, 512), torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
    def training_step(self, batch, at):
        told(at)
        return self.net(self.embedding(batch)).square().mean()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
padded = lambda rows: torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
data = torch.utils.data.DataLoader({ROWS}, batch_size=8, collate_fn=padded)
epochs = 100_000 if stepping else 1
lightning.Trainer(max_epochs=epochs, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False).fit(Lit(), data)
"""
HF = f"""{TOLD}
import torch, transformers
class Tells(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs): told(state.global_step)
model = transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(n_embd=128, n_layer=2, n_head=2, vocab_size=100))
def padded(rows):
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
    return dict(input_ids=ids, labels=ids)
epochs = 100_000 if stepping else 1
options = transformers.TrainingArguments(
    "saved", per_device_train_batch_size=8, num_train_epochs=epochs, train_sampling_strategy="sequential", report_to=[], save_strategy="no")
data = [dict(input_ids=row) for row in {ROWS}]
transformers.Trainer(model, options, train_dataset=data, data_collator=padded, callbacks=[Tells()]).train()
"""
RAY = """
import ray.train.torch, ray.train
def loop():
    import os, runpy
    os.environ["RANK"] = str(ray.train.get_context().get_world_rank())
    runpy.run_path("{loop}")
ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=True)
ray.train.torch.TorchTrainer(loop, scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=True)).fit()
"""


def fill(folder):
    """What the ways start."""
    shutil.copy(LOOP, folder / "train.py")
    shutil.copy(LOOP.with_name("hogwild.py"), folder)
    (folder / "src").mkdir()
    (folder / "conda-like").write_text(CONDA_LIKE.replace("{bin}", str(BIN)))
    (folder / "lit.py").write_text(LIT)
    (folder / "hf.py").write_text(HF)
    (folder / "ray_train.py").write_text(RAY.replace("{loop}", str(folder / "train.py")))
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": LOOP.read_text()}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (folder / "train.ipynb").write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def is_there(need):
    return not need or (BIN / need).exists() or shutil.which(need) or subprocess.run([sys.executable, "-c", f"import {need}"], capture_output=True).returncode == 0


class Terminal:
    """A terminal of the command's own, so that Ctrl-C comes as there."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()

    def interrupt(self):
        os.write(self.ours, b"\x03")

    def close(self):
        os.close(self.ours)
        os.close(self.theirs)


def ended(running, terminal, folder, way, number):
    """Ends the way once all its ranks have stepped."""
    until = time.time() + LIMIT
    while len(list(folder.glob("stepping-*"))) < way.ranks and running.poll() is None and time.time() < until:
        time.sleep(0.1)
    if running.poll() is None:
        terminal.interrupt() if number == signal.SIGINT else running.send_signal(number)


def run(tonnage, way, number=None):
    """Exit code, stdout and stderr of a way, which a signal ends where there is one."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = pathlib.Path(place)
        fill(folder)
        options = way.options.split()
        if number:
            environment["STEPPING"], options = str(folder / "stepping"), [*options, "--whole"]
        words = [tonnage, "rehearse", "--gpu", "l4", "--gpus", "2", *options, "--json", "--", "sh", "-c", way.command.format(bin=BIN)]
        terminal = Terminal() if number == signal.SIGINT else None
        own = f"exec setsid --ctty {shlex.join(words)}" if terminal else None
        with open(folder / "out", "w+") as out, open(folder / "err", "w+") as err:
            stdin = terminal.theirs if terminal else subprocess.DEVNULL
            command = ["sh", "-c", own] if own else words
            running = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err, cwd=folder, env=environment)
            if number:
                ended(running, terminal, folder, way, number)
            try:
                code = running.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                running.kill()
                code = None
        if terminal:
            terminal.close()
        return code, (folder / "out").read_text(), (folder / "err").read_text(errors="replace")


def steps_and_peaks(code, out, err):
    """What became of a way: steps and peaks of its ranks, or what was said."""
    if not out.startswith("{"):
        said = [line for line in err.splitlines() if line.startswith("error:")] or err.splitlines()[-1:]
        return f"exit code {code}: {said[-1][:150] if said else ''}"
    answer = json.loads(out)
    processes = answer["processes"]
    if not processes:
        on_gpu = answer["gpus"][0]
        return f"no record; by what the driver gave: {on_gpu['verdict']}, {on_gpu['peak_reserved_bytes']:,} bytes reserved; exit code {code}"
    ranks = [f"rank {one['rank']} of {one['world_size']}: {one['steps']} steps, {one['devices'][0]['peak_allocated_bytes']:,} bytes" for one in processes if one["devices"]]
    return "; ".join(ranks) + (f"; exit code {code}" if code else "")


def figures(code, out, err):
    """Whose figures were told after a signal."""
    if code is None:
        return "it did not end"
    if not out.startswith("{"):
        return steps_and_peaks(code, out, err)
    processes = [one for one in json.loads(out)["processes"] if one["devices"]]
    by = "by the driver" if not processes else "of 1 rank" if len(processes) == 1 else f"of {len(processes)} ranks"
    return f"figures {by}; exit code {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", required=True, type=os.path.abspath)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--write", action="store_true", help="writes the rows into docs/rehearse.md")
    arguments = parser.parse_args()
    # A shell keeps SIGINT from what it starts in the background, and what is ignored is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before, rest = DOCUMENT.read_text().split(BEGIN)
    old, after = rest.split(END)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if line.startswith("| ") and not line.startswith("| started by")}
    for key in arguments.only.split(","):
        way, tonnage = WAYS[key], arguments.tonnage
        cells = ["not tried: not installed here", "", ""]
        if is_there(way.need):
            cells = [steps_and_peaks(*run(tonnage, way)), figures(*run(tonnage, way, signal.SIGINT)), figures(*run(tonnage, way, signal.SIGTERM))]
        rows[way.shown] = f"| {' | '.join([way.shown, *cells])} |"
        print(rows[way.shown], flush=True)
    if arguments.write:
        table = "\n".join(["| started by | what came of it | after Ctrl-C | after SIGTERM |", "|---|---|---|---|", *(rows[way.shown] for way in WAYS.values() if way.shown in rows)])
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
