"""Very many allocations without a module, a backward pass or a step."""

import torch

total = torch.zeros(1, device="cuda")
for _ in range(2000):
    total = total + torch.ones(1, device="cuda")
torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
