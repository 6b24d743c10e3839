"""Hugging Face's Trainer as it comes."""

from model import ROWS, model
from transformers import Trainer, TrainingArguments, default_data_collator

data = [{"input_ids": row["input_ids"], "attention_mask": [1] * 512, "labels": row["input_ids"]} for row in ROWS]
arguments = TrainingArguments(output_dir="out", max_steps=3, report_to=[], save_strategy="no")
Trainer(model=model(), args=arguments, train_dataset=data, data_collator=default_data_collator).train()
