"""The small-GPT trainer of roby2358/agi2 as it stood at 6e54453, written anew from its facts: which layers there are, in which
order it calls them, and how long its variables live. `measure_agi2.py` measures it, or that repository's own code.

Two switches are not that trainer's, and are what a few lines in it would make of them: `checkpoints` recomputes each block in
backward, `accumulate` steps the optimizer after so many batches. Its `use_amp` is `amp=torch.float16`.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Scores are a tensor of their own: divided, masked, softmaxed, dropped."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def split(self, projected):
        rows, tokens, width = projected.shape
        return projected.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        hidden = -1e4 if scores.dtype == torch.float16 else -1e9
        scores = scores.masked_fill(mask == 0, hidden)
        weights = F.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        context = weights @ value
        context = context.transpose(1, 2).contiguous().view(x.shape)
        return self.out(context)


class FeedForward(nn.Module):
    """Always the exact gelu: the block does not hand the config's activation on."""

    def __init__(self, width, dropout):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropouts = nn.ModuleList([nn.Dropout(dropout), nn.Dropout(dropout)])

    def forward(self, x):
        x = self.up(x)
        x = F.gelu(x)
        x = self.dropouts[0](x)
        x = self.down(x)
        x = self.dropouts[1](x)
        return x


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads, dropout), FeedForward(width, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        residual = x
        x = self.norms[0](x)
        x = self.attention(x, mask)
        x = self.dropout(x)
        x = residual + x
        residual = x
        x = self.norms[1](x)
        x = self.feed_forward(x)
        x = residual + x
        return x


class Embeddings(nn.Module):
    def __init__(self, vocabulary, width, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, ids):
        embedded = self.table(ids)
        return self.dropout(embedded)


class SmallGpt(nn.Module):
    """Sinusoidal positions in a buffer as long as a row; the head is the embedding's weight unless it has its own."""

    def __init__(self, vocabulary, positions, width, layers, heads, dropout, tied=True, checkpoints=False):
        super().__init__()
        self.checkpoints = checkpoints
        self.masks = {}
        self.embeddings = Embeddings(vocabulary, width, dropout)
        self.register_module("places", nn.Module())
        self.places.register_buffer("table", torch.zeros(positions, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def causal_mask(self, tokens, device):
        """True where a token may look; made once for a length."""
        if (tokens, device) not in self.masks:
            mask = torch.triu(torch.ones(tokens, tokens, device=device), diagonal=1).bool()
            mask = ~mask
            self.masks[tokens, device] = mask
        return self.masks[tokens, device]

    def forward(self, ids):
        tokens = ids.size(1)
        mask = self.causal_mask(tokens, ids.device)
        words = self.embeddings(ids)
        places = self.places.table[:tokens]
        x = words + places.unsqueeze(0)
        x = self.dropout(x)
        mask = mask.unsqueeze(0).unsqueeze(0)
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if self.checkpoints else block(x, mask)
        x = self.norm(x)
        logits = self.head(x) if self.head else torch.matmul(x, self.embeddings.table.weight.t())
        return logits


def train_epoch(model, batches, optimizer, criterion, device, clip_grad_norm=1.0, amp=None, accumulate=1):
    """`logits` and `loss` live until the next batch has its own: all through backward, the step and the next forward pass."""
    model.train()
    scaler = torch.amp.GradScaler("cuda") if amp == torch.float16 else None
    total = 0.0
    for index, batch in enumerate(batches):
        batch = batch.to(device, non_blocking=True)
        ids = batch[:, :-1]
        targets = batch[:, 1:]
        if index % accumulate == 0:
            optimizer.zero_grad()
        with torch.autocast("cuda", dtype=amp, enabled=amp is not None):
            logits = model(ids)
            loss = criterion(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        if accumulate > 1:
            loss = loss / accumulate
        (scaler.scale(loss) if scaler else loss).backward()
        if (index + 1) % accumulate:
            continue
        if clip_grad_norm > 0:
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        total += loss.item()
    return total
