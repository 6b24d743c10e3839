#!/usr/bin/env python3
"""Measure the GPU memory of reinforcement-learning steps (GRPO) without a GPU.

Same method as measure_torch.py --stub: the stock CUDA build of PyTorch runs over the phantom library (crates/phantom), so the
host code, the autograd engine and the CUDACachingAllocator are the real ones; kernels do nothing.  --real runs the
same code on a GPU without any of the patches.  Two kinds of case:

  kind "trl_grpo"   TRL's GRPOTrainer (the real class, trainer.train() for max_steps) on a randomly initialised model.
  kind "swarm_node" one GRPO node in plain PyTorch + transformers: generate G completions for I questions, then ONE
                    forward/backward over all rows with log-probabilities from the full logits, Adam, no micro-batches.

Fields common to both (defaults below): id, kind, model (HF config fields; family = model_type), precision, prompt_len,
completion_len (every completion runs to its full length; prompts have constant length, so nothing is padded), steps.
precision: fp32 = fp32 weights, no autocast | amp_bf16 = fp32 weights, bf16 autocast (TRL: bf16=True) |
           bf16 = bf16 weights, no autocast (TRL: bf16=False) | bf16_amp = bf16 weights and autocast (TRL: dtype bfloat16, bf16=True)

trl_grpo: batch = per_device_train_batch_size (completions, not prompts), num_generations, grad_accum,
  steps_per_generation (null = grad_accum, TRL's default; generation rows = batch x steps_per_generation),
  num_iterations, beta (0 = no reference model), gradient_checkpointing (TRL's default true), optim (HF name; null =
  HF's default), liger (layer kernels only: TRL keeps its own fused head), lora {r, alpha, dropout, targets},
  logprob: "fused" = TRL 1.16's own (tiles of 4096 tokens x 32768 vocabulary entries, no logits kept) | "full_logits" = the trainer with
  its log-prob method replaced by what TRL 0.25 did: logits of the completion positions, divided by the temperature (a copy),
  log-sum-exp row by row (fp32) or log_softmax row by row (half), entropy in chunks of 128 positions without grad;
  padded (true: rows of unequal length, so an attention mask must be built; sizes are unchanged; --stub only), max_grad_norm, world (ranks of DDP as torchrun starts them, in one process), sharded (as testdata/steps/sharded.py has it),
  judge: null or {"model": {...}, "precision": "bf16", "new_tokens": 64, "prompt_extra": 32, "batch": null = all rows}:
         a second model on the same device; the reward function lets it generate new_tokens for every completion from
         an input of prompt_extra + prompt_len + completion_len tokens.
swarm_node: questions (I), group (G): generated rows = I x G; train_rows = rows in the one forward/backward (null = I x G);
  gradient_checkpointing, optimizer (adam = foreach Adam), temperature,
  logprob: "full" | "chunked" (a loop over rows_per_chunk rows of the logits' cross-entropy; the logits themselves are whole)
           | "chunked_head" (lm_head and cross-entropy per rows_per_chunk rows, recomputed in backward by checkpoint),
  logits_to_keep: true = logits only for completion positions (+1), generate: false skips generation,
  generate_rows: rows per generate call (null = questions: G calls of I rows, as GenRL does), empty_cache: at the end of every step (GenRL: true).

Result fields: as in measure_torch.py: peak_allocated_bytes = torch.cuda.max_memory_allocated over load and all steps;
peak_reserved_bytes; peak_per_phase / reserved_per_phase ("step:phase" -> peak within it); phase_start_bytes;
param_count (policy, tied once), trainable_params; after_load_bytes; bytes_at_peak (from a second, traced pass: parameter,
ref_parameter, judge_parameter, gradient, optimizer_state, cublas_workspace, and everything else by the phase it was
born in); largest_at_peak (bytes, count, phase of birth, role, Python site); traced_peak_bytes = the counter in the traced pass (must
equal peak_allocated_bytes); requested_peak_bytes = sum of the requests live at the traced peak, before rounding to blocks.
Phases: load; generate; reward (reward function, judge included); logps (old and reference log-probs, no grad); prepare
(the rest of generate-and-score); forward (compute_loss); backward; clip; optimizer; between (trainer bookkeeping).

  measure_rl.py --stub --lib libtonnage_phantom.so --cases rl_cases.json --out truth.json
"""
import argparse, contextlib, copy, gc, json, os, sys, time, warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

