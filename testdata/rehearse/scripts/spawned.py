"""Two ranks without a launcher: each is told its rank by its parent."""

import tempfile

import torch
import torch.multiprocessing as mp
import torch.distributed as dist


def train(rank, folder):
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(folder,), nprocs=2)
