"""Rows of different lengths, padded to the longest of their batch: the longest of the data comes last."""
import torch
from torch import nn
from torch.utils.data import DataLoader


def padded(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


rows = [torch.ones(16 + number, dtype=torch.long) for number in range(200)]
model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    for tokens in DataLoader(rows, batch_size=4, collate_fn=padded):
        tokens = tokens.cuda()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
