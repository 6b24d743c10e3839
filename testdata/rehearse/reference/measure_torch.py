#!/usr/bin/env python3
"""Measure the GPU memory of one PyTorch + Hugging Face training step, with or without a GPU.

Three ways to run the *same* step (the code between "THE STEP" markers is shared by all of them):

  --real   on the CUDA device of this machine; reads torch.cuda's own peak counters, the driver's view
           (torch.cuda.mem_get_info; outside_allocator_bytes = context, modules, libraries) and the allocator's trace.
           Set TORCH_CUDNN_SDPA_DEPRIORITIZED=1 to get flash instead of cuDNN attention on Hopper, as --stub does.
  --stub   the very same code path as --real, on a machine without a GPU: the program re-executes itself
           with the phantom library (crates/phantom) LD_PRELOADed.  PyTorch's real dispatcher,
           CUDA host code, autograd engine and CUDACachingAllocator run; kernels do nothing; cudaMalloc
           returns untouched address space.  Sees every temporary inside an op and the cuBLAS workspace.
  --fake   FakeTensorMode with fake 'cuda' tensors: only what the Python dispatcher can see (the outputs of
           aten ops); every storage is an event.  Holds no memory at all.  In a CUDA build of torch the autograd
           engine wants a device to exist: a real one, or the same stub (used when --lib exists).

A case is a JSON object; see DEFAULTS below for the fields.  Examples:
  measure_torch.py --fake  --case case.json
  measure_torch.py --stub  --lib libtonnage_phantom.so --cases cases.json --only gpt2_small_bf16_sdpa --out out.json
  measure_torch.py --real  --cases cases.json --out real.json      (one forked child per case)
  measure_torch.py --stub  --case case.json --timeline t.jsonl.gz

Sizes are bytes.  --real/--stub: peak_allocated_bytes is torch.cuda.max_memory_allocated(), i.e. the sum of the
*block* sizes in use: the request rounded up to 512, plus, for blocks > 1 MiB, a remainder of at most 1 MiB that the
allocator did not split off.  rounded512_peak_bytes (and --fake's peak_allocated_bytes) is the sum of the requests
rounded up to 512 only.  "reserved" is what the caching allocator took from the driver.

Data-dependent host decisions.  Without data (--fake, --stub) four tests in transformers that read device
values cannot be answered; they are answered as they come out for unpadded, unpacked batches, after running
the same ops: find_packed_sequence_indices -> None, fast_all(mask) -> True, the mask of layers with linear attention
is None, generate() runs to its full length.
"""
import argparse, copy, gc, gzip, json, os, sys, time, warnings, weakref, contextlib, math

DEFAULTS = dict(
    id="case",
    model={"family": "gpt2"},      # family = HF model_type; the rest = fields of its config class
    task="causal_lm",              # causal_lm | masked_lm | inference_forward | generate
    micro_batch=1, seq_len=128,
    precision="fp32",              # fp32 | bf16 (bf16 weights) | amp_bf16 | amp_fp16 (fp32 weights; fp16 adds GradScaler)
    attn="sdpa",                   # sdpa | eager
    gradient_checkpointing=False,  # HF layer checkpointing, use_reentrant=False
    optimizer="adamw",             # adamw (foreach) | adamw_fused | adamw_forloop | sgd | sgd_momentum | adafactor | those of one object in
                                   # testdata/optimizers/measure.py; of compiled ones the second run counts, with Inductor's cache kept
    optim_args="", optim_target_modules=[],   # transformers', of GaLore and APOLLO; [] is all linear layers; SOAP's arguments
    optimizer_in_backward=False,   # an optimizer for each parameter steps when its gradient is there (register_post_accumulate_grad_hook)
    ema=None,                      # averaged_model | averaged_model_cpu (torch's AveragedModel) | ema_model | ema_model_foreach (diffusers' EMAModel)
    grad_accum=1,
    zero_grad_set_to_none=True,
    clip_grad_norm=None,
    lora=None,                     # {"r": 16, "alpha": 32, "dropout": 0.0, "targets": ["q_proj", ...]; use_dora, modules_to_save}
    use_cache=False,               # pass use_cache to forward (HF Trainer: False)
    keep_outputs=False,            # True: the model output (logits) stays referenced during backward
    train_mode=True,               # model.train(): dropout active as in the config
    logits_to_keep=None,           # inference_forward only
    max_new_tokens=None,           # generate only
    padded=False,                  # masks are passed, and made as for rows of unequal length (--fake, --stub); sizes are as without
    steps=2,                       # optimizer steps (state appears in step 1, steady peak in step 2)
    fp32_matmul="highest",         # torch.set_float32_matmul_precision
)

# The phantom's devices by --arch: an H200, and an A100's compute capability and multiprocessors with an H200's memory.
DEVICES = {"sm90": "name=NVIDIA H200,total=150754820096,cc=9.0,sms=132", "sm80": "name=NVIDIA A100,total=150754820096,cc=8.0,sms=108"}

DT = {"fp32": "float32", "bf16": "bfloat16", "amp_bf16": "float32", "amp_fp16": "float32"}


def full_case(c):
    bad = set(c) - set(DEFAULTS) - {"note"}
    if bad:
        raise SystemExit(f"unknown case fields: {sorted(bad)}")
    d = copy.deepcopy(DEFAULTS); d.update(c); return d


# ------------------------------------------------------------------------------------------------
# Tracker: every storage seen by the dispatcher, for fake and for real tensors
# ------------------------------------------------------------------------------------------------
class Rec:
    __slots__ = ("sid", "nbytes", "op", "opidx", "phase", "step", "fqn", "cat", "free", "ptr", "pos", "ref", "recompute", "from_param")


