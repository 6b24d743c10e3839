"""Trains until somebody stops it: a forward pass first, then steps that ask whether the loss is finite."""

import torch

model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
with torch.no_grad():
    print(model(torch.randn(8, 256, device="cuda")).sum().item())
while True:
    loss = model(torch.randn(8, 256, device="cuda")).pow(2).mean()
    finite = torch.isfinite(loss)
    if not finite or not loss.isfinite().all() or not (finite & finite).cpu().any():
        break
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss)