DEFAULTS = {
    "trl_grpo": dict(id="case", kind="trl_grpo", model={"family": "qwen2"}, precision="amp_bf16", prompt_len=64, completion_len=64,
                     steps=2, batch=8, num_generations=8, grad_accum=1, steps_per_generation=None, num_iterations=1, beta=0.0,
                     gradient_checkpointing=True, optim=None, liger=False, lora=None, padded=False, judge=None, max_grad_norm=1.0, logprob="fused",
                     cast_lm_head_to_fp32=False, world=1, sharded=None),
    "swarm_node": dict(id="case", kind="swarm_node", model={"family": "gpt2"}, precision="fp32", prompt_len=64, completion_len=256,
                       steps=2, questions=8, group=8, train_rows=None, gradient_checkpointing=False, optimizer="adam", temperature=1.0,
                       logprob="full", rows_per_chunk=8, logits_to_keep=True, generate=True, generate_rows=None,
                       empty_cache=True),
}


def full_case(c):
    d = copy.deepcopy(DEFAULTS[c["kind"]])
    bad = set(c) - set(d) - {"note"}
    if bad: raise SystemExit(f"unknown case fields: {sorted(bad)}")
    d.update(c); return d


# ------------------------------------------------------------------------------------------------ counters and trace
class Phases:
    """Peak counters per phase; optionally the phase rides on every allocator event (second pass)."""
    def __init__(self, traced=False):
        self.name, self.step, self.peaks, self.reserved, self.start, self.traced = None, 0, {}, {}, {}, traced
        self.marks = {}                                  # address -> category, set when a tensor's role is known
        self.seen = []                                   # (serial, {address: category})
        self.serial = 0
    def set(self, name, step=None):
        import torch
        if step is None: step = self.step
        self.close()
        self.name, self.step = name, step
        lab = f"{step}:{name}"
        self.start.setdefault(lab, torch.cuda.memory_allocated())
        if self.traced:
            self.serial += 1
            torch.cuda.memory._set_memory_metadata(f"{self.serial}|{lab}")
    def close(self):
        import torch
        if self.name is not None:
            lab = f"{self.step}:{self.name}"
            self.peaks[lab] = max(self.peaks.get(lab, 0), torch.cuda.max_memory_allocated())
            self.reserved[lab] = max(self.reserved.get(lab, 0), torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
    @contextlib.contextmanager
    def within(self, name):
        old = self.name
        self.set(name)
        try: yield
        finally: self.set(old)
    def mark(self, tensors, cat):
        if self.traced:
            self.serial += 1
            import torch
            d = {}
            for t in tensors:
                t = getattr(t, "_local_tensor", t)
                if t.device.type == "cuda": d[t.untyped_storage().data_ptr()] = cat
            self.seen.append((self.serial, d))
            torch.cuda.memory._set_memory_metadata(f"{self.serial}|{self.step}:{self.name}")


def site(frames):
    skip = ("torch/nn/modules/module.py", "_trace_wrapped", "torch/utils/_contextlib", "measure_", "torch/autograd/", "torch/_tensor.py", "accelerate/utils/operations")
    out = []
    for f in frames or []:
        fn = f.get("filename", "")
        if not fn or fn == "??" or any(s in fn for s in skip): continue
        p = fn.split("site-packages/")[-1].split("/")
        out.append("/".join(p[-2:]) + ":" + str(f.get("line")) + " " + f.get("name", ""))
        if len(out) == 2: break
    return " < ".join(out)


def analyse_trace(ph, base=0):
    """Live allocations at the peak of the traced pass -> (peak, {category: bytes}, largest)."""
    import torch
    tr = torch.cuda.memory._snapshot()["device_traces"][0]
    cur = peak = 0; pi = -1
    ev = [e for e in tr if e["action"] in ("alloc", "free_completed")]
    for i, e in enumerate(ev):
        cur += e["size"] if e["action"] == "alloc" else -e["size"]
        if cur > peak: peak, pi = cur, i
    # the metadata belongs to a thread: events of the autograd thread carry none and take the phase of the event before
    phase_of, lastp = [], ""
    for e in ev:
        md = (e.get("user_metadata") or "").partition("|")[2]
        if md: lastp = md
        phase_of.append(lastp)
    # a mark names the tensor at this address that is alive when the mark is made
    live, cat, mi, last = {}, {}, 0, 0
    marks = sorted(ph.seen, key=lambda m: m[0])
    ids = []
    for i, e in enumerate(ev):
        md = (e.get("user_metadata") or "").partition("|")
        last = int(md[0]) if md[0].isdigit() else last
        while mi < len(marks) and marks[mi][0] <= last:
            for a, c in marks[mi][1].items():
                if a in live: cat[live[a]] = c
            mi += 1
        if e["action"] == "alloc": live[e["addr"]] = i
        else: live.pop(e["addr"], None)
        if i == pi: ids = list(live.values())
    while mi < len(marks):
        for a, c in marks[mi][1].items():
            if a in live: cat[live[a]] = c
        mi += 1
    freed = set(range(len(ev)))
    ended = set()
    pos = {}
    for i, e in enumerate(ev):
        if e["action"] == "alloc": pos[e["addr"]] = i
        else: ended.add(pos.pop(e["addr"], None))
    by, groups = {}, {}
    for i in ids:
        e = ev[i]
        c = cat.get(i)
        where = site(e.get("frames"))
        if c in (None, "gradient") and "parallel/distributed.py" in where: c = "ddp_bucket"        # gradients too when they are views
        elif c is None and "_fully_shard" in where: c = "fsdp_unsharded_and_comm"
        if c is None and i not in ended and e["size"] in (8519680, 33554432, 1048576): c = "cublas_workspace"
        birth = phase_of[i]
        if c is None: c = "born:" + birth
        by[c] = by.get(c, 0) + e["size"]
        if not c.endswith("parameter") and c not in ("optimizer_state",):
            k = (e["size"], birth, c if not c.startswith("born") else "", where)
            groups[k] = groups.get(k, 0) + 1
    top = [[k[0], n, k[1], k[2], k[3]] for k, n in sorted(groups.items(), key=lambda x: -x[0][0] * x[1])[:16]]
    e = ev[pi]
    return peak, dict(sorted(by.items(), key=lambda x: -x[1])), top, phase_of[pi], [e["size"], site(e.get("frames"))]


# ------------------------------------------------------------------------------------------------ answers without data
EXPECT = {}                     # shape of a bool mask -> number of True elements, when a step knows it


def patch_stub(padded=False):
    """Host decisions that read device data, answered as for full-length, unpadded rows (see the module's text)."""
    import torch
    from measure_torch import patch_data_dependence
    patch_data_dependence(None)
    import transformers.masking_utils as mu, transformers.generation.utils as gu
    if padded:
        def fast_all(t):
            t.sum() == t.numel()
            return False
        mu.fast_all = fast_all
    state = []
    orig_generate = gu.GenerationMixin.generate
    def generate(self, *a, **k):
        n = k.get("max_new_tokens") or getattr(k.get("generation_config"), "max_new_tokens", None)
        state.append([0, n])
        try: return orig_generate(self, *a, **k)
        finally: state.pop()
    gu.GenerationMixin.generate = generate
    def unfinished(self, this_peer_finished, synced_gpus, device):
        state[-1][0] += 1
        return state[-1][0] <= state[-1][1]
    gu.GenerationMixin._has_unfinished_sequences = unfinished
    # boolean masks as indices: the number of True elements is a device read; ask for it statically
    T = torch.Tensor
    get, put = T.__getitem__, T.__setitem__
    def is_mask(i): return isinstance(i, torch.Tensor) and i.dtype == torch.bool and i.device.type == "cuda"
    def getitem(self, i):
        if is_mask(i) and self.device.type == "cuda":
            n = EXPECT.get(tuple(i.shape), 1 if i.numel() == 1 else 0)
            idx = torch.nonzero_static(i, size=n)
            idx.zero_()
            return get(self, tuple(idx[:, j] for j in range(i.dim())))
        return get(self, i)
    def setitem(self, i, v):
        if is_mask(i) and isinstance(v, torch.Tensor) and v.dim(): return None
        return put(self, i, v)
    T.__getitem__, T.__setitem__ = getitem, setitem
    class MaskedScatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, dst, mask, src):
            ctx.n, ctx.shape = src.numel(), src.shape
            ctx.set_materialize_grads(False)          # as the operator's own backward: what has no gradient hands none on
            return torch.ops.aten.masked_scatter(dst, mask, src)
        @staticmethod
        def backward(ctx, g):
            if g is None: return None, None, None
            return None, None, g.reshape(-1)[:ctx.n].clone().reshape(ctx.shape)
    T.masked_scatter = lambda self, m, s: MaskedScatter.apply(self, m, s)
    # Triton kernels allocate nothing; they cannot be compiled here
    import triton.runtime.jit as tj, triton.runtime.autotuner as ta
    tj.JITFunction.run = lambda self, *a, **k: None
    ta.Autotuner.run = lambda self, *a, **k: None
    ta.Heuristics.run = lambda self, *a, **k: None


