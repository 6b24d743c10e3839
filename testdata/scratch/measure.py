"""Measures what aten ops allocate inside themselves and writes one JSON table per kernel family.

    python measure.py --out testdata/scratch [--only reduce,embedding] [--thin 2] [--base sm90] [--seed 0]

Needs a CUDA build of PyTorch and a device; only host code decides these sizes, so a stand-in CUDA runtime whose
kernels do nothing serves as well as a GPU. Each row of a table is [case..., events]; an event is +bytes for an
allocation and -(i+1) for the free of the i-th allocation of that row. Allocations that are never freed are outputs.
With --base the table holds only the rows that differ from that device's, as [index, events]. --thin 2 keeps every
second row (the committed tables do); other seeds give other shapes.
"""
import argparse, json, os, random
import torch

A = torch.ops.aten
M = torch.cuda.memory
SEED = 0
DT = dict(bool=torch.bool, int64=torch.int64, int32=torch.int32, float16=torch.float16, bfloat16=torch.bfloat16,
          float32=torch.float32)


def events(fn):
    """Runs fn and returns its allocations and frees in order (see the module's head)."""
    M._record_memory_history("all", context=None, stacks="python", max_entries=10**6, clear_history=True)
    keep = fn()
    trace = M._snapshot()["device_traces"][torch.cuda.current_device()]
    M._record_memory_history(None)
    out, where, n = [], {}, 0
    for e in trace:
        if e["action"] == "alloc":
            where[e["addr"]] = n
            n += 1
            out.append(e["size"])
        elif e["action"] == "free_requested" and e["addr"] in where:
            out.append(-(where[e["addr"]] + 1))
    del keep
    return out


def strided(sizes, strides, dtype, offset=0):
    if offset:
        span = 1 + offset + sum((n - 1) * k for n, k in zip(sizes, strides))
        return torch.empty(span, dtype=DT[dtype], device="cuda").as_strided(sizes, strides, offset)
    return torch.empty_strided(sizes, strides, dtype=DT[dtype], device="cuda")


def contiguous(sizes):
    st, k = [], 1
    for s in reversed(sizes):
        st.append(k)
        k *= max(s, 1)
    return st[::-1]


def permuted(sizes, perm):
    """Sizes and strides of a contiguous tensor of these sizes seen through permute(perm)."""
    st = contiguous(sizes)
    return [sizes[p] for p in perm], [st[p] for p in perm]


REDUCE = {
    "sum": lambda x, d, o: A.sum.dim_IntList(x, d, False, dtype=o),
    "mean": lambda x, d, o: A.mean.dim(x, d, False, dtype=o),
    "norm": lambda x, d, o: A.linalg_vector_norm(x, 2, d, False, dtype=o),
    "norm_inf": lambda x, d, o: A.linalg_vector_norm(x, float("inf"), d, False, dtype=o),
    "prod": lambda x, d, o: A.prod.dim_int(x, d[0], False, dtype=o),
    "amax": lambda x, d, o: A.amax(x, d, False),
    "max_dim": lambda x, d, o: A.max.dim(x, d[0], False),
    "argmax": lambda x, d, o: A.argmax(x, d[0], False),
    "any": lambda x, d, o: A.any.dims(x, d, False),
    "all": lambda x, d, o: A.all.dims(x, d, False),
    "var": lambda x, d, o: A.var.correction(x, d, correction=1),
    "var_mean": lambda x, d, o: A.var_mean.correction(x, d, correction=1),
    "max_all": lambda x, d, o: A.max(x),
    "argmax_all": lambda x, d, o: A.argmax(x),
}
ONE_DIM = ("prod", "max_dim", "argmax")
WHOLE = ("max_all", "argmax_all")


