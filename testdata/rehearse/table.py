"""Rehearses every script in `scripts` and writes the table of `docs/rehearse.md`.

    python testdata/rehearse/table.py --tonnage target/release/tonnage [--only hf_trainer,grpo] [--check]

Run with the Python whose PyTorch is to be rehearsed. The lane is long (half a minute a script) and needs no GPU. Packages that a
script needs and that are missing are said in its row.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "rehearse.md"
BEGIN, END = "<!-- table -->", "<!-- /table -->"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
SCRIPTS = {
    "hf_trainer": "plain Hugging Face Trainer, bf16 autocast",
    "sft": "TRL SFTTrainer, checkpointing",
    "dpo": "TRL DPOTrainer with a reference model",
    "grpo": "TRL GRPOTrainer",
    "accelerate_loop": "accelerate, two micro-batches a step",
    "nanogpt": "plain PyTorch in the style of nanoGPT",
    "lora": "PEFT LoRA under the Trainer",
    "amp_scaler": "fp16 autocast with GradScaler",
    "generate": "Hugging Face `generate`",
    "compiled": "nanoGPT-style under `torch.compile`",
    "bnb": "bitsandbytes, 8-bit AdamW",
    "zero2": "DeepSpeed, ZeRO-2 under torchrun, 2 ranks",
    "ddp": "DDP under torchrun, 2 ranks",
    "fsdp2": "FSDP2 under torchrun, 2 ranks",
}
RANKS = {"ddp", "fsdp2", "zero2"}


def rehearse(tonnage, name):
    """The document, the seconds that it took and the last line of what the script said."""
    start = TORCHRUN if name in RANKS else [sys.executable]
    command = [tonnage, "rehearse", "--gpu", "l4", "--gpus", "2" if name in RANKS else "1", "--json", "--"]
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command + start + [str(HERE / "scripts" / f"{name}.py")], capture_output=True, text=True, cwd=folder)
    said = [line for line in done.stderr.splitlines() if line.strip()] or [""]
    document = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return document, time.time() - began, done.returncode, said[-1]


def row(name, answer):
    """A row of the table."""
    document, seconds, code, said = answer
    words = f"| `{name}.py`: {SCRIPTS[name]} | "
    if document is None or code != 0:
        return words + f"does not run: {said[:160]} | | | | |"
    process = document["processes"][0]
    device = process["devices"][0]
    figures = f"{device['peak_allocated_bytes']:,} | {device['peak_reserved_bytes']:,} | {device['peak_phase']}"
    return words + f"{process['steps']} | {figures} | {process['wall_s']:.1f} of {seconds:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tonnage", required=True)
    parser.add_argument("--only", default=",".join(SCRIPTS))
    parser.add_argument("--check", action="store_true", help="fails where a peak differs from the committed table")
    arguments = parser.parse_args()
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    rows = {line.split("`")[1].removesuffix(".py"): line for line in old.splitlines() if line.startswith("| `")}
    figures = lambda line: line.split("|")[3:6]  # noqa: E731
    differing = []
    for name in arguments.only.split(","):
        made = row(name, rehearse(os.path.abspath(arguments.tonnage), name))
        print(made, flush=True)
        if name in rows and figures(rows[name]) != figures(made):
            differing.append(name)
        rows[name] = made
    if arguments.check:
        sys.exit(f"peaks differ: {', '.join(differing)}" if differing else 0)
    head = "| script | steps | peak allocated (bytes) | peak reserved (bytes) | in | seconds since the device was first used, of all |\n|---|---|---|---|---|---|"
    table = "\n".join([head, *(rows[name] for name in SCRIPTS if name in rows)])
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