def make_tracker():
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Tracker(TorchDispatchMode):
        def __init__(self, metadata=False):
            super().__init__()
            self.live = {}             # storage address -> Rec
            self.events = []           # ("a"|"f", Rec) in program order
            self.recs = []
            self.phase, self.step = "load", 0
            self.stack = []            # module FQNs
            self.seq_fqn = {}          # autograd sequence number -> FQN
            self.opidx, self.opname = 0, "-"
            self.ops = []              # opidx -> (op, phase, step, fqn, recompute)
            self.metadata, self.fake = metadata, False
            self.opcount = {}
            self.param_keys = set()
            self.cur = torch._C._autograd._get_sequence_nr if hasattr(torch._C._autograd, "_get_sequence_nr") else None

        def fqn(self):
            if self.stack:
                return self.stack[-1], self.phase == "backward"
            if self.phase == "backward":
                n = torch._C._current_autograd_node()
                if n is not None:
                    return self.seq_fqn.get(n._sequence_nr(), n.name()), False
            return "", False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            fq, rc = self.fqn()
            name = str(func).replace("aten.", "", 1)
            if self.fake and name == "_local_scalar_dense.default":   # a host read of device data: there is none
                return 1.0 if args[0].is_floating_point() else False if args[0].dtype == torch.bool else 0
            self.opidx += 1
            idx = self.opidx
            self.ops.append((name, self.phase, self.step, fq, rc))
            self.opcount[name] = self.opcount.get(name, 0) + 1
            if self.cur is not None and self.stack and torch.is_grad_enabled():
                self.seq_fqn[self.cur() - 1] = self.stack[-1]
            if self.metadata:
                torch.cuda.memory._set_memory_metadata(str(idx))
            out = func(*args, **kwargs)
            if self.metadata:
                torch.cuda.memory._set_memory_metadata("")
            src_param = False
            if name.startswith("_to_copy") and args and isinstance(args[0], torch.Tensor):
                try:
                    src_param = args[0].untyped_storage()._cdata in self.param_keys
                except Exception:
                    pass
            for t in tree_leaves(out):
                if isinstance(t, torch.Tensor) and t.device.type == "cuda":
                    self.track(t, name, idx, fq, rc, src_param)
            return out

        def track(self, t, name, idx, fq, rc=False, src_param=False, cat=None):
            st = t.untyped_storage()
            k = st._cdata
            r = self.live.get(k)
            if r is not None and r.free is None:
                return r
            nb = st.nbytes()
            if nb == 0:
                return None
            r = Rec(); r.sid = len(self.recs); r.nbytes = nb; r.op = name; r.opidx = idx; r.phase = self.phase
            r.step = self.step; r.fqn = fq; r.cat = cat; r.free = None; r.recompute = rc; r.from_param = src_param
            r.ptr = None if not self.metadata else st.data_ptr()
            r.pos = len(self.events)
            self.recs.append(r); self.events.append(("a", r)); self.live[k] = r
            def cb(_, r=r, k=k, self=self):
                r.free = len(self.events); self.events.append(("f", r))
                if self.live.get(k) is r: del self.live[k]
            r.ref = weakref.ref(st, cb)
            return r

        def rec_of(self, t):
            return self.live.get(t.untyped_storage()._cdata)

        def mark(self, t, cat):
            r = self.rec_of(t)
            if r is not None: r.cat = cat

    return Tracker


def install_module_hooks(tr):
    import torch.nn.modules.module as M
    names = {}
    def reg(model):
        for n, m in model.named_modules(): names[m] = n or "<model>"
    def pre(m, a): tr.stack.append(names.get(m, type(m).__name__))
    def post(m, a, o):
        if tr.stack: tr.stack.pop()
    h1 = M.register_module_forward_pre_hook(pre)
    h2 = M.register_module_forward_hook(post, always_call=True)
    return reg, lambda: (h1.remove(), h2.remove())


# ------------------------------------------------------------------------------------------------
# patches
# ------------------------------------------------------------------------------------------------
def patch_data_dependence(max_new, padded=False):
    """Answer the host reads of device data that cannot be answered without data (--fake, --stub)."""
    import torch, transformers.masking_utils as mu
    def find_packed(position_ids):
        first = position_ids[:, :1] - 1
        d = torch.diff(position_ids, prepend=first, dim=-1)
        m = (d != 1).cumsum(-1)
        (m[:, -1] == 0).all()
        return None
    mu.find_packed_sequence_indices = find_packed
    def fast_all(t):
        t.sum() == t.numel()
        return not padded
    mu.fast_all = fast_all
    def create_recurrent_attention_mask(config, inputs_embeds, attention_mask, past_key_values=None, **kwargs):
        if attention_mask is None or inputs_embeds.shape[1] == 1: return None
        torch.all(attention_mask == 1)
        return attention_mask[:, -inputs_embeds.shape[1]:].contiguous() if padded else None
    mu.create_recurrent_attention_mask = create_recurrent_attention_mask   # modeling files import it after this
    mu.is_tracing = lambda t=None: False
    import transformers.generation.utils as gu
    if max_new:
        count = [0]
        def unfinished(self, this_peer_finished, synced_gpus, device):
            count[0] += 1
            return count[0] <= max_new
        gu.GenerationMixin._has_unfinished_sequences = unfinished
        def reset(): count[0] = 0
        return reset
    return lambda: None


def patch_fake(case, arch):
    """Make PyTorch accept fake CUDA tensors where it asks for a device or for data."""
    import torch, torch.optim.adam as adam, torch.optim.optimizer as oo
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    import torch.amp.grad_scaler as gs, torch.amp.autocast_mode as am
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    gs.torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    gs.amp_definitely_not_available = lambda: False
    for mod in ("adam", "adamw", "_adafactor", "sgd", "adagrad"):
        m = __import__("torch.optim." + mod, fromlist=["x"])
        if hasattr(m, "_get_value"): m._get_value = lambda x: 1.0 if isinstance(x, torch.Tensor) else x
    gs.GradScaler._maybe_opt_step = lambda self, optimizer, optimizer_state, *a, **k: optimizer.step(*a, **k)
    patch_module_apply()
    if not torch.cuda.is_available(): install_sdpa(arch)   # else torch's own _fused_sdp_choice decides


