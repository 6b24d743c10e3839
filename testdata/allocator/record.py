#!/usr/bin/env python3
"""Records what PyTorch's own caching allocator does under different settings, for the allocator's differential test.

    python record.py --preload PHANTOM_LIBRARY --memory-variable NAME [CASE ...]

Needs a CUDA build of PyTorch 2.11 and a library to preload that stands in for the CUDA runtime, so that no GPU is
needed and the device has exactly the size asked for. It must hand out ascending addresses, for segments and for
reserved ranges alike: equal free blocks are taken lowest address first. Each case is a seeded random sequence of
allocations and frees; after each one the change of the allocator's counters is written. Output: CASE.txt.gz, one
line an event:

    # settings=... total_mib=... fields=...
    a ID BYTES | changes       allocate
    o ID BYTES | changes       allocate, refused with OutOfMemoryError
    f ID | changes             free
    e | changes                empty_cache
"""
import argparse, gzip, os, random, subprocess, sys

MIB = 1 << 20
FIELDS = ("allocated_bytes.all.current", "reserved_bytes.all.current", "requested_bytes.all.current",
          "active_bytes.all.current", "inactive_split.all.current", "inactive_split_bytes.all.current",
          "segment.all.current", "num_alloc_retries", "num_ooms", "oversize_allocations.current",
          "oversize_segments.current", "num_device_alloc", "num_device_free")

# name: (settings, device MiB, events, seed, aimed at this share of the device)
CASES = {
    "default": ("", 65536, 1500, 1, 0.3),
    "expandable": ("expandable_segments:True", 65536, 1500, 2, 0.3),
    "max_split": ("max_split_size_mb:128", 65536, 1200, 3, 0.3),
    "max_split_rounding": ("max_split_size_mb:64,max_non_split_rounding_mb:40", 65536, 800, 4, 0.3),
    "large_segment": ("large_segment_size_mb:64,max_split_size_mb:64", 65536, 800, 5, 0.3),
    "roundup": ("roundup_power2_divisions:4", 65536, 1000, 6, 0.3),
    "roundup_list": ("roundup_power2_divisions:[2:8,64:4,128:2,256:1,>:16]", 65536, 1000, 7, 0.3),
    "garbage_collection": ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.8", 4096, 1500, 8, 0.5),
    "garbage_collection_max_split": (
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9,max_split_size_mb:40", 4096, 1200, 9, 0.5),
    "garbage_collection_expandable": (
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9,expandable_segments:True", 4096, 800, 10, 0.6),
    "oom": ("", 2048, 1500, 11, 0.95),
    "oom_fraction": ("per_process_memory_fraction:0.7", 2048, 800, 12, 0.7),
    "oom_expandable": ("expandable_segments:True", 2048, 1500, 13, 0.95),
    "oom_expandable_fraction": ("expandable_segments:True,per_process_memory_fraction:0.75", 2048, 1000, 14, 0.75),
    "oom_max_split": ("max_split_size_mb:64", 2048, 1500, 15, 0.9),
    "oom_expandable_max_split": ("expandable_segments:True,max_split_size_mb:64", 2048, 1000, 16, 0.95),
    "oom_roundup": ("roundup_power2_divisions:[256:2,>:4],expandable_segments:True", 2048, 800, 17, 0.9),
}


def sizes(rng, device):
    """A few sizes that return, as in training, among sizes that do not."""
    def once():
        kind = rng.random()
        if kind < 0.35: return rng.randint(1, 64 << 10)
        if kind < 0.55: return rng.randint(64 << 10, MIB + 4096)
        if kind < 0.75: return rng.randint(MIB, 11 * MIB)
        if kind < 0.97: return rng.randint(10 * MIB, min(200 * MIB, device // 12))
        return rng.randint(10 * MIB, min(1500 * MIB, device // 4))
    palette = [once() for _ in range(40)]
    while True:
        yield rng.choice(palette) if rng.random() < 0.6 else once()


def record(settings, total_mib, events, seed, share):
    import torch
    rng, device = random.Random(seed), total_mib * MIB
    size, live, used, out = sizes(rng, device), {}, 0, []
    before = dict.fromkeys(FIELDS, 0)
    def log(op):
        stats = torch.cuda.memory_stats()
        out.append(f"{op} | " + " ".join(str(stats[f] - before[f]) for f in FIELDS))
        before.update(stats)
    def free():
        nonlocal used
        # Often the youngest: most tensors die soon.
        keys = list(live)
        key = keys[-1 - min(int(rng.expovariate(0.3)), len(keys) - 1)] if rng.random() < 0.6 else rng.choice(keys)
        used -= live.pop(key).numel()
        log(f"f {key}")
    torch.empty(1, device="cuda"); torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    for n in range(events):
        if rng.random() < 0.004:
            torch.cuda.empty_cache(); log("e")
        if live and rng.random() < (0.35 if used < share * device else 0.75) or n % 400 > 380 and live:
            free()
            continue
        bytes = next(size)
        try:
            live[n] = torch.empty(bytes, dtype=torch.uint8, device="cuda"); used += bytes
            log(f"a {n} {bytes}")
        except torch.OutOfMemoryError:
            log(f"o {n} {bytes}")
            for _ in range(min(rng.randint(1, 12), len(live))): free()
    while live: free()
    torch.cuda.empty_cache(); log("e")
    return [f"# settings={settings} total_mib={total_mib} fields={','.join(FIELDS)}"] + out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", required=True)
    parser.add_argument("--memory-variable", required=True, help="environment variable that tells the library the MiB of the device")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    for name in args.cases or CASES:
        settings, total_mib, *_ = CASES[name]
        if not args.child:
            env = dict(os.environ, LD_PRELOAD=args.preload, PYTORCH_ALLOC_CONF=settings, **{args.memory_variable: str(total_mib)})
            subprocess.run([sys.executable, __file__, "--preload", args.preload, "--memory-variable", args.memory_variable, "--child", name], env=env, check=True)
            continue
        lines = record(*CASES[name])
        # No time stamp, so that the same events give the same file.
        with gzip.GzipFile(os.path.join(here, f"{name}.txt.gz"), "wb", mtime=0) as f:
            f.write(("\n".join(lines) + "\n").encode())
        print(name, len(lines) - 1, "events,", sum(l[0] == "o" for l in lines), "out of memory", lines[-1])


if __name__ == "__main__":
    main()
