"""fp16 autocast with a GradScaler, and a check for NaN."""

import torch
from tiny import model

net = model().to("cuda")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(50):
    ids = torch.randint(0, 1000, (8, 256)).to("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(input_ids=ids, labels=ids).loss
    if torch.isnan(loss).any():
        raise RuntimeError("the loss is not a number")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"step {step}: scale {scaler.get_scale()}")
