"""Asks PyTorch which attention kernels take a call, and which one `scaled_dot_product_attention` chooses.

    python measure.py --seed 0 --rows 600 > answers.json          one device: the current one
    python measure.py --join 75=a.json 80=b.json ... > choices.json

Only host code decides, so a stand-in CUDA runtime that reports a compute capability serves as well as a GPU. Set
TORCH_CUDNN_SDPA_DEPRIORITIZED=1. A row of the table is [dtype, batch, heads, key-value heads, queries, keys, head_dim,
value head_dim, mask, dropout, causal, gqa, grad, answers]. The mask is 0 none, 1 bool, 2 of the query's dtype, 3 bool
expanded over the queries, 4 bool expanded over the keys. An answer is a digit for each device: the sum of 1 flash,
2 mem-efficient, 4 cudnn for the kernels that take the call; a letter after it is the choice (f, e, m).
"""
import argparse, json, random, sys


def rows(seed, count):
    r = random.Random(seed)
    out = []
    while len(out) < count:
        heads = r.choice([1, 2, 4, 6, 8, 12])
        kv = heads if r.random() < 0.6 else r.choice([k for k in (1, 2, 3, 4) if heads % k == 0] + [5])
        queries = r.choice([1, 2, 7, 64, 128, 333])
        keys = queries if r.random() < 0.6 else r.choice([1, 5, 128, 200])
        head_dim = r.choice([1, 4, 8, 20, 32, 36, 64, 80, 100, 128, 192, 200, 224, 232, 256, 264, 512])
        value_dim = head_dim if r.random() < 0.9 else r.choice([8, 64, 128])
        mask = r.choice([0, 0, 0, 1, 2, 3, 4])
        causal = not mask and r.random() < 0.5
        dropout = r.choice([0.0, 0.0, 0.1, 0.125])
        out.append([r.choice(["float32", "float16", "bfloat16"]), r.choice([1, 2, 3]), heads, kv, queries, keys, head_dim,
                    value_dim, mask, dropout, int(causal), r.randint(0, 1), r.randint(0, 1)])
    return out


def tensors(row):
    import torch
    dtype, b, h, kv, s, t, d, dv, mask = row[:9]
    make = lambda n, m, k: torch.empty(b, n, m, k, dtype=getattr(torch, dtype), device="cuda", requires_grad=bool(row[12]))
    shapes = {0: None, 1: (b, 1, s, t), 2: (b, 1, s, t), 3: (b, 1, 1, t), 4: (b, 1, s, 1)}
    kind = getattr(torch, dtype) if mask == 2 else torch.bool
    bias = None if mask == 0 else torch.empty(shapes[mask], dtype=kind, device="cuda").expand(b, 1, s, t)
    return make(h, s, d), make(kv, t, d), make(kv, t, dv), bias


def answer(row):
    import torch
    import torch.backends.cuda as cuda
    q, k, v, bias = tensors(row)
    dropout, causal, gqa = row[9], bool(row[10]), bool(row[11])
    params = cuda.SDPAParams(q, k, v, bias, dropout, causal, gqa)
    taken = (cuda.can_use_flash_attention(params) + 2 * cuda.can_use_efficient_attention(params)
             + 4 * cuda.can_use_cudnn_attention(params))
    choice = torch._fused_sdp_choice(q, k, v, bias, dropout, causal, enable_gqa=gqa)
    return f"{taken}{'mfec'[choice]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--join", nargs="*")
    args = parser.parse_args()
    table = rows(args.seed, args.rows)
    if args.join:
        files = dict(item.split("=") for item in args.join)
        answers = [json.load(open(path)) for path in files.values()]
        lines = [json.dumps(row + ["".join(column)], separators=(",", ":")) for row, column in zip(table, zip(*answers))]
        devices = json.dumps(list(map(int, files)))
        print('{"devices":' + devices + ',"rows":[\n' + ",\n".join(lines) + "\n]}")
    else:
        json.dump([answer(row) for row in table], sys.stdout)
