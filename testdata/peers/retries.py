#!/usr/bin/env python3
"""Counts how often a GPT-2 training script that is too big for its GPU is started or retried, and at which effective
batch it ends: `tonnage run`, accelerate's find_executable_batch_size, and the Trainer's auto_find_batch_size.

    python testdata/peers/retries.py --tonnage target/release/tonnage --library target/release/libtonnage_phantom.so

Run it by a Python with torch, transformers and accelerate (`bash testdata/rehearse/environment.sh` makes one). The GPU is
a phantom of 8 GiB: every out-of-memory error is PyTorch's own, no GPU and no network are needed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROWS = 32
JOB = f"""
model = "gpt2"
micro_batch_size = {ROWS}
seq_len = 512
precision = "amp-bf16"
gpu = "8GiB,sm_90"
"""

SCRIPT = '''
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

how, rows, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tries = []


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, i):
        x = torch.randint(0, 50257, (512,))
        return {"input_ids": x, "labels": x}


def trainer(rows, **more):
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=rows, gradient_accumulation_steps=passes,
                             max_steps=3, bf16=True, report_to=[], save_strategy="no", **more)
    return Trainer(GPT2LMHeadModel(GPT2Config()), args, train_dataset=Data())


def train(rows):
    tries.append(rows)
    print("TRY", rows, flush=True)
    trainer(rows).train()


if how == "accelerate":
    from accelerate.utils import find_executable_batch_size

    find_executable_batch_size(train, starting_batch_size=rows)()
elif how == "auto_find_batch_size":
    found = trainer(rows, auto_find_batch_size=True)
    inner = found._inner_training_loop

    def counted(batch_size=None, *args, **kwargs):
        tries.append(batch_size or rows)
        print("TRY", tries[-1], flush=True)
        return inner(batch_size, *args, **kwargs)

    found._inner_training_loop = counted
    found.train()
else:
    train(rows)
print("TRAINED", tries[-1], "x", passes, flush=True)
'''


def phantom(library):
    device = f"name=Phantom,total={8 << 30},cc=9.0,sms=132"
    return {"LD_PRELOAD": library, "TONNAGE_PHANTOM_DEVICES": device, "TONNAGE_PHANTOM_QUIET": "1",
            "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}


def outcome(text):
    """Rows of every try, and the effective batch that trained, or None."""
    tries = [int(line.split()[1]) for line in text.splitlines() if line.startswith("TRY ")]
    trained = [line.split() for line in text.splitlines() if line.startswith("TRAINED ")]
    return tries, int(trained[0][1]) * int(trained[0][3]) if trained else None


def by_itself(how, folder, library):
    command = [sys.executable, "train.py", how, str(ROWS), "1"]
    answer = subprocess.run(command, cwd=folder, env=os.environ | phantom(library), text=True, capture_output=True)
    return outcome(answer.stdout)


def by_tonnage(options, folder, library, tonnage):
    environment = [f"{name}={value}" for name, value in phantom(library).items()]
    script = [sys.executable, "train.py", "plain", "{micro_batch_size}", "{gradient_accumulation_steps}"]
    command = [tonnage, "run", "--json", "job.toml", *options, "--", "env", *environment, *script]
    home = os.environ | {"TONNAGE_HOME": os.path.join(folder, "home")}
    answer = subprocess.run(command, cwd=folder, env=home, text=True, capture_output=True)
    run = json.loads(answer.stdout)
    tries = [attempt["attempt"]["batch"]["micro_batch_size"] for attempt in run["attempts"]]
    trained = run["result"]["outcome"] == "succeeded" and run["effective_batch_is_equal"]
    return tries, run["effective_batch_size"] if trained else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", default="target/release/tonnage")
    parser.add_argument("--library", default="target/release/libtonnage_phantom.so")
    args = parser.parse_args()
    tonnage, library = os.path.abspath(args.tonnage), os.path.abspath(args.library)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in [("train.py", SCRIPT), ("job.toml", JOB)]:
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        rows = [
            ("tonnage run", by_tonnage([], folder, library, tonnage)),
            ("tonnage run --force", by_tonnage(["--force"], folder, library, tonnage)),
            ("find_executable_batch_size", by_itself("accelerate", folder, library)),
            ("auto_find_batch_size", by_itself("auto_find_batch_size", folder, library)),
        ]
    print(f"asked for: {ROWS} rows in every optimizer step")
    for name, (tries, effective) in rows:
        trained = f"trained at {effective}" if effective else "not trained"
        print(f"{name:28}{len(tries):3} tries, {trained:15} {' '.join(map(str, tries))}")


main()
