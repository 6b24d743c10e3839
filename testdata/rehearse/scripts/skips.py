"""A model with a part that runs only where the device says so."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        x = self.always(x)
        return self.sometimes(x) if x.mean() > 1 else x


model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
