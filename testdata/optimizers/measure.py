#!/usr/bin/env python3
"""Measure what clipping, the gradient scaler and optimizer steps allocate, and write steps.json beside this file.

Needs torch 2.11, bitsandbytes 0.50, lion-pytorch 0.2, schedulefree 1.4, torchao 0.18, galore-torch 1.0,
apollo-torch 1.0.3, transformers 5.17, torch-optimi 0.3, grokadamw 0.1, lomo-optim 0.1.1, pytorch-optimizer 4.1 and a CUDA device, or a stand-in for its driver libraries whose
kernels do nothing: only the order and size of allocations are recorded, never values. A case is an optimizer over
parameters ([sizes, dtype, has a gradient]) that is stepped twice, or as often as `steps` says; its events are, in order, the bytes of an allocation,
or minus the number (from 1) of the allocation that is freed. Of optimizers that are named on the command line alone the cases are measured anew.
"""
import json
import pathlib
import random
import sys

import torch

# Steps that `torch.compile` compiles: a case is run twice, and the second run's events are recorded, for which nothing is compiled.
COMPILED = {"adamw_torch_8bit": ("AdamW8bit", {}), "adamw_torch_4bit": ("AdamW4bit", {"block_size": 256}), "ao_adamw_4bit": ("AdamW4bit", {})}
LOW_RANK = ["galore_adamw", "apollo_adamw", "galore_adamw_8bit", "galore_adafactor"]
# bitsandbytes' classes that transformers makes of `optim` (trainer_optimizer.py, `_get_bitsandbytes_optimizer`).
BITSANDBYTES = {"lion_32bit": ("Lion", {}), "lion_8bit": ("Lion", {"optim_bits": 8}), "paged_lion_32bit": ("Lion", {"is_paged": True}),
                "paged_lion_8bit": ("Lion", {"optim_bits": 8, "is_paged": True}), "ademamix": ("AdEMAMix", {}),
                "ademamix_8bit": ("AdEMAMix", {"optim_bits": 8}), "paged_ademamix_32bit": ("AdEMAMix", {"is_paged": True}),
                "paged_ademamix_8bit": ("AdEMAMix", {"optim_bits": 8, "is_paged": True}), "rmsprop_bnb_32bit": ("RMSprop", {"optim_bits": 32}),
                "rmsprop_bnb_8bit": ("RMSprop", {"optim_bits": 8})}
