"""More allocations in 500 steps than a small history holds, and few in each."""

import torch

model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(500):
    loss = model(torch.randn(8, 256, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
