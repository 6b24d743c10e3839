"""A small loop, for the ways in which people start one: alone, or a rank of several under whatever launcher set RANK. With `STEPPING`
it goes on until it is ended, and leaves a file of that name and its rank once it has made some steps."""
import itertools
import os
import pathlib

import torch
from torch import nn

# Ray shows each rank its own GPU alone, and has joined the ranks before.
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
optimizer = torch.optim.AdamW(model.parameters())
stepping = os.environ.get("STEPPING")
for step in itertools.count() if stepping else range(20):
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if stepping and step == 5:
        pathlib.Path(f"{stepping}-{os.environ.get('RANK', 0)}").touch()
