#!/usr/bin/env python3
"""Times PyTorch's own memory tracker (torch.distributed._tools.MemTracker under FakeTensorMode) on jobs that
`tonnage estimate` answers too, and the whole `tonnage` process beside it.

    python testdata/peers/mem_tracker.py --tonnage target/release/tonnage

Needs torch and transformers; no GPU and no network. A fake "cuda" device fails in backward where no GPU is, so the
tracker runs on a fake CPU device, with dropout off so that attention stays fused.
"""

import argparse
import json
import subprocess
import tempfile
import time

JOBS = [
    # (preset, rows, tokens, dtype, gradient checkpointing)
    ("gpt2", 8, 1024, "float32", False),
    ("Qwen/Qwen2.5-0.5B", 4, 1024, "bfloat16", False),
    ("Qwen/Qwen2.5-7B", 2, 2048, "bfloat16", True),
]


def config_of(preset):
    from transformers import GPT2Config, Qwen2Config

    qwen = dict(vocab_size=151936, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6)
    return {
        "gpt2": lambda: GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        "Qwen/Qwen2.5-0.5B": lambda: Qwen2Config(
            **qwen, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14),
        "Qwen/Qwen2.5-7B": lambda: Qwen2Config(
            **(qwen | dict(vocab_size=152064, num_key_value_heads=4, tie_word_embeddings=False)),
            hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28),
    }[preset]()


def tracked(preset, rows, tokens, dtype, checkpointing):
    """Seconds and peak bytes of one training step under MemTracker, imports left out."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from transformers import AutoModelForCausalLM

    start = time.perf_counter()
    with FakeTensorMode():
        model = AutoModelForCausalLM.from_config(config_of(preset), dtype=getattr(torch, dtype))
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        ids = torch.zeros(rows, tokens, dtype=torch.long)
        with tracker:
            for step in range(2):
                model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        peak = sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values())
    return time.perf_counter() - start, peak


def ours(binary, preset, rows, tokens, dtype, checkpointing):
    """Seconds of the whole process, the least of ten, and its peak allocated bytes."""
    job = (f'model = "{preset}"\nmicro_batch_size = {rows}\nseq_len = {tokens}\ndropout = 0.0\n'
           f'precision = "{dict(float32="fp32", bfloat16="bf16")[dtype]}"\n'
           f'gradient_checkpointing = {str(checkpointing).lower()}\n')
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(job)
        file.flush()
        best = None
        for _ in range(10):
            start = time.perf_counter()
            done = subprocess.run([binary, "estimate", file.name, "--json"], capture_output=True, text=True)
            seconds = time.perf_counter() - start
            if done.returncode == 2:
                raise SystemExit(done.stderr)
            best = min(seconds, best or seconds)
    return best, json.loads(done.stdout)["peak_allocated_bytes"]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tonnage", default="target/release/tonnage")
    binary = options.parse_args().tonnage
    print(f"{'job':34} {'MemTracker s':>13} {'peak MiB':>9} {'tonnage s':>10} {'peak MiB':>9} {'ratio':>7}")
    for job in JOBS:
        seconds, peak = tracked(*job)
        own, own_peak = ours(binary, *job)
        name = f"{job[0]} {job[1]}x{job[2]} {job[3]}{' ckpt' if job[4] else ''}"
        print(f"{name:34} {seconds:13.2f} {peak / 2**20:9.0f} {own:10.4f} {own_peak / 2**20:9.0f} {seconds / own:7.0f}")


if __name__ == "__main__":
    main()
