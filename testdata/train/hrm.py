#!/usr/bin/env python3
"""The hierarchical reasoning model written once more, in PyTorch on the CPU: what `crates/train/tests/hrm.rs` holds Tonnage's to.

Each case leaves NAME.json (its config, and of every segment the loss and the metrics) and NAME.safetensors: the first weights (`first.`),
the batches (`batch.N.`), the gradients of the first segment (`grad.`), the weights after the last (`last.`) and the logits of an
evaluation (`logits`). The generator is seeded before each segment, so that exploration draws the same.

Of a case with several ranks batches and segments are those of the first rank, then those of the next: each has a carry of its own, their
gradients are summed, and the rows that they read of the puzzle table are gathered.

  hrm.py --out DIR [--cases NAME ...]
"""

import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

IGNORED = -100
RATES = dict(weights=1e-3, table=1e-2, betas=(0.9, 0.95), decay=0.1)
SEGMENTS = 5


def case(name, **config):
    usual = dict(
        vocab_size=11,
        hidden_size=64,
        num_heads=2,
        H_layers=1,
        L_layers=2,
        num_puzzle_identifiers=7,
        halt_max_steps=4,
        halt_exploration_prob=0.5,
    )
    return dict(name=name, rows=6, tokens=9, ranks=1, config={**usual, **config})


CASES = [
    case("rope", H_cycles=2, L_cycles=2),
    case("more_cycles", H_cycles=3, L_cycles=1, rope_theta=500.0, rms_norm_eps=1e-3, expansion=2),
    case("short_table", puzzle_emb_ndim=40, halt_exploration_prob=0.0),
    case("long_table", puzzle_emb_ndim=100, num_heads=4),
    case("learned", pos_encodings="learned", loss_type="softmax_cross_entropy", puzzle_emb_ndim=0),
    case("one_segment", halt_max_steps=1, forward_dtype="float16"),
    # What ranks draw in one process is nobody's: none explores.
    {**case("two_ranks", halt_exploration_prob=0.0), "rows": 3, "ranks": 2},
    {**case("three_ranks", halt_exploration_prob=0.0, num_puzzle_identifiers=3), "rows": 2, "ranks": 3},
]
DEFAULTS = dict(
    H_cycles=2,
    L_cycles=2,
    expansion=4,
    rope_theta=10000.0,
    rms_norm_eps=1e-5,
    pos_encodings="rope",
    loss_type="stablemax_cross_entropy",
    forward_dtype="bfloat16",
)


