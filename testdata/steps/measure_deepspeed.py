#!/usr/bin/env python3
"""Measure the GPU memory of one rank of DeepSpeed's ZeRO without a GPU: the method of measure_parallel.py, whose fake process
group plays the other ranks, with the real `deepspeed.initialize` over the phantom library.  DeepSpeed 0.19.8 is no part of
testdata/rehearse/requirements.txt: give the script an environment that has it beside them (`pip install deepspeed==0.19.8`).

Case fields (defaults below):
  id, model (HF config fields; family = model_type), micro_batch, seq_len, steps, grad_accum, world, rank
  zero        zero_optimization of DeepSpeed's JSON; its `stage` says what is measured
  precision   bf16 | fp16 | fp32: the section of the JSON that is enabled; weights reach the engine in fp32 on the host, as
              scripts and the Trainer leave them there
  gradient_checkpointing   HF layer checkpointing, use_reentrant=False
  optimizer   adamw (torch.optim.AdamW given to initialize, foreach) | adamw_fused | sgd | cpu_adam (DeepSpeedCPUAdam, for zero.offload_optimizer)
  clip_grad_norm  null or gradient_clipping
  accum_dtype null or data_types.grad_accum_dtype
  lora        null or {r, alpha, dropout, targets}: peft's adapters, put on before initialize

Result fields as in measure_rl.py, and host_pinned_bytes: what PyTorch's caching host allocator has taken in the end. Phases: load, wrap (initialize), input, forward, loss, forward_tail, backward, optimizer.

  measure_deepspeed.py --stub --no-trace --lib libtonnage_phantom.so --cases deepspeed_cases.json --out truth.json
  measure_deepspeed.py --stub ... --timelines FOLDER      # every allocation and free as well; what DeepSpeed formats of its
                                                          # arguments and never prints (parameters in full) is left out there
"""
import copy, gc, gzip, json, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rehearse", "reference"))
import measure_rl as R

DEFAULTS = dict(id="case", kind="deepspeed", model={"family": "llama"}, micro_batch=4, seq_len=1024, steps=3, grad_accum=1, world=4, rank=0,
                zero={"stage": 2}, precision="bf16", gradient_checkpointing=False, optimizer="adamw", clip_grad_norm=None,
                accum_dtype=None, lora=None)


TIMELINES = os.environ.get("DEEPSPEED_TIMELINES")


def write_timeline(c):
    """As measure_agi2.py writes them; what the engine moves to the device before it partitions anything is phase load."""
    import torch
    ids, count, label, in_load = {}, 0, "0:load", True
    os.makedirs(TIMELINES, exist_ok=True)
    with gzip.open(os.path.join(TIMELINES, f"{c['id']}.jsonl.gz"), "wt") as file:
        def line(value): file.write(json.dumps(value, separators=(",", ":")) + "\n")
        line({"case": c}); line(["p", "load", 0])
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            if event["action"] not in ("alloc", "free_completed"): continue
            said = (event.get("user_metadata") or "").partition("|")[2]
            frames = [frame["name"] for frame in event.get("frames") or []]
            if said == "0:wrap" and in_load and "_partition_param" not in frames and event["action"] == "alloc": said = "0:load"
            if said and said != label:
                label, in_load = said, False
                line(["p", label.split(":")[1], int(label.split(":")[0])])
            if event["action"] == "alloc":
                count += 1; ids[event["addr"]] = count
                line(["a", count, event["size"], "?", "", "temporary"])
            elif event["addr"] in ids: line(["f", ids.pop(event["addr"])])
        line(["p", "end", c["steps"]])


def full_case(c):
    d = copy.deepcopy(DEFAULTS)
    bad = set(c) - set(d) - {"note"}
    if bad: raise SystemExit(f"unknown case fields: {sorted(bad)}")
    d.update(c); return d


def settings_of(c):
    settings = {
        "train_micro_batch_size_per_gpu": c["micro_batch"], "gradient_accumulation_steps": c["grad_accum"],
        "zero_optimization": c["zero"], "gradient_clipping": c["clip_grad_norm"] or 0.0,
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9,
    }
    if c["precision"] != "fp32": settings[c["precision"]] = {"enabled": True}
    if c["accum_dtype"]: settings["data_types"] = {"grad_accum_dtype": c["accum_dtype"]}
    return settings