SCHEDULE_FREE = {"schedule_free_adamw": "AdamWScheduleFree", "schedule_free_radam": "RAdamScheduleFree", "schedule_free_sgd": "SGDScheduleFree"}
# Further ones, whose cases stand after all others.
LATER = [*BITSANDBYTES, "rmsprop", "adagrad", "transformers_adafactor", "schedule_free_radam", "schedule_free_sgd", "stable_adamw", "grokadamw"]
# Those that step in their own backward pass, whose hook is called in its place.
FUSED = ["lomo", "adalomo"]
# pytorch_optimizer's, on square preconditioners of both sides of a matrix.
PRECONDITIONED = {"soap": "SOAP", "shampoo": "Shampoo"}
# torch's whose decay is part of the gradient; and the others, but for COMPILED, which decay in all cases as AdamW does by default.
COUPLED = ["sgd", "sgd_momentum", "adam", "rmsprop", "adagrad"]
DECOUPLED = ["adamw", "adamw_fused", "adamw_forloop", "adafactor", "adamw8bit", "lion", "paged_adamw_8bit", "paged_adamw_32bit",
             "schedule_free_adamw", "muon", *LOW_RANK, *BITSANDBYTES, "transformers_adafactor", "schedule_free_radam",
             "schedule_free_sgd", "stable_adamw", "grokadamw"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ODD = [[1], [7], [3, 5], [4095], [4096], [4097], [64, 64], [65, 63], [1, 300], [300, 1]]
MATRICES = [[300, 700], [700, 300], [2000, 33], [33, 2000], [512, 512], [512], [5000, 4096], [4096]]
MANY = [[130 + i % 5] for i in range(240)]
CONVOLUTION = [[8, 3, 16], [40, 30, 20], [2, 2, 300, 200]]


def parameters(sizes, dtype):
    return [[size, dtype, True] for size in sizes]


def mixed(*dtypes):
    sizes = [[5], [100, 30], [70000], [64, 200], [9], [131073]]
    return [[size, dtypes[at % len(dtypes)], at % 4 != 2] for at, size in enumerate(sizes)]


def cases():
    names = ["adamw", "adam", "adamw_fused", "adamw_forloop", "sgd", "sgd_momentum", "adafactor", "adamw8bit", "lion",
             "paged_adamw_8bit", "paged_adamw_32bit", "schedule_free_adamw", "muon", "adam_atan2", *COMPILED, *LOW_RANK[:2]]
    for name in names:
        for dtype in ("fp32", "bf16"):
            yield dict(optimizer=name, parameters=parameters(ODD + MATRICES, dtype))
        yield dict(optimizer=name, parameters=mixed("fp32", "bf16"), clip=True)
    for name in ("adamw", "sgd_momentum"):
        yield dict(optimizer=name, parameters=mixed("bf16", "fp32"), clip=True)
        yield dict(optimizer=name, parameters=mixed("fp16", "bf16", "fp32"), clip=True)
    yield dict(optimizer="adafactor", parameters=parameters(CONVOLUTION, "fp32"))
    for dtype in DTYPES:
        yield dict(optimizer="sgd", parameters=parameters(MANY + [[3000000]], dtype), clip=True)
    yield dict(optimizer="sgd", parameters=parameters([[65536]], "fp32"), clip=True)
    yield dict(optimizer="sgd", parameters=parameters([[65537], [1]], "bf16"), clip=True)
    for name in ("adamw", "adamw_fused", "sgd", "lion"):
        for clip in (False, True):
            yield dict(optimizer=name, parameters=parameters(ODD, "fp32"), clip=clip, scaler=True)


    generator = random.Random(1)
    for name in ("adafactor", "muon", "adamw", "adamw8bit", "lion", "adamw_forloop"):
        for _ in range(5 if name in ("adafactor", "muon") else 2):
            yield dict(optimizer=name, parameters=drawn(generator), clip=True)
    for name in COMPILED:
        yield dict(optimizer=name, parameters=parameters([[4096, 3], [256, 48], [384, 65], [16, 2, 256], [151, 896], [5120]], "bf16"))
        for _ in range(2):
            yield dict(optimizer=name, parameters=drawn(generator), clip=True)
    for name in LOW_RANK[:2]:
        for arguments in ("rank=16", "rank=9,update_proj_gap=1", "rank=4096", "rank=64,scale_type=tensor,update_proj_gap=1"):
            yield dict(optimizer=name, parameters=drawn(generator), optim_args=arguments, clip=True)
    yield from later_cases(random.Random(2))
    yield from decayed_cases(random.Random(3))
    yield from fused_cases(random.Random(4))
    yield from preconditioned_cases(random.Random(5))


def preconditioned_cases(generator):
    for name in PRECONDITIONED:
        arguments = dict(optim_args="precondition_frequency=2", steps=4) if name == "soap" else {}
        for dtype in DTYPES:
            yield dict(optimizer=name, parameters=parameters(ODD[:4] + MATRICES[:6], dtype), **arguments)
            yield dict(optimizer=name, parameters=parameters(CONVOLUTION + [[40, 3, 20], [3, 1, 5], [1, 1]], dtype), **arguments)
        yield dict(optimizer=name, parameters=mixed("fp32", "bf16")[:5], clip=True, decay=True, **arguments)
        yield dict(optimizer=name, parameters=parameters(ODD[:4], "fp32"), clip=True, scaler=True, **arguments)
        for _ in range(3):
            sizes = [[int(2 ** generator.uniform(0, 10)) for _ in range(generator.choice([1, 2, 2]))] for _ in range(4)]
            dtypes = generator.sample(list(DTYPES), generator.choice([1, 2]))
            drawn_ones = [[size, generator.choice(dtypes), generator.random() < 0.9] for size in sizes]
            yield dict(optimizer=name, parameters=drawn_ones, **arguments)
    for limits in ("max_precondition_dim=4096", "max_precondition_dim=32", "max_precondition_dim=1"):
        shapes = [[4100, 20], [20, 4097], [4097], [33, 32], [7, 40, 3]]
        yield dict(optimizer="soap", parameters=parameters(shapes, "bf16"), optim_args=limits + ",precondition_frequency=1", steps=3)
    yield dict(optimizer="soap", parameters=parameters([[4100, 20], [600, 33]], "fp32"), optim_args="precondition_frequency=2", steps=3)
    yield dict(optimizer="soap", parameters=parameters([[20, 4100], [300]], "bf16"), steps=12)


def fused_cases(generator):
    for name in FUSED:
        for dtype in ("fp32", "bf16"):
            yield dict(optimizer=name, parameters=parameters(ODD + MATRICES, dtype))
        yield dict(optimizer=name, parameters=mixed("fp32", "bf16"))
        for _ in range(3):
            yield dict(optimizer=name, parameters=drawn(generator))


def later_cases(generator):
    for name in [*LATER, *LOW_RANK[2:]]:
        # bitsandbytes' RMSprop has no kernels for gradients in bf16.
        half = "fp16" if name.startswith("rmsprop_bnb") else "bf16"
        for dtype in ("fp32", half):
            yield dict(optimizer=name, parameters=parameters(ODD + MATRICES, dtype))
        yield dict(optimizer=name, parameters=mixed("fp16", half, "fp32"), clip=True)
        for at in range(0 if half == "fp16" else 2):
            arguments = {"optim_args": ("rank=16,update_proj_gap=1", "rank=4096")[at]} if name in LOW_RANK else {}
            yield dict(optimizer=name, parameters=drawn(generator), clip=True, **arguments)
    yield dict(optimizer="transformers_adafactor", parameters=parameters(CONVOLUTION, "bf16"))
    for name in ("rmsprop", "lion_8bit", "transformers_adafactor"):
        yield dict(optimizer=name, parameters=parameters(ODD, "fp32"), clip=True, scaler=True)


def decayed_cases(generator):
    """With `weight_decay` of 0.1, which those of COUPLED add to a copy of the gradients; others allocate what they do without."""
    for name in COUPLED:
        for dtype in ("fp32", "bf16"):
            yield dict(optimizer=name, parameters=parameters(ODD + MATRICES, dtype), decay=True)
        yield dict(optimizer=name, parameters=mixed("fp16", "bf16", "fp32"), clip=True, decay=True)
        for _ in range(3):
            yield dict(optimizer=name, parameters=drawn(generator), clip=True, decay=True)
        yield dict(optimizer=name, parameters=parameters(ODD, "fp32"), clip=True, scaler=True, decay=True)
    for name in DECOUPLED:
        yield dict(optimizer=name, parameters=mixed("fp32", "fp16" if name.startswith("rmsprop_bnb") else "bf16"), clip=True, decay=True)


def drawn(generator):
    """Six parameters of one or two dimensions, log-uniform in size."""
    dtypes = generator.sample(list(DTYPES), generator.choice([1, 1, 2]))
    size = lambda: int(2 ** generator.uniform(0, 14.3))
    sizes = [[size() for _ in range(generator.choice([1, 2, 2]))] for _ in range(6)]
    return [[each, generator.choice(dtypes), generator.random() < 0.9] for each in sizes]


class AdamATan2(torch.optim.Optimizer):
    """adam-atan2's state: its kernel, which is not needed to see what is allocated, updates all in place."""

    def __init__(self, tensors):
        super().__init__(tensors, {})

    @torch.no_grad()
    def step(self):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p]["exp_avg"] = torch.zeros_like(p)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p)


