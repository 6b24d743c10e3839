"""TRL's GRPOTrainer: it generates, scores and trains."""

from datasets import Dataset
from tiny import model, text, tokenizer
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **_):
    return [float(index % 2) for index, _ in enumerate(completions)]


arguments = GRPOConfig(
    output_dir="out", per_device_train_batch_size=8, num_generations=8, max_completion_length=64, max_steps=50, bf16=True,
    report_to=[], save_strategy="no", gradient_checkpointing=True, disable_tqdm=True,
)
dataset = Dataset.from_dict({"prompt": [text(64, number) for number in range(256)]})
GRPOTrainer(
    model=model(), reward_funcs=reward, args=arguments, train_dataset=dataset, processing_class=tokenizer()
).train()