def install_sdpa(arch):
    """scaled_dot_product_attention with the kernel a GPU of this architecture would choose (torch 2.11 rules,
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), spelled with the aten ops the C++ composite calls."""
    import torch
    A = torch.ops.aten
    def choice(q, k, v, mask, p, causal, gqa):
        half = q.dtype in (torch.float16, torch.bfloat16)
        same = q.shape[1] == k.shape[1] == v.shape[1]
        D = q.shape[-1]
        if q.dim() == 4 and half and mask is None and D <= 256 and D == v.shape[-1] and (same or gqa) and not (causal and q.shape[2] != k.shape[2]):
            return "flash"
        if q.dim() == 4 and same and D == k.shape[-1] and D % (8 if half else 4) == 0:
            return "efficient"
        return "math"
    def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        c = choice(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        SDPA_CHOICES[c] = SDPA_CHOICES.get(c, 0) + 1
        grad = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
        if c == "flash":
            D = query.shape[-1]; pad = (8 - D % 8) % 8
            sc = scale if scale is not None else 1.0 / math.sqrt(D)
            if pad:
                query, key, value = (torch.nn.functional.pad(t, (0, pad)) for t in (query, key, value))
            o = A._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=sc)[0]
            return o[..., :D] if pad else o
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            m = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = m.masked_fill_(attn_mask.logical_not(), float("-inf"))
        if c == "efficient":
            if attn_mask is not None:
                attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
                pad = (16 - attn_mask.shape[-1] % 16) % 16
                if pad:
                    n = attn_mask.shape[-1]
                    attn_mask = torch.nn.functional.pad(attn_mask, (0, pad))[..., :n]
                elif any(attn_mask.stride(i) % 16 for i in range(3)):
                    attn_mask = attn_mask.contiguous()
            return A._scaled_dot_product_efficient_attention(query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale)[0]
        return A._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]
    torch.nn.functional.scaled_dot_product_attention = sdpa


SDPA_CHOICES = {}


# ------------------------------------------------------------------------------------------------
# model
# ------------------------------------------------------------------------------------------------
def build(case):
    import torch, transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
    m = dict(case["model"]); fam = m.pop("family")
    cfg = AutoConfig.for_model(fam, **m)
    cls = AutoModelForMaskedLM if case["task"] == "masked_lm" else AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    with no_init_weights():
        model = cls.from_config(cfg, dtype=getattr(torch, DT[case["precision"]]), attn_implementation=case["attn"])
    model.tie_weights()                     # no_init_weights() skips it
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        l = case["lora"]
        model = get_peft_model(model, LoraConfig(r=l["r"], lora_alpha=l.get("alpha", 2 * l["r"]), lora_dropout=l.get("dropout", 0.0),
                                                 target_modules=l["targets"], task_type="CAUSAL_LM",
                                                 use_dora=l.get("use_dora", False), modules_to_save=l.get("modules_to_save"),
                                                 fan_in_fan_out=(fam == "gpt2")))
    if case["gradient_checkpointing"]:
        base = model
        if case["lora"]: model.enable_input_require_grads()
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train(case["train_mode"] and case["task"] in ("causal_lm", "masked_lm"))
    return model, cfg


def patch_module_apply():
    """Module._apply for fake tensors (torch's own insists on swapping them, which fails): same order, ties kept."""
    import torch
    memo = {}
    def _apply(self, fn, recurse=True):
        if recurse:
            for ch in self.children(): ch._apply(fn)
        for n, p in self._parameters.items():
            if p is None: continue
            if id(p) not in memo:
                q = fn(p.detach())
                if q.device == p.device and q.dtype == p.dtype: continue
                memo[id(p)] = (p, torch.nn.Parameter(q, requires_grad=p.requires_grad))
            self._parameters[n] = memo[id(p)][1]
        for n, b in self._buffers.items():
            if b is not None: self._buffers[n] = fn(b)
        return self
    torch.nn.Module._apply = _apply


def init_on_device(model):
    """Sane values without any device allocation (in-place only)."""
    import torch
    with torch.no_grad():
        for n, p in model.named_parameters():
            if p.dim() >= 2: p.normal_(0.0, 0.02)
            elif "bias" in n: p.zero_()
            else: p.fill_(1.0)


def make_optimizer(case, params, fake, model=None):
    import torch
    o = case["optimizer"]
    fe = True if fake else None      # FakeTensor's type defeats the default; foreach is what a GPU run gets
    if o == "adamw": return torch.optim.AdamW(params, lr=1e-5, foreach=fe)
    if o == "adamw_fused": return torch.optim.AdamW(params, lr=1e-5, fused=True)
    if o == "adamw_forloop": return torch.optim.AdamW(params, lr=1e-5, foreach=False)
    if o == "sgd": return torch.optim.SGD(params, lr=1e-5, foreach=fe)
    if o == "sgd_momentum": return torch.optim.SGD(params, lr=1e-5, momentum=0.9, foreach=fe)
    if o == "adafactor": return torch.optim.Adafactor(params, lr=1e-5)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "optimizers"))
    from measure import FUSED, LOW_RANK, build as build_optimizer, fused, low_rank
    if o in FUSED: return fused(o, model)
    if o in LOW_RANK:
        from transformers.trainer_utils import check_target_module_exists
        names = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)
                 and (not case["optim_target_modules"] or check_target_module_exists(case["optim_target_modules"], n))}
        names = {id(p) for n, p in model.named_parameters() if n.removesuffix(".weight") in names and n.endswith(".weight")}
        return low_rank(o, [p for p in params if id(p) not in names], [p for p in params if id(p) in names], case["optim_args"])
    return build_optimizer(o, params, case["optim_args"])[0]


