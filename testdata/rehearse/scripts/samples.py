"""A text that goes on until its end is drawn: on a device that computes nothing it never is."""

import torch

net = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100)).cuda()
ids, token = torch.zeros(1, 1, dtype=torch.long, device="cuda"), 0
with torch.no_grad():
    while token != 99:
        token = net(ids)[0, -1].argmax().item()
        ids = torch.cat([ids, torch.tensor([[token]], device="cuda")], 1)
