"""TRL's DPOTrainer with a reference model."""

from datasets import Dataset
from tiny import model, text, tokenizer
from trl import DPOConfig, DPOTrainer

arguments = DPOConfig(
    output_dir="out", per_device_train_batch_size=4, max_steps=50, max_length=256, bf16=True, report_to=[],
    save_strategy="no", gradient_checkpointing=False, disable_tqdm=True,
)
rows = range(256)
dataset = Dataset.from_dict({
    "prompt": [text(64, row) for row in rows],
    "chosen": [text(128, row + 1) for row in rows],
    "rejected": [text(96, row + 2) for row in rows],
})
DPOTrainer(model=model(), ref_model=model(), args=arguments, train_dataset=dataset, processing_class=tokenizer()).train()