def let_svd_succeed():
    """A stand-in's kernels do not clear the word that says whether cuSOLVER came to its end: what is free in the small pool is cleared."""
    import ctypes
    def cleared(found):
        def decompose(matrix, **options):
            for segment in torch.cuda.memory_snapshot():
                if segment["segment_type"] == "small":
                    for block in segment["blocks"]:
                        if block["state"] == "inactive": ctypes.memset(block["address"], 0, block["size"])
            # Where it raises, the traceback must not keep the matrix.
            passed = [matrix]
            del matrix
            return found(passed.pop(), **options)
        return decompose
    if torch.linalg.svd.__name__ != "decompose":
        torch.linalg.svd, torch.linalg.eigh = cleared(torch.linalg.svd), cleared(torch.linalg.eigh)


def preconditioning(name):
    """The class of SOAP or Shampoo."""
    import pytorch_optimizer
    if "Phantom" in torch.cuda.get_device_name(): let_svd_succeed()
    return getattr(pytorch_optimizer, PRECONDITIONED[name])


def preconditioned(name, tensors, arguments=""):
    """SOAP or Shampoo with arguments of whole numbers, as `optim_args` has them."""
    said = dict(part.split("=") for part in arguments.replace(" ", "").split(",") if part)
    return preconditioning(name)(tensors, lr=1e-5, **{key: int(value) for key, value in said.items()})


