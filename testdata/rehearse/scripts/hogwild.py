"""Two processes that train one model, whose memory they share (Hogwild), without a launcher. `STEPPING` is as in `loop.py`."""
import itertools
import os
import pathlib

import torch
from torch import multiprocessing, nn


def train(number, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    stepping = os.environ.get("STEPPING")
    for step in itertools.count() if stepping else range(20):
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if stepping and step == 5:
            pathlib.Path(f"{stepping}-{number}").touch()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
    model.share_memory()
    workers = [multiprocessing.Process(target=train, args=(number, model)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