# ------------------------------------------------------------------------------------------------ models
def materialize(model, device="cuda"):
    """Parameters and buffers of a meta model onto the device, in named_parameters order, ties kept."""
    import torch
    new = {}
    for n, p in model.named_parameters():
        new[id(p)] = torch.nn.Parameter(torch.empty_like(p, device=device), requires_grad=p.requires_grad)
    for m in model.modules():
        for k, p in list(m._parameters.items()):
            if p is not None: m._parameters[k] = new[id(p)]
        for k, b in list(m._buffers.items()):
            if b is not None: m._buffers[k] = torch.zeros(b.shape, dtype=b.dtype, device=device)
    return model


def build(spec, dtype, real=False, attn="sdpa", device="cuda"):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    m = dict(spec); fam = m.pop("family")
    cfg = AutoConfig.for_model(fam, **m)
    with no_init_weights(), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(cfg, dtype=getattr(torch, dtype), attn_implementation=attn)
    model.tie_weights()
    materialize(model, device)
    if real:
        for mod in model.modules():              # rotary tables and the like have to be computed again
            if hasattr(mod, "inv_freq") and hasattr(mod, "rope_init_fn"):
                inv, _ = mod.rope_init_fn(mod.config, torch.device(device)); mod.inv_freq.copy_(inv)
        with torch.no_grad():
            for n, p in model.named_parameters():
                if p.dim() >= 2: p.normal_(0.0, 0.02)
                elif "bias" in n: p.zero_()
                else: p.fill_(1.0)
    return model, cfg