def average_of(case, model):
    """An average of the weights, made beside the model; what the loop calls after each step of the optimizer."""
    if not case["ema"]: return lambda: None
    if case["ema"].startswith("averaged_model"):
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
        device = "cpu" if case["ema"].endswith("_cpu") else None
        averaged = AveragedModel(model, device=device, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        return lambda: averaged.update_parameters(model)
    from diffusers.training_utils import EMAModel
    shadow = EMAModel(model.parameters(), foreach=case["ema"].endswith("_foreach"))
    return lambda: shadow.step(model.parameters())


def host_batch(case, cfg):
    """The token ids of a batch; measure_encoders.py has pixels in their place where the model's rows are images."""
    import torch
    vocab = getattr(cfg, "vocab_size", None) or cfg.get_text_config().vocab_size
    return torch.randint(10, vocab - 1, (case["micro_batch"], case["seq_len"]), dtype=torch.int64)


class Hooks:
    """What a mode does at phase boundaries."""
    def phase(self, name, step): pass
    def before_backward(self, loss): pass
    def end_backward(self, model): pass
    def end_optimizer(self, opt): pass
    def loaded(self, model): pass


# ------------------------------------------------------------------------------------------------
# THE STEP
# ------------------------------------------------------------------------------------------------
def run_case(case, hooks, fake, reset_gen=lambda: None, on_model=None, want_init=False):
    import torch
    dev = torch.device("cuda")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(case["fp32_matmul"])
    hooks.phase("load", 0)
    model, cfg = build(case)
    if on_model: on_model(model)
    model.to(dev)
    if want_init: init_on_device(model)
    hooks.loaded(model)
    cpu_ids = host_batch(case, cfg)
    cpu_mask = torch.ones_like(cpu_ids)
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(case["precision"])
    ac = (lambda: torch.autocast("cuda", dtype=amp)) if amp else contextlib.nullcontext
    task = case["task"]
    n_params = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    info = dict(param_count=n_params, trainable_params=sum(p.numel() for p in model.parameters() if p.requires_grad))

    if task == "inference_forward":
        for step in (1, 2):
            hooks.phase("input", step)
            ids = cpu_ids.to(dev)
            kw = {"attention_mask": cpu_mask.to(dev)} if case["padded"] else {}
            hooks.phase("forward", step)
            if case["logits_to_keep"] is not None: kw["logits_to_keep"] = case["logits_to_keep"]
            with torch.no_grad(), ac():
                out = model(input_ids=ids, use_cache=case["use_cache"], **kw)
            hooks.phase("end", step)
            del out
        return info
    if task == "generate":
        hooks.phase("input", 1)
        ids = cpu_ids.to(dev)
        mask = torch.ones_like(ids)
        hooks.phase("generate", 1)
        reset_gen()
        with torch.no_grad(), ac():
            out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=case["max_new_tokens"],
                                 min_new_tokens=None, do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0)
        info["generated_shape"] = list(out.shape)
        hooks.phase("end", 1)
        return info

    params = [p for p in model.parameters() if p.requires_grad]
    update_average = average_of(case, model)
    if case["optimizer_in_backward"]:
        optimizers = {p: make_optimizer(case, [p], fake, model) for p in params}
        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad()
        for p in params: p.register_post_accumulate_grad_hook(step)
        opt = torch.optim.SGD([torch.zeros(1)])
    else: opt = make_optimizer(case, params, fake, model)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if case["precision"] == "amp_fp16" else None
    # (a low scale, so that on a real GPU no step is skipped for overflow: a skipped step makes no optimizer state)
    G = case["grad_accum"]
    # the loss phase: HF calls loss_function(logits, labels, ...) or F.cross_entropy inside forward
    restore = []
    base = model.get_base_model() if case["lora"] else model
    if task == "causal_lm":
        orig = base.loss_function
        def lf(*a, **k):
            hooks.phase("loss", cur[0]); r = orig(*a, **k); hooks.phase("forward_tail", cur[0]); return r
        base.loss_function = lf
    else:
        import torch.nn.functional as F
        oce = F.cross_entropy
        def ce(*a, **k):
            hooks.phase("loss", cur[0]); r = oce(*a, **k); hooks.phase("forward_tail", cur[0]); return r
        F.cross_entropy = ce; restore.append(lambda: setattr(F, "cross_entropy", oce))
    cur = [0]
    kw = {} if task == "masked_lm" else {"use_cache": case["use_cache"]}
    outputs = None
    for step in range(1, case["steps"] + 1):
        cur[0] = step
        for micro in range(G):
            hooks.phase("input", step)
            ids = cpu_ids.to(dev)
            if case["padded"]: kw["attention_mask"] = mask = cpu_mask.to(dev)
            hooks.phase("forward", step)
            with ac():
                if case["keep_outputs"]:
                    outputs = model(input_ids=ids, labels=ids, **kw)
                    loss = outputs.loss
                else:
                    loss = model(input_ids=ids, labels=ids, **kw).loss
                if G > 1: loss = loss / G
            hooks.phase("backward", step)
            hooks.before_backward(loss)
            if scaler: scaler.scale(loss).backward()
            elif hasattr(opt, "fused_backward"): opt.fused_backward(loss, 1e-5)
            else: loss.backward()
            hooks.end_backward(model)
        if case["clip_grad_norm"] is not None:
            hooks.phase("clip", step)
            if scaler: scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(params, case["clip_grad_norm"], foreach=True if fake else None)
        hooks.phase("optimizer", step)
        if scaler: scaler.step(opt); scaler.update()
        else: opt.step()
        update_average()
        hooks.end_optimizer(opt)
        hooks.phase("zero_grad", step)
        opt.zero_grad(set_to_none=case["zero_grad_set_to_none"])
    hooks.phase("end", case["steps"])
    for r in restore: r()
    info["optimizer_state_tensors"] = sum(1 for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor))
    return info
# ------------------------------------------------------------------------------------------------


