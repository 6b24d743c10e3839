"""Hugging Face `generate`: prompts of different lengths, sampling."""

import torch
from tiny import model, text, tokenizer

net, tokens = model().to("cuda", torch.bfloat16).eval(), tokenizer()
for batch in range(3):
    prompts = tokens([text(32 + number, number) for number in range(8)], return_tensors="pt", padding=True).to("cuda")
    made = net.generate(**prompts, max_new_tokens=64, do_sample=True, pad_token_id=tokens.pad_token_id)
    print(f"batch {batch}: {tuple(made.shape)}")
