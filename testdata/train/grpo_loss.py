"""Losses of GRPO and their gradients, by TRL's own `GRPOTrainer._compute_loss` on made-up log-probabilities: what
crates/train/tests/grpo.rs holds tonnage's to.

    python testdata/train/grpo_loss.py > testdata/train/grpo_loss.json      # trl 1.16, torch 2.11, on the CPU
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace

import torch
import trl
from trl import GRPOTrainer

ROWS, PROMPT, COMPLETION = 6, 3, 5


def case(seed, loss_type, *, old, beta, epsilon=0.2, epsilon_high=0.28, accumulation=1, steps_per_generation=1):
    """One micro-batch: rows of several lengths, one of them without a token that counts."""
    torch.manual_seed(seed)
    numbers = lambda *sizes: -torch.rand(*sizes, dtype=torch.float32) * 3
    logps = numbers(ROWS, COMPLETION).requires_grad_()
    old_logps = (logps.detach() + 0.5 * torch.randn(ROWS, COMPLETION)) if old else None
    reference = (logps.detach() + 0.3 * torch.randn(ROWS, COMPLETION)) if beta else None
    lengths = [5, 1, 3, 0, 4, 2]
    mask = torch.tensor([[int(at < length) for at in range(COMPLETION)] for length in lengths])
    advantages = torch.randn(ROWS)
    num_items = torch.tensor(sum(lengths) * 2)
    args = SimpleNamespace(
        use_bias_correction_kl=True, delta=None, steps_per_generation=steps_per_generation, off_policy_mask_threshold=None
    )
    accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, **_: x)
    trainer = SimpleNamespace(
        loss_type=loss_type,
        beta=beta,
        epsilon_low=epsilon,
        epsilon_high=epsilon_high,
        current_gradient_accumulation_steps=accumulation,
        max_completion_length=COMPLETION + 2,
        importance_sampling_level="token",
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True),
        args=args,
        accelerator=accelerator,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *a, **k: (logps, torch.zeros_like(logps).detach(), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(ROWS, PROMPT, dtype=torch.long),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": torch.zeros(ROWS, COMPLETION, dtype=torch.long),
        "completion_mask": mask,
        "advantages": advantages,
        "num_items_in_batch": num_items,
    }
    if old:
        inputs["old_per_token_logps"] = old_logps
    if beta:
        inputs["ref_per_token_logps"] = reference
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    loss.backward()
    flat = lambda tensor: None if tensor is None else tensor.flatten().tolist()
    return {
        "loss_type": loss_type,
        "beta": beta,
        "epsilon": epsilon,
        "epsilon_high": epsilon_high,
        "accumulation": accumulation,
        "steps_per_generation": steps_per_generation,
        "completion_len": COMPLETION + 2,
        "sizes": [ROWS, COMPLETION],
        "logps": flat(logps.detach()),
        "old": flat(old_logps),
        "reference": flat(reference),
        "advantages": flat(advantages),
        "mask": flat(mask),
        "num_items": int(num_items),
        "loss": loss.item(),
        "gradient": flat(logps.grad),
    }


def main():
    cases = []
    for seed, loss_type in enumerate(["dapo", "grpo", "bnpo", "dr_grpo"]):
        cases.append(case(seed, loss_type, old=False, beta=0.0))
        cases.append(case(seed + 10, loss_type, old=True, beta=0.0))
        cases.append(case(seed + 20, loss_type, old=True, beta=0.04, accumulation=3, steps_per_generation=2))
        cases.append(case(seed + 30, loss_type, old=False, beta=0.5, epsilon_high=0.2, accumulation=2))
    made = {"trl": trl.__version__, "torch": torch.__version__, "cases": cases}
    json.dump(made, sys.stdout, indent=None, separators=(",", ":"))


main()