class TrackHooks(Hooks):
    def __init__(self, tr, cuda):
        self.tr, self.cuda, self.boundaries = tr, cuda, []
    def phase(self, name, step):
        tr = self.tr
        if name in ("backward", "end"):
            # whatever forward/loss left alive is saved for backward (or is the result)
            for r in tr.live.values():
                if r.cat is None and r.phase in ("forward", "loss", "forward_tail", "generate") and r.step == step:
                    r.cat = "weight_cast" if r.from_param else "activation"
        tr.phase, tr.step = name, step
        self.boundaries.append((len(tr.events), name, step))
    def loaded(self, model):
        tr = self.tr
        for n, p in model.named_parameters():
            r = tr.rec_of(p) or tr.track(p, "load", 0, n)
            if r: r.cat, r.fqn = "parameter", n
            tr.param_keys.add(p.untyped_storage()._cdata)
        for n, b in model.named_buffers():
            if b.device.type == "cuda":
                r = tr.rec_of(b) or tr.track(b, "load", 0, n)
                if r: r.cat = "buffer"
    def end_backward(self, model):
        for n, p in model.named_parameters():
            if p.grad is not None:
                r = self.tr.rec_of(p.grad)
                if r: r.cat, r.fqn = "gradient", n
    def end_optimizer(self, opt):
        import torch
        for st in opt.state.values():
            for v in st.values():
                if isinstance(v, torch.Tensor) and v.device.type == "cuda": self.tr.mark(v, "optimizer_state")


class Groups:
    """Numbers every stretch of the program between two module or autograd-node boundaries, the same way in every
    pass, with hooks that change no lifetimes; the number rides on each allocator event as its metadata."""
    def __init__(self):
        self.g, self.info, self.names, self.stack = 0, [("load", 0, "", "")], {}, []
        self.phase_name, self.step, self.seq = "load", 0, []
        self.own = {}                         # module -> sizes of its own parameters
        self.marks = []                       # (group, {address: category} or "activation")
    def bump(self, where, node=""):
        import torch
        self.g += 1
        self.info.append((self.phase_name, self.step, where, node))
        torch.cuda.memory._set_memory_metadata(str(self.g))
    def attach(self, model):
        for n, m in model.named_modules(): self.names[m] = n or "<model>"
    def install(self):
        import torch, torch.nn.modules.module as M
        nr = torch._C._autograd._get_sequence_nr
        def pre(m, a):
            self.stack.append((self.names.get(m, type(m).__name__), nr() if torch.is_grad_enabled() else None))
            self.bump(self.stack[-1][0])
        def post(m, a, o):
            if not self.stack: return
            n, lo = self.stack.pop()
            if lo is not None and self.phase_name != "backward": self.seq.append((lo, nr(), n))
            self.bump(self.stack[-1][0] if self.stack else "")
        h = (M.register_module_forward_pre_hook(pre), M.register_module_forward_hook(post, always_call=True))
        return lambda: [x.remove() for x in h]
    def fqn_of(self, q):
        best = None
        for lo, hi, n in self.seq:
            if lo <= q < hi and (best is None or hi - lo < best[0]): best = (hi - lo, n)
        return best[1] if best else ""
    def nodes(self, loss):
        fq = {}
        for lo, hi, n in self.seq:            # inner modules are appended before outer ones
            for q in range(lo, hi): fq.setdefault(q, n)
        self.seq = []
        seen, todo = set(), [loss.grad_fn]
        while todo:
            n = todo.pop()
            if n is None or n in seen: continue
            seen.add(n)
            if "AccumulateGrad" not in n.name():
                def hook(_, name=n.name(), f=fq.get(n._sequence_nr(), "")): self.bump(f, name)
                n.register_prehook(hook)
            todo.extend(x[0] for x in n.next_functions)


class GroupHooks(Hooks):
    def __init__(self, gr, inner=None): self.gr, self.inner = gr, inner
    def phase(self, name, step):
        g = self.gr
        if self.inner: self.inner.phase(name, step)
        g.phase_name, g.step = name, step; g.bump(g.stack[-1][0] if g.stack else "")
        if name in ("backward", "end"): g.marks.append((g.g, "activation"))
    def _mark(self, d):
        self.gr.bump(""); self.gr.marks.append((self.gr.g, d))
    def loaded(self, model):
        if self.inner: self.inner.loaded(model)
        self.gr.own = {n: {p.numel() for p in m._parameters.values() if p is not None} for n, m in model.named_modules()}
        d = {b.data_ptr(): "buffer" for b in model.buffers()}
        d.update({p.data_ptr(): "parameter" for p in model.parameters()}); self._mark(d)
    def before_backward(self, loss): self.gr.nodes(loss)
    def end_backward(self, model):
        if self.inner: self.inner.end_backward(model)
        self._mark({p.grad.data_ptr(): "gradient" for p in model.parameters() if p.grad is not None})
    def end_optimizer(self, opt):
        import torch
        if self.inner: self.inner.end_optimizer(opt)
        self._mark({v.data_ptr(): "optimizer_state" for st in opt.state.values() for v in st.values() if isinstance(v, torch.Tensor) and v.device.type == "cuda"})


def fresh():
    """Drop the cache and the cuBLAS workspaces so that the next pass starts as the first one did."""
    import torch
    gc.collect(); torch._C._cuda_clearCublasWorkspaces(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def traced_pass(case, stub, reset, with_ops):
    """One run of the case with the allocator's trace on.  with_ops adds the dispatch mode, which names each op but
    also stops autograd from accumulating gradients in place, so its event list is only used for names."""
    import torch
    base = fresh()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=20_000_000)
    gr = Groups(); uninstall = gr.install()
    if with_ops:
        tr = make_tracker()(metadata=False)
        tr.phase_hook = None
        inner = TrackHooks(tr, cuda=True)
        reg, un2 = install_module_hooks(tr)
        ops = {}                              # "group.index" -> op
        real = tr.__torch_dispatch__
        count = [0]
        def dispatch(func, types, args=(), kwargs=None):
            count[0] += 1
            torch.cuda.memory._set_memory_metadata(f"{gr.g}.{count[0]}")
            out = real(func, types, args, kwargs)
            ops[count[0]] = (str(func).replace("aten.", "", 1), {t.untyped_storage().data_ptr() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.device.type == "cuda"})
            torch.cuda.memory._set_memory_metadata(str(gr.g))
            return out
        class Mode(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None): return dispatch(func, types, args, kwargs)
        mode = Mode()
    else:
        tr, inner, mode, reg, un2, ops = None, None, contextlib.nullcontext(), None, (lambda: None), {}
    def on_model(m):
        gr.attach(m)
        if reg: reg(m)
    with mode:
        run_case(case, GroupHooks(gr, inner), fake=False, reset_gen=reset, on_model=on_model, want_init=not stub)
        gc.collect()
    uninstall(); un2()
    torch.cuda.memory._set_memory_metadata("")
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    ev = []
    for e in trace:
        a = e["action"]
        if a not in ("alloc", "free_completed"): continue
        md = e.get("user_metadata") or ""
        g, _, o = md.partition(".")
        ev.append((a == "alloc", e["addr"], e["size"], int(g) if g.isdigit() else None, int(o) if o else None))
    return gr, ev, ops, tr, torch.cuda.max_memory_allocated() - base, torch.cuda.max_memory_reserved()


