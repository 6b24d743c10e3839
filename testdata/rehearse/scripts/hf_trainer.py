"""A plain Hugging Face Trainer: bf16 autocast, AdamW, gradient clipping."""

import sys

import torch
from tiny import model
from transformers import Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.randint(0, 1000, (256,))
        return {"input_ids": ids, "labels": ids}


arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, max_steps=int((sys.argv[1:] or [50])[0]), bf16=True, report_to=[],
    save_strategy="no", logging_steps=5, disable_tqdm=True,
)
Trainer(model=model(), args=arguments, train_dataset=Tokens()).train()
