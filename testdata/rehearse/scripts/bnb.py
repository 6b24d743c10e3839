"""8-bit AdamW of bitsandbytes."""

import bitsandbytes as bnb
import torch
from tiny import model

net = model().to("cuda")
optimizer = bnb.optim.AdamW8bit(net.parameters(), lr=1e-4)
for step in range(50):
    ids = torch.randint(0, 1000, (8, 256)).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
