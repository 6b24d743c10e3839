"""Takes tables that only a device computes to the host, where they decide how large the next ones are.

    taken.py array|range|mask|sparse|nothing
"""
import sys

import numpy
import torch
from torch import nn

model = nn.Linear(16, 16).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    x = torch.randn(64, 16, device="cuda")
    rows = [x]
    with torch.no_grad():
        lengths = model(x).sum(1).long()
    if sys.argv[1] == "array":
        rows.append(torch.zeros(lengths.cpu().numpy().max() + 4, 16, device="cuda"))
        rows.append(x[torch.from_numpy(numpy.where(lengths.cpu().numpy() >= 0)[0]).cuda()])
    elif sys.argv[1] == "range":
        most = lengths.max().item()
        rows += [torch.zeros(1, 16, device="cuda") for _ in range(most + 2)]
    elif sys.argv[1] == "mask":
        rows.append(x[lengths.cpu() > 0])
    elif sys.argv[1] == "sparse":
        graph = torch.eye(64, device="cuda").to_sparse()
        rows.append((graph @ graph).to_dense()[:, :16])
    else:
        right = (lengths.cpu().numpy() == numpy.zeros(64)).mean()
        print(f"{right:.2f}", lengths.cpu().float().mean().item())
    loss = model(torch.cat(rows)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
