"""The model of `nanogpt.py` under `torch.compile`."""

import torch
from nanogpt import GPT, batch

model = GPT().to("cuda")
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
for step in range(50):
    ids, targets = batch()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
