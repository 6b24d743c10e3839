"""DistributedDataParallel under torchrun."""

import os

import torch
import torch.distributed as dist
from tiny import model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = DistributedDataParallel(model().to("cuda"), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
for step in range(50):
    ids = torch.randint(0, 1000, (8, 256)).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
