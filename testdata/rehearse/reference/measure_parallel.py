#!/usr/bin/env python3
"""Measure the GPU memory of rank 0 in data-parallel and sharded training, in one process and without a GPU.

PyTorch's in-process "fake" process group (torch.testing._internal.distributed.fake_pg) plays the other ranks: collectives
return at once and move no data; everything else (DDP's reducer and buckets, FSDP2's hooks, streams and buffers, the sharded
optimizer, the CUDACachingAllocator) is the real code over the phantom library, as in measure_torch.py.  --real does the same on one
GPU (the fake group needs no second one), so every case can be checked on silicon; NCCL's own buffers appear in neither.

Case fields (defaults below):
  id, model (HF config fields; family = model_type), micro_batch, seq_len, steps, grad_accum (with DDP: no_sync on all but the last)
  world       size of the group; rank 0 is measured
  strategy    ddp | fsdp1 (FullyShardedDataParallel) | fsdp2 | zero1 (DDP + ZeroRedundancyOptimizer) | zero1_plain (the same without DDP's buckets) | single (no wrapper) |
              tp (transformers' tp_plan, as from_pretrained loads a rank's parts; optimizer adamw_forloop, no clip_grad_norm: the others fail on parts beside whole tensors)
  precision   fp32 | bf16 (weights in bf16) | amp_bf16 (autocast over fp32 weights) |
              mp_bf16 (fsdp2 only: fp32 shards, MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=reduce_dtype)) |
              bf16_mp (the same policy over weights in bf16, as adapters in fp32 lie beside them)
  reduce_dtype float32 | bfloat16 (fsdp2 with mp_bf16)
  gradient_checkpointing   HF layer checkpointing, use_reentrant=False
  optimizer   adamw (foreach) | adamw_fused | adam | adamw_forloop | sgd | sgd_momentum | adafactor (torch.optim's) |
              adafactor_hf (transformers') | adamw8bit | paged_adamw_8bit | paged_adamw_32bit (bitsandbytes') | lion (lion_pytorch's) |
              schedule_free_adamw | soap | shampoo (pytorch_optimizer's); on fsdp2's DTensors both Adafactors and bitsandbytes' optimizers fail at their first step
  clip_grad_norm  null or max norm
  lora        null or {r, alpha, dropout, targets}: peft's adapters, put on before the wrapper; with gradient_checkpointing
              enable_input_require_grads, as the Trainer calls it
  quantization null or {weights (nf4 | fp4), double, compute}: from_pretrained packs the linear layers on the device, stored in the weights'
              dtype (bnb_4bit_quant_storage), as FSDP wants it; with fsdp2 init must be "full"; needs bitsandbytes
  ddp: bucket_cap_mb (25 = default), gradient_as_bucket_view, static_graph
  zero1: parameters_as_bucket_view
  fsdp1, fsdp2: replicate (1: none; HSDP of so many groups of ranks, over a mesh of (replicate, world / replicate))
  fsdp2: reshard_after_forward (true/false, for the layers; the root group is false, PyTorch's choice for a root),
         shard_root_only (true: one group for the whole model), init: "meta" (sharded before it is materialised) | "full" (sharded after),
         cpu_offload: null | {"pin_memory": true or false}, a CPUOffloadPolicy; with init "meta" the shards are materialised on the host and
         buffers on the device, as torchtitan has it
  fsdp1: reshard_after_forward (true: FULL_SHARD, false: SHARD_GRAD_OP), shard_root_only, init: "host" (loaded on the host, device_id) | "full"
         (on the device before it is wrapped), use_orig_params, backward_prefetch (pre | post | null), forward_prefetch, limit_all_gathers;
         every layer is wrapped, with lora by peft's fsdp_auto_wrap_policy

Result fields as in measure_rl.py (bytes; peak_per_phase "step:phase"); param_count is the whole model's, local_param_bytes what
rank 0 holds, reserved_by_stream / streams: segments of the caching allocator per CUDA stream when the run ends (FSDP2's
side streams have pools of their own).  bytes_at_peak names ddp_bucket (the gradients too where they are views of it) and
fsdp_unsharded_and_comm (all-gathered parameters, all-gather and reduce-scatter buffers, accumulated unsharded gradients).  With
cpu_offload: host_pinned_bytes and host_pinned_peak_bytes (torch.cuda.host_memory_stats: what the caching host allocator took and the
most that was in use, blocks of powers of two), host_pageable_bytes (parameters, gradients and states that lie elsewhere on the host when the last step is done).  Phases: load, wrap, input, forward, loss, forward_tail, backward, clip, optimizer, zero_grad.

  measure_parallel.py --stub --lib libtonnage_phantom.so --cases parallel_cases.json --out truth.json
"""
import contextlib, copy, gc, os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure_rl as R

