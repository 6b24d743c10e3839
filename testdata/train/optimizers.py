#!/usr/bin/env python3
"""What torch.optim, clip_grad_norm_, GradScaler and transformers' schedules compute, for crates/train/tests/optimizers.rs.

    python testdata/train/optimizers.py > testdata/train/optimizers.json      # needs torch and transformers
"""
import json
import math
import sys

import torch
import transformers

STEPS = 12
SHAPES = [(3, 4), (5,), (2, 2, 2)]
#: Name, class, its arguments.
OPTIMIZERS = [
    ("adamw foreach", torch.optim.AdamW, {"lr": 0.01, "foreach": True}),
    ("adamw fused", torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    ("adamw for-loop", torch.optim.AdamW, {"lr": 0.01, "foreach": False}),
    ("adamw settings", torch.optim.AdamW, {"lr": 0.003, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "foreach": True}),
    ("adam foreach", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.05, "foreach": True}),
    ("adam fused", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.05, "fused": True}),
    ("adam for-loop", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.05, "foreach": False}),
    ("sgd foreach", torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01, "foreach": True}),
    ("sgd momentum foreach", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "foreach": True}),
    ("sgd momentum for-loop", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "foreach": False}),
    ("sgd nesterov foreach", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "foreach": True}),
    ("sgd nesterov for-loop", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "foreach": False}),
]
#: Steps whose second parameter has no gradient, as an expert that got no token.
LEFT_OUT = {3, 4}


def values(shape, seed):
    """The same numbers in Rust: sines, which need no generator."""
    count = math.prod(shape)
    return torch.tensor([math.sin(seed * 1.7 + at * 0.31) for at in range(count)], dtype=torch.float32).reshape(shape)


def parameters():
    return [torch.nn.Parameter(values(shape, at)) for at, shape in enumerate(SHAPES)]


def give_gradients(made, step, scale=1.0):
    for at, parameter in enumerate(made):
        parameter.grad = None if at == 1 and step in LEFT_OUT else values(parameter.shape, 10 + step * 3 + at) * scale


def flat(made):
    return [number for parameter in made for number in parameter.detach().flatten().tolist()]


def of_optimizer(kind, arguments):
    made = parameters()
    optimizer = kind(made, **arguments)
    for step in range(STEPS):
        give_gradients(made, step)
        optimizer.step()
    return flat(made)


def of_clipping():
    made = parameters()
    norms = []
    for step, most in enumerate([0.5, 1.0, 100.0]):
        give_gradients(made, step)
        norms.append(torch.nn.utils.clip_grad_norm_(made, most).item())
        for parameter in made:
            parameter.data.add_(parameter.grad, alpha=-0.1)
    return {"max_norms": [0.5, 1.0, 100.0], "norms": norms, "parameters": flat(made)}


def of_scaler(arguments):
    """Losses whose third overflows: that step is skipped and the scale halved."""
    made = parameters()
    optimizer = torch.optim.AdamW(made, lr=0.01, **arguments)
    scaler = torch.amp.GradScaler("cpu")
    scales = []
    for step in range(6):
        scale = scaler.scale(torch.tensor(1.0)).item()
        give_gradients(made, step, math.inf if step == 2 else scale)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": scales, "parameters": flat(made)}


def of_schedule(name, warmup, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    # `constant` takes no warm-up, `constant_with_warmup` no number of steps.
    schedule = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    shares = []
    for _ in range(steps + 2):
        shares.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return {"name": name, "warmup": warmup, "steps": steps, "shares": shares}


def main():
    names = ["constant", "constant_with_warmup", "linear", "cosine", "inverse_sqrt"]
    written = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "steps": STEPS,
        "left_out": sorted(LEFT_OUT),
        "optimizers": {name: of_optimizer(kind, arguments) for name, kind, arguments in OPTIMIZERS},
        "clipping": of_clipping(),
        "scaler": {"foreach": of_scaler({"foreach": True}), "fused": of_scaler({"fused": True})},
        "schedules": [of_schedule(name, warmup, steps) for name in names for warmup, steps in [(0, 7), (3, 10)]],
    }
    json.dump(written, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