def low_rank(name, others, projected, arguments=""):
    """GaLore's or APOLLO's AdamW in the groups that transformers makes of `optim_args` (trainer_optimizer.py, `_setup_low_rank_optimizer`)."""
    said = dict(part.split("=") for part in arguments.replace(" ", "").split(",") if part)
    group = dict(rank=int(said.get("rank", 128)), update_proj_gap=int(said.get("update_proj_gap", 200)), proj_type="std")
    if name.startswith("galore"):
        import galore_torch
        if "Phantom" in torch.cuda.get_device_name(): let_svd_succeed()
        groups = [{"params": others}, {"params": projected, "scale": float(said.get("scale", 0.25)), **group}]
        if name == "galore_adamw_8bit": return galore_torch.GaLoreAdamW8bit(groups)
        if name == "galore_adafactor": return galore_torch.GaLoreAdafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False)
        return galore_torch.GaLoreAdamW(groups, no_deprecation_warning=True)
    import apollo_torch
    scales = {"proj": "random", "scale": float(said.get("scale", 1)), "scale_type": said.get("scale_type", "channel")}
    return apollo_torch.APOLLOAdamW([{"params": others}, {"params": projected, **scales, **group}])


def leave_kernels_out():
    """Inductor's wrappers run, its Triton kernels are neither compiled nor timed: they allocate nothing themselves."""
    from torch._inductor.async_compile import AsyncCompile

    class Kernel:
        def run(self, *args, **options): pass
    AsyncCompile.triton = lambda self, name, source, device_str="cuda": Kernel()


def leave_triton_out():
    """Kernels of Triton are not launched: they allocate nothing themselves."""
    import triton
    triton.runtime.jit.JITFunction.run = lambda self, *args, **options: None


def let_weights_be_large():
    """A stand-in has no numbers: weights that were trained are above the floor of AdaLomo's rate."""
    import lomo_optim.adalomo
    lomo_optim.adalomo.max = lambda floor, size: (bool(size > floor), size)[1]


def fused(name, model):
    """LOMO's over a model, whose `step` is the hook that a backward pass of its own ends with."""
    import lomo_optim
    let_weights_be_large()
    optimizer = (lomo_optim.AdaLomo if name == "adalomo" else lomo_optim.Lomo)(model)
    optimizer.step = lambda: optimizer.grad_func(0)
    return optimizer


