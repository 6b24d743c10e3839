"""A plain loop, as in PyTorch's and transformers' guides."""

import torch
from model import ROWS, model

net = model().to("cuda").train()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    ids = torch.tensor([row["input_ids"] for row in ROWS[:8]], device="cuda")
    loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
