#!/usr/bin/env python3
"""Measures a rank under torch.distributed.pipelining's schedules as testdata/rehearse/reference/measure_parallel.py measures sharded
training: in one process over the phantom library, PyTorch's "fake" group playing the other ranks. Put that script's folder on PYTHONPATH.

Fields of a case (kind `parallel`, strategy `pp`): id, model, world (ranks), rank, schedule (gpipe | 1f1b | interleaved_1f1b), stages_per_rank,
grad_accum (micro-batches of a step), micro_batch (rows of each), seq_len, steps, precision (fp32 | bf16 | amp_bf16: autocast round the whole schedule), optimizer (adamw |
adamw_fused | sgd), clip_grad_norm, gradient_checkpointing. A stage is transformers' model of its layers, pruned: the first keeps the embedding, the last the norm and the head,
and those behind the first get what they receive as inputs_embeds. The loss is cross_entropy of fp32 logits.

  lora        null or {r, alpha, dropout, targets}: peft's adapters on the model of each stage; with gradient_checkpointing the first stage has
              enable_input_require_grads, the others receive what has a gradient
  data_parallel, replicas  null, or what is round each stage (ddp | fsdp2) over so many ranks, which are next to each other: a mesh (world / replicas, replicas) of
              which the first dimension is the pipeline. ddp: bucket_cap_mb, gradient_as_bucket_view. fsdp2: fully_shard of every layer and of
              the stage, sharded on the meta device; reshard_after_forward, reduce_dtype and precision mp_bf16 as in measure_parallel.py

  measure_pipeline.py --stub --lib libtonnage_phantom.so --cases pipeline_cases.json --out truth.json
"""
import contextlib

import measure_parallel as parallel
import measure_rl as harness

DEFAULTS = dict(id="case", kind="parallel", strategy="pp", model={"family": "llama"}, world=4, rank=0, schedule="1f1b", stages_per_rank=1,
                grad_accum=8, micro_batch=2, seq_len=256, steps=3, precision="bf16", optimizer="adamw", clip_grad_norm=None, gradient_checkpointing=False,
                lora=None, data_parallel=None, replicas=1, bucket_cap_mb=25, gradient_as_bucket_view=False, reshard_after_forward=True, reduce_dtype="float32")


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**DEFAULTS, **case}


def stage_of(case, at, stages, dtype):
    """transformers' model with the layers of this stage alone, on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    each, more = divmod(config.num_hidden_layers, stages)
    first, count = at * each + min(at, more), each + (at < more)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[first:first + count]
    config.num_hidden_layers = count
    config.use_cache = False
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if case["gradient_checkpointing"]:
        base.gradient_checkpointing_enable()
    put_adapters(case, base, at)
    if at > 0:
        base.model.embed_tokens = None
    if at < stages - 1:
        base.model.norm = torch.nn.Identity()
        base.lm_head = None

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.lm_head = base.model, base.lm_head

        def forward(self, x):
            hidden = self.model(**{"input_ids" if at == 0 else "inputs_embeds": x}).last_hidden_state
            return self.lm_head(hidden) if at == stages - 1 else hidden
    return Stage(), config


def put_adapters(case, base, at):
    """peft's adapters, in the layers of `base`."""
    if not case["lora"]:
        return
    import peft
    asked = case["lora"]
    config = peft.LoraConfig(r=asked["r"], lora_alpha=asked.get("alpha", 2 * asked["r"]), lora_dropout=asked.get("dropout", 0.0),
                             target_modules=asked["targets"], task_type="CAUSAL_LM")
    whole = peft.get_peft_model(base, config)
    if case["gradient_checkpointing"] and at == 0:
        whole.enable_input_require_grads()


def in_ddp(case, module, group):
    import torch
    import torch.distributed as dist
    import torch.nn.parallel.distributed as of_ddp
    # It compares what the other ranks sent: nothing here.
    of_ddp._verify_param_shape_across_processes = lambda *given, **named: None
    model = of_ddp.DistributedDataParallel(module, process_group=group, bucket_cap_mb=case["bucket_cap_mb"],
                                           gradient_as_bucket_view=case["gradient_as_bucket_view"])

    def hand_back(state, bucket):
        # The fake group's future holds no tensor, which the built-in hook refuses.
        dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done
    model.register_comm_hook(None, hand_back)
    return model