def byte_tokenizer():
    from transformers import PreTrainedTokenizerFast
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False); tok.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="!", eos_token='"', padding_side="left")


def count(model):
    return sum(p.numel() for p in model.parameters()), sum(p.numel() for p in model.parameters() if p.requires_grad)


# ------------------------------------------------------------------------------------------------ TRL
def run_trl(case, ph, stub):
    import torch, tempfile
    import trl.trainer.grpo_trainer as gt
    from trl import GRPOConfig, GRPOTrainer
    from datasets import Dataset
    c = case
    dtype = "float32" if c["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    amp = c["precision"] in ("amp_bf16", "bf16_amp")
    B, P, C = c["batch"], c["prompt_len"], c["completion_len"]
    spg = c["steps_per_generation"] or c["grad_accum"]
    sys.path.insert(0, os.path.join(HERE, "..", "..", "steps"))
    import sharded
    sharded.start(c)
    if stub: gt.nanmin, gt.nanmax = torch.min, torch.max       # (they index by a mask)
    EXPECT.clear()
    EXPECT[(B, P + C - 1)] = B * C
    ph.set("load", 0)
    model = sharded.build(c, dtype, not stub)
    model.generation_config.eos_token_id = None
    tok = byte_tokenizer()
    info = dict(param_count=count(model)[0])
    if c["beta"]:
        def ref_from_path(path, **kw):
            m = sharded.build(c, str(kw.get("dtype", "float32")).replace("torch.", ""), not stub)
            ph.mark(m.parameters(), "ref_parameter")
            info["ref_param_count"] = count(m)[0]
            return m
        gt.create_model_from_path = ref_from_path
    judge = None
    if c["judge"]:
        j = c["judge"]
        judge, _ = build(j["model"], "bfloat16" if j.get("precision", "bf16") == "bf16" else "float32", real=not stub)
        judge.eval(); judge.requires_grad_(False); judge.generation_config.eos_token_id = None
        info["judge_param_count"] = count(judge)[0]
        ph.mark(judge.parameters(), "judge_parameter")
    def reward(prompts, completions, **kw):
        if judge is not None:
            n = j.get("prompt_extra", 32) + P + C
            bs = j.get("batch") or len(completions)
            for s in range(0, len(completions), bs):
                r = min(bs, len(completions) - s)
                ids = torch.randint(5, 200, (r, n)).to("cuda")
                with torch.no_grad():
                    out = judge.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=j.get("new_tokens", 64), do_sample=False, pad_token_id=0)
                out[:, n:].cpu()
                del out, ids
        return [float(i % 2) for i in range(len(completions))]
    peft_config = None
    if c["lora"]:
        from peft import LoraConfig
        l = c["lora"]
        peft_config = LoraConfig(r=l["r"], lora_alpha=l.get("alpha", 2 * l["r"]), lora_dropout=l.get("dropout", 0.0),
                                 target_modules=l["targets"], task_type="CAUSAL_LM", use_dora=l.get("use_dora", False))
    text = "abcdefghijklmnopqrstuvwxyz"
    ds = Dataset.from_dict({"prompt": [(text[i % 26] + str(i % 10) + text * 40)[:P] for i in range(256)]})
    kw = {}
    if c["optim"]: kw["optim"] = c["optim"]
    if not stub: kw["generation_kwargs"] = {"min_new_tokens": C}      # a GPU really samples: keep it from stopping early
    tmp = tempfile.mkdtemp()
    a = GRPOConfig(output_dir=tmp, per_device_train_batch_size=B, num_generations=c["num_generations"], max_completion_length=C,
                   max_steps=c["steps"], gradient_accumulation_steps=c["grad_accum"], steps_per_generation=c["steps_per_generation"],
                   num_iterations=c["num_iterations"], beta=c["beta"], gradient_checkpointing=c["gradient_checkpointing"], bf16=amp,
                   report_to=[], logging_steps=1, save_strategy="no", use_liger_kernel=c["liger"], max_grad_norm=c["max_grad_norm"],
                   cast_lm_head_to_fp32=c["cast_lm_head_to_fp32"], disable_tqdm=True, **sharded.options(c), **kw)

    def full_logits(self, model, input_ids, attention_mask, keep, batch_size=None, compute_entropy=False, **unused):
        F = torch.nn.functional
        bs = batch_size or input_ids.size(0)
        lps, ents = [], []
        for s in range(0, input_ids.size(0), bs):
            ids = input_ids[s:s + bs]
            z = model(input_ids=ids, attention_mask=attention_mask[s:s + bs], logits_to_keep=keep + 1, use_cache=False).logits
            z = z[:, :-1, :]
            z = z[:, -keep:, :]
            z = z / self.temperature
            tok = ids[:, -keep:]
            if z.dtype == torch.float32:
                sel = torch.gather(z, dim=-1, index=tok.unsqueeze(-1)).squeeze(-1)
                lps.append(sel - torch.stack([torch.logsumexp(row, dim=-1) for row in z]))
            else:
                rows = []
                for row, t in zip(z, tok):
                    rows.append(F.log_softmax(row, dim=-1).gather(dim=-1, index=t.unsqueeze(-1)).squeeze(-1))
                lps.append(torch.stack(rows))
            if compute_entropy:
                with torch.no_grad():
                    e = []
                    for ch in z.reshape(-1, z.shape[-1]).split(128, dim=0):
                        lp = F.log_softmax(ch, dim=-1)
                        e.append(-(torch.exp(lp) * lp).sum(-1))
                    ents.append(torch.cat(e, dim=0).reshape(z.shape[:-1]))
        return torch.cat(lps, dim=0), torch.cat(ents, dim=0) if compute_entropy else None, None

    class Trainer(GRPOTrainer):                    # the same methods, with the phase noted
        def _generate_single_turn(self, prompt_ids, *r, **k):
            with ph.within("generate"):
                ids, lp = super()._generate_single_turn(prompt_ids, *r, **k)
            if stub: ids = [[65] * C for _ in prompt_ids]
            return ids, lp
        def _calculate_rewards(self, *r, **k):
            with ph.within("reward"): return super()._calculate_rewards(*r, **k)
        def _get_per_token_logps_and_entropies(self, *r, **k):
            fn = full_logits if c["logprob"] == "full_logits" else super()._get_per_token_logps_and_entropies
            if fn is full_logits: r = (self,) + r
            if torch.is_grad_enabled(): return fn(*r, **k)
            with ph.within("logps"): return fn(*r, **k)
        def _generate_and_score_completions(self, *r, **k):
            with ph.within("prepare"): return super()._generate_and_score_completions(*r, **k)
        def _compute_loss(self, *r, **k):
            with ph.within("forward"): return super()._compute_loss(*r, **k)
    t = Trainer(model=model, reward_funcs=reward, args=a, train_dataset=ds, processing_class=tok, peft_config=peft_config)
    info["trainable_params"] = count(t.model)[1]
    info["param_count_with_adapters"] = count(t.model)[0]
    info["optim"] = str(a.optim)
    ph.mark(list(t.model.parameters()), "parameter")
    info["after_load_bytes"] = torch.cuda.memory_allocated()
    acc = t.accelerator
    ob, oc = acc.backward, acc.clip_grad_norm_
    def backward(*r, **k):
        engine = acc.deepspeed_engine_wrapped.engine if t.is_deepspeed_enabled else None
        if engine is not None and not hasattr(engine, "noted_step"):
            engine.noted_step = engine.step
            def engine_step(*r, **k):
                with ph.within("optimizer"): return engine.noted_step(*r, **k)
            engine.step = engine_step
        with ph.within("backward"): ob(*r, **k)
        if engine is not None and acc.sync_gradients: ph.set("between", ph.step + 1)       # the engine has stepped
        ph.mark([p.grad for p in t.model.parameters() if p.grad is not None], "gradient")
    def clip(*r, **k):
        with ph.within("clip"): return oc(*r, **k)
    acc.backward, acc.clip_grad_norm_ = backward, clip
    oco = t.create_optimizer
    def create_optimizer(*r, **k):
        o = oco(*r, **k)
        if t.is_deepspeed_enabled: return o
        st = o.step
        def step(*r, **k):
            with ph.within("optimizer"): x = st(*r, **k)
            ph.mark([v for s in o.state.values() for v in s.values() if isinstance(v, torch.Tensor)], "optimizer_state")
            ph.set("between", ph.step + 1)
            return x
        o.step = step
        info["optimizer_class"] = type(o).__name__ + "".join(f" {f}" for f in ("foreach", "fused") if o.defaults.get(f))
        return o
    t.create_optimizer = create_optimizer
    ph.set("between", 1)
    t.train()
    ph.set("end", ph.step)
    ph.close()
    info["end_bytes"] = torch.cuda.memory_allocated()
    import shutil; shutil.rmtree(tmp, ignore_errors=True)
    return info


