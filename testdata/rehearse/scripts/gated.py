"""Experts that take the tokens whose gate is open: a mask that nobody knows. Whoever asks whether it is empty asks for its count in one of
these forms; each must dispatch as `any` does, and reach its peak.

    gated.py FORM
"""

import sys

import torch
from torch import nn

TOKENS, HIDDEN, EXPERTS = 2048, 256, 4
FORMS = {
    "any": lambda masks: [mask.any() for mask in masks.T],
    "sum": lambda masks: [mask.sum() > 0 for mask in masks.T],
    "item": lambda masks: [mask.sum().item() > 0 for mask in masks.T],
    "fractions": lambda masks: [mask.float().sum() >= 1 for mask in masks.T],
    "cast": lambda masks: [mask.to(torch.int32).sum().item() for mask in masks.T],
    "fraction": lambda masks: [mask.float().sum().item() > 0.5 for mask in masks.T],
    "rows": lambda masks: masks.sum(0) > 0,
    "row": lambda masks: [masks.sum(dim=0)[index].item() for index in range(EXPERTS)],
    "casted_rows": lambda masks: masks.long().sum(dim=0),
    "list": lambda masks: masks.sum(0).tolist(),
    "host": lambda masks: [mask.sum().cpu().item() for mask in masks.T],
    "host_rows": lambda masks: masks.sum(0).cpu() > 0,
    "host_mask": lambda masks: [mask.cpu().sum().item() for mask in masks.T],
    "most": lambda masks: [masks.sum(0).max().item()] * EXPERTS,
}


class Gated(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.gate = FORMS[form], nn.Linear(HIDDEN, EXPERTS)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(HIDDEN, 1024), nn.ReLU(), nn.Linear(1024, HIDDEN)) for _ in range(EXPERTS))

    def forward(self, x):
        gates = self.gate(x).sigmoid()
        masks = gates > 0.5
        out = torch.zeros_like(x)
        has = self.form(masks.detach())
        for index, expert in enumerate(self.experts):
            if has[index]:
                mask = masks[:, index]
                out[mask] = gates[mask, index, None] * expert(x[mask])
        return x + out


def main():
    model = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), Gated(sys.argv[1])).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        loss = model(torch.randn(TOKENS, HIDDEN, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