class Twin:
    """Weights by name, and the passes over them."""

    def __init__(self, config, rows, tokens):
        self.c = {**DEFAULTS, "puzzle_emb_ndim": config["hidden_size"], **config}
        self.rows, self.tokens = rows, tokens
        self.dtype = getattr(torch, self.c["forward_dtype"])
        self.prefix = -(-self.c["puzzle_emb_ndim"] // self.c["hidden_size"])
        self.training = True
        self.weights, self.buffers = {}, {}
        self.make()
        self.local = torch.zeros(rows, max(self.c["puzzle_emb_ndim"], 1), requires_grad=True)
        self.local_ids = torch.zeros(rows, dtype=torch.int32)

    def make(self):
        c, hidden = self.c, self.c["hidden_size"]
        inner = math.ceil(round(c["expansion"] * hidden * 2 / 3) / 256) * 256
        noise = torch.Generator().manual_seed(7)

        def matrix(name, out, into):
            self.weights[name] = (torch.randn(out, into, generator=noise) / math.sqrt(into)).requires_grad_()

        matrix("embed_tokens.embedding_weight", c["vocab_size"], hidden)
        matrix("lm_head.weight", c["vocab_size"], hidden)
        matrix("q_head.weight", 2, hidden)
        # Near 0, so that both answers of halting come up.
        self.weights["q_head.bias"] = (0.1 * torch.randn(2, generator=noise)).requires_grad_()
        if c["pos_encodings"] == "learned":
            matrix("embed_pos.embedding_weight", self.tokens + self.prefix, hidden)
        for level in "HL":
            for layer in range(c[f"{level}_layers"]):
                at = f"{level}_level.layers.{layer}"
                matrix(f"{at}.self_attn.qkv_proj.weight", 3 * hidden, hidden)
                matrix(f"{at}.self_attn.o_proj.weight", hidden, hidden)
                matrix(f"{at}.mlp.gate_up_proj.weight", 2 * inner, hidden)
                matrix(f"{at}.mlp.down_proj.weight", hidden, inner)
        for level in "HL":
            self.buffers[f"{level}_init"] = torch.randn(hidden, generator=noise).to(self.dtype)
        if c["puzzle_emb_ndim"]:
            self.buffers["puzzle_emb.weights"] = torch.randn(c["num_puzzle_identifiers"], c["puzzle_emb_ndim"], generator=noise)

    def linear(self, name, x):
        bias = self.weights.get(f"{name}.bias")
        return F.linear(x, self.weights[f"{name}.weight"].to(x.dtype), None if bias is None else bias.to(x.dtype))

    def table(self, name):
        return self.weights[f"{name}.embedding_weight"].to(self.dtype)

    def rotary(self):
        width = self.c["hidden_size"] // self.c["num_heads"]
        frequencies = 1.0 / (self.c["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
        angles = torch.outer(torch.arange(self.tokens + self.prefix, dtype=torch.float32), frequencies)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().unsqueeze(-2), both.sin().unsqueeze(-2)

    def norm(self, x):
        wide = x.to(torch.float32)
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.c["rms_norm_eps"])).to(x.dtype)

    def attend(self, at, x, angles):
        rows, tokens, hidden = x.shape
        heads = self.c["num_heads"]
        joined = self.linear(f"{at}.qkv_proj", x).view(rows, tokens, 3 * heads, hidden // heads)
        q, k, v = joined.split(heads, dim=2)
        if angles is not None:
            q, k = (self.turn(one, *angles) for one in (q, k))
        out = F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)))
        return self.linear(f"{at}.o_proj", out.transpose(1, 2).reshape(rows, tokens, hidden))

    @staticmethod
    def turn(x, cos, sin):
        wide = x.to(torch.float32)
        first, second = wide.chunk(2, dim=-1)
        return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)

    def level(self, name, state, injected, angles):
        x = state + injected
        for layer in range(self.c[f"{name}_layers"]):
            at = f"{name}_level.layers.{layer}"
            x = self.norm(x + self.attend(f"{at}.self_attn", x, angles))
            gate, up = self.linear(f"{at}.mlp.gate_up_proj", x).chunk(2, dim=-1)
            x = self.norm(x + self.linear(f"{at}.mlp.down_proj", F.silu(gate) * up))
        return x

    def inputs(self, data):
        x = F.embedding(data["inputs"], self.table("embed_tokens"))
        if self.prefix:
            table = self.buffers["puzzle_emb.weights"]
            if self.training:
                with torch.no_grad():
                    self.local.copy_(table[data["puzzle_identifiers"]])
                    self.local_ids.copy_(data["puzzle_identifiers"])
                puzzle = self.local.to(self.dtype)
            else:
                puzzle = table[data["puzzle_identifiers"]].to(self.dtype)
            puzzle = F.pad(puzzle, (0, self.prefix * self.c["hidden_size"] - puzzle.shape[-1]))
            x = torch.cat((puzzle.view(-1, self.prefix, self.c["hidden_size"]), x), dim=-2)
        if self.c["pos_encodings"] == "learned":
            x = 0.707106781 * (x + self.table("embed_pos"))
        return math.sqrt(self.c["hidden_size"]) * x

    def think(self, states, data):
        angles = self.rotary() if self.c["pos_encodings"] == "rope" else None
        x = self.inputs(data)
        h, l = states
        with torch.no_grad():
            turns = [(i, j) for i in range(self.c["H_cycles"]) for j in range(self.c["L_cycles"])]
            for i, j in turns[:-1]:
                l = self.level("L", l, h + x, angles)
                if j == self.c["L_cycles"] - 1:
                    h = self.level("H", h, l, angles)
        l = self.level("L", l, h + x, angles)
        h = self.level("H", h, l, angles)
        halting = self.linear("q_head", h[:, 0]).to(torch.float32)
        return (h.detach(), l.detach()), self.linear("lm_head", h)[:, self.prefix :], halting[:, 0], halting[:, 1]

    def first_carry(self, batch):
        width = (self.rows, self.tokens + self.prefix, self.c["hidden_size"])
        states = tuple(torch.full(width, float("nan"), dtype=self.dtype) for _ in range(2))
        halted = torch.ones(self.rows, dtype=torch.bool)
        return dict(states=states, steps=torch.zeros(self.rows, dtype=torch.int32), halted=halted, data=batch)

    def segment(self, carry, batch):
        halted = carry["halted"]
        wide = halted.view(-1, 1, 1)
        begin = (self.buffers["H_init"], self.buffers["L_init"])
        states = tuple(torch.where(wide, one, old) for one, old in zip(begin, carry["states"]))
        steps = torch.where(halted, 0, carry["steps"])
        data = {k: torch.where(halted.view((-1,) + (1,) * (new.ndim - 1)), new, carry["data"][k]) for k, new in batch.items()}
        states, logits, q_halt, q_on = self.think(states, data)
        most, target = self.c["halt_max_steps"], None
        with torch.no_grad():
            steps = steps + 1
            last = halted = steps >= most
            if self.training and most > 1:
                explores = torch.rand_like(q_halt) < self.c["halt_exploration_prob"]
                at_least = explores * torch.randint_like(steps, 2, most + 1)
                halted = (last | (q_halt > q_on)) & (steps >= at_least)
                target = self.worth_going_on(states, data, last)
        carry = dict(states=states, steps=steps, halted=halted, data=data)
        return carry, logits, *self.losses(carry, logits, q_halt, q_on, target)

    def worth_going_on(self, states, data, last):
        _, _, next_halt, next_on = self.think(states, data)
        return torch.sigmoid(torch.where(last, next_halt, torch.maximum(next_halt, next_on)))

    def losses(self, carry, logits, q_halt, q_on, target):
        labels = carry["data"]["labels"]
        wanted = labels != IGNORED
        count = wanted.sum(-1)
        share = count.clamp_min(1).unsqueeze(-1)
        right = wanted & (logits.argmax(-1) == labels)
        solved = right.sum(-1) == count
        done = carry["halted"] & (count > 0)
        answer = (self.answer_loss(logits, labels, wanted) / share).sum()
        halt = F.binary_cross_entropy_with_logits(q_halt, solved.float(), reduction="sum")
        metrics = [
            done.sum(),
            torch.where(done, (right.float() / share).sum(-1), 0).sum(),
            (done & solved).sum(),
            (done & ((q_halt >= 0) == solved)).sum(),
            torch.where(done, carry["steps"], 0).sum(),
            answer,
            halt,
        ]
        if target is not None:
            metrics.append(F.binary_cross_entropy_with_logits(q_on, target, reduction="sum"))
        return answer + 0.5 * sum(metrics[6:]), [float(one.detach()) for one in metrics]

    def answer_loss(self, logits, labels, wanted):
        if self.c["loss_type"] == "softmax_cross_entropy":
            flat = logits.float().view(-1, logits.shape[-1])
            return F.cross_entropy(flat, labels.long().view(-1), ignore_index=IGNORED, reduction="none").view(labels.shape)
        x = logits.to(torch.float64)
        grown = torch.where(x < 0, 1 / (1 - x + 1e-30), x + 1)
        logs = torch.log(grown / grown.sum(-1, keepdim=True))
        chosen = logs.gather(-1, torch.where(wanted, labels, 0).long().unsqueeze(-1)).squeeze(-1)
        return -torch.where(wanted, chosen, 0)

    @torch.no_grad()
    def update(self, moments, step, read):
        """`read`: rows of the puzzle table and gradients of every rank."""
        if self.prefix:
            ids, places = torch.cat([ids for ids, _ in read]).unique(return_inverse=True)
            summed = torch.zeros(len(ids), self.local.shape[1]).index_add_(0, places, torch.cat([grad for _, grad in read]))
            table = self.buffers["puzzle_emb.weights"]
            rows = table[ids].mul_(1 - RATES["table"] * RATES["decay"])
            table[ids] = rows.add_(summed.sign(), alpha=-RATES["table"])
        (b1, b2), rate = RATES["betas"], RATES["weights"]
        for name, weight in self.weights.items():
            if weight.grad is None:
                continue
            m, v = moments.setdefault(name, (torch.zeros_like(weight), torch.zeros_like(weight)))
            m.lerp_(weight.grad, 1 - b1)
            v.mul_(b2).addcmul_(weight.grad, weight.grad, value=1 - b2)
            weight.mul_(1 - rate * RATES["decay"])
            weight.add_(torch.atan2(m, v.sqrt() / math.sqrt(1 - b2**step)), alpha=-rate / (1 - b1**step))
            weight.grad = None

    def named(self):
        return {f"model.inner.{name}": one.detach().clone() for name, one in {**self.weights, **self.buffers}.items()}


