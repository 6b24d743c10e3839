"""Stands in for a reader's training script: three layers, and DistributedDataParallel where torchrun started it."""

import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
rows = parser.parse_args().batch_size

rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(rank)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
if "WORLD_SIZE" in os.environ:
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    loss = model(torch.randn(rows, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
