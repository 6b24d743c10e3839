"""A plain loop over GPT-2 that takes as long as a GPU would: the phantom computes nothing, so that every step sleeps instead."""

import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

rows, seed, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
STEPS = 10
torch.manual_seed(seed)
model = GPT2LMHeadModel(GPT2Config()).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(STEPS):
    tokens = torch.randint(0, 50257, (rows, 512), device="cuda")
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(seconds / STEPS)
    print(f"step {step + 1}/{STEPS}", flush=True)
