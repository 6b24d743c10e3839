"""A training function that is retried in its own process: nobody outside can tell it its batch."""
import torch
import tonnage_guard
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

tonnage_guard.watch_out_of_memory()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, i):
        x = torch.randint(0, 50257, (512,))
        return {"input_ids": x, "labels": x}


@tonnage_guard.guard
def train(micro_batch_size, gradient_accumulation_steps):
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=micro_batch_size, max_steps=4, bf16=True,
                             gradient_accumulation_steps=gradient_accumulation_steps, report_to=[], save_strategy="no")
    trainer = Trainer(GPT2LMHeadModel(GPT2Config()), args, train_dataset=Data())
    trainer.add_callback(tonnage_guard.Callback())
    trainer.train()
    print("TRAINED", micro_batch_size, "x", gradient_accumulation_steps)


train()