def finish_cats(tr):
    for r in tr.recs:
        if r.cat is None:
            if r.phase == "input": r.cat = "input"
            elif r.recompute: r.cat = "recompute"
            else: r.cat = "temporary"


R512 = lambda n: (n + 511) // 512 * 512


def replay(events):
    """events: iterable of (kind, key, rounded size, category, phase, step) -> peaks."""
    cur = 0; peak = 0; peak_i = -1; phases = {}
    for i, (k, key, sz, cat, ph, st) in enumerate(events):
        lab = f"{st}:{ph}"
        if lab not in phases: phases[lab] = cur     # a phase starts at the level it inherits
        cur += sz if k == "a" else -sz
        if cur > phases.get(lab, -1): phases[lab] = cur
        if cur > peak: peak, peak_i = cur, i
    return peak, peak_i, phases, cur


def summarize(events, tag=None):
    peak, pi, phases, end = replay(events)
    bycat = {}; live = {}
    for k, key, sz, cat, ph, st in events[:pi + 1]:
        if k == "a": live[key] = (sz, cat)
        else: live.pop(key, None)
    for sz, cat in live.values(): bycat[cat] = bycat.get(cat, 0) + sz
    e = events[pi]
    top = []
    if tag:
        top = [[sz, cat, tag(k)[0], tag(k)[1]] for k, (sz, cat) in sorted(live.items(), key=lambda x: -x[1][0])
               if cat not in ("parameter", "optimizer_state", "buffer")][:14]
    return dict(largest_live_at_peak=top, peak_allocated_bytes=peak, peak_event=pi, peak_phase=f"{e[5]}:{e[4]}", peak_per_phase=phases,
                bytes_by_category_at_peak=dict(sorted(bycat.items(), key=lambda x: -x[1])), end_bytes=end, n_events=len(events))


def sim_reserved(evs, **kw):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from allocator_sim import CachingAllocator
    al = CachingAllocator(**kw)
    for k, key, sz in evs:
        if k == "a": al.malloc(key, sz)
        elif k == "f": al.free(key)
        elif k == "empty": al.empty_cache()
    return al


# ---------------------------------------------------------------------------------------- fake mode
def measure_fake(case, arch, timeline=None):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    reset = patch_data_dependence(case["max_new_tokens"], case["padded"])
    patch_fake(case, arch)
    torch.autograd.set_multithreading_enabled(False)
    t0 = time.time()
    tr = make_tracker()(); tr.fake = True
    hooks = TrackHooks(tr, cuda=False)
    reg, unhook = install_module_hooks(tr)
    fm = FakeTensorMode(allow_non_fake_inputs=True)
    with fm, tr:
        info = run_case(case, hooks, fake=True, reset_gen=reset, on_model=reg)
        gc.collect()
        events = list(tr.events)
    finish_cats(tr)
    # when a free falls is the phase of the moment, not the phase of birth
    b = hooks.boundaries + [(1 << 62, "", 0)]
    evs, bi = [], 0
    for i, (k, r) in enumerate(events):
        while i >= b[bi + 1][0]: bi += 1
        evs.append((k, r.sid, R512(r.nbytes), r.cat, b[bi][1], b[bi][2]))
    s = summarize(evs, lambda sid: (tr.recs[sid].op, tr.recs[sid].fqn))
    wall = time.time() - t0
    al = sim_reserved([(e[0], e[1], tr.recs[e[1]].nbytes) for e in evs])
    s["sim_peak_reserved_bytes"] = al.peak_reserved
    s["sim_peak_allocated_bytes"] = al.peak_allocated
    alx = sim_reserved([(e[0], e[1], tr.recs[e[1]].nbytes) for e in evs], expandable=True)
    s["sim_peak_reserved_bytes_expandable"] = alx.peak_reserved
    s.update(info, wall_seconds=round(wall, 2), sdpa_choices=dict(SDPA_CHOICES))
    s["attention_ops"] = {k: v for k, v in tr.opcount.items() if "attention" in k or k.startswith("_softmax") or k.startswith("_safe_softmax")}
    s["steady_state_bytes"] = evs_end_steady(evs)
    if timeline:
        write_timeline(timeline, case, evs, lambda sid: (tr.recs[sid].op, tr.recs[sid].fqn, tr.recs[sid].nbytes), s)
    return s


def evs_end_steady(evs):
    """allocated bytes when the last zero_grad phase ends (after the last optimizer step)."""
    cur = 0; out = None
    for k, key, sz, cat, ph, st in evs:
        if ph == "end": break
        cur += sz if k == "a" else -sz
        out = cur
    return out


def write_timeline(path, case, evs, tag, summary):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with gzip.open(path, "wt", compresslevel=9) as f:
        f.write(json.dumps({"case": case, "format": "one JSON array per event: ['a', id, bytes, op, fqn, category] or ['f', id]; "
                            "['p', phase, step] when the phase changes", "summary": {k: summary[k] for k in ("peak_allocated_bytes", "peak_event", "peak_phase") if k in summary}}) + "\n")
        last = None
        for k, key, sz, cat, ph, st in evs:
            if (ph, st) != last:
                last = (ph, st); f.write(json.dumps(["p", ph, st], separators=(",", ":")) + "\n")
            if k == "a":
                op, fq, nb = tag(key)
                f.write(json.dumps(["a", key, nb, op, fq, cat], separators=(",", ":")) + "\n")
            else:
                f.write(json.dumps(["f", key], separators=(",", ":")) + "\n")