# ------------------------------------------------------------------------------------------------ swarm node
def run_swarm(case, ph, stub):
    import torch, torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
    c = case
    P, C, R = c["prompt_len"], c["completion_len"], c["questions"] * c["group"]
    TR = c["train_rows"] or R
    dtype = "float32" if c["precision"] in ("fp32", "amp_bf16") else "bfloat16"
    amp = c["precision"] == "amp_bf16"
    ac = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if amp else contextlib.nullcontext
    ph.set("load", 0)
    model, cfg = build(c["model"], dtype, real=not stub)
    if c["gradient_checkpointing"]: model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    n, tn = count(model)
    info = dict(param_count=n, trainable_params=tn, after_load_bytes=torch.cuda.memory_allocated())
    ph.mark(model.parameters(), "parameter")
    opt = torch.optim.Adam(model.parameters(), lr=1e-6) if c["optimizer"] == "adam" else torch.optim.AdamW(model.parameters(), lr=1e-6)
    model.train()
    cpu = torch.randint(10, cfg.vocab_size - 1, (max(R, TR), P + C))
    def token_logps(logits, ids):                    # a list of one tensor [rows, C, V] (so that no caller holds it) -> [rows, C]
        logits = logits.pop() / c["temperature"]
        if logits.dtype != torch.float32: logits = logits.float()
        return -F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids.reshape(-1), reduction="none").view(ids.shape)
    for step in range(1, c["steps"] + 1):
        ph.set("generate", step)
        if c["generate"]:
            model.eval()
            gb = c["generate_rows"] or c["questions"]
            with torch.no_grad(), ac():
                for s in range(0, R, gb):
                    q = cpu[s:s + gb, :P].to("cuda")
                    out = model.generate(input_ids=q, attention_mask=torch.ones_like(q), max_new_tokens=C, do_sample=True, top_k=0, top_p=1.0,
                                         temperature=1.0, pad_token_id=0, eos_token_id=None)
                    out.cpu(); del out, q
            model.train()
        ph.set("input", step)
        ids = cpu[:TR].to("cuda")
        mask = torch.ones_like(ids)
        target = ids[:, P:]
        adv = torch.randn(TR, 1).to("cuda")
        tmask = mask[:, P:]
        ph.set("forward", step)
        with ac():
            if c["logprob"] == "chunked_head":
                h = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                def part(x, t): return token_logps([model.get_output_embeddings()(x)], t)
                k = c["rows_per_chunk"]
                lp = torch.cat([checkpoint(part, h[s:s + k, P - 1:-1], target[s:s + k], use_reentrant=False) for s in range(0, TR, k)])
                del h
            else:
                kw = {"logits_to_keep": C + 1} if c["logits_to_keep"] else {}
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **kw).logits
                logits = logits[:, :-1] if c["logits_to_keep"] else logits[:, P - 1:-1]
                if c["logprob"] == "full":
                    hold = [logits.contiguous()]
                    del logits                       # the scaled copy lives to the end of the loss, the others do not
                    lp = token_logps(hold, target.contiguous())
                else:
                    k = c["rows_per_chunk"]
                    lp = torch.cat([token_logps([logits[s:s + k]], target[s:s + k]) for s in range(0, TR, k)])
                    del logits
            old = lp.detach()
            ratio = torch.exp(lp - old)
            l = -torch.min(ratio * adv, torch.clamp(ratio, 0.8, 1.28) * adv)
            loss = (l * tmask).sum() / tmask.sum()
        ph.set("backward", step)
        loss.backward()
        ph.mark([p.grad for p in model.parameters() if p.grad is not None], "gradient")
        ph.set("optimizer", step)
        opt.step()
        ph.mark([v for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor)], "optimizer_state")
        ph.set("between", step)
        opt.zero_grad()
        if c["empty_cache"]: torch.cuda.empty_cache()
        del ids, mask, target, adv, tmask, lp, old, ratio, l, loss
    ph.set("end", c["steps"]); ph.close()
    info["end_bytes"] = torch.cuda.memory_allocated()
    return info


