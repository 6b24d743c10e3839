"""Run by test_torch.py over the phantom GPU: transformers' Trainer with the callback; prints its log history as JSON.

trainer_with_callback.py FOLDER [bare]      bare: the callback is told no job, and reads the trainer's own model and arguments
"""

import json
import sys

import tonnage
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=5000, n_positions=128))
row = {"input_ids": torch.ones(128, dtype=torch.long), "labels": torch.ones(128, dtype=torch.long)}
arguments = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, max_steps=5, report_to=[], logging_steps=1, save_strategy="no")
job = None if "bare" in sys.argv else tonnage.Job(model, micro_batch_size=4, seq_len=128)
with tonnage.measure() as seen:
    trainer = Trainer(model, arguments, train_dataset=[row] * 64, callbacks=[tonnage.Callback(job)])
    trainer.train()
history = trainer.state.log_history
print(json.dumps({"history": history, "measured": seen.to_dict()}))
