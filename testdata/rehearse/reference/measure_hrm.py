#!/usr/bin/env python3
"""Measure the GPU memory of a training step of the Hierarchical Reasoning Model (sapientinc/HRM) without a GPU.

The model, its loss head and its sparse-embedding optimizer are imported from a checkout of that repository (--hrm DIR; nothing of
it is copied here).  Two packages it needs are replaced by shims:
  flash_attn.flash_attn_func   -> torch's own aten._flash_attention_forward (same saved tensors: q, k, v, out, log-sum-exp;
                                  same fp32 dq accumulator in backward)
  adam_atan2.AdamATan2         -> two fp32 moments per parameter and an in-place update without temporaries (a fused kernel)
Eager mode only (the repository's DISABLE_COMPILE=1); its default, torch.compile, fuses the norms and needs less.
unique() in the embedding optimizer reads its result's size from the device: answered as "all ids differ".

Case fields: id, batch (per GPU), seq_len, vocab_size, num_puzzle_identifiers, hidden_size, num_heads, expansion, H_layers, L_layers, H_cycles,
L_cycles, puzzle_emb_ndim (null = hidden_size), halt_max_steps, loss_type, pos_encodings, forward_dtype, steps.
Result fields as in measure_rl.py; phases: load, input, forward, backward, emb_optimizer, optimizer, between.

  measure_hrm.py --stub --lib libtonnage_phantom.so --hrm HRM --cases hrm_cases.json --out truth.json
"""
import copy, os, sys, types
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure_rl as R

DEFAULTS = dict(id="case", kind="hrm", batch=384, seq_len=81, vocab_size=11, num_puzzle_identifiers=1, hidden_size=512, num_heads=8, expansion=4,
                H_layers=4, L_layers=4, H_cycles=2, L_cycles=2, puzzle_emb_ndim=None, halt_max_steps=16, halt_exploration_prob=0.1,
                loss_type="stablemax_cross_entropy", pos_encodings="rope", forward_dtype="bfloat16", steps=3)
HRM = [None]


def full_case(c):
    d = copy.deepcopy(DEFAULTS)
    bad = set(c) - set(d) - {"note"}
    if bad: raise SystemExit(f"unknown case fields: {sorted(bad)}")
    d.update(c); return d


def shims():
    import torch
    fa = types.ModuleType("flash_attn")
    def flash_attn_func(q, k, v, causal=False, **kw):
        return torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False)[0]
    fa.flash_attn_func = flash_attn_func
    sys.modules["flash_attn"] = fa

    class AdamATan2(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-2):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        @torch.no_grad()
        def step(self):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None: continue
                    s = self.state[p]
                    if not s:
                        s["step"] = torch.zeros((), device=p.device)
                        s["exp_avg"] = torch.zeros_like(p); s["exp_avg_sq"] = torch.zeros_like(p)
                    s["exp_avg"].lerp_(p.grad, 1 - g["betas"][0])
                    s["exp_avg_sq"].mul_(g["betas"][1]).addcmul_(p.grad, p.grad, value=1 - g["betas"][1])
                    p.mul_(1 - g["lr"] * g["weight_decay"]).add_(s["exp_avg"], alpha=-g["lr"])
    return AdamATan2


def run_hrm(c, ph, stub):
    import torch
    AdamATan2 = shims()
    sys.path.insert(0, HRM[0])
    from models.hrm.hrm_act_v1 import HierarchicalReasoningModel_ACTV1 as Model
    from models.losses import ACTLossHead
    from models.sparse_embedding import CastedSparseEmbeddingSignSGD_Distributed as EmbOpt
    if stub:
        def unique(self, return_inverse=False, **k):
            return (self.clone(), torch.zeros(self.shape, dtype=torch.int64, device=self.device)) if return_inverse else self.clone()
        torch.Tensor.unique = unique
    ph.set("load", 0)
    keys = ("seq_len", "vocab_size", "num_puzzle_identifiers", "hidden_size", "num_heads", "expansion", "H_layers", "L_layers", "H_cycles", "L_cycles",
            "halt_max_steps", "halt_exploration_prob", "pos_encodings", "forward_dtype")
    cfg = {k: c[k] for k in keys}
    cfg.update(batch_size=c["batch"], puzzle_emb_ndim=c["hidden_size"] if c["puzzle_emb_ndim"] is None else c["puzzle_emb_ndim"], causal=False)
    with torch.device("cuda"):
        model = ACTLossHead(Model(cfg), c["loss_type"])
    model.train()
    n, tn = R.count(model)
    info = dict(param_count=n, trainable_params=tn, buffer_bytes=sum(b.numel() * b.element_size() for b in model.buffers()), after_load_bytes=torch.cuda.memory_allocated())
    ph.mark(list(model.parameters()), "parameter"); ph.mark(list(model.buffers()), "buffer")
    opts = [("optimizer", AdamATan2(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1))]
    if cfg["puzzle_emb_ndim"]: opts.insert(0, ("emb_optimizer", EmbOpt(model.model.puzzle_emb.buffers(), lr=1e-2, weight_decay=0.1, world_size=1)))
    B, S = c["batch"], c["seq_len"]
    cpu = dict(inputs=torch.randint(0, c["vocab_size"], (B, S), dtype=torch.int32), labels=torch.randint(0, c["vocab_size"], (B, S), dtype=torch.int32),
               puzzle_identifiers=torch.randint(0, c["num_puzzle_identifiers"], (B,), dtype=torch.int32))
    carry = None
    for step in range(1, c["steps"] + 1):
        ph.set("input", step)
        batch = {k: v.cuda() for k, v in cpu.items()}
        if carry is None:
            with torch.device("cuda"): carry = model.initial_carry(batch)
        ph.set("forward", step)
        carry, loss, metrics, _, _ = model(carry=carry, batch=batch, return_keys=[])
        ph.set("backward", step)
        ((1 / B) * loss).backward()
        ph.mark([p.grad for p in model.parameters() if p.grad is not None], "gradient")
        for name, o in opts:
            ph.set(name, step)
            o.step()
            if name == "optimizer": ph.mark([v for s in o.state.values() for v in s.values()], "optimizer_state")
            o.zero_grad()
        ph.set("between", step)
        torch.stack([metrics[k] for k in sorted(metrics)]).cpu()
        del batch                                # carry and loss live on until the next forward has run
    ph.set("end", c["steps"]); ph.close()
    info["end_bytes"] = torch.cuda.memory_allocated()
    return info


if __name__ == "__main__":
    if "--hrm" in sys.argv:
        i = sys.argv.index("--hrm"); os.environ["HRM_DIR"] = os.path.abspath(sys.argv[i + 1]); del sys.argv[i:i + 2]
    HRM[0] = os.environ.get("HRM_DIR")
    if not HRM[0] and "-h" not in sys.argv and "--help" not in sys.argv: raise SystemExit("--hrm DIR (a checkout of sapientinc/HRM) is needed")
    R.__doc__ = __doc__
    R.main(full=full_case, run_of=lambda c: run_hrm, warm=lambda cases: None, extra_versions=("none",))