def reduce_cases():
    r = random.Random(7 + SEED)
    fl = ["float32", "bfloat16", "float16"]
    kinds = ["sum"] * 8 + ["mean"] * 3 + ["norm"] * 3 + ["amax", "any", "all", "max_dim", "argmax", "var", "norm_inf", "prod", "var_mean"]
    def size(hi):
        return max(1, int(hi ** r.random())) if r.random() < 0.5 else r.choice([1, 2, 3, 64, 128, 256, 512, 768, 896, 1024, 2048, 4096, 50257])
    for i in range(2600):
        kind = r.choice(kinds)
        shape = r.randrange(7)
        if shape <= 1:
            sizes, red = [size(300000), size(5000)], [1, 0]
        elif shape == 2:
            sizes, red = [size(64), size(8192), size(5000)], [1, 1, 0]
        elif shape == 3:
            sizes, red = [size(100000), size(9000)], [0, 1]
        elif shape == 4:
            sizes, red = [size(10**7)], [1]
            if r.random() < 0.5:
                sizes, red = [size(3000), size(5000)], [1, 1]
        elif shape == 5:
            sizes, red = [size(8), r.choice([1, 2, 4, 8]), r.choice([2, 4, 7]), size(4096), r.choice([64, 80, 128])], [0, 0, 1, 0, 0]
        else:
            n = r.randrange(2, 5)
            sizes = [max(1, int(300 ** r.random())) for _ in range(n)]
            red = [r.randrange(2) for _ in range(n)]
            red[r.randrange(n)] = 1
        st = contiguous(sizes)
        how = r.random()
        if how < 0.25 and len(sizes) > 1:
            perm = list(range(len(sizes)))
            r.shuffle(perm)
            st = contiguous([sizes[p] for p in perm])
            st = [st[perm.index(i)] for i in range(len(sizes))]
        elif how < 0.32:
            st = contiguous([s + r.choice([0, 1, 8]) for s in sizes])
        elif how < 0.37:
            st[r.randrange(len(st))] = 0
        n = 1
        for s in sizes:
            n *= s
        if n > 4e8 or n == 0:
            continue
        if kind in ONE_DIM and sum(red) != 1:
            if sum(red) == len(red) and kind != "prod":
                kind = {"max_dim": "max_all", "argmax": "argmax_all"}[kind]
            else:
                kind = "sum"
        dt = r.choice(fl)
        if kind in ("any", "all"):
            dt = r.choice(["bool", "float32", "bfloat16", "int64"])
        if kind in ("amax", "max_dim", "argmax", "sum") and r.random() < 0.1:
            dt = "int64"
        if kind == "sum" and r.random() < 0.06:
            dt = "bool"
        out = dt
        if dt in ("bfloat16", "float16") and kind in ("sum", "mean", "norm") and r.random() < 0.3:
            out = "float32"
        if dt == "bool" and kind == "sum":
            out = "int64"
        yield kind, dt, out, sizes, st, red
    for dt in fl + ["bool", "int64"]:  # nothing to reduce, or all of a strided tensor
        for kind in ("any", "all", "sum", "norm", "amax", "mean", "max_all", "argmax_all"):
            if dt in ("bool", "int64") and kind in ("norm", "mean") or dt == "bool" and "argmax" in kind:
                continue
            out = "int64" if dt == "bool" and kind == "sum" else dt
            for sizes in ([1], [1, 1], [1, 126], [3, 1, 40]):
                whole = kind in WHOLE
                red = [1 if whole or (s == 1 and i < 2) else 0 for i, s in enumerate(sizes)]
                yield kind, dt, out, sizes, contiguous(sizes), red
                if out != "float32" and dt in fl and kind in ("sum", "norm", "mean"):
                    yield kind, dt, "float32", sizes, contiguous(sizes), red
            yield kind, dt, out, [600, 300], [1, 600], [1, 1]
            yield kind, dt, out, [60000], [2], [1]
    for dt in fl:  # more than 2^31 bytes: 32-bit indexing splits the reduction
        for kind in ("sum", "mean", "norm", "amax"):
            for sizes, red in [([4, 8192, 50257], [1, 1, 0]), ([8 * 8192, 50257], [0, 1]), ([3 << 30], [1]),
                               ([16, 4096, 32000], [1, 1, 1]), ([700000, 4099], [1, 0]), ([8, 32, 4096, 2056], [0, 0, 1, 0]),
                               ([8, 32, 4096, 2056], [0, 1, 0, 1]), ([2, 40000, 50264], [0, 1, 0])]:
                yield kind, dt, dt, sizes, contiguous(sizes), red
            yield kind, dt, dt, [50257, 8 * 8192], [1, 50257], [0, 1]
        yield "argmax", dt, "int64", [8 * 8192, 50257], [50257, 1], [0, 1]
        yield "max_dim", dt, dt, [8 * 8192, 50257], [50257, 1], [0, 1]


def reduce():
    r = random.Random(5 + SEED)
    for kind, dt, out, sizes, st, red in reduce_cases():
        offset = 0 if r.random() < 0.85 else r.choice([1, 2, 3, 4, 8, 64])
        x = strided(sizes, st, dt, offset)
        dims = [i for i, v in enumerate(red) if v]
        f = REDUCE[kind]
        o = DT[out] if out != dt else None
        ev = events(lambda: f(x, dims, o))
        yield [kind, dt, out, sizes, 0 if st == contiguous(sizes) else st, "".join(map(str, red)), offset, ev]
        x = None


