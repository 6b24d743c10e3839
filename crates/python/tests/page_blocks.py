"""Run by test_pages.py over the phantom GPU: executes blocks of Python of a page, with what a reader's script has by then.

page_blocks.py PAGE NUMBER...
"""

import re
import sys
from pathlib import Path

import tonnage
import torch
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from trl import SFTConfig

page, *numbers = sys.argv[1:]
blocks = re.findall(r"```python\n(.*?)```", Path(page).read_text(encoding="utf-8"), re.DOTALL)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, n_positions=1024))
args = TrainingArguments("out", per_device_train_batch_size=4, max_steps=4, report_to=[], save_strategy="no")
row = {"input_ids": torch.ones(64, dtype=torch.long), "labels": torch.ones(64, dtype=torch.long)}
names = {"tonnage": tonnage, "model": model, "args": args, "SFTConfig": SFTConfig, "LoraConfig": LoraConfig}


def train():
    trainer.train()


for number in map(int, numbers):
    # A trainer made before other arguments no longer trains: transformers sets accelerate's state back.
    trainer = Trainer(model, args, train_dataset=[row] * 32)
    names.update(trainer=trainer, train=train)
    exec(compile(blocks[number], f"{page}, block {number}", "exec"), names)
if "tonnage_guard" in names:
    names["train"](micro_batch_size=2, gradient_accumulation_steps=1)
print("callbacks:", *[type(callback).__name__ for callback in trainer.callback_handler.callbacks])