def answer_checks():
    """What DeepSpeed reads from the device to decide: no gradient overflowed, no norm is invalid, ranks agree."""
    import deepspeed.runtime.utils as du, deepspeed.runtime.zero.stage_1_and_2 as z12, deepspeed.runtime.zero.stage3 as z3
    import deepspeed.runtime.zero.partitioned_param_coordinator as pc, deepspeed.runtime.zero.parameter_offload as po
    for module in (du, z12, z3):
        if hasattr(module, "is_invalid_grad_norm"): module.is_invalid_grad_norm = lambda norm: (~norm.isfinite() | (norm < 0)).any() is None
    for one in (z12.DeepSpeedZeroOptimizer, z3.DeepSpeedZeroOptimizer_Stage3):
        def has_overflow(self, *r, asked=one.has_overflow, **k):
            asked(self, *r, **k)
            return False
        one.has_overflow = has_overflow
    for module in (pc, z3, po):
        if hasattr(module, "assert_ints_same_as_other_ranks"): module.assert_ints_same_as_other_ranks = lambda ints: None


def run_deepspeed(c, ph, stub):
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    os.environ.update(RANK=str(c["rank"]), LOCAL_RANK="0", WORLD_SIZE=str(c["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    torch.cuda.set_device(0)
    dist.init_process_group("fake", rank=c["rank"], world_size=c["world"], store=FakeStore())
    import deepspeed
    if stub: answer_checks()
    if ph.traced and TIMELINES:
        import torch._tensor_str
        torch._tensor_str._str = lambda *a, **k: "tensor"
    ph.set("load", 0)
    base, cfg = R.build(c["model"], "float32", real=not stub, device="cpu")
    info = dict(param_count=R.count(base)[0])
    if c["gradient_checkpointing"]: base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    whole = base
    if c["lora"]:
        from peft import LoraConfig, get_peft_model
        l = c["lora"]
        whole = get_peft_model(base, LoraConfig(r=l["r"], lora_alpha=l.get("alpha", 2 * l["r"]), lora_dropout=l.get("dropout", 0.0),
                                                target_modules=l["targets"], task_type="CAUSAL_LM"))
    whole.train()
    ph.set("wrap", 0)
    ocls, okw = torch.optim.SGD if c["optimizer"] == "sgd" else torch.optim.AdamW, {"fused": True} if c["optimizer"] == "adamw_fused" else {}
    if c["optimizer"] == "cpu_adam": from deepspeed.ops.adam import DeepSpeedCPUAdam as ocls
    opt = ocls([p for p in whole.parameters() if p.requires_grad], lr=1e-5, **okw)
    engine, *_ = deepspeed.initialize(model=whole, optimizer=opt, config=settings_of(c))
    gc.collect()
    info["after_wrap_bytes"] = torch.cuda.memory_allocated()
    orig, cur = base.loss_function, [0]
    def lf(*a, **k):
        ph.set("loss", cur[0]); r = orig(*a, **k); ph.set("forward_tail", cur[0]); return r
    base.loss_function = lf
    cpu = torch.randint(10, cfg.vocab_size - 1, (c["micro_batch"], c["seq_len"]))
    for step in range(1, c["steps"] + 1):
        cur[0] = step
        for _ in range(c["grad_accum"]):
            ph.set("input", step)
            ids = cpu.to("cuda")
            ph.set("forward", step)
            loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
            ph.set("backward", step)
            engine.backward(loss)
            ph.set("optimizer", step)
            engine.step()
    ph.set("end", c["steps"]); ph.close()
    if ph.traced and TIMELINES: write_timeline(c)
    info["end_bytes"] = torch.cuda.memory_allocated()
    info["host_pinned_bytes"] = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    by = {}
    for s in torch.cuda.memory_snapshot(): by.setdefault(s["stream"], 0); by[s["stream"]] += s["total_size"]
    info["reserved_by_stream"] = [by[k] for k in sorted(by, key=lambda k: (k != 0, k))]
    return info


def warm(cases):
    import torch.testing._internal.distributed.fake_pg  # noqa: deepspeed itself touches the device when it is imported


if __name__ == "__main__":
    R.__doc__ = __doc__
    if "--timelines" in sys.argv:
        at = sys.argv.index("--timelines")
        os.environ["DEEPSPEED_TIMELINES"] = TIMELINES = os.path.abspath(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    R.main(full=full_case, run_of=lambda c: run_deepspeed, warm=warm, extra_versions=("accelerate", "deepspeed"))
