"""Asks bitsandbytes' own table (`_gemm_4bit_use_custom_cuda`) and writes gemm_4bit.json beside this file.

Needs bitsandbytes 0.50.2 and no GPU: what it asks of the GPU is answered here.
"""
import json
import pathlib
import random

import bitsandbytes.backends.cuda.ops as ops
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
GPUS = [(7, 0, 80), (7, 5, 40), (8, 0, 108), (8, 6, 84), (8, 6, 28), (8, 7, 16), (8, 9, 58), (8, 9, 142), (9, 0, 132), (10, 0, 148),
        (11, 0, 20), (12, 0, 170), (12, 0, 36), (12, 1, 48)]
SHAPES = [(64, 64), (512, 256), (1408, 512), (512, 1408), (1024, 4096), (4096, 1024), (2048, 2048), (3072, 3072), (4096, 4096), (5120, 5120),
          (8192, 8192), (14336, 4096), (4096, 14336), (4096, 12288), (32000, 4096), (11008, 4096), (4096, 11008), (2560, 10240), (10240, 2560)]
ROWS = [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 23, 24, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 192, 193, 256, 257, 320, 321, 384, 385,
        512, 513, 1536]


def answers(gpu, dtype, outputs, inputs):
    major, minor, multiprocessors = gpu
    ops._gpu_dispatch_props = lambda index: (multiprocessors, major, minor)
    ops._gemm_4bit_use_custom_cuda.cache_clear()
    said = [ops._gemm_4bit_use_custom_cuda(0, DTYPES[dtype], rows, outputs, inputs) for rows in ROWS]
    return "".join("1" if fused else "0" for fused in said)


def main():
    generator = random.Random(1)
    cases = []
    for gpu in GPUS:
        drawn = [(64 * generator.randint(1, 500), 64 * generator.randint(1, 220)) for _ in range(14)]
        for outputs, inputs in SHAPES + drawn:
            dtype = generator.choice(["bf16", "bf16", "fp16", "fp32"]) if gpu[0] != 7 else generator.choice(["fp16", "fp16", "bf16"])
            cases.append([gpu[:2], gpu[2], dtype, outputs, inputs, answers(gpu, dtype, outputs, inputs)])
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    out = pathlib.Path(__file__).with_name("gemm_4bit.json")
    out.write_text(f'{{"rows": {json.dumps(ROWS)},\n"cases": [\n{lines}\n]}}\n')


main()