# ------------------------------------------------------------------------------- real and stub mode
class PeakHooks(Hooks):
    """Pure counters: no dispatch mode, nothing that could change lifetimes."""
    def __init__(self):
        self.name, self.step, self.peaks, self.reserved, self.at_start, self.free_min = None, 0, {}, {}, {}, None
    def phase(self, name, step):
        import torch
        if self.name is not None:
            lab = f"{self.step}:{self.name}"
            self.peaks[lab] = max(self.peaks.get(lab, 0), torch.cuda.max_memory_allocated())
            self.reserved[lab] = max(self.reserved.get(lab, 0), torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        self.name, self.step = name, step
        self.at_start[f"{step}:{name}"] = torch.cuda.memory_allocated()
    def loaded(self, model):
        import torch
        self.after_load = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())


def measure_cuda(case, mode, timeline=None, tags=True):
    import torch
    stub = mode == "stub"
    reset = patch_data_dependence(case["max_new_tokens"], case["padded"]) if stub else (lambda: None)
    torch.cuda.init()
    ctx0 = torch.cuda.mem_get_info()
    t0 = time.time()
    h = PeakHooks()
    err = None
    try:
        info = run_case(case, h, fake=False, reset_gen=reset, want_init=not stub)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as e:
        h.phase("end", h.step); err = str(e)[:300]; info = {}
    free, total = torch.cuda.mem_get_info()
    wall = time.time() - t0
    lab = max(h.peaks, key=lambda k: h.peaks[k])
    s = dict(peak_allocated_bytes=max(h.peaks.values()), peak_phase=lab, peak_reserved_bytes=max(h.reserved.values()),
             peak_per_phase=h.peaks, peak_reserved_per_phase=h.reserved, after_load_bytes=h.after_load[0],
             steady_state_bytes=h.at_start.get(f"{case['steps']}:end"), device_used_bytes=total - free,
             device_used_before_bytes=ctx0[1] - ctx0[0], device_total_bytes=total, outside_allocator_bytes=total - free - torch.cuda.memory_reserved(), wall_seconds=round(wall, 2),
             num_alloc_retries=torch.cuda.memory_stats().get("num_alloc_retries", 0), oom=err,
             device=torch.cuda.get_device_name(0), cuda=torch.version.cuda, **info)
    if not tags or err:
        return s
    # Second pass: the allocator's own trace.  Third pass: the same under a dispatch mode, for the names of the ops.
    gr, ev, _, _, traced_alloc, traced_res = traced_pass(case, stub, reset, False)
    gr2, ev2, ops, tr2, _, _ = traced_pass(case, stub, reset, True)
    same = gr.info == gr2.info
    if same: to_first = None
    else:                                      # a few paths differ under a dispatch mode: match by nth occurrence
        def keyed(info):
            n, out = {}, []
            for x in info: n[x] = n.get(x, 0) + 1; out.append((x, n[x]))
            return out
        first = {k: i for i, k in enumerate(keyed(gr.info))}
        to_first = [first.get(k) for k in keyed(gr2.info)]
    names = {}                                 # group -> [(size, op, is an op's output)]
    for alloc, addr, size, g, o in ev2:
        if alloc and g is not None:
            op, outs = ops.get(o, ("-", ())) if o else ("-", ())
            if to_first is not None: g = to_first[g]
            names.setdefault(g, []).append((size, op, addr in outs))
    evs, tags, live, sizes, birth = [], {}, {}, {}, {}
    marks, mi, sid, g = sorted(gr.marks, key=lambda m: m[0]), 0, 0, 0
    cats, used = {}, {}
    for alloc, addr, size, eg, _ in ev:
        if eg is not None: g = max(g, eg)
        while mi < len(marks) and marks[mi][0] <= g:
            m = marks[mi][1]; mi += 1
            ph, st = gr.info[marks[mi - 1][0]][:2]
            for ad, k in live.items():
                if m == "activation":
                    if cats[k] is None and birth[k][1] == st and birth[k][0] in ("forward", "loss", "forward_tail", "generate"): cats[k] = "activation"
                elif ad in m and (cats[k] is None or m[ad] in ("gradient", "optimizer_state")): cats[k] = m[ad]
        ph, st, where, node = gr.info[g]
        if alloc:
            sid += 1; live[addr] = sid; sizes[sid] = size; birth[sid] = (ph, st); cats[sid] = None
            lst, op, out = names.get(g, []), "?", None
            for j in range(used.get(g, 0), len(lst)):          # same group, same order; skip the extra accumulations
                if lst[j][0] == size: op, out = lst[j][1], lst[j][2]; used[g] = j + 1; break
            if out is False and op != "-":
                cats[sid] = "cublas_workspace" if size in (8519680, 33554432, 1048576) and "mm" in op else "op_internal"
            tags[sid] = (op, where, size, node)
            evs.append(["a", sid, R512(size), None, ph, st])
        else:
            k = live.pop(addr, None)
            if k is not None: evs.append(["f", k, R512(sizes[k]), None, ph, st])
    if case["precision"].startswith("amp"):    # autocast's half copies of weights
        for k, c in cats.items():
            op, where, size, _ = tags[k]
            if op.startswith("_to_copy") and size % 2 == 0 and size // 2 in gr.own.get(where, ()) and (c in ("activation", None)) and birth[k][0] != "load":
                cats[k] = "weight_cast"
    ended = {e[1] for e in evs if e[0] == "f"}
    for k in cats:
        if sizes[k] in (8519680, 33554432, 1048576) and k not in ended and cats[k] in (None, "activation"): cats[k] = "cublas_workspace"
        if cats[k] is None:
            ph = birth[k][0]
            cats[k] = "input" if ph == "input" else "recompute" if ph == "backward" and not tags[k][3] and tags[k][1] else "temporary"
    for e in evs: e[3] = cats[e[1]]
    t = summarize(evs, lambda k: (tags[k][0], tags[k][1] + ("|" + tags[k][3] if tags[k][3] else "")))
    s["largest_live_at_peak"] = t.pop("largest_live_at_peak")
    s["rounded512_peak_bytes"] = t["peak_allocated_bytes"]
    s["bytes_by_category_at_peak"] = t["bytes_by_category_at_peak"]
    s["n_events"] = t["n_events"]
    s["traced"] = dict(max_memory_allocated=traced_alloc, max_memory_reserved=traced_res, groups_agree=same, **{k: t[k] for k in ("peak_phase", "peak_event", "peak_per_phase", "end_bytes")})
    tot = {}
    for k, c in cats.items():
        if c in ("op_internal", "cublas_workspace"):
            d = tot.setdefault(tags[k][0], [0, 0]); d[0] += 1; d[1] = max(d[1], sizes[k])
    s["in_op_allocations"] = dict(sorted(((k, v) for k, v in tot.items()), key=lambda x: -x[1][1])[:12])
    s["attention_ops"] = {k: v for k, v in tr2.opcount.items() if "attention" in k or "softmax" in k and "log_softmax" not in k}
    raw = [(e[0], e[1], sizes[e[1]]) for e in evs]
    al = sim_reserved(raw)
    s["sim_peak_reserved_bytes"], s["sim_peak_allocated_bytes"] = al.peak_reserved, al.peak_allocated
    s["sim_peak_reserved_bytes_expandable"] = sim_reserved(raw, expandable=True).peak_reserved
    if timeline:
        write_timeline(timeline, case, evs, lambda k: (tags[k][0], tags[k][1] + ("|" + tags[k][3] if tags[k][3] else ""), sizes[k]), dict(t, peak_allocated_bytes=t["peak_allocated_bytes"]))
    return s


