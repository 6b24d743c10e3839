#!/usr/bin/env python3
"""Measures a rank of context parallelism as testdata/rehearse/reference/measure_parallel.py measures sharded training: in one process over the
phantom library, PyTorch's "fake" group playing the other ranks. Put that script's folder on PYTHONPATH.

Fields of a case (kind `parallel`, strategy `cp`): those of measure_parallel.py that fsdp2 with init meta has, and rank. All ranks share the
tokens of a row (seq_len is the whole row's) by torch.distributed.tensor.experimental.context_parallel, and the model's weights by fully_shard over the
same mesh, as accelerate's ParallelismConfig(cp_size=world) has it. The step is that of accelerate's examples: ids, labels, shifted labels and positions are buffers.

  measure_context.py --stub --lib libtonnage_phantom.so --cases context_parallel_cases.json --out truth.json
"""
import measure_parallel as parallel
import measure_rl as harness

DEFAULTS = dict(parallel.DEFAULTS, strategy="cp", rank=0, precision="mp_bf16")


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**DEFAULTS, **case}


def run_context(c, phases, stub):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.experimental import context_parallel
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from accelerate.big_modeling import _attach_context_parallel_hooks
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    torch.cuda.set_device(0)
    dist.init_process_group("fake", rank=c["rank"], world_size=c["world"], store=FakeStore())
    mesh = init_device_mesh("cuda", (c["world"],), mesh_dim_names=("cp",))
    dtype = torch.bfloat16 if c["precision"] in ("bf16", "bf16_mp") else torch.float32
    phases.set("load", 0)
    spec = dict(c["model"])
    config = AutoConfig.for_model(spec.pop("family"), **spec)
    with no_init_weights(), torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    base.tie_weights()
    if c["gradient_checkpointing"]:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.train()
    phases.set("wrap", 0)
    policy = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, c["reduce_dtype"]))) if c["precision"] in ("mp_bf16", "bf16_mp") else {}
    _attach_context_parallel_hooks(base)
    for layer in parallel.layers_of(base):
        fully_shard(layer, mesh=mesh, reshard_after_forward=c["reshard_after_forward"], **policy)
    fully_shard(base, mesh=mesh, reshard_after_forward=False, **policy)
    base.to_empty(device="cuda")
    base.tie_weights()
    parameters = list(base.parameters())
    kind, options = parallel.optimizer_of(c["optimizer"])
    optimizer = kind(parameters, **options)
    host = [torch.zeros(c["micro_batch"], c["seq_len"], dtype=torch.long) for _ in range(4)]
    for step in range(1, c["steps"] + 1):
        for at in range(c["grad_accum"]):
            if c["grad_accum"] > 1:
                base.set_requires_gradient_sync(at == c["grad_accum"] - 1)
            phases.set("input", step)
            ids, labels, shift_labels, positions = buffers = [rows.cuda() for rows in host]
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1] * 4, no_restore_buffers=set(buffers)):
                phases.set("forward", step)
                loss = base(input_ids=ids, labels=labels, shift_labels=shift_labels, position_ids=positions, use_cache=False).loss
                phases.set("backward", step)
                loss.backward()
        parallel.update(c, phases, step, parameters, optimizer)
    phases.set("end", c["steps"])
    phases.close()
    return dict(param_count=harness.count(base)[0])


if __name__ == "__main__":
    harness.__doc__ = __doc__
    harness.main(full=full_case, run_of=lambda case: run_context, warm=lambda cases: None, extra_versions=())