DEFAULTS = dict(id="case", kind="parallel", model={"family": "gpt2"}, micro_batch=4, seq_len=1024, steps=3, grad_accum=1, world=4, strategy="ddp",
                precision="fp32", reduce_dtype="float32", gradient_checkpointing=False, optimizer="adamw", clip_grad_norm=None,
                bucket_cap_mb=25, gradient_as_bucket_view=False, static_graph=False, parameters_as_bucket_view=False,
                reshard_after_forward=True, replicate=1, shard_root_only=False, init="meta", cpu_offload=None, lora=None, quantization=None,
                use_orig_params=False, backward_prefetch="pre", forward_prefetch=False, limit_all_gathers=True)


def full_case(c):
    d = copy.deepcopy(DEFAULTS)
    bad = set(c) - set(d) - {"note"}
    if bad: raise SystemExit(f"unknown case fields: {sorted(bad)}")
    d.update(c); return d


def layers_of(model):
    import torch
    best = max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)
    return list(best)


def init_values(model):
    import torch
    for mod in model.modules():
        if hasattr(mod, "inv_freq") and hasattr(mod, "rope_init_fn"):
            inv, _ = mod.rope_init_fn(mod.config, torch.device("cuda")); mod.inv_freq.copy_(inv)
    with torch.no_grad():
        for n, p in model.named_parameters():
            p = getattr(p, "_local_tensor", p)
            if p.dim() >= 2: p.normal_(0.0, 0.02)
            elif "bias" in n: p.zero_()
            else: p.fill_(1.0)


def saved(c, dtype):
    """A folder with the model and random weights, its config and how many parameters it has."""
    import tempfile, torch
    from transformers import AutoConfig, AutoModelForCausalLM
    spec = dict(c["model"])
    cfg = AutoConfig.for_model(spec.pop("family"), **spec)
    whole = AutoModelForCausalLM.from_config(cfg, dtype=getattr(torch, dtype))
    folder, count = tempfile.mkdtemp(), R.count(whole)[0]
    whole.save_pretrained(folder)
    return folder, cfg, count


def quantized(c, dtype):
    """The model with random weights as `from_pretrained` packs it, its config and how many parameters it has."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    folder, cfg, count = saved(c, dtype)
    asked = {"double": False, "compute": dtype, **c["quantization"]}
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=asked["weights"], bnb_4bit_use_double_quant=asked["double"],
                                bnb_4bit_compute_dtype=getattr(torch, asked["compute"]), bnb_4bit_quant_storage=getattr(torch, dtype))
    base = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    return base, cfg, count


def tensor_parallel(c, dtype):
    """The model with random weights as `from_pretrained` loads a rank's shards of it by the plan of its class, its config and how many
    parameters it has."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig
    folder, cfg, count = saved(c, dtype)
    base = AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=c["world"]), dtype=getattr(torch, dtype),
                                                attn_implementation="sdpa")
    return base, cfg, count