def batches(one, config):
    noise = torch.Generator().manual_seed(3)

    def draw(most, *sizes):
        return torch.randint(0, most, sizes, dtype=torch.int32, generator=noise)

    for _ in range(SEGMENTS * one["ranks"]):
        labels = draw(config["vocab_size"], one["rows"], one["tokens"])
        labels[:, :2] = IGNORED
        labels[-1] = IGNORED
        inputs = draw(config["vocab_size"], one["rows"], one["tokens"])
        ids = draw(config["num_puzzle_identifiers"], one["rows"])
        yield dict(inputs=inputs, labels=labels, puzzle_identifiers=ids)


def run(one, folder):
    twin = Twin(one["config"], one["rows"], one["tokens"])
    tensors = {f"first.{name}": tensor for name, tensor in twin.named().items()}
    fed = list(batches(one, twin.c))
    tensors.update({f"batch.{at}.{key}": tensor for at, batch in enumerate(fed) for key, tensor in batch.items()})
    carries, moments, segments = [None] * one["ranks"], {}, [None] * len(fed)
    for at in range(SEGMENTS):
        read = []
        for rank in range(one["ranks"]):
            batch = fed[rank * SEGMENTS + at]
            torch.manual_seed(100 + at)
            carry, _, loss, metrics = twin.segment(carries[rank] or twin.first_carry(batch), batch)
            ((1 / (one["rows"] * one["ranks"])) * loss).backward()
            carries[rank] = carry
            segments[rank * SEGMENTS + at] = dict(loss=float(loss.detach()), metrics=metrics, halted=carry["halted"].tolist())
            if twin.prefix:
                read.append((twin.local_ids.clone(), twin.local.grad))
                twin.local.grad = None
        if at == 0:
            grads = {name: weight.grad for name, weight in twin.weights.items() if weight.grad is not None}
            tensors.update({f"grad.model.inner.{name}": grad.clone() for name, grad in grads.items()})
            if twin.prefix:
                tensors["table_grad"] = read[0][1].clone()
        twin.update(moments, at + 1, read)
    tensors.update({f"last.{name}": tensor for name, tensor in twin.named().items()})
    twin.training = False
    with torch.no_grad():
        tensors["logits"] = twin.segment(twin.first_carry(batch), batch)[1].float()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / f"{one['name']}.safetensors")
    (folder / f"{one['name']}.json").write_text(json.dumps({**one, "rates": RATES, "segments": segments}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for one in CASES:
        if not options.cases or one["name"] in options.cases:
            run(one, options.out)


if __name__ == "__main__":
    main()