def shard(case, module, mesh):
    """`fully_shard` on every layer and on the stage, which is on the meta device."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    named = dict(mesh=mesh)
    if case["precision"] == "mp_bf16":
        named["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, case["reduce_dtype"]))
    for layer in parallel.layers_of(module):
        fully_shard(layer, reshard_after_forward=case["reshard_after_forward"], **named)
    fully_shard(module, reshard_after_forward=False, **named)
    module.to_empty(device="cuda")
    return module.train()


def note_phases(phases, stage):
    """Each pass sets its phase, which holds until the next one's."""
    for name, phase in (("forward_one_chunk", "forward"), ("backward_one_chunk", "backward")):
        def noted(self, *given, run=getattr(stage, name), phase=phase, **named):
            phases.set(phase)
            return run(self, *given, **named)
        setattr(stage, name, noted)


def run_pipeline(case, phases, stub):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.cuda.set_device(0)
    world, rank, passes = case["world"], case["rank"], case["grad_accum"]
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    mesh = group = None
    if case["data_parallel"]:
        from torch.distributed.device_mesh import init_device_mesh
        world, rank = world // case["replicas"], rank // case["replicas"]
        mesh = init_device_mesh("cuda", (world, case["replicas"]), mesh_dim_names=("pp", "dp"))
        group = mesh["pp"].get_group()
    stages = world * case["stages_per_rank"]
    dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
    autocast = lambda: torch.autocast("cuda", torch.bfloat16) if case["precision"] == "amp_bf16" else contextlib.nullcontext()
    # What autocast leaves the last projection and the head with.
    computed = torch.bfloat16 if case["precision"] in ("amp_bf16", "mp_bf16") else dtype
    handed = torch.float32 if case["precision"] == "amp_bf16" else computed
    phases.set("load", 0)
    own, modules = [], []
    for at in range(rank, stages, world):
        module, config = stage_of(case, at, stages, dtype)
        modules.append(module)
    if case["data_parallel"] != "fsdp2":
        harness.materialize(torch.nn.ModuleList(modules), "cuda").train()
    if case["data_parallel"]:
        phases.set("wrap", 0)
        wrap = (lambda module: in_ddp(case, module, mesh["dp"].get_group())) if case["data_parallel"] == "ddp" else lambda module: shard(case, module, mesh["dp"])
        modules = [wrap(module) for module in modules]
    module = None
    for at, module in zip(range(rank, stages, world), modules):
        meta = lambda *sizes, **options: torch.empty(case["micro_batch"], case["seq_len"], *sizes, device="meta", **options)
        hidden = meta(config.hidden_size, dtype=handed)
        logits = meta(config.vocab_size, dtype=computed)
        ids = meta(dtype=torch.long)
        own.append(PipelineStage(module, at, stages, torch.device("cuda", 0), input_args=(ids if at == 0 else hidden,),
                                 output_args=(logits if at == stages - 1 else hidden,), group=group))
    module = modules = None
    note_phases(phases, PipelineStage)

    def loss(logits, labels):
        phases.set("loss")
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved_1f1b": ScheduleInterleaved1F1B}[case["schedule"]]
    schedule = kind(own if case["schedule"] == "interleaved_1f1b" else own[0], passes, loss_fn=loss)
    parameters = [parameter for stage in own for parameter in stage.submod.parameters() if parameter.requires_grad]
    of_kind, options = parallel.optimizer_of(case["optimizer"])
    optimizer = of_kind(parameters, **options)
    is_first, is_last = rank == 0, rank == world - 1
    rows = torch.zeros(case["micro_batch"] * passes, case["seq_len"], dtype=torch.long)
    for step in range(1, case["steps"] + 1):
        phases.set("input", step)
        ids = rows.cuda() if is_first or is_last else None
        phases.set("forward", step)
        with autocast():
            schedule.step(*[ids] if is_first else [], **{"target": ids} if is_last else {})
        parallel.update(case, phases, step, parameters, optimizer)
    phases.set("end", case["steps"])
    phases.close()
    return dict(param_count=sum(parameter.numel() for stage in own for parameter in stage.submod.parameters()))


def warm(cases):
    if any(case["lora"] for case in cases):
        import peft  # noqa: shared by the children


if __name__ == "__main__":
    harness.__doc__ = __doc__
    harness.main(full=full_case, run_of=lambda case: run_pipeline, warm=warm, extra_versions=("peft",))