def with_adapters(c, base):
    if not c["lora"]: return base
    from peft import LoraConfig, get_peft_model
    l = c["lora"]
    config = LoraConfig(r=l["r"], lora_alpha=l.get("alpha", 2 * l["r"]), lora_dropout=l.get("dropout", 0.0), target_modules=l["targets"], task_type="CAUSAL_LM")
    whole = get_peft_model(base, config, low_cpu_mem_usage=c["strategy"] == "fsdp2" and c["init"] == "meta")
    if c["gradient_checkpointing"]: whole.enable_input_require_grads()
    return whole


def mesh_of(c):
    from torch.distributed.device_mesh import init_device_mesh
    if c["replicate"] == 1: return init_device_mesh("cuda", (c["world"],))
    return init_device_mesh("cuda", (c["replicate"], c["world"] // c["replicate"]), mesh_dim_names=("replicate", "shard"))


def flat_sharded(c, base, whole):
    """The model in FullyShardedDataParallel, as accelerate wraps it."""
    import functools, torch
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    asked = dict(sharding_strategy=ShardingStrategy.FULL_SHARD if c["reshard_after_forward"] else ShardingStrategy.SHARD_GRAD_OP,
                 backward_prefetch={"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, None: None}[c["backward_prefetch"]],
                 use_orig_params=c["use_orig_params"], forward_prefetch=c["forward_prefetch"], limit_all_gathers=c["limit_all_gathers"])
    if c["replicate"] > 1:
        asked["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD if c["reshard_after_forward"] else ShardingStrategy._HYBRID_SHARD_ZERO2
        asked["device_mesh"] = mesh_of(c)
    if c["cpu_offload"]: asked["cpu_offload"] = CPUOffload(offload_params=True)
    if c["precision"] in ("mp_bf16", "bf16_mp"):
        asked["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, c["reduce_dtype"]), buffer_dtype=torch.bfloat16)
    if not c["shard_root_only"]:
        asked["auto_wrap_policy"] = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(l) for l in layers_of(base)})
        if c["lora"]:
            from peft.utils.other import fsdp_auto_wrap_policy
            os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = type(layers_of(base)[0]).__name__
            asked["auto_wrap_policy"] = fsdp_auto_wrap_policy(whole)
    return FullyShardedDataParallel(whole, device_id=torch.device("cuda", 0), **asked)


def optimizer_of(name):
    """The class, and what it is called with."""
    import torch
    if name in ("adamw8bit", "paged_adamw_8bit", "paged_adamw_32bit"):
        import bitsandbytes as bnb
        return {"adamw8bit": bnb.optim.AdamW8bit, "paged_adamw_8bit": bnb.optim.PagedAdamW8bit, "paged_adamw_32bit": bnb.optim.PagedAdamW32bit}[name], {}
    if name == "lion":
        from lion_pytorch import Lion
        return Lion, {}
    if name == "schedule_free_adamw":
        from schedulefree import AdamWScheduleFree
        return AdamWScheduleFree, {}
    if name in ("soap", "shampoo"):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "optimizers"))
        import measure
        return measure.preconditioning(name), {}
    if name == "adafactor_hf":
        from transformers.optimization import Adafactor
        return Adafactor, dict(scale_parameter=False, relative_step=False)
    return {"adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {}), "adamw_fused": (torch.optim.AdamW, {"fused": True}),
            "adamw_forloop": (torch.optim.AdamW, {"foreach": False}), "sgd": (torch.optim.SGD, {}), "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9}),
            "adafactor": (torch.optim.Adafactor, {})}[name]


def update(c, ph, step, parameters, opt):
    """What a plain loop does after its passes."""
    import torch
    if c["clip_grad_norm"]:
        ph.set("clip", step)
        torch.nn.utils.clip_grad_norm_(parameters, c["clip_grad_norm"])
    ph.set("optimizer", step)
    opt.step()
    ph.set("zero_grad", step)
    opt.zero_grad()


def host_bytes(parameters, opt):
    import torch
    local = lambda t: getattr(t, "_local_tensor", t)
    states = [v for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    held = [local(t) for t in [*parameters, *(p.grad for p in parameters if p.grad is not None), *states]]
    pageable = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held if t.device.type == "cpu" and t.numel() and not t.is_pinned()}
    stats = torch.cuda.host_memory_stats()
    return dict(host_pageable_bytes=sum(pageable.values()), host_pinned_bytes=stats["allocated_bytes.current"], host_pinned_peak_bytes=stats["active_bytes.peak"])


def run_parallel(c, ph, stub):
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    torch.cuda.set_device(0)
    if c["strategy"] == "tp": os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(c["world"]))
    if c["strategy"] != "single": dist.init_process_group("fake", rank=0, world_size=c["world"], store=FakeStore())
    dtype = "bfloat16" if c["precision"] in ("bf16", "bf16_mp") else "float32"
    ac = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if c["precision"] == "amp_bf16" else contextlib.nullcontext
    ph.set("load", 0)
    fs = c["strategy"] == "fsdp2"
    if c["strategy"] == "tp":
        base, cfg, count = tensor_parallel(c, dtype)
    elif c["quantization"]:
        if fs and c["init"] != "full": raise SystemExit("quantized weights are packed on the device before they are sharded: init full")
        base, cfg, count = quantized(c, dtype)
    elif fs and c["init"] == "meta":
        spec = dict(c["model"]); fam = spec.pop("family")
        cfg = AutoConfig.for_model(fam, **spec)
        with no_init_weights(), torch.device("meta"):
            base = AutoModelForCausalLM.from_config(cfg, dtype=getattr(torch, dtype), attn_implementation="sdpa")
        base.tie_weights()
    elif c["strategy"] == "fsdp1" and c["init"] == "host":
        spec = dict(c["model"]); cfg = AutoConfig.for_model(spec.pop("family"), **spec)
        base = AutoModelForCausalLM.from_config(cfg, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    else:
        base, cfg = R.build(c["model"], dtype, real=not stub)
    info = dict(param_count=count if c["quantization"] or c["strategy"] == "tp" else R.count(base)[0])
    if c["gradient_checkpointing"]: base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    whole = with_adapters(c, base)
    whole.train()
    info["after_load_bytes"] = torch.cuda.memory_allocated()
    ph.set("wrap", 0)
    model = whole
    if c["strategy"] in ("ddp", "zero1"):
        from torch.nn.parallel import DistributedDataParallel as DDP
        if stub:
            import torch.nn.parallel.distributed as td      # it compares what the other ranks sent: nothing here
            td._verify_param_shape_across_processes = lambda *a, **k: None
        model = DDP(whole, device_ids=[0], bucket_cap_mb=c["bucket_cap_mb"], gradient_as_bucket_view=c["gradient_as_bucket_view"], static_graph=c["static_graph"])
        # The fake group's future holds no tensor, which DDP's built-in all-reduce hook refuses: hand the bucket back instead.
        # The reducer's buckets, views and copies are the same with and without a hook.
        def hook(state, bucket):
            dist.all_reduce(bucket.buffer(), async_op=True)
            f = torch.futures.Future(); f.set_result(bucket.buffer()); return f
        model.register_comm_hook(None, hook)
    elif c["strategy"] == "fsdp1":
        model = flat_sharded(c, base, whole)
    elif fs:
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
        kw = dict(mesh=mesh_of(c))
        if c["cpu_offload"]:
            from torch.distributed.fsdp import CPUOffloadPolicy
            kw["offload_policy"] = CPUOffloadPolicy(**c["cpu_offload"])
        if c["precision"] in ("mp_bf16", "bf16_mp"): kw["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, c["reduce_dtype"]))
        if not c["shard_root_only"]:
            for l in layers_of(base): fully_shard(l, reshard_after_forward=c["reshard_after_forward"], **kw)
        fully_shard(whole, reshard_after_forward=False, **kw)
        if c["init"] == "meta":
            whole.to_empty(device="cpu" if c["cpu_offload"] else "cuda")
            base.tie_weights()
            if c["cpu_offload"]:
                for mod in whole.modules():
                    for k, b in mod._buffers.items():
                        if b is not None: mod._buffers[k] = b.to("cuda")
            if not stub: init_values(base)
    gc.collect()
    loc = {id(p): getattr(p, "_local_tensor", p) for p in base.parameters()}
    info["local_param_bytes"] = sum(p.numel() * p.element_size() for p in loc.values())
    info["after_wrap_bytes"] = torch.cuda.memory_allocated()
    ph.mark(list(base.parameters()), "parameter")
    ps = [p for p in model.parameters() if p.requires_grad]
    ocls, okw = optimizer_of(c["optimizer"])
    if c["strategy"] in ("zero1", "zero1_plain"):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        opt = ZeroRedundancyOptimizer(ps, optimizer_class=ocls, parameters_as_bucket_view=c["parameters_as_bucket_view"], lr=1e-5, **okw)
        info["zero_local_params"] = sum(p.numel() for g in opt.optim.param_groups for p in g["params"])
    else:
        opt = ocls(ps, lr=1e-5, **okw)
    if hasattr(opt, "train"): opt.train()
    orig = base.loss_function
    cur = [0]
    def lf(*a, **k):
        ph.set("loss", cur[0]); r = orig(*a, **k); ph.set("forward_tail", cur[0]); return r
    base.loss_function = lf
    cpu = torch.randint(10, cfg.vocab_size - 1, (c["micro_batch"], c["seq_len"]))
    for step in range(1, c["steps"] + 1):
        cur[0] = step
        for micro in range(c["grad_accum"]):
            lastm = micro == c["grad_accum"] - 1
            sync = model.no_sync() if c["strategy"] in ("ddp", "fsdp1", "zero1") and not lastm else contextlib.nullcontext()
            if fs and c["grad_accum"] > 1: model.set_requires_gradient_sync(lastm)
            with sync:
                ph.set("input", step)
                ids = cpu.to("cuda")
                ph.set("forward", step)
                with ac():
                    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
                    if c["grad_accum"] > 1: loss = loss / c["grad_accum"]
                ph.set("backward", step)
                loss.backward()
        ph.mark([p.grad for p in base.parameters() if p.grad is not None], "gradient")
        if c["clip_grad_norm"] is not None:
            ph.set("clip", step)
            if c["strategy"] == "fsdp1": model.clip_grad_norm_(c["clip_grad_norm"])
            else: torch.nn.utils.clip_grad_norm_(ps, c["clip_grad_norm"])
        ph.set("optimizer", step)
        opt.step()
        if c["cpu_offload"]: info.update(host_bytes(list(model.parameters()), opt))
        st = (opt.optim if hasattr(opt, "optim") else opt).state
        ph.mark([v for s in st.values() for v in s.values() if isinstance(v, torch.Tensor)], "optimizer_state")
        ph.set("zero_grad", step)
        opt.zero_grad()
    ph.set("end", c["steps"]); ph.close()
    info["end_bytes"] = torch.cuda.memory_allocated()
    by = {}
    for s in torch.cuda.memory_snapshot(): by.setdefault(s["stream"], 0); by[s["stream"]] += s["total_size"]
    order = sorted(by, key=lambda k: (k != 0, k))
    info["reserved_by_stream"] = [by[k] for k in order]
    info["streams"] = len(order)
    return info


def warm(cases):
    if any(c["quantization"] for c in cases): return   # bitsandbytes asks for the GPU at once: no child could use it then
    import torch.distributed.fsdp, torch.distributed.optim, torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa
    if any(c["lora"] for c in cases): import peft  # noqa


if __name__ == "__main__":
    R.__doc__ = __doc__
    R.main(full=full_case, run_of=lambda c: run_parallel, warm=warm, extra_versions=("accelerate", "peft", "bitsandbytes"))
