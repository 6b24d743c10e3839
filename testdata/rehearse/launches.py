"""Starts `scripts/loop.py` in the ways in which people start a training, each rehearsed, and writes a table of docs/rehearse.md.

    python testdata/rehearse/launches.py --tonnage target/release/tonnage [--only uv,ray] [--write]

Run with the Python whose PyTorch is to be rehearsed; launchers are taken from its folder. What is not installed there is said.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "rehearse.md"
BEGIN, END = "<!-- launches -->", "<!-- /launches -->"
LOOP = HERE / "scripts" / "loop.py"
BIN = pathlib.Path(sys.executable).parent
NODE = "torchrun --nnodes 2 --nproc-per-node 1 --master-addr localhost --master-port 29477 --node-rank"
#: Key -> how it is shown, what it needs, the command. Each runs in an empty folder that holds `train.py`.
WAYS = {
    "script": ("`python train.py`", None, "python train.py"),
    "module": ("`python -m train`", None, "python -m train"),
    "path": ("`sh -c 'PYTHONPATH=src python train.py'`", None, "PYTHONPATH=src python train.py"),
    "isolated": ("`python -E train.py`, and so `-I`, `-S`", None, "python -E train.py"),
    "cleared": ("`env -i python train.py`", None, "env -i {bin}/python train.py"),
    "uv": ("`uv run train.py`", "uv", "uv run --no-project --python {bin}/python train.py"),
    "conda": ("`conda run python train.py`", "conda", "conda run --no-capture-output python train.py"),
    "torchrun": ("`torchrun --nproc-per-node 2`", "torchrun", "torchrun --nproc-per-node 2 train.py"),
    "nodes": (
        "`torchrun --nnodes 2`, both nodes on this machine", "torchrun",
        f"CUDA_VISIBLE_DEVICES=1 {NODE} 1 train.py & CUDA_VISIBLE_DEVICES=0 {NODE} 0 train.py; code=$?; wait; exit $code",
    ),
    "accelerate": ("`accelerate launch --num_processes 2`", "accelerate", "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no train.py"),
    "deepspeed": ("`deepspeed --num_gpus 2`", "deepspeed", "deepspeed --num_gpus 2 train.py"),
    "notebook": ("`jupyter nbconvert --execute`", "jupyter-nbconvert", "jupyter-nbconvert --to notebook --execute train.ipynb"),
    "lightning": ("`lightning.Trainer` in a script", "lightning", "python lit.py"),
    "ray": ("Ray Train's `TorchTrainer`", "ray", "python ray_train.py"),
}  # fmt: skip
LIT = """
import lightning, torch
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
    def training_step(self, batch, _): return self.net(batch).square().mean()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.DataLoader(torch.randn(2048, 512), batch_size=64)
lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False).fit(Lit(), data)
"""
RAY = """
import ray.train.torch, ray.train
def loop():
    import runpy
    runpy.run_path("{loop}")
ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=True)
ray.train.torch.TorchTrainer(loop, scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=True)).fit()
"""


def fill(folder):
    """What the ways start."""
    shutil.copy(LOOP, folder / "train.py")
    (folder / "src").mkdir()
    (folder / "lit.py").write_text(LIT)
    (folder / "ray_train.py").write_text(RAY.replace("{loop}", str(folder / "train.py")))
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": LOOP.read_text()}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (folder / "train.ipynb").write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def is_there(need):
    """A program in Python's folder or a package."""
    return need is None or (BIN / need).exists() or shutil.which(need) or subprocess.run([sys.executable, "-c", f"import {need}"], capture_output=True).returncode == 0


def tried(tonnage, key):
    """What became of a way: steps and peaks of its ranks, or what was said."""
    _, need, command = WAYS[key]
    if not is_there(need):
        return "not tried: not installed here"
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        fill(pathlib.Path(folder))
        words = [tonnage, "rehearse", "--gpu", "l4", "--gpus", "2", "--json", "--", "sh", "-c", command.format(bin=BIN)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=600)
    if not done.stdout.startswith("{"):
        said = [line for line in done.stderr.splitlines() if line.startswith("error:")] or done.stderr.splitlines()[-1:]
        return f"exit code {done.returncode}: {said[-1][:150] if said else ''}"
    answer = json.loads(done.stdout)
    processes = answer["processes"]
    if not processes:
        on_gpu = answer["gpus"][0]
        return f"no record; by what the driver gave: {on_gpu['verdict']}, {on_gpu['peak_reserved_bytes']:,} bytes reserved; exit code {done.returncode}"
    ranks = [f"rank {one['rank']} of {one['world_size']}: {one['steps']} steps, {one['devices'][0]['peak_allocated_bytes']:,} bytes" for one in processes if one["devices"]]
    return "; ".join(ranks) + (f"; exit code {done.returncode}" if done.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tonnage", required=True, type=os.path.abspath)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--write", action="store_true", help="writes the rows into docs/rehearse.md")
    arguments = parser.parse_args()
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if line.startswith("| `") or line.startswith("| Ray")}
    for key in arguments.only.split(","):
        shown = WAYS[key][0]
        rows[shown] = f"| {shown} | {tried(arguments.tonnage, key)} |"
        print(rows[shown], flush=True)
    if arguments.write:
        table = "\n".join(["| started by | what came of it |", "|---|---|", *(rows[way[0]] for way in WAYS.values() if way[0] in rows)])
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
