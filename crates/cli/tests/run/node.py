"""A node of a swarm in plain PyTorch and transformers: GPT-2, rows of completions, one GRPO step over all of them."""
import argparse
import os

import torch
import torch.nn.functional as F
import tonnage_guard
from transformers import GPT2Config, GPT2LMHeadModel

p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.add_argument("--role", default="node")
p.add_argument("--rows", type=int, default=64)
p.add_argument("--prompt_len", type=int, default=64)
p.add_argument("--completion_len", type=int, default=64)
p.add_argument("--steps", type=int, default=3)
a = p.parse_args()
torch.manual_seed(a.seed)


def token_log_probs(logits, ids):  # a list of one tensor, so that no caller holds it
    logits = logits.pop() / 1.0
    return -F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids.reshape(-1), reduction="none").view(ids.shape)


model = GPT2LMHeadModel(GPT2Config()).cuda()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
tokens = torch.randint(10, 50000, (a.rows, a.prompt_len + a.completion_len))
for step in range(1, a.steps + 1):
    ids = tokens.cuda()
    mask, target = torch.ones_like(ids), ids[:, a.prompt_len:]
    advantages, kept = torch.randn(a.rows, 1).cuda(), torch.ones_like(ids)[:, a.prompt_len:]
    with tonnage_guard.lease():
        out = model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=a.completion_len + 1)
        held = [out.logits[:, :-1].contiguous()]
        del out
        log_probs = token_log_probs(held, target.contiguous())
        ratio = torch.exp(log_probs - log_probs.detach())
        loss = (-torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.28) * advantages) * kept).sum() / kept.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del log_probs, ratio, loss
    torch.cuda.empty_cache()
    print(f"step {step}/{a.steps}", flush=True)
print("TRAINED", a.role, a.seed, "of", os.environ.get("TONNAGE_NODE"), "reserved", torch.cuda.max_memory_reserved())
