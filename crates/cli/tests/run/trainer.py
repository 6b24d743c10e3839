"""A Hugging Face Trainer with GPT-2 on random tokens; --leak keeps so many MiB more every step."""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--per_device_train_batch_size", type=int, default=16)
p.add_argument("--gradient_accumulation_steps", type=int, default=1)
p.add_argument("--output_dir", default="out")
p.add_argument("--resume_from_checkpoint", default=None)
p.add_argument("--max_steps", type=int, default=40)
p.add_argument("--n_layer", type=int, default=12)
p.add_argument("--leak", type=int, default=0)
a, _ = p.parse_known_args()
leaked = []
class Data(torch.utils.data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, i):
        x = torch.randint(0, 50257, (512,)); return {"input_ids": x, "labels": x}
class T(Trainer):
    def training_step(self, *args, **kw):
        if a.leak: leaked.append(torch.empty(a.leak << 20, dtype=torch.uint8, device="cuda"))
        return super().training_step(*args, **kw)
model = GPT2LMHeadModel(GPT2Config(n_layer=a.n_layer))
args = TrainingArguments(output_dir=a.output_dir, per_device_train_batch_size=a.per_device_train_batch_size,
    gradient_accumulation_steps=a.gradient_accumulation_steps, max_steps=a.max_steps, bf16=True, report_to=[], save_strategy="no", logging_steps=1)
t = T(model=model, args=args, train_dataset=Data())
t.train(resume_from_checkpoint=a.resume_from_checkpoint)
print("TRAINED rows per step", a.per_device_train_batch_size * a.gradient_accumulation_steps, "peak", torch.cuda.max_memory_reserved())
