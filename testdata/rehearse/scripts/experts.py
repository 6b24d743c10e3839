"""A mixture of experts whose dispatch is written by hand, in the forms that public models have; `forced` gives every expert its
even share without asking the device.

    experts.py FORM [STEPS [checkpointed | compiled]]
"""
import functools
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

TOKENS, HIDDEN, EXPERTS, CHOSEN = 4096, 256, 8, 2


class Mixture(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(HIDDEN, 1024), nn.SiLU(), nn.Linear(1024, HIDDEN)) for _ in range(EXPERTS))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(CHOSEN, dim=-1)
        return x + getattr(self, self.form)(x, weights, chosen)

    def nonzero(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = (chosen == index).nonzero(as_tuple=True)
            out[token] += weights[token, slot, None] * expert(x[token])
        return out

    def where(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            out[token] += weights[token, slot, None] * expert(x[token])
        return out

    def any(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mask = chosen == index
            if mask.any():
                token = mask.any(dim=-1).nonzero().flatten()
                out.index_add_(0, token, expert(x[token]) * weights[mask].view(-1, 1))
        return out

    def one_hot(self, x, weights, chosen):
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for index in hit:
            slot, token = torch.where(mask[index].squeeze(0))
            out.index_add_(0, token, self.experts[index](x[None, token].reshape(-1, HIDDEN)) * weights[token, slot, None])
        return out

    def counts(self, x, weights, chosen):
        order = chosen.flatten().argsort()
        sizes = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
        rows = x[order // CHOSEN].split(sizes)
        made = torch.cat([expert(part) for expert, part in zip(self.experts, rows) if part.shape[0]])
        return torch.zeros_like(x).index_add_(0, order // CHOSEN, made * weights.flatten()[order, None])

    def cumulated(self, x, weights, chosen):
        order = chosen.view(-1).sort(stable=True)[1]
        ends = chosen.view(-1).bincount(minlength=EXPERTS).cpu().numpy().cumsum(0)
        out = torch.zeros_like(x)
        for index, end in enumerate(ends):
            token = order[(0 if index == 0 else ends[index - 1]) : end] // CHOSEN
            if len(token):
                out.scatter_add_(0, token.view(-1, 1).repeat(1, HIDDEN), self.experts[index](x[token]))
        return out

    def scattered(self, x, weights, chosen):
        gates = torch.zeros(TOKENS, EXPERTS, device=x.device).scatter(1, chosen, weights)
        order = torch.nonzero(gates).sort(0)[1]
        token = torch.nonzero(gates)[order[:, 1], 0]
        made = torch.cat([expert(part) for expert, part in zip(self.experts, x[token].split((gates > 0).sum(0).tolist()))])
        return torch.zeros_like(x).index_add_(0, token, made)

    def ordered(self, x, weights, chosen):
        weights, chosen = self.gate(x).softmax(-1).sort(descending=True)
        return self.where(x, weights, chosen[:, :CHOSEN])

    def drawn(self, x, weights, chosen):
        chosen = torch.distributions.Categorical(self.gate(x).softmax(-1)).sample()
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mask = chosen == index
            if mask.any():
                out[mask] = out[mask] + weights[mask, :1] * expert(x[mask])
        return out

    def forced(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for expert in self.experts:
            token = torch.arange(TOKENS * CHOSEN // EXPERTS, device=x.device)
            out[token] += weights[token, token % CHOSEN, None] * expert(x[token])
        return out


def main():
    model = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), Mixture(sys.argv[1])).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    run = model
    if "compiled" in sys.argv:
        run = torch.compile(model)
    if "checkpointed" in sys.argv:
        run = functools.partial(checkpoint, model, use_reentrant=False)
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10):
        loss = run(torch.randn(TOKENS, HIDDEN, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