# ------------------------------------------------------------------------------------------- driver
def one(case, args):
    warnings.filterwarnings("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import torch, transformers
    if args.mode == "fake": s = measure_fake(case, args.arch, args.timeline)
    else: s = measure_cuda(case, args.mode, args.timeline, tags=not args.no_tags)
    s = dict(id=case["id"], mode=args.mode, torch=torch.__version__, transformers=transformers.__version__, **s)
    return s


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    g = ap.add_mutually_exclusive_group(required=True)
    for m in ("fake", "stub", "real"): g.add_argument("--" + m, dest="mode", action="store_const", const=m)
    ap.add_argument("--case", help="JSON file with one case, or the JSON itself")
    ap.add_argument("--cases", help="JSON file with a list of cases; each runs in a forked child")
    ap.add_argument("--only", help="comma-separated ids out of --cases")
    ap.add_argument("--out", help="result file (JSON object by case id); rewritten after every case")
    ap.add_argument("--timeline", help="write the event list here (.jsonl.gz); with --cases a folder")
    ap.add_argument("--no-tags", action="store_true", help="real/stub: counters only, no second, tagged pass")
    ap.add_argument("--arch", default="sm90")
    ap.add_argument("--lib", default=os.environ.get("TONNAGE_PHANTOM_LIBRARY", "libtonnage_phantom.so"), help="--stub: path of the phantom library")
    ap.add_argument("--timeout", type=int, default=900)
    ap.add_argument("--skip-done", action="store_true")
    args = ap.parse_args()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")   # an availability check must not forbid forking
    if args.mode in ("stub", "fake") and os.path.exists(args.lib) and os.path.abspath(args.lib) not in os.environ.get("LD_PRELOAD", "").split(":"):
        env = dict(os.environ, LD_PRELOAD=os.path.abspath(args.lib), TORCH_CUDNN_SDPA_DEPRIORITIZED="1", TONNAGE_PHANTOM_DEVICES=DEVICES[args.arch])
        os.execve(sys.executable, [sys.executable] + sys.argv, env)
    if args.case:
        c = json.loads(args.case) if args.case.lstrip().startswith("{") else json.load(open(args.case))
        s = one(full_case(c), args)
        js = json.dumps(s, indent=1)
        if args.out: open(args.out, "w").write(js)
        else: print(js)
        sys.stdout.flush(); os._exit(0)
    cases = [full_case(c) for c in json.load(open(args.cases))]
    os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import torch, transformers, transformers.masking_utils, transformers.generation.utils, transformers.modeling_utils  # noqa: shared by the forked children
    if any(c["lora"] for c in cases): import peft  # noqa
    if args.only: cases = [c for c in cases if c["id"] in args.only.split(",")]
    res = json.load(open(args.out)) if args.out and os.path.exists(args.out) else {}
    for c in cases:
        if args.skip_done and "error" not in res.get(c["id"], {"error": 1}): continue
        tmp = f"{args.out or 'measure'}.{os.getpid()}.tmp"
        t = time.time()
        sys.stdout.flush()
        pid = os.fork()                       # imports are shared; CUDA is first touched in the child
        if pid == 0:
            code = 1
            try:
                fd = os.open(tmp + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.dup2(fd, 2)
                if args.timeline: args.timeline = os.path.join(args.timeline, c["id"] + ".jsonl.gz")
                json.dump(one(c, args), open(tmp, "w")); code = 0
            except BaseException:
                import traceback; traceback.print_exc()
            finally:
                sys.stdout.flush(); sys.stderr.flush(); os._exit(code)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done: break
            if time.time() - t > args.timeout:
                os.kill(pid, 9); os.waitpid(pid, 0); status = -1; break
            time.sleep(0.02)
        if status == 0: r = json.load(open(tmp))
        else: r = {"id": c["id"], "error": "timeout" if status == -1 else open(tmp + ".err").read()[-1500:]}
        for f in (tmp, tmp + ".err"):
            if os.path.exists(f): os.remove(f)
        r["process_seconds"] = round(time.time() - t, 2)
        res[c["id"]] = r
        print(c["id"], r.get("peak_allocated_bytes"), r.get("peak_reserved_bytes", r.get("sim_peak_reserved_bytes")), r.get("peak_phase"), r["process_seconds"], (r.get("error") or "")[-300:], flush=True)
        if args.out: json.dump(res, open(args.out, "w"), indent=1)


if __name__ == "__main__":
    main()