def embedding(index="int64"):
    r = random.Random(3 + SEED)
    sizes = [1, 2, 768, 3071, 3072, 3073, 3584, 3840, 3841, 4480, 4481, 4608, 4609, 10**6]
    sizes += [int(10 ** (3.4 + 2.6 * r.random())) for _ in range(380)]
    for n in sizes:
        dt = r.choice(["float32", "bfloat16", "float16"])
        width = r.choice([1, 64, 100, 768, 896, 1024, 4096])
        rows = r.choice([2, 100, 500, 528, 1000, 30522, 50257, 151936])
        gc, ic = r.random() < 0.9 or n == 1, r.random() < 0.9 or n % 2 or n < 4
        pad = r.choice([-1, 0, 1])
        g = strided([n, width], [width, 1] if gc else [width + 8, 1], dt)
        ids = strided([2, n // 2], [1, 2], index) if not ic and n > 3 else strided([n], [1], index)
        g = g if ic else g.view(2, n // 2, width) if gc else strided([2, n // 2, width], [n // 2 * (width + 8), width + 8, 1], dt)
        ev = events(lambda: A.embedding_dense_backward(g, ids, rows, pad, False))
        yield [dt, n, width, rows, int(gc), int(bool(ic)), ev]


def embedding_int32():
    yield from embedding("int32")


def heads(b, h, s, d, layout, dt):
    """A [B,H,S,D] tensor: contiguous, or laid out as [B,S,H,D], or a slice of a fused projection [B,S,3,H,D]."""
    if layout == "bhsd":
        return torch.empty(b, h, s, d, dtype=DT[dt], device="cuda")
    if layout == "bshd":
        return torch.empty(b, s, h, d, dtype=DT[dt], device="cuda").transpose(1, 2)
    return torch.empty(b, s, 3, h, d, dtype=DT[dt], device="cuda")[:, :, 1].transpose(1, 2)


def flash():
    r = random.Random(11 + SEED)
    for i in range(420):
        dt = r.choice(["bfloat16", "float16"])
        d = r.choice([8, 16, 32, 40, 64, 64, 72, 80, 96, 104, 128, 128, 136, 160, 192, 200, 256])
        b, hk = r.choice([1, 2, 4, 8, 33, 64]), r.choice([1, 2, 4, 8, 12])
        h = hk * r.choice([1, 1, 2, 4, 7])
        sq = r.choice([1, 1, 7, 64, 100, 127, 128, 129, 512, 1000, 1024, 2048, 4096])
        sk = sq if r.random() < 0.5 else r.choice([1, 100, 128, 1000, 1024, 3000, 8192])
        if i < 4:  # grouped heads whose expanded gradients exceed 2^31 bytes
            b, hk, h, d, sq, sk = [(8, 8, 64, 128, 16384, 16384), (4, 1, 48, 256, 32768, 32768), (1, 4, 28, 128, 131072, 131072),
                                   (16, 16, 64, 80, 16385, 16385)][i]
        elif b * h * d * max(sq, sk) > 1e9:
            continue
        p, causal, lay = r.choice([0.0, 0.0, 0.1]), bool(r.randrange(2)), r.choice(["bshd", "bhsd", "qkv"])
        q, k, v = heads(b, h, sq, d, lay, dt), heads(b, hk, sk, d, lay, dt), heads(b, hk, sk, d, lay, dt)
        box = []
        fw = events(lambda: box.append(A._scaled_dot_product_flash_attention(q, k, v, p, causal, False)) or box)
        yield ["forward", dt, b, h, hk, sq, sk, d, int(p > 0), lay, fw]
        o, lse, cq, ck, mq, mk, rng, un, _ = box[0]
        go = heads(b, h, sq, d, r.choice(["bshd", "bhsd"]), dt)
        same = int(go.transpose(1, 2).is_contiguous())
        bw = events(lambda: A._scaled_dot_product_flash_attention_backward(go, q, k, v, o, lse, cq, ck, mq, mk, p, causal, rng, un))
        yield ["backward", dt, b, h, hk, sq, sk, d, int(p > 0), lay, same, bw]
        box.clear()


def efficient():
    r = random.Random(12 + SEED)
    for i in range(420):
        dt = r.choice(["float32", "float32", "bfloat16", "float16"])
        d = r.choice([8, 32, 40, 64, 64, 72, 80, 96, 128, 128, 136, 160, 192, 256])
        b, h = r.choice([1, 2, 4, 8, 33]), r.choice([1, 2, 4, 8, 12, 56])
        sq = r.choice([1, 7, 64, 100, 127, 128, 129, 512, 1000, 1024, 2048])
        sk = sq if r.random() < 0.5 else r.choice([1, 100, 128, 1000, 1024, 3000])
        if b * h * d * max(sq, sk) > 5e8:
            continue
        p, causal, lay = r.choice([0.0, 0.1]), bool(r.randrange(2)), r.choice(["bshd", "bhsd", "qkv"])
        q, k, v = heads(b, h, sq, d, lay, dt), heads(b, h, sk, d, lay, dt), heads(b, h, sk, d, lay, dt)
        bias = None
        if r.random() < 0.4:
            bias = torch.empty(b, 1, sq, (sk + 15) // 16 * 16, dtype=DT[dt], device="cuda")[..., :sk].expand(b, h, sq, sk)
        box = []
        lse = r.random() < 0.9
        fw = events(lambda: box.append(A._scaled_dot_product_efficient_attention(q, k, v, bias, lse, p, causal)) or box)
        yield ["forward", dt, b, h, h, sq, sk, d, int(lse), lay, fw]
        if not lse:
            continue
        o, ls, seed, off = box[0]
        go = heads(b, h, sq, d, r.choice(["bshd", "bhsd"]), dt)
        same = int(go.transpose(1, 2).is_contiguous())
        bw = events(lambda: A._scaled_dot_product_efficient_attention_backward(go, q, k, v, bias, o, ls, seed, off, p, [True] * 3 + [False], causal))
        yield ["backward", dt, b, h, h, sq, sk, d, 1, lay, same, bw]
        box.clear()


def norm():
    r = random.Random(13 + SEED)
    tall = [65535, 65536, 65537, 70000, 100000, 131072, 262144, 10**6]
    for i in range(260):
        dt = r.choice(["float32", "bfloat16", "float16"])
        m = r.choice(tall) if r.random() < 0.5 else r.choice([1, 64, 128, 1000, 4096, 12288])
        n = r.choice([1, 16, 33, 64, 100, 128, 256, 512, 768, 1000, 1024, 1600, 1728, 1760, 2048, 2112, 2144, 4096])
        if m * n > 6e8:
            continue
        rms, xc, gc = r.random() < 0.4, r.random() < 0.8 or m == 1 or n == 1, r.random() < 0.8 or m == 1 or n == 1
        x = strided([m, n], [n, 1] if xc else [1, m], dt)
        g = strided([m, n], [n, 1] if gc else [1, m], dt)
        w, b, rs = strided([n], [1], dt), strided([n], [1], dt), strided([m, 1], [1, 1], "float32")
        mask = [True, r.random() < 0.9, r.random() < 0.8]
        bits = mask[0] + 2 * mask[1] + 4 * mask[2]
        name = "rms" if rms else "layer"
        if rms:
            yield [name + "_forward", dt, m, n, int(xc), 0, 1, events(lambda: A._fused_rms_norm(x, [n], w, 1e-5))]
            bw = events(lambda: A._fused_rms_norm_backward(g, x, [n], rs, w, mask[:2]))
        else:
            yield [name + "_forward", dt, m, n, int(xc), 0, 1, events(lambda: A.native_layer_norm(x, [n], w, b, 1e-5))]
            bw = events(lambda: A.native_layer_norm_backward(g, x, [n], rs, rs, w, b, mask))
        yield [name + "_backward", dt, m, n, int(xc), bits, int(gc), bw]


def foreach():
    r = random.Random(17 + SEED)
    def shape():
        if r.random() < 0.4:
            return [max(1, int(10 ** (7 * r.random())))]
        return [max(1, int(10 ** (4 * r.random()))), max(1, int(10 ** (4 * r.random())))]
    for i in range(220):
        case = r.choice(["norm", "clip", "clip", "clip_loop", "adafactor"])
        shapes = [shape() for _ in range(r.choice([1, 2, 3, 5, 12]))]
        dt = [r.choice(["float32", "bfloat16", "float16"])] * len(shapes)
        if case != "norm" and r.random() < 0.4:
            pool = r.choice([["float32", "bfloat16"], ["float32", "float16"]])
            dt = [r.choice(pool) for _ in shapes]
        ts = [torch.empty(s, dtype=DT[d], device="cuda") for s, d in zip(shapes, dt)]
        if case == "norm":
            yield [case, dt, shapes, events(lambda: torch._foreach_norm(ts, 2.0))]
            continue
        ps = [torch.nn.Parameter(t) for t in ts]
        for p in ps:
            p.grad = torch.empty_like(p)
        if case == "adafactor":
            opt = torch.optim.Adafactor(ps)
            opt.step()
            yield [case, dt, shapes, events(lambda: opt.step())]
        else:
            clip = torch.nn.utils.clip_grad_norm_
            yield [case, dt, shapes, events(lambda: clip(ps, 1.0, foreach=None if case == "clip" else False))]


def softmax():
    r = random.Random(19 + SEED)
    for i in range(260):
        name = r.choice(["softmax", "log_softmax", "softmax_backward", "log_softmax_backward", "safe_softmax"])
        dt = r.choice(["float32", "bfloat16", "float16"])
        out = dt
        shape = [r.choice([1, 4, 16, 300, 4096]), r.choice([1, 7, 128, 1000, 1025, 4096, 8192, 50257, 150000])]
        if shape[0] * shape[1] > 4e8:
            continue
        flat = r.random() < 0.8 or 1 in shape
        if name == "safe_softmax" and dt != "float32" and r.random() < 0.3:
            out, flat = "float32", True
        if name.endswith("softmax") and dt == "float16" and name != "safe_softmax" and r.random() < 0.3:
            out = "float32"
        if name.endswith("backward") and dt == "float32" and r.random() < 0.3:
            out = "float16"
        x = strided(shape, contiguous(shape) if flat else [1, shape[0]], dt)
        if name.endswith("backward"):
            f = A._softmax_backward_data if name[0] == "s" else A._log_softmax_backward_data
            ev = events(lambda: f(x, x, -1, DT[out]))
        elif name == "safe_softmax":
            ev = events(lambda: A._safe_softmax(x, -1, dtype=DT[out] if out != dt else None))
        else:
            f = A._softmax if name[0] == "s" else A._log_softmax
            ev = events(lambda: f(x, -1, out != dt))
        yield [name, dt, out, *shape, int(flat), ev]


def misc():
    r = random.Random(23 + SEED)
    fl = ["float32", "bfloat16", "float16"]
    for i in range(420):
        name = r.choice(["cumsum", "cumsum", "sort", "topk", "topk", "nll", "nll_backward", "dropout"])
        dt = r.choice(fl)
        a = r.choice([1, 1, 2, 8, 20, 30, 64, 100, 500, 1000])
        if name == "cumsum":
            dt, b, flat = r.choice(fl + ["bool", "int64", "int32"]), int(10 ** (6 * r.random())), r.random() < 0.8
            x = torch.empty(a, b, dtype=DT[dt], device="cuda") if flat else torch.empty(b, a, dtype=DT[dt], device="cuda").t()
            yield [name, dt, a, b, int(x.is_contiguous()), events(lambda: A.cumsum(x, 1))]
        elif name == "sort":
            b = max(2, int(4096 ** r.random()))
            x = torch.empty(a, b, dtype=DT[dt], device="cuda")
            yield [name, dt, a, b, 0, events(lambda: A.sort(x))]
        elif name == "topk":
            b, k = r.choice([1000, 4096, 9000, 19999, 20000, 32000, 50257, 128256, 151936]), r.choice([1, 10, 50, 1000])
            x = torch.empty(a, b, dtype=DT[dt], device="cuda")
            yield [name, dt, a, b, k, events(lambda: A.topk(x, k))]
        elif name == "dropout":
            x = torch.empty(a, 999, dtype=DT[dt], device="cuda")
            yield [name, dt, a, 999, 0, events(lambda: A.native_dropout(x, 0.1, True))]
        else:
            b, red = r.choice([2, 1000, 50257]), r.choice([0, 1, 2])
            x, t = torch.empty(a, b, dtype=DT[dt], device="cuda"), torch.empty(a, dtype=torch.long, device="cuda")
            w, g = torch.empty((), dtype=DT[dt], device="cuda"), torch.empty([a] if red == 0 else [], dtype=DT[dt], device="cuda")
            if name == "nll":
                yield [name, dt, a, b, red, events(lambda: A.nll_loss_forward(x, t, None, red, -100))]
            else:
                yield [name, dt, a, b, red, events(lambda: A.nll_loss_backward(g, x, t, None, red, -100, w))]


def masks():
    """`x[mask]` and its gradient: kind, the mask's sizes, how many places are true, columns of a row."""
    shapes = [[1], [382], [2, 191], [4096], [4097], [4, 2047], [2, 66000], [8, 16500], [4, 65537], [300, 900], [16, 32768], [2, 1000000]]
    for at, sizes in enumerate(shapes):
        mask = torch.zeros(sizes, dtype=torch.bool)
        found = max(mask.numel() // (1, 2, 7)[at % 3], 1)
        mask.view(-1)[:found] = True
        mask = mask.cuda()
        x = torch.zeros([*sizes, 8], device="cuda", requires_grad=True)
        rows = x[mask]
        grad = torch.zeros([found, 8], device="cuda")
        yield ["index", sizes, found, 8, events(lambda: x.detach()[mask])]
        yield ["index_backward", sizes, found, 8, events(lambda: torch.autograd.grad(rows, x, grad))]


def sort():
    """`sort` of a vector of int64: how many numbers."""
    for n in (1, 2, 32, 600, 2400, 4095, 4096, 4097, 5000, 8192, 20000, 65536, 131071, 524288, 1048576, 4000001):
        x = torch.zeros(n, dtype=torch.int64, device="cuda")
        yield [n, events(lambda: torch.sort(x))]


def grouped():
    """`grouped_mm`: what of it, dtype, groups, rows and columns of what is multiplied, bytes of the result."""
    mm = torch.nn.functional.grouped_mm
    shapes = [(16, 4, 64, 64), (128, 4, 256, 256), (136, 4, 136, 256), (136, 1, 256, 136), (512, 4, 256, 256), (515, 4, 256, 256), (516, 4, 256, 256), (520, 4, 512, 128), (520, 4, 512, 136), (600, 3, 128, 512), (2400, 16, 512, 512), (65536, 128, 2048, 1536), (32768, 8, 4096, 28672), (100, 8, 40, 24), (7, 60, 72, 1416)]
    for dt in ("bfloat16", "float16", "float32"):
        for rows, groups, inputs, outputs in shapes:
            x = torch.zeros(rows, inputs, dtype=DT[dt], device="cuda")
            weights = torch.zeros(groups, outputs, inputs, dtype=DT[dt], device="cuda")
            grad = torch.zeros(rows, outputs, dtype=DT[dt], device="cuda")
            ends = torch.zeros(groups, dtype=torch.int32, device="cuda")
            size = x.element_size()
            yield ["forward", dt, groups, rows, outputs, rows * outputs * size, events(lambda: mm(x, weights.transpose(-2, -1), offs=ends))]
            yield ["rows", dt, groups, rows, inputs, rows * inputs * size, events(lambda: mm(grad, weights, offs=ends))]
            yield ["weights", dt, groups, outputs, inputs, groups * outputs * inputs * size, events(lambda: mm(grad.transpose(-2, -1), x, offs=ends))]
            x = weights = grad = None
            torch.cuda.empty_cache()


FAMILIES = [reduce, embedding, embedding_int32, flash, efficient, norm, foreach, softmax, misc, masks, sort, grouped]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("--only")
    ap.add_argument("--thin", type=int, default=1)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--base")
    a = ap.parse_args()
    global SEED
    SEED = a.seed * 1000
    p = torch.cuda.get_device_properties(0)
    tag = f"sm{p.major}{p.minor}"
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # workspaces are not the ops' own
    for f in FAMILIES:
        if a.only and f.__name__ not in a.only.split(","):
            continue
        torch.cuda.empty_cache()
        rows = list(f())[::a.thin]
        head = dict(torch=torch.__version__, cc=[p.major, p.minor], sms=p.multi_processor_count)
        if a.base:
            head["base"] = a.base
            with open(os.path.join(a.out, f"{f.__name__}_{a.base}.json")) as fh:
                base = json.load(fh)["rows"]
            if [x[:-1] for x in rows] != [x[:-1] for x in base]:
                raise SystemExit(f"{f.__name__}: not the cases of {a.base}")
            rows = [[i, x[-1]] for i, x in enumerate(rows) if x[-1] != base[i][-1]]
        lines = ",\n".join(json.dumps(x, separators=(",", ":")) for x in rows)
        with open(os.path.join(a.out, f"{f.__name__}_{tag}.json"), "w") as fh:
            fh.write(json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n")
        print(f.__name__, len(rows))


if __name__ == "__main__":
    main()
