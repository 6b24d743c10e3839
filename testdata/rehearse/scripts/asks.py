"""Trainings that ask the device what they need to go on, in the shape of public repositories.

    asks.py sampling|boxes|targets|actions|preferences|periods|pinned|graphs|inside|samples|by_hand|nothing_to_learn|curvature
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda"
STEPS = 6


def trained(model):
    model.to(DEVICE)
    return model, torch.optim.AdamW(model.parameters())


def sampling():
    """Characters are drawn within the loop, and looked up in a table."""
    model, optimizer = trained(nn.Sequential(nn.Embedding(65, 32), nn.Linear(32, 65)))
    table = {index: chr(40 + index) for index in range(65)}
    for _ in range(STEPS):
        tokens = torch.randint(0, 65, (8, 16)).to(DEVICE)
        F.cross_entropy(model(tokens).view(-1, 65), tokens.view(-1)).backward()
        optimizer.step()
        with torch.no_grad():
            text = torch.tensor([[1, 2, 3]]).to(DEVICE)
            for _ in range(10):
                logits = model(text)[:, -1]
                best, _ = torch.topk(logits, 10)
                logits[logits < best[:, [-1]]] = -float("inf")
                text = torch.cat((text, torch.multinomial(logits.softmax(-1), 1)), 1)
            print("".join(table[int(index)] for index in text[0]))


def boxes():
    """Boxes and masks are asserted to be valid."""
    model, optimizer = trained(nn.Linear(4, 4))
    for _ in range(STEPS):
        mask = torch.randint(0, 2, (2, 64, 64)).to(DEVICE)
        assert mask.min() >= 0 and mask.max() < 2
        box = model(torch.rand(10, 4).to(DEVICE))
        corners = torch.cat([box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2], -1)
        assert (corners[:, 2:] >= corners[:, :2]).all()
        loss = corners.square().sum()
        assert math.isfinite(loss.item())
        loss.backward()
        optimizer.step()


def targets():
    """Targets of a batch are sorted into a table as large as the fullest image."""
    model, optimizer = trained(nn.Linear(4, 4))
    for _ in range(STEPS):
        found = torch.cat([torch.tensor([0, 0, 0, 1, 2.0])[:, None], torch.rand(5, 5)], 1).to(DEVICE)
        image = found[:, 0]
        counts = image.unique(return_counts=True)[1].to(dtype=torch.int32)
        table = torch.zeros(4, counts.max(), 5, device=DEVICE)
        assert table.shape == (4, 3, 5)
        for index in range(4):
            matches = image == index
            if count := matches.sum():
                table[index, :count] = found[matches, 1:]
        model(table[..., :4]).sum().backward()
        optimizer.step()


def actions():
    """A policy draws actions that the host's environment takes."""
    model, optimizer = trained(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)))
    for _ in range(STEPS):
        seen, taken = torch.zeros((16, 4), device=DEVICE), torch.zeros(16, device=DEVICE)
        for step in range(16):
            with torch.no_grad():
                taken[step] = torch.distributions.Categorical(logits=model(seen[step])).sample()
            assert [0, 1][int(taken[step])] in (0, 1)
        order = torch.randperm(16, device=DEVICE)
        drawn = torch.distributions.Categorical(logits=model(seen[order]))
        loss = -drawn.log_prob(taken.long()[order]).mean() - drawn.entropy().mean()
        if loss.isnan():
            sys.exit(3)
        loss.backward()
        optimizer.step()


def preferences():
    """Rows are chosen by the places of labels."""
    model, optimizer = trained(nn.Linear(8, 1))
    for _ in range(STEPS):
        labels = torch.tensor([True, False, True, True]).to(DEVICE)
        logps = model(torch.randn(4, 8).to(DEVICE))[:, 0]
        chosen, rejected = logps[torch.nonzero(labels).view(-1), ...], logps[torch.nonzero(~labels).view(-1), ...]
        assert (chosen.shape, rejected.shape) == ((3,), (1,))
        (chosen.sum() - rejected.sum()).backward()
        optimizer.step()


