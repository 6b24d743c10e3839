"""FSDP2 (`fully_shard`) under torchrun, with mixed precision."""

import os

import torch
import torch.distributed as dist
from tiny import model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
net = model().to("cuda")
for layer in net.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(net, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
for step in range(50):
    ids = torch.randint(0, 1000, (8, 256)).to("cuda")
    loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