RUN = {"trl_grpo": run_trl, "swarm_node": run_swarm}


def measure(case, mode, trace=True, run=None):
    import torch
    stub = mode == "stub"
    if stub: patch_stub(case.get("padded", False))
    run = run or RUN[case["kind"]]
    torch.manual_seed(0)
    torch.cuda.init()
    t0 = time.time(); err = None; info = {}
    ph = Phases()
    try: info = run(case, ph, stub)
    except torch.OutOfMemoryError as e: ph.close(); err = str(e)[:300]
    lab = max(ph.peaks, key=lambda k: ph.peaks[k])
    s = dict(peak_allocated_bytes=max(ph.peaks.values()), peak_phase=lab, peak_reserved_bytes=max(ph.reserved.values()), peak_per_phase=ph.peaks,
             reserved_per_phase=ph.reserved, phase_start_bytes=ph.start, num_alloc_retries=torch.cuda.memory_stats().get("num_alloc_retries", 0), oom=err,
             wall_seconds=round(time.time() - t0, 2), **info)
    return s


def traced(case, mode, run=None):
    import torch
    stub = mode == "stub"
    if stub: patch_stub(case.get("padded", False))
    run = run or RUN[case["kind"]]
    torch.manual_seed(0); torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20_000_000)
    ph = Phases(traced=True)
    run(case, ph, stub)
    seen = max(ph.peaks.values())
    peak, by, top, at, last = analyse_trace(ph)
    return dict(traced_peak_bytes=seen, requested_peak_bytes=peak, bytes_at_peak=by, largest_at_peak=top, traced_peak_phase=at, last_allocation_at_peak=last)


