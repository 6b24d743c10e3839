"""LoRA with PEFT under the Hugging Face Trainer, weights in bf16."""

import torch
from peft import LoraConfig, get_peft_model
from tiny import model
from transformers import Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        ids = torch.randint(0, 1000, (256,))
        return {"input_ids": ids, "labels": ids}


adapters = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
net = get_peft_model(model().to(torch.bfloat16), adapters)
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, max_steps=50, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True
)
Trainer(model=net, args=arguments, train_dataset=Tokens()).train()
