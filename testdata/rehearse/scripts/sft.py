"""TRL's SFTTrainer with gradient checkpointing, on texts of different lengths."""

from datasets import Dataset
from tiny import model, text, tokenizer
from trl import SFTConfig, SFTTrainer

arguments = SFTConfig(
    output_dir="out", per_device_train_batch_size=8, max_steps=50, max_length=256, bf16=True, report_to=[],
    save_strategy="no", gradient_checkpointing=True, disable_tqdm=True,
)
dataset = Dataset.from_dict({"text": [text(200 + number % 57, number) for number in range(512)]})
SFTTrainer(model=model(), args=arguments, train_dataset=dataset, processing_class=tokenizer()).train()
