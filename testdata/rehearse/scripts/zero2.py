"""DeepSpeed's ZeRO-2 with bf16, under torchrun."""

import deepspeed
import torch
from tiny import model

settings = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
}
net = model()
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=settings)
for step in range(50):
    ids = torch.randint(0, 1000, (8, 256)).to(engine.device)
    engine.backward(engine(input_ids=ids, labels=ids).loss)
    engine.step()
