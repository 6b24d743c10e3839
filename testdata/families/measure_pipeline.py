#!/usr/bin/env python3
"""Measures a stage under torch.distributed.pipelining's schedules as testdata/rehearse/reference/measure_parallel.py measures sharded
training: in one process over the phantom library, PyTorch's "fake" group playing the other stages. Put that script's folder on PYTHONPATH.

Fields of a case (kind `parallel`, strategy `pp`): id, model, world (stages), rank (the stage), schedule (gpipe | 1f1b), grad_accum (micro-batches
of a step), micro_batch (rows of each), seq_len, steps, precision (fp32 | bf16). A stage has transformers' decoder layers, the first the embedding too, the last the norm
and the head; the loss is cross_entropy of fp32 logits.

  measure_pipeline.py --stub --lib libtonnage_phantom.so --cases pipeline_cases.json --out truth.json
"""
import measure_rl as harness

DEFAULTS = dict(id="case", kind="parallel", strategy="pp", model={"family": "llama"}, world=4, rank=0, schedule="1f1b", grad_accum=8, micro_batch=2,
                seq_len=256, steps=3, precision="bf16")


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**DEFAULTS, **case}


def stage_of(base, case):
    import torch
    model, stages, rank = base.model, case["world"], case["rank"]
    each, more = divmod(len(model.layers), stages)
    first = rank * each + min(rank, more)

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if rank == 0:
                self.embed_tokens = model.embed_tokens
            self.layers = torch.nn.ModuleList(model.layers[first:first + each + (rank < more)])
            if rank == stages - 1:
                self.norm, self.lm_head = model.norm, base.lm_head
            self.rotary_emb = model.rotary_emb

        def forward(self, x):
            hidden = self.embed_tokens(x) if rank == 0 else x
            positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
            rotary = self.rotary_emb(hidden, positions)
            for layer in self.layers:
                hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=rotary)
            return self.lm_head(self.norm(hidden)) if rank == stages - 1 else hidden
    return Stage()


def run_pipeline(case, phases, stub):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.cuda.set_device(0)
    stages, rank, passes = case["world"], case["rank"], case["grad_accum"]
    dist.init_process_group("fake", rank=rank, world_size=stages, store=FakeStore())
    dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    phases.set("load", 0)
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = harness.materialize(stage_of(base, case), "cuda").train()
    meta = lambda *sizes, **options: torch.empty(case["micro_batch"], case["seq_len"], *sizes, device="meta", **options)
    hidden = meta(config.hidden_size, dtype=dtype, requires_grad=True)
    ids = meta(dtype=torch.long)
    out = meta(config.vocab_size, dtype=dtype) if rank == stages - 1 else hidden
    stage = PipelineStage(model, rank, stages, torch.device("cuda", 0), input_args=(ids if rank == 0 else hidden,), output_args=(out,))
    loss = lambda logits, labels: torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
    schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[case["schedule"]](stage, passes, loss_fn=loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    rows = torch.zeros(case["micro_batch"] * passes, case["seq_len"], dtype=torch.long)
    for step in range(1, case["steps"] + 1):
        phases.set("input", step)
        ids = rows.cuda() if rank in (0, stages - 1) else None
        phases.set("backward", step)
        schedule.step(*[ids] if rank == 0 else [], **{"target": ids} if rank == stages - 1 else {})
        phases.set("optimizer", step)
        optimizer.step()
        phases.set("zero_grad", step)
        optimizer.zero_grad()
    phases.set("end", case["steps"])
    phases.close()
    return dict(param_count=harness.count(model)[0])


if __name__ == "__main__":
    harness.__doc__ = __doc__
    harness.main(full=full_case, run_of=lambda case: run_pipeline, warm=lambda cases: None, extra_versions=())