def periods():
    """The strongest frequencies of a batch cut its rows into periods; the mean, which has none, was set to zero."""
    model, optimizer = trained(nn.Linear(8, 8))
    for _ in range(STEPS):
        x = model(torch.randn(4, 96, 8).to(DEVICE))
        strength = torch.fft.rfft(x, dim=1).abs().mean(0).mean(-1)
        strength[0] = 0
        for period in 96 // torch.topk(strength, 3)[1].detach().cpu().numpy():
            x = x[:, : 96 // period * period].reshape(4, -1, period, 8).reshape(4, -1, 8)
        x.sum().backward()
        optimizer.step()


def pinned():
    """A data loader with workers hands over page-locked batches."""
    from torch.utils.data import DataLoader, TensorDataset

    model, optimizer = trained(nn.Linear(8, 8))
    data = TensorDataset(torch.randn(64, 8), torch.arange(64) % 8)
    for x, y in DataLoader(data, 8, pin_memory=True, num_workers=1, persistent_workers=True):
        y = y.to(DEVICE, non_blocking=True)
        assert y.tolist() == list(range(8))
        F.cross_entropy(model(x.to(DEVICE, non_blocking=True)), y).backward()
        optimizer.step()


def graphs():
    """A whole step is captured into a graph with a pool of its own, and replayed."""
    model, _ = trained(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)))
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x = torch.randn(64, 512, device=DEVICE)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(x).sum().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(aside)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
        optimizer.step()
    for _ in range(STEPS):
        x.copy_(torch.randn(64, 512))
        graph.replay()


def inside():
    """A forward pass runs backward passes of its own, a stretch of the text each."""

    class Stretches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            for part in x.chunk(2):
                self.inner(part).sum().backward()
            return self.inner(x).sum()

    model, optimizer = trained(Stretches())
    for _ in range(STEPS):
        model(torch.randn(4, 8).to(DEVICE)).backward()
        optimizer.step()


def samples():
    """Gradients of every sample for itself, by torch.func, whose parameters stand for others."""
    model, optimizer = trained(nn.Linear(8, 8))
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    for _ in range(STEPS):
        x = torch.randn(4, 8).to(DEVICE)
        loss = torch.func.grad(lambda own, row: torch.func.functional_call(model, own, (row,)).sum())
        assert torch.func.vmap(loss, in_dims=(None, 0))(parameters, x)["weight"].shape == (4, 8, 8)
        model(x).sum().backward()
        optimizer.step()


def by_hand():
    """No optimizer: the script changes the weights itself, and its loss is a module too."""
    model, _ = trained(nn.Linear(8, 8))
    loss = nn.CrossEntropyLoss()
    for _ in range(100):
        model.zero_grad()
        loss(model(torch.randn(4, 8).to(DEVICE)), torch.arange(4).to(DEVICE)).backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)


def nothing_to_learn():
    """A triplet loss of zero is no step."""
    model, optimizer = trained(nn.Linear(8, 8))
    for _ in range(STEPS):
        near, far = model(torch.randn(4, 8).to(DEVICE)).chunk(2)
        loss = (near - far + 0.2).relu().mean()
        if loss.item() == 0:
            continue
        loss.backward()
        optimizer.step()


def curvature():
    """LBFGS keeps a history of steps and gradients, which is most of its memory."""
    model, _ = trained(nn.Linear(256, 256))
    for search in (None, "strong_wolfe"):
        optimizer = torch.optim.LBFGS(model.parameters(), history_size=8, line_search_fn=search)

        def loss():
            optimizer.zero_grad()
            made = model(torch.randn(4, 256).to(DEVICE)).square().mean()
            made.backward()
            return made

        optimizer.step(loss)
        state = optimizer.state[optimizer.param_groups[0]["params"][0]]
        assert len(state["old_dirs"]) == 8 and optimizer.param_groups[0]["tolerance_grad"] == 1e-7, state


for name in sys.argv[1:]:
    globals()[name]()