def forked(fn, timeout):
    """fn() in a forked child -> (result, error text)."""
    import tempfile
    tmp = tempfile.mktemp()
    sys.stdout.flush(); sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            fd = os.open(tmp + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.dup2(fd, 2)
            fd = os.open(os.devnull, os.O_WRONLY); os.dup2(fd, 1)
            json.dump(fn(), open(tmp, "w")); code = 0
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            sys.stderr.flush(); os._exit(code)
    t = time.time(); status = None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: break
        if time.time() - t > timeout:
            os.kill(pid, 9); os.waitpid(pid, 0); status = -1; break
        time.sleep(0.02)
    if status == 0: r, e = json.load(open(tmp)), None
    else: r, e = None, "timeout" if status == -1 else open(tmp + ".err").read()[-2500:]
    for f in (tmp, tmp + ".err"):
        if os.path.exists(f): os.remove(f)
    return r, e


def main(full=full_case, run_of=lambda c: RUN[c["kind"]], warm=None, extra_versions=()):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    g = ap.add_mutually_exclusive_group(required=True)
    for m in ("stub", "real"): g.add_argument("--" + m, dest="mode", action="store_const", const=m)
    ap.add_argument("--cases", required=True, help="JSON file with a list of cases; each runs in a forked child")
    ap.add_argument("--only", help="comma-separated ids"); ap.add_argument("--out")
    ap.add_argument("--no-trace", action="store_true", help="counters only")
    ap.add_argument("--lib", default=os.environ.get("TONNAGE_PHANTOM_LIBRARY", "libtonnage_phantom.so"))
    ap.add_argument("--timeout", type=int, default=300); ap.add_argument("--skip-done", action="store_true")
    args = ap.parse_args()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if args.mode == "stub" and os.path.abspath(args.lib) not in os.environ.get("LD_PRELOAD", "").split(":"):
        env = dict(os.environ, LD_PRELOAD=os.path.abspath(args.lib), TORCH_CUDNN_SDPA_DEPRIORITIZED="1")
        os.execve(sys.executable, [sys.executable] + sys.argv, env)
    warnings.filterwarnings("ignore")
    cases = [full(c) for c in json.load(open(args.cases))]
    if args.only: cases = [c for c in cases if c["id"] in args.only.split(",")]
    import torch, transformers, transformers.masking_utils, transformers.generation.utils, transformers.modeling_utils  # noqa: shared by the children
    if warm: warm(cases)
    elif any(c["kind"] == "trl_grpo" for c in cases):
        import trl.trainer.grpo_trainer, datasets, peft  # noqa
        import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa
    res = json.load(open(args.out)) if args.out and os.path.exists(args.out) else {}
    ver = dict(torch=torch.__version__, transformers=transformers.__version__)
    import importlib.metadata as im
    for p in ("trl", "peft", "accelerate", "liger-kernel") if not extra_versions else extra_versions:
        try: ver[p] = im.version(p)
        except Exception: pass
    for c in cases:
        if args.skip_done and "error" not in res.get(c["id"], {"error": 1}): continue
        t = time.time()
        r, e = forked(lambda: measure(c, args.mode, run=run_of(c)), args.timeout)
        if r is not None and not args.no_trace and not r["oom"]:
            r2, e2 = forked(lambda: traced(c, args.mode, run=run_of(c)), args.timeout * 2)
            if r2: r.update(r2)
            else: r["trace_error"] = e2[-600:]
        if r is None: r = {"error": e}
        r = dict(id=c["id"], mode=args.mode, versions=ver, case=c, **r, process_seconds=round(time.time() - t, 1))
        res[c["id"]] = r
        M = lambda x: round(x / 2**20, 1) if x else x
        print(c["id"], M(r.get("peak_allocated_bytes")), M(r.get("peak_reserved_bytes")), r.get("peak_phase"), "traced", M(r.get("traced_peak_bytes")), r["process_seconds"], (r.get("error") or r.get("trace_error") or "")[-900:], flush=True)
        if args.out: json.dump(res, open(args.out, "w"), indent=1)


if __name__ == "__main__":
    main()