def build(name, tensors, arguments=""):
    if name in PRECONDITIONED: return [preconditioned(name, tensors, arguments)]
    if name in FUSED: return [fused(name, torch.nn.ParameterList(tensors))]
    if name == "adamw": return [torch.optim.AdamW(tensors)]
    if name == "adam": return [torch.optim.Adam(tensors)]
    if name == "adamw_fused": return [torch.optim.AdamW(tensors, fused=True)]
    if name == "adamw_forloop": return [torch.optim.AdamW(tensors, foreach=False)]
    if name == "sgd": return [torch.optim.SGD(tensors)]
    if name == "sgd_momentum": return [torch.optim.SGD(tensors, momentum=0.9)]
    if name == "adafactor": return [torch.optim.Adafactor(tensors)]
    if name == "lion":
        import lion_pytorch
        return [lion_pytorch.Lion(tensors)]
    if name == "adamw8bit":
        import bitsandbytes
        return [bitsandbytes.optim.AdamW8bit(tensors)]
    if name in ("paged_adamw_8bit", "paged_adamw_32bit"):
        import bitsandbytes
        return [(bitsandbytes.optim.PagedAdamW8bit if name.endswith("8bit") else bitsandbytes.optim.PagedAdamW32bit)(tensors)]
    if name in BITSANDBYTES:
        import bitsandbytes
        kind, options = BITSANDBYTES[name]
        return [getattr(bitsandbytes.optim, kind)(tensors, lr=1e-3, **options)]
    if name in SCHEDULE_FREE:
        import schedulefree
        optimizer = getattr(schedulefree, SCHEDULE_FREE[name])(tensors)
        optimizer.train()
        return [optimizer]
    if name == "rmsprop": return [torch.optim.RMSprop(tensors)]
    if name == "adagrad": return [torch.optim.Adagrad(tensors)]
    if name == "transformers_adafactor":
        from transformers.optimization import Adafactor
        return [Adafactor(tensors, lr=1e-3, scale_parameter=False, relative_step=False)]
    if name == "stable_adamw":
        import optimi
        leave_triton_out()
        return [optimi.StableAdamW(tensors, lr=1e-3)]
    if name == "grokadamw":
        import grokadamw
        return [grokadamw.GrokAdamW(tensors)]
    if name in COMPILED:
        leave_kernels_out()
        import torchao.optim
        kind, options = COMPILED[name]
        return [getattr(torchao.optim, kind)(tensors, **options)]
    if name in LOW_RANK: return [low_rank(name, [t for t in tensors if t.dim() != 2], [t for t in tensors if t.dim() == 2], arguments)]
    if name == "adam_atan2": return [AdamATan2(tensors)]
    if name == "muon":
        matrices = [t for t in tensors if t.dim() == 2]
        others = [t for t in tensors if t.dim() != 2]
        return ([torch.optim.Muon(matrices)] if matrices else []) + ([torch.optim.AdamW(others)] if others else [])
    raise SystemExit(f"unknown optimizer {name}")


def run(case):
    tensors = [torch.nn.Parameter(torch.empty(s, dtype=DTYPES[d], device="cuda")) for s, d, _ in case["parameters"]]
    for tensor, (_, _, has_gradient) in zip(tensors, case["parameters"]):
        if has_gradient: tensor.grad = torch.empty_like(tensor)
    optimizers = build(case["optimizer"], tensors, case.get("optim_args", ""))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if case.get("decay"): group["weight_decay"] = 0.1
    scaler = torch.amp.GradScaler("cuda") if case.get("scaler") else None
    loss = torch.zeros((), device="cuda")
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    gradients = [tensor.grad for tensor in tensors]
    for _ in range(case.get("steps", 2)):
        # GaLore's of 8 bits leaves projected ones.
        for tensor, gradient in zip(tensors, gradients): tensor.grad = gradient
        if scaler: scaler.scale(loss)
        if case.get("clip"):
            if scaler: scaler.unscale_(optimizers[0])
            torch.nn.utils.clip_grad_norm_(tensors, 1.0)
        for optimizer in optimizers:
            if scaler: scaler.step(optimizer)
            else: optimizer.step()
        if scaler: scaler.update()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    events, live, born = [], {}, 0
    for entry in trace:
        if entry["action"] == "alloc":
            born += 1
            live[entry["addr"]] = born
            events.append(entry["size"])
        elif entry["action"] == "free_requested" and entry["addr"] in live:
            events.append(-live.pop(entry["addr"]))
    return events


def main():
    out = pathlib.Path(__file__).with_name("steps.json")
    anew = set(sys.argv[1:])
    results = [row for row in json.loads(out.read_text()) if row["optimizer"] not in anew] if anew else []
    for case in cases():
        if anew and case["optimizer"] not in anew: continue
        if case["optimizer"] in COMPILED: run(case)
        events = run(case)
        print(case["optimizer"], len(events), file=sys.stderr)
        results.append({**case, "events": events})
    out.write_text("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in results) + "\n]\n")


if __name__ == "__main__":
    main()
