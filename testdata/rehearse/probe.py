#!/usr/bin/env python3
"""What of PyTorch runs under `tonnage rehearse`: one small program an area, each in a process of its own, so that a crash
costs its own area only.

    probe.py --tonnage target/release/tonnage                       # all areas, a JSON object on stdout
    probe.py --tonnage target/release/tonnage --only convolution    # this one
    tonnage rehearse -- python probe.py --area convolution          # one area, with all that it prints

An area's answer is "ok", or the error's first line. Needs PyTorch with CUDA 12 or 13 and no GPU.
"""
import argparse
import json
import os
import subprocess
import sys

AREAS = {}


def area(function):
    AREAS[function.__name__] = function
    return function


@area
def training():
    """A transformer layer, forward, backward and AdamW; an out-of-memory error at the capacity."""
    import torch
    layer = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(2):
        with torch.autocast("cuda", torch.float16):
            loss = layer(torch.randn(8, 64, 256, device="cuda")).float().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise AssertionError("a tebibyte was allocated")


@area
def attention():
    import torch
    query = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    out.sum().backward()
    assert "Flash" in type(out.grad_fn).__name__, type(out.grad_fn).__name__


@area
def convolution():
    import torch
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3)).cuda()
    net(torch.randn(4, 3, 32, 32, device="cuda")).sum().backward()


@area
def linear_algebra():
    import torch
    matrix = torch.eye(16, device="cuda")
    for name in ("svd", "qr", "eigh", "inv", "cholesky"):
        getattr(torch.linalg, name)(matrix)
    torch.fft.rfft(matrix)
    (torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (8, 8)).cuda() @ torch.randn(8, 4, device="cuda"))


@area
def cuda_graph():
    import torch
    layer, data, side = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer(data).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(data).sum().backward()
    graph.replay()
    torch.cuda.synchronize()


@area
def expandable_segments():
    import torch
    kept = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (3, 50, 400)]
    assert torch.cuda.memory_reserved() >= 453 << 20
    assert any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@area
def malloc_async():
    import torch
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    block = torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() >= 400 << 20
    del block


@area
def recurrent():
    import torch
    net = torch.nn.LSTM(16, 32, 2).cuda()
    net(torch.randn(5, 3, 16, device="cuda"))[0].sum().backward()


@area
def two_devices():
    import torch
    assert torch.cuda.device_count() == 2
    block = torch.ones(1 << 20, device="cuda:0").to("cuda:1")
    assert block.device.index == 1 and torch.cuda.memory_allocated(1) == 4 << 20


@area
def compile():
    import torch

    @torch.compile
    def run(x, w):
        return torch.nn.functional.gelu(x @ w).sum()
    run(torch.randn(128, 256, device="cuda", requires_grad=True), torch.randn(256, 64, device="cuda")).backward()


@area
def profiler():
    import torch
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        torch.randn(8, 8, device="cuda") @ torch.randn(8, 8, device="cuda")


@area
def two_ranks():
    """DDP and FSDP2 over NCCL, started by torchrun."""
    import torch
    import torch.distributed as dist
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(100)]).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[rank])
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    from torch.distributed.fsdp import fully_shard
    sharded = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(2)]).cuda()
    for layer in sharded:
        fully_shard(layer)
    fully_shard(sharded)
    sharded(torch.randn(8, 256, device="cuda")).sum().backward()
    dist.barrier()
    dist.destroy_process_group()


#: Areas with variables of their own.
SETTINGS = {
    "expandable_segments": {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "malloc_async": {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}
TWO_DEVICES = {"two_devices", "two_ranks"}


def answer(name, tonnage, timeout):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if name == "two_ranks" else []
    gpus = "2" if name in TWO_DEVICES else "1"
    command = [tonnage, "rehearse", "--gpu", "h200", "--gpus", gpus, "--whole", "--", sys.executable, *launcher, os.path.abspath(__file__), "--area", name]
    try:
        done = subprocess.run(command, env={**os.environ, "PYTHONWARNINGS": "ignore", **SETTINGS.get(name, {})}, capture_output=True,
                              text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode == 0:
        return "ok"
    if done.returncode > 128:
        return f"signal {done.returncode - 128}"
    said = [line for line in done.stderr.splitlines() if "Error" in line and "torchrun" not in line and "ChildFailed" not in line]
    return (said or done.stderr.splitlines() or ["?"])[-1 if said else 0].strip()[:160]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", help="the program that rehearses the areas")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=list(AREAS), help="areas to rehearse")
    parser.add_argument("--area", choices=AREAS, help="run this one, here")
    parser.add_argument("--timeout", type=int, default=300, help="seconds an area may take")
    arguments = parser.parse_args()
    if arguments.area:
        AREAS[arguments.area]()
        return
    tonnage = os.path.abspath(arguments.tonnage)
    print(json.dumps({name: answer(name, tonnage, arguments.timeout) for name in arguments.only}, indent=1))


if __name__ == "__main__":
    main()
