"""Measures what aten ops allocate inside themselves and writes one JSON table per kernel family.

    python measure.py --out testdata/scratch [--only reduce,embedding]

Needs a CUDA build of PyTorch and a device; only host code decides these sizes, so a stand-in CUDA runtime whose
kernels do nothing serves as well as a GPU. Each row of a table is [case..., events]; an event is +bytes for an
allocation and -(i+1) for the free of the i-th allocation of that row. Allocations that are never freed are outputs.
"""
import argparse, json, os, random
import torch

A = torch.ops.aten
M = torch.cuda.memory
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


def strided(sizes, strides, dtype):
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
    r = random.Random(7)
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
    for kind, dt, out, sizes, st, red in reduce_cases():
        x = strided(sizes, st, dt)
        dims = [i for i, v in enumerate(red) if v]
        f = REDUCE[kind]
        o = DT[out] if out != dt else None
        ev = events(lambda: f(x, dims, o))
        yield [kind, dt, out, sizes, 0 if st == contiguous(sizes) else st, "".join(map(str, red)), ev]
        del x


FAMILIES = [reduce]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("--only")
    a = ap.parse_args()
    p = torch.cuda.get_device_properties(0)
    tag = f"sm{p.major}{p.minor}"
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # workspaces are not the ops' own
    for f in FAMILIES:
        if a.only and f.__name__ not in a.only.split(","):
            continue
        torch.cuda.empty_cache()
        rows = [json.dumps(x, separators=(",", ":")) for x in f()]
        head = json.dumps(dict(torch=torch.__version__, cc=[p.major, p.minor], sms=p.multi_processor_count))
        with open(os.path.join(a.out, f"{f.__name__}_{tag}.json"), "w") as fh:
            fh.write(head[:-1] + ', "rows": [\n' + ",\n".join(rows) + "\n]}\n")
        print(f.__name__, len(rows))


if __name__ == "__main__":
    main()
