#!/usr/bin/env python3
"""Records memory snapshots of a small training job with PyTorch's own tools, for the snapshot importer's tests.

    python record.py --preload PHANTOM_LIBRARY --memory-variable NAME

Writes NAME.pickle.gz (`torch.cuda.memory._dump_snapshot`) and expected.json: the counters when recording began, their
peaks while it ran, and the counters at the end. The library stands in for the CUDA runtime; see ../allocator/record.py.
"""
import argparse, gzip, json, os, pickle, subprocess, sys

# name: (settings, arguments of _record_memory_history, steps before recording, steps recorded)
CASES = {
    "from_start": ("", dict(stacks="python"), 0, 2),
    "mid_training": ("", dict(context="alloc", stacks="python"), 1, 1),
    "mid_training_expandable": ("expandable_segments:True", dict(context=None), 1, 2),
    "ring_overflow": ("", dict(context=None, max_entries=150), 0, 3),
}


def run(history, warm, steps, path):
    import torch
    from torch import nn
    model = nn.Sequential(nn.Embedding(500, 96), nn.Linear(96, 4096), nn.GELU(), nn.Linear(4096, 96), nn.LayerNorm(96), nn.Linear(96, 500))
    data = torch.zeros(64, 128, dtype=torch.long)
    state = {}
    def step():
        if not state:
            state["model"] = model.to("cuda")
            state["optimizer"] = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = data.to("cuda")
        loss = nn.functional.cross_entropy(state["model"](ids).flatten(0, 1), ids.flatten())
        loss.backward()
        state["optimizer"].step()
        state["optimizer"].zero_grad()
    for _ in range(warm): step()
    torch.cuda.init()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    torch.cuda.memory._record_memory_history(**history)
    for _ in range(steps): step()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(path)
    pick = lambda s, what: {f: s.get(f"{f}_bytes.all.{what}", 0) for f in ("allocated", "reserved", "requested", "active")}
    return {"start": pick(before, "current"), "peak": pick(stats, "peak"), "end": pick(stats, "current"),
            "segments": stats["segment.all.current"]}


def without_prefixes(snapshot):
    """File names as they would be anywhere: what lies before site-packages and before this script's name goes."""
    def clean(value):
        if isinstance(value, list):
            for item in value: clean(item)
        elif isinstance(value, dict):
            for item in value.values(): clean(item)
            name = value.get("filename")
            if isinstance(name, str):
                at = name.find("site-packages/")
                value["filename"] = name[at:] if at >= 0 else os.path.basename(name)
    clean(snapshot)
    return snapshot


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", required=True)
    parser.add_argument("--memory-variable", required=True, help="environment variable that tells the library the MiB of the device")
    parser.add_argument("--child")
    args = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    if args.child:
        settings, *case = CASES[args.child]
        path = os.path.join(here, args.child + ".pickle")
        figures = run(*case, path)
        with open(path, "rb") as f: snapshot = without_prefixes(pickle.load(f))
        with gzip.GzipFile(path + ".gz", "wb", mtime=0) as out: pickle.dump(snapshot, out)
        os.remove(path)
        print(json.dumps({"settings": settings, **figures}))
        return
    expected = {}
    for name, (settings, *_) in CASES.items():
        env = dict(os.environ, LD_PRELOAD=args.preload, PYTORCH_ALLOC_CONF=settings, **{args.memory_variable: "16384"})
        command = [sys.executable, __file__, "--preload", args.preload, "--memory-variable", args.memory_variable, "--child", name]
        output = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        expected[name] = json.loads(output.splitlines()[-1])
    with open(os.path.join(here, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in expected.items()) + "\n}\n")


if __name__ == "__main__":
    main()
